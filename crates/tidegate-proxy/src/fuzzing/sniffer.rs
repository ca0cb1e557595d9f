//! What a JSON body says, against a parser that builds the whole value.

use crate::request::sniff::Fields;
use serde_json::Value;

/// Whatever the body, there is an answer; what is taken is an object, and is read as the reference reads it.
pub fn sniffer(body: &[u8]) {
    let reference: Option<Value> = serde_json::from_slice(body).ok();
    let Ok(fields) = Fields::parse(body) else {
        // The reference counts the depth of what it builds and stops at the same 128.
        assert!(!reference.is_some_and(|v| v.is_object()), "an object was refused");
        return;
    };
    let _ = (fields.max_tokens(), fields.prompt_tokens(), fields.generates());
    // Numbers and halves of surrogates that the reference cannot hold are passed over by the sniffer, not built.
    let Some(Value::Object(object)) = reference else { return };
    for name in ["model", "stream", "user", "prompt", "messages", "max_tokens", "n", "input", "query"] {
        let theirs = object.get(name).filter(|v| !v.is_null());
        assert_eq!(fields.raw(name).is_some(), theirs.is_some(), "{name}");
        assert_eq!(fields.text(name).as_deref(), theirs.and_then(Value::as_str), "{name}");
    }
    if let Some(n) = object.get("max_tokens").and_then(Value::as_u64).filter(|n| *n <= 1000) {
        assert!(fields.max_tokens().is_some_and(|most| u64::from(most) >= n), "fewer tokens than asked for");
    }
}
