//! The JSON Schema of the config file, for editors.

use crate::affinity::KeySourceTable;
use crate::config::Config;
use crate::key::{Absent, Key, Kind, Table};
use crate::policy;
use crate::reader::Section;
use serde_json::{Map, Value, json};
use tidegate_core::breaker::registry;
use tidegate_core::descriptor::{Descriptor, Param};

/// Every scalar may come from the environment.
const ENVIRONMENT: &str = r"\$\{";
const DURATION: &str = r"^(0|([0-9._]+(ns|us|ms|s|m|h|d))+)$";
const SIZE: &str = r"^[0-9._]+ ?(B|KB|MB|GB|KiB|MiB|GiB)?$";
const PERCENT: &str = r"^[0-9._]+ ?%?$";

/// The schema, JSON Schema draft 2020-12, made from the same definitions that parse the file.
pub fn schema() -> Value {
    let mut schema = table(Config::TABLE);
    if let Value::Object(map) = &mut schema {
        map.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        map.insert("title".to_owned(), json!("Tidegate config"));
    }
    schema
}

fn table(t: &Table) -> Value {
    let properties: Map<String, Value> = t.keys.iter().map(|k| (k.name.to_owned(), key(k))).collect();
    let required: Vec<&str> = t.keys.iter().filter(|k| k.absent == Absent::Required).map(|k| k.name).collect();
    json!({
        "type": "object", "description": t.summary, "properties": properties, "required": required, "additionalProperties": false,
    })
}

fn key(key: &Key) -> Value {
    let default = match key.absent {
        Absent::Required => "Required.".to_owned(),
        Absent::Default("{}") => "Default: the defaults of its keys.".to_owned(),
        Absent::Default(text) => format!("Default: {text}."),
        Absent::Means(words) => format!("Absent: {words}."),
    };
    described(kind(&key.kind), &format!("{} {default} Example: {}", key.summary, key.example))
}

/// Adds a description, in front of one that is there already.
fn described(mut schema: Value, text: &str) -> Value {
    if let Value::Object(map) = &mut schema {
        map.insert("description".to_owned(), json!(text));
    }
    schema
}

fn pattern(p: &str) -> Value {
    json!({ "type": "string", "pattern": p })
}

fn any(mut of: Vec<Value>) -> Value {
    of.push(pattern(ENVIRONMENT));
    json!({ "anyOf": of })
}

fn with_word(mut of: Vec<Value>, word: Option<&str>) -> Value {
    of.extend(word.map(|w| json!({ "const": w })));
    any(of)
}

fn kind(kind: &Kind) -> Value {
    match *kind {
        Kind::Duration { word, .. } => with_word(vec![pattern(DURATION), json!({ "const": 0 })], word),
        Kind::Size { min, max } => {
            any(vec![pattern(SIZE), json!({ "type": "integer", "minimum": min, "maximum": max })])
        }
        Kind::Fraction { min, max, word } => {
            with_word(vec![json!({ "type": "number", "minimum": min, "maximum": max }), pattern(PERCENT)], word)
        }
        Kind::Number { min, max } => {
            any(vec![json!({ "type": "number", "minimum": min, "maximum": max }), pattern("^[0-9._]+$")])
        }
        Kind::Integer { min, max, word } => {
            with_word(vec![json!({ "type": "integer", "minimum": min, "maximum": max }), pattern("^[0-9_]+$")], word)
        }
        Kind::Choice(words) => any(vec![json!({ "enum": words })]),
        Kind::Bool => any(vec![json!({ "type": "boolean" })]),
        Kind::Address => pattern(&format!("({ENVIRONMENT}|:[0-9]+$)")),
        Kind::Url | Kind::PageUrl => pattern(&format!("({ENVIRONMENT}|^https?://)")),
        Kind::PublisherUrl => pattern(&format!("({ENVIRONMENT}|^tcp://)")),
        Kind::Path => pattern(&format!("({ENVIRONMENT}|^/)")),
        Kind::Statuses => {
            any(vec![json!({ "type": "integer", "minimum": 100, "maximum": 599 }), pattern("^[1-5](xx|[0-9]{2})")])
        }
        Kind::Reading => json!({ "type": ["number", "string"] }),
        Kind::Secret | Kind::Name | Kind::Text | Kind::Expression => json!({ "type": "string" }),
        Kind::Rate => pattern(&format!("({ENVIRONMENT}|^[0-9._]+ ?[a-z_]+ ?/ ?[0-9a-z.]+$)")),
        Kind::Globs | Kind::Texts | Kind::Digests => {
            json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" }, "minItems": 1 }] })
        }
        Kind::HeaderGlobs => {
            json!({ "type": "object", "additionalProperties": { "type": ["string", "number", "boolean"] } })
        }
        Kind::KeySource => {
            let mut table = table(KeySourceTable::TABLE);
            if let Value::Object(map) = &mut table {
                map.insert("minProperties".to_owned(), json!(1));
                map.insert("maxProperties".to_owned(), json!(1));
            }
            json!({ "anyOf": [table, { "enum": ["tenant", "prompt"] }] })
        }
        Kind::Policy => chosen_from(policy::all()),
        Kind::Breaker => chosen_from(registry::all()),
        Kind::Table(t) => table(t),
        Kind::TableOr(t, word) => json!({ "anyOf": [table(t), { "const": word }] }),
        Kind::List(t) => json!({ "type": "array", "items": table(t), "minItems": 1 }),
        Kind::Named(t) => json!({ "type": "object", "additionalProperties": table(t), "minProperties": 1 }),
    }
}

fn chosen_from(all: &[&Descriptor]) -> Value {
    let names: Vec<&str> = all.iter().map(|d| d.name).collect();
    let mut of = vec![json!({ "enum": names })];
    of.extend(all.iter().map(|d| {
        let mut properties: Map<String, Value> = d.params.iter().map(|p| (p.name.to_owned(), param(p))).collect();
        properties.insert("name".to_owned(), json!({ "const": d.name }));
        json!({
            "type": "object", "description": d.summary, "properties": properties, "required": ["name"],
            "additionalProperties": false,
        })
    }));
    json!({ "anyOf": of })
}

fn param(p: &Param) -> Value {
    let text = format!("{} Default: {}. Example: {}", p.summary, p.default, p.example);
    described(kind(&Kind::of_param(p.kind, p.unit)), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described_and_nothing_else_is_allowed() {
        let schema = schema();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["additionalProperties"], false);
        let pool = &schema["properties"]["pools"]["additionalProperties"];
        assert_eq!(pool["required"], json!(["endpoints"]));
        let interval = &pool["properties"]["health"]["properties"]["interval"];
        assert!(interval["description"].as_str().unwrap().contains("Default: 5s."));
    }
}
