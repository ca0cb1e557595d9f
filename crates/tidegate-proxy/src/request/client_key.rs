//! The key of a request: what it is hashed or kept together by.

use crate::request::sniff::Fields;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
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

/// A query or prompt, blind to case and spacing; the messages of a chat as they stand.
fn prompt(fields: &Fields<'_>) -> Option<u64> {
    let text = ["query", "prompt", "input"].iter().find_map(|n| fields.text(n));
    if let Some(text) = text {
        let normal: String = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        return Some(hash_bytes(normal.as_bytes()));
    }
    ["messages", "input", "prompt"].iter().find_map(|n| fields.raw(n)).map(|v| hash_bytes(v.as_bytes()))
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
    }
}
