//! Policies as JSON, from the descriptors that parse the config.

use serde_json::{Value as Json, json};
use tidegate_core::balance::registry;
use tidegate_core::descriptor::{Descriptor, Param, ParamKind, Value};

/// Every policy.
pub(crate) fn all() -> Vec<Json> {
    registry::all().iter().map(|d| describe(d)).collect()
}

/// One policy with its parameters: type, range, default, unit, example. Durations are in seconds; `off` and a key not set are `null`.
pub fn describe(d: &Descriptor) -> Json {
    let params: Vec<Json> = d.params.iter().map(param).collect();
    json!({ "name": d.name, "summary": d.summary, "source": d.source, "example": d.example, "params": params })
}

fn param(p: &Param) -> Json {
    let mut json = json!({ "name": p.name, "summary": p.summary, "unit": p.unit, "example": p.example });
    let kind = match p.kind {
        ParamKind::Float { min, max } => json!({ "type": "float", "min": min, "max": max }),
        ParamKind::Integer { min, max } => json!({ "type": "integer", "min": min, "max": max }),
        ParamKind::Duration { min, max, can_be_off } => {
            json!({ "type": "duration", "min": min, "max": max, "can_be_off": can_be_off })
        }
        ParamKind::Choice(words) => json!({ "type": "choice", "choices": words }),
        ParamKind::Bool => json!({ "type": "bool" }),
        ParamKind::Key => json!({ "type": "key" }),
        ParamKind::Path => json!({ "type": "path" }),
    };
    let default = match p.default {
        Value::Float(v) | Value::Duration(v) => json!(v),
        Value::Integer(v) => json!(v),
        Value::Choice(w) => json!(w),
        Value::Bool(b) => json!(b),
        Value::Off => Json::Null,
    };
    if let (Json::Object(into), Json::Object(kind)) = (&mut json, kind) {
        into.extend(kind);
        into.insert("default".to_owned(), default);
    }
    json
}
