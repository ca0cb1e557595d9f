//! What a client asked for, as every attempt sends it and a decision sees it.

use crate::request::sniff::Sniffed;
use crate::upstream::upload::Moved;
use http::{HeaderMap, HeaderValue, Method, Uri};
use std::cell::RefCell;
use std::rc::Rc;
use tidegate_config::Goals;
use tidegate_core::id::EndpointId;
use tidegate_core::request::Request;
use tidegate_core::time::Instant;

/// What is sent, whichever endpoint it goes to, and what a decision may know of it.
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: RefCell<Sniffed>,
    /// How far the body is, if it is streamed.
    pub(crate) moved: Option<Rc<Moved>>,
    /// The protocol that the client wants to go on with, such as `websocket`.
    pub(crate) upgrade: Option<HeaderValue>,
    pub(crate) hash_key: Option<u64>,
    pub(crate) affinity_key: Option<u64>,
    /// Hash of the model's name; 0 if the request names none.
    pub(crate) model: u64,
    /// Most tokens of answer it lets the engine make; 0 if it does not say.
    pub(crate) max_output: u32,
    pub(crate) prompt_tokens: Option<u32>,
    /// Chained hashes of the prompt's blocks of `block_tokens` tokens; empty where the pool has no use for them.
    pub(crate) prefix: Vec<u64>,
    pub(crate) block_tokens: u32,
    pub(crate) goals: Goals,
    pub(crate) tenant: u64,
    pub(crate) tenant_weight: f64,
    pub(crate) priority: u8,
    pub(crate) class: u8,
    /// Prompt and expected answer, in tokens; 0 if unknown.
    pub(crate) cost: f64,
    pub(crate) deadline: Option<Instant>,
}

impl Asked {
    /// Whether another attempt could send the body.
    pub(crate) fn is_replayable(&self) -> bool {
        self.body.borrow().is_replayable()
    }

    /// The request for a decision; a retry names what it attempted, and how long it may wait.
    pub(crate) fn request<'a>(&'a self, attempted: &'a [EndpointId], deadline: Option<Instant>) -> Request<'a> {
        Request {
            hash_key: self.hash_key,
            affinity_key: self.affinity_key,
            model: self.model,
            max_output: self.max_output,
            prompt_tokens: self.prompt_tokens,
            prefix: &self.prefix,
            block_tokens: self.block_tokens,
            ttft_goal: self.goals.ttft,
            tpot_goal: self.goals.tpot,
            tenant: self.tenant,
            class: self.class,
            tenant_weight: self.tenant_weight,
            priority: self.priority,
            cost: self.cost,
            deadline,
            attempted,
            ..Request::default()
        }
    }
}
