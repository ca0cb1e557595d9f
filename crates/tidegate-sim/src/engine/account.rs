//! What every engine keeps beside its work: numbers for its requests, response times, tokens, and how it tells of itself.

use tidegate_core::time::duration_from_secs;

use super::{Admission, EngineRequest, Rejection, RequestId, ResponseTime, Status};

/// An engine's account of its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    next_id: u64,
    response_time: ResponseTime,
    prompt_tokens: u64,
    generation_tokens: u64,
}

impl Account {
    /// Empty; `expected_s` is the response time that is told until one is known.
    pub(super) fn new(expected_s: f64) -> Self {
        Self { next_id: 0, response_time: ResponseTime(expected_s), prompt_tokens: 0, generation_tokens: 0 }
    }

    /// The number of a request that is taken.
    pub(super) fn take(&mut self) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        id
    }

    /// So much of prompts is computed, or will be.
    pub(super) fn on_prompt(&mut self, tokens: u64) {
        self.prompt_tokens += tokens;
    }

    /// The same of a request's prompt.
    pub(super) fn on_request(&mut self, request: &EngineRequest) {
        self.on_prompt(u64::from(request.prompt_tokens));
    }

    /// An answer of so many tokens ended.
    pub(super) fn on_done(&mut self, took_s: f64, tokens: u32) {
        self.response_time.on_done(took_s);
        self.generation_tokens += u64::from(tokens);
    }

    /// The refusal of an engine that is full: come back after the usual response time.
    pub(super) fn overloaded(&self) -> Admission {
        let retry_after = Some(duration_from_secs(self.response_time.0));
        Admission::Rejected(Rejection { status: 503, code: "overloaded", retry_after })
    }

    /// How it stands with so many running and waiting; `full` of both are load 1.
    pub(super) fn status(&self, running: usize, waiting: usize, full: f64) -> Status {
        Status {
            load: ((running + waiting) as f64 / full.max(1.0)).min(1.0),
            response_time_s: self.response_time.0,
            running: running as u32,
            waiting: waiting as u32,
            prompt_tokens: self.prompt_tokens,
            generation_tokens: self.generation_tokens,
            ..Status::default()
        }
    }
}
