//! Configuration: YAML to typed, validated values, with diagnostics and a JSON Schema.
