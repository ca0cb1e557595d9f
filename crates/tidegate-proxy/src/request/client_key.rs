//! The key of a request: what it is hashed or kept together by.

use crate::request::sniff::Fields;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
use serde_json::Value;
use tidegate_config::KeySource;
use tidegate_core::hash::hash_bytes;

/// The hash of the key that `source` names, `None` if the request carries none.
/// `tenant`: hash of who asks, 0 where nobody is told apart.
pub(crate) fn find(source: &KeySource, headers: &HeaderMap, tenant: u64, fields: &Fields<'_>) -> Option<u64> {
    match source {
        KeySource::Header(name) => headers.get(name.as_str()).map(|v| hash_bytes(v.as_bytes())),
        KeySource::Cookie(name) => cookie(headers, name).map(|v| hash_bytes(v.as_bytes())),
        KeySource::Body(field) => fields.raw(field).map(|v| hash_bytes(v.as_bytes())),
        KeySource::Tenant if tenant != 0 => Some(tenant),
        // Who pays is who holds the API key.
        KeySource::Tenant => {
            let key = headers.get(AUTHORIZATION).or_else(|| headers.get("x-api-key"));
            key.map(|v| hash_bytes(v.as_bytes()))
        }
        KeySource::Prompt => prompt(fields),
    }
}

fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(';'));
    pairs.filter_map(|pair| pair.trim().split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v)
}

/// A query, prompt or chat, blind to case and spacing, and to how its JSON is laid out.
fn prompt(fields: &Fields<'_>) -> Option<u64> {
    let raw = ["query", "prompt", "input", "inputs", "messages"].iter().find_map(|n| fields.raw(n))?;
    // The body is JSON as a whole, so its parts are.
    let value: Value = serde_json::from_str(raw).ok()?;
    let mut normal = String::with_capacity(raw.len());
    write_normal(&value, &mut normal);
    Some(hash_bytes(normal.as_bytes()))
}

/// Writes `value` so that texts that read alike are alike. A list of one is what is in it.
fn write_normal(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => {
            for (k, word) in text.split_whitespace().enumerate() {
                if k > 0 {
                    into.push(' ');
                }
                into.extend(word.chars().flat_map(char::to_lowercase));
            }
        }
        Value::Array(items) if items.len() == 1 => items.iter().for_each(|item| write_normal(item, into)),
        Value::Array(items) => {
            for item in items {
                write_normal(item, into);
                into.push('\u{1}');
            }
        }
        // Members come in the order of their names.
        Value::Object(members) => {
            for (name, member) in members {
                into.push_str(name);
                into.push('\u{2}');
                write_normal(member, into);
                into.push('\u{1}');
            }
        }
        other => into.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn keys_are_found_where_they_are() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_static("a=1; session=xyz"));
        let key = |source| find(&source, &headers, 0, &Fields::default());
        assert_eq!(key(KeySource::Cookie("session".into())), Some(hash_bytes(b"xyz")));
        assert_eq!(key(KeySource::Cookie("ession".into())), None);
        assert_eq!(key(KeySource::Tenant), None);
    }

    #[test]
    fn queries_that_read_alike_are_one_key() {
        let a = Fields::parse(br#"{"query":"What  is\n Rust?"}"#).unwrap();
        let b = Fields::parse(br#"{"query":"what is rust?","top_k":3}"#).unwrap();
        assert_eq!(prompt(&a), prompt(&b));
        let key = |body: &str| prompt(&Fields::parse(body.as_bytes()).unwrap());
        let chat = key(r#"{"messages":[{"role":"user","content":"What is Rust?"},{"role":"user","content":"Say."}]}"#);
        assert_eq!(
            chat,
            key(
                r#"{ "messages": [ {"content": " what  IS rust? ", "role":"user"}, {"role":"user","content":"say."} ] }"#
            )
        );
        assert_ne!(chat, key(r#"{"messages":[{"role":"user","content":"What is Rust? Say."}]}"#));
        assert_eq!(key(r#"{"inputs":["One"]}"#), key(r#"{"input":"one "}"#));
    }
}
