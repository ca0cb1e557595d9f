//! What a decision may know of a request.

use crate::id::EndpointId;

/// A request as the shell sniffed it. Output lengths are absent on purpose: nobody knows them in advance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// Hash of the key that `consistent_hash` places on the ring; `None` if the request carries none.
    pub hash_key: Option<u64>,
    /// Hash of the session key, where the pool has session affinity.
    pub affinity_key: Option<u64>,
    /// Prompt tokens, estimated; `None` for an opaque request, which counts as one unit of work.
    pub prompt_tokens: Option<u32>,
    /// Hash of the tenant's name; 0 if there is none. A tenant that fails everywhere says little about an endpoint.
    pub tenant: u64,
    /// Route class, 0 by default: each has a breaker of its own at every endpoint, as an engine may fail one kind of work only.
    pub class: u8,
    /// Endpoints this request was already sent to. Not empty means that this is a retry.
    pub attempted: &'a [EndpointId],
}

impl Request<'_> {
    /// Work an endpoint has to do before the first token, in prompt tokens, at least 1 (notes: adaptive, section 1).
    pub fn work(&self) -> f64 {
        f64::from(self.prompt_tokens.unwrap_or(1).max(1))
    }
}
