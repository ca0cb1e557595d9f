//! Metrics registry, request record, log set-up.
