//! What a decision may know of a request.

use crate::id::EndpointId;
use crate::time::{Duration, Instant};

/// A request as the shell sniffed it. Output lengths are absent on purpose: nobody knows them in advance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// Hash of the key that `consistent_hash` places on the ring; `None` if the request carries none.
    pub hash_key: Option<u64>,
    /// Hash of the session key, where the pool has session affinity.
    pub affinity_key: Option<u64>,
    /// Hash of the model's name (an adapter's, where it asks for one); 0 if it names none.
    pub model: u64,
    /// Most tokens of answer it lets the endpoint make; 0 if it does not say.
    pub max_output: u32,
    /// Prompt tokens, estimated; `None` for an opaque request, which counts as one unit of work.
    pub prompt_tokens: Option<u32>,
    /// Chained hashes of the prompt's complete blocks, the first block's first: equal values mean equal prompts up to there. Empty where
    /// nobody looked.
    pub prefix: &'a [u64],
    /// Tokens of one such block.
    pub block_tokens: u32,
    /// Prompt tokens that endpoints are expected to have computed already, by endpoint, greatest id last; the pool fills it in.
    pub matched: &'a [(EndpointId, f64)],
    /// Prompt tokens that need not count where they are not computed yet, as many other requests bring the same; the pool fills it in.
    pub shared: f64,
    /// Seconds until an endpoint could begin, as it has to load something first, by endpoint, greatest id last; the pool fills it in.
    pub starts: &'a [(EndpointId, f64)],
    /// Longest time to the first token that is of use to who asks, counted from the decision; `None`: any.
    pub ttft_goal: Option<Duration>,
    /// Longest mean time between two tokens that is of use; `None`: any.
    pub tpot_goal: Option<Duration>,
    /// Hash of the tenant who asks; 0 where nobody is told apart.
    pub tenant: u64,
    /// Route class, by which breakers judge apart where that is asked for.
    pub class: u8,
    /// The tenant's share against other tenants while both wait; 0 counts as 1.
    pub tenant_weight: f64,
    /// Priority class in the pool's queue: 0 is the highest.
    pub priority: u8,
    /// What it costs the pool in tokens, prompt and expected answer, for fair shares of the queue; 0 counts as [`Request::work`].
    pub cost: f64,
    /// When an answer is of no use any more; it waits no longer than that.
    pub deadline: Option<Instant>,
    /// Endpoints this request was already sent to. Not empty means that this is a retry.
    pub attempted: &'a [EndpointId],
}

impl Request<'_> {
    /// Work an endpoint has to do before the first token, in prompt tokens, at least 1 (notes: adaptive, section 1).
    pub fn work(&self) -> f64 {
        f64::from(self.prompt_tokens.unwrap_or(1).max(1))
    }

    /// The same at endpoint `id`, less what it is expected to have in its cache.
    pub fn work_at(&self, id: EndpointId) -> f64 {
        (self.work() - self.matched_at(id)).max(1.0)
    }

    /// What of [`Request::work_at`] counts where `id` is compared with others: tokens that many requests share are computed there once for all.
    pub fn cost_at(&self, id: EndpointId) -> f64 {
        (self.work() - self.matched_at(id).max(self.shared)).max(1.0)
    }

    /// Prompt tokens that `id` is expected to have computed already.
    pub fn matched_at(&self, id: EndpointId) -> f64 {
        self.matched.binary_search_by_key(&id, |m| m.0).map_or(0.0, |i| self.matched[i].1)
    }

    /// Seconds until `id` could begin, beside its queue.
    pub fn start_s(&self, id: EndpointId) -> f64 {
        self.starts.binary_search_by_key(&id, |s| s.0).map_or(0.0, |i| self.starts[i].1)
    }

    /// The tenant's weight against others, `> 0`.
    pub fn weight(&self) -> f64 {
        if self.tenant_weight > 0.0 { self.tenant_weight } else { 1.0 }
    }

    /// Tokens it costs the pool, `> 0`.
    pub fn cost(&self) -> f64 {
        if self.cost > 0.0 { self.cost } else { self.work() }
    }
}
