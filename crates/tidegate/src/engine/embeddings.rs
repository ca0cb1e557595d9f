//! `POST /v1/embeddings`: vectors that depend on nothing but the text, of length 1.

use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_core::hash::hash_bytes;
use tidegate_core::rng::Rng;

use super::openai::estimate_tokens;

/// Dimensions where the request does not say.
const DIMENSIONS: u32 = 64;
/// Most dimensions and most inputs of a request.
const MAX_DIMENSIONS: u32 = 4096;
const MAX_INPUTS: usize = 2048;

#[derive(Debug, Deserialize)]
pub(super) struct EmbeddingRequest {
    #[serde(default)]
    pub(super) model: Option<String>,
    input: Value,
    #[serde(default)]
    encoding_format: Option<String>,
    #[serde(default)]
    dimensions: Option<u32>,
}

/// A request that was checked.
pub(super) struct Inputs {
    texts: Vec<String>,
    base64: bool,
    dimensions: u32,
}

impl EmbeddingRequest {
    /// The inputs; `Err` says what is wrong.
    pub(super) fn inputs(&self) -> Result<Inputs, &'static str> {
        let texts: Vec<String> = match &self.input {
            Value::String(s) => vec![s.clone()],
            Value::Array(list) if !list.is_empty() && list.iter().all(Value::is_number) => vec![self.input.to_string()],
            Value::Array(list) => {
                list.iter().map(|x| x.as_str().map_or_else(|| x.to_string(), str::to_owned)).collect()
            }
            _ => return Err("input: expected a text or a list of texts"),
        };
        if texts.is_empty() || texts.len() > MAX_INPUTS {
            return Err("input: expected 1 to 2048 texts");
        }
        let dimensions = self.dimensions.unwrap_or(DIMENSIONS);
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err("dimensions: expected 1 to 4096");
        }
        let base64 = match self.encoding_format.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err("encoding_format: expected float or base64"),
        };
        Ok(Inputs { texts, base64, dimensions })
    }
}

impl Inputs {
    /// Tokens of all texts.
    pub(super) fn prompt_tokens(&self) -> u32 {
        self.texts.iter().map(|t| estimate_tokens(t)).fold(0, u32::saturating_add)
    }

    /// The response body.
    pub(super) fn answer(&self, model: &str) -> Value {
        let data: Vec<Value> = self.texts.iter().enumerate().map(|(i, text)| self.one(i, text)).collect();
        let tokens = self.prompt_tokens();
        json!({"object": "list", "data": data, "model": model,
               "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
    }

    fn one(&self, index: usize, text: &str) -> Value {
        let vector = embed(text, self.dimensions);
        let embedding = if self.base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            Value::from(base64(&bytes))
        } else {
            Value::from(vector)
        };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    }
}

fn embed(text: &str, dimensions: u32) -> Vec<f32> {
    let mut rng = Rng::new(hash_bytes(text.as_bytes()));
    let raw: Vec<f64> = (0..dimensions).map(|_| rng.normal(0.0, 1.0)).collect();
    let norm = raw.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-12);
    raw.iter().map(|x| (x / norm) as f32).collect()
}

/// Base 64 with padding (RFC 4648): one use, not worth a dependency.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |i: usize| group.get(i).map_or(0, |b| u32::from(*b));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let c = ALPHABET[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= group.len() { char::from(c) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_the_rfc() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn equal_texts_give_equal_unit_vectors() {
        let request: EmbeddingRequest =
            serde_json::from_str(r#"{"input":["a","b","a"],"dimensions":8,"encoding_format":"float"}"#).unwrap();
        let v = request.inputs().unwrap().answer("m");
        assert_eq!(v["data"][0]["embedding"], v["data"][2]["embedding"]);
        assert_ne!(v["data"][0]["embedding"], v["data"][1]["embedding"]);
        let norm: f64 = v["data"][0]["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap().powi(2)).sum();
        assert!((norm - 1.0).abs() < 1e-6);
        assert_eq!(v["usage"]["prompt_tokens"], 3);
    }

    #[test]
    fn says_what_is_wrong() {
        let check = |text| serde_json::from_str::<EmbeddingRequest>(text).unwrap().inputs().err();
        assert!(check(r#"{"input":7}"#).is_some_and(|e| e.starts_with("input")));
        assert!(check(r#"{"input":"a","encoding_format":"hex"}"#).is_some_and(|e| e.starts_with("encoding_format")));
        assert!(check(r#"{"input":[]}"#).is_some());
        assert!(check(r#"{"input":[1,2]}"#).is_none());
    }
}
