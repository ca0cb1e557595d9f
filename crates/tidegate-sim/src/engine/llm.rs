//! A language-model engine: continuous batching with chunked prefill and KV memory.
//!
//! Time passes in steps. A step decodes one token for every sequence whose prompt is computed, and spends what is left of the
//! token budget on prompts (oldest first, then new ones from the queue). With `tokens` = decoded + prompt tokens of the step and
//! `kv` = KV tokens resident when it starts, it takes
//!
//! ```text
//! t = t0 + c_lin * max(0, tokens - 64) + c_kv * kv
//! ```
//!
//! (notes on engine calibration: measured linear layers, plus one read of the KV cache.) Tokens of all sequences come out at the
//! step's end; the step that computes the last part of a prompt also gives its first token, so TTFT = waiting + its chunk steps.
//! When KV memory cannot take the next tokens, the newest sequence loses its memory and goes to the front of the queue, to compute
//! prompt and answer so far again. A step costs O(running), about a nanosecond per sequence.

use std::collections::VecDeque;

use tidegate_core::time::{Duration, Instant, duration_from_secs};

use super::{
    Admission, Detail, Emission, Emitted, EngineModel, EngineRequest, Rejection, RequestId, ResponseTime, Status,
};

/// Parameters of [`Llm`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LlmParams {
    /// Time of an empty step, seconds.
    pub t0_s: f64,
    /// Time per token of a step beyond `free_tokens`, seconds.
    pub lin_s: f64,
    /// Tokens of a step that cost nothing beyond `t0_s`.
    pub free_tokens: u32,
    /// Time per resident KV token, seconds.
    pub kv_s: f64,
    /// Most tokens a step computes, decoded and prompt together; more than `max_running`.
    pub token_budget: u32,
    /// Most sequences running at a time.
    pub max_running: u32,
    /// KV memory, tokens.
    pub kv_tokens: u64,
    /// Most requests waiting before 503 `overloaded`.
    pub max_waiting: u32,
    /// Cap on a stream's tokens per second, by making decoding steps last longer; `None`: no cap.
    pub max_tokens_per_s: Option<f64>,
}

impl LlmParams {
    /// An 8B model on one A100.
    pub const A100_8B: Self = Self {
        t0_s: 0.010,
        lin_s: 0.066e-3,
        free_tokens: 64,
        kv_s: 0.08e-6,
        token_budget: 2048,
        max_running: 256,
        kv_tokens: 430_000,
        max_waiting: 100_000,
        max_tokens_per_s: None,
    };
    /// An 8B model on one H100.
    pub const H100_8B: Self = Self { t0_s: 0.006, lin_s: 0.020e-3, kv_s: 0.05e-6, token_budget: 8192, ..Self::A100_8B };
    /// Half as fast as an A100 in everything.
    pub const HALF_A100: Self = Self { t0_s: 0.020, lin_s: 0.132e-3, kv_s: 0.16e-6, ..Self::A100_8B };

    /// The preset of that name: `a100-8b`, `h100-8b` or `half-a100`.
    pub fn preset(name: &str) -> Option<Self> {
        PRESETS.iter().find(|(n, _)| *n == name).map(|(_, p)| *p)
    }
}

/// All presets by name.
pub const PRESETS: [(&str, LlmParams); 3] =
    [("a100-8b", LlmParams::A100_8B), ("h100-8b", LlmParams::H100_8B), ("half-a100", LlmParams::HALF_A100)];

/// Share of KV memory kept free when a new sequence is admitted, so that it is not preempted at once.
const ADMIT_FREE_SHARE: f64 = 0.01;

#[derive(Clone, Debug)]
struct Sequence {
    id: RequestId,
    stream: bool,
    arrived: Instant,
    prompt: u32,
    output: u32,
    generated: u32,
    /// Tokens to compute before the next token can come out: the prompt, after a preemption also the answer so far.
    target: u32,
    /// Of these, computed or found in the prefix cache.
    computed: u32,
    /// Prompt tokens that the current step computes.
    chunk: u32,
    /// Whether the current step decodes a token.
    decodes: bool,
    /// KV tokens set aside.
    reserved: u64,
}

impl Sequence {
    fn ready(&self) -> bool {
        self.computed >= self.target
    }

    /// KV tokens in memory: what is computed of the target, and every token decoded since.
    fn resident(&self) -> u64 {
        u64::from(self.computed) + (self.reserved - u64::from(self.target))
    }
}

/// The continuous-batching engine.
#[derive(Debug)]
pub struct Llm {
    params: LlmParams,
    detail: Detail,
    running: Vec<Sequence>,
    waiting: VecDeque<Sequence>,
    step_ends: Option<Instant>,
    reserved: u64,
    next_id: u64,
    response_time: ResponseTime,
    prompt_tokens: u64,
    generation_tokens: u64,
    preemptions: u64,
}

impl Llm {
    /// An idle engine.
    pub fn new(params: LlmParams, detail: Detail) -> Self {
        Self {
            params,
            detail,
            running: Vec::new(),
            waiting: VecDeque::new(),
            step_ends: None,
            reserved: 0,
            next_id: 0,
            response_time: ResponseTime(params.t0_s),
            prompt_tokens: 0,
            generation_tokens: 0,
            preemptions: 0,
        }
    }

    fn start_step(&mut self, now: Instant) {
        let (decodes, preempted) = self.reserve_for_decoding();
        let resident: u64 = self.running.iter().map(Sequence::resident).sum();
        let mut budget = self.params.token_budget.saturating_sub(decodes).max(1);
        let mut chunks = 0;
        for s in &mut self.running {
            s.decodes = s.ready();
            s.chunk = if s.decodes { 0 } else { (s.target - s.computed).min(budget) };
            s.reserved += u64::from(s.decodes);
            budget -= s.chunk;
            chunks += s.chunk;
        }
        if !preempted {
            chunks += self.admit_waiting(budget);
        }
        let tokens = decodes + chunks;
        self.step_ends = (tokens > 0).then(|| now + self.step_time(tokens, decodes, resident));
    }

    /// Sets aside one KV token per sequence that decodes, preempting the newest while memory is short. Returns how many decode and
    /// whether any was preempted.
    fn reserve_for_decoding(&mut self) -> (u32, bool) {
        let mut decodes = self.running.iter().filter(|s| s.ready()).count() as u64;
        let mut preempted = false;
        while self.reserved + decodes > self.params.kv_tokens {
            let Some(mut s) = self.running.pop() else { break };
            decodes -= u64::from(s.ready());
            self.reserved -= s.reserved;
            s.target = s.prompt + s.generated;
            s.computed = 0;
            s.reserved = 0;
            self.waiting.push_front(s);
            self.preemptions += 1;
            preempted = true;
        }
        self.reserved += decodes;
        (decodes as u32, preempted)
    }

    /// Moves sequences from the queue into the batch while budget, places and memory last. Returns the prompt tokens they compute.
    fn admit_waiting(&mut self, mut budget: u32) -> u32 {
        let keep_free = (self.params.kv_tokens as f64 * ADMIT_FREE_SHARE) as u64;
        let mut chunks = 0;
        while budget > 0 && self.running.len() < self.params.max_running as usize {
            let Some(first) = self.waiting.front() else { break };
            let wanted = self.reserved + u64::from(first.target);
            let fits = wanted + keep_free <= self.params.kv_tokens || self.running.is_empty();
            if !fits {
                break;
            }
            let Some(mut s) = self.waiting.pop_front() else { break };
            self.reserved = wanted;
            s.reserved = u64::from(s.target);
            s.decodes = false;
            s.chunk = (s.target - s.computed).min(budget);
            budget -= s.chunk;
            chunks += s.chunk;
            self.running.push(s);
        }
        chunks
    }

    fn step_time(&self, tokens: u32, decodes: u32, resident: u64) -> Duration {
        let p = &self.params;
        let t = p.t0_s + p.lin_s * f64::from(tokens.saturating_sub(p.free_tokens)) + p.kv_s * resident as f64;
        let floor = p.max_tokens_per_s.filter(|_| decodes > 0).map_or(0.0, |rate| 1.0 / rate.max(1e-3));
        Duration::from_nanos(libm::round(duration_from_secs(1.0).as_nanos() as f64 * t.max(floor)) as u64)
    }

    fn finish_step(&mut self, at: Instant, out: &mut Vec<Emission>) {
        let every = self.detail == Detail::EveryToken;
        let (mut freed, mut done) = (0, false);
        for s in &mut self.running {
            s.computed += s.chunk;
            self.prompt_tokens += u64::from(s.chunk);
            let emits = s.decodes || (s.chunk > 0 && s.ready());
            (s.chunk, s.decodes) = (0, false);
            if !emits {
                continue;
            }
            s.generated += 1;
            self.generation_tokens += 1;
            if s.stream && (every || s.generated == 1) {
                out.push(Emission { id: s.id, at, what: Emitted::Token(s.generated) });
            }
            if s.generated >= s.output {
                out.push(Emission { id: s.id, at, what: Emitted::Done { tokens: s.generated } });
                self.response_time.on_done(at.secs_since(s.arrived));
                freed += s.reserved;
                done = true;
            }
        }
        if done {
            self.running.retain(|s| s.generated < s.output);
            self.reserved -= freed;
        }
        self.start_step(at);
    }
}

impl EngineModel for Llm {
    fn arrive(&mut self, now: Instant, request: &EngineRequest) -> Admission {
        let (prompt, output) = (request.prompt_tokens.max(1), request.output_tokens.max(1));
        if u64::from(prompt) + u64::from(output) > self.params.kv_tokens {
            return Admission::Rejected(Rejection { status: 400, code: "context_length_exceeded", retry_after: None });
        }
        if self.waiting.len() >= self.params.max_waiting as usize {
            let retry_after = Some(Duration::from_secs(1));
            return Admission::Rejected(Rejection { status: 503, code: "overloaded", retry_after });
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.waiting.push_back(Sequence {
            id,
            stream: request.stream,
            arrived: now,
            prompt,
            output,
            generated: 0,
            target: prompt,
            computed: request.cached_tokens.min(prompt - 1),
            chunk: 0,
            decodes: false,
            reserved: 0,
        });
        if self.step_ends.is_none() {
            self.start_step(now);
        }
        Admission::Accepted(id)
    }

    // Both lists are sorted by id: admission is first come first served, and a preempted sequence is older than all that wait.
    fn cancel(&mut self, _now: Instant, id: RequestId) -> bool {
        if let Ok(at) = self.running.binary_search_by_key(&id, |s| s.id) {
            self.reserved -= self.running.remove(at).reserved;
            return true;
        }
        match self.waiting.binary_search_by_key(&id, |s| s.id) {
            Ok(at) => self.waiting.remove(at).is_some(),
            Err(_) => false,
        }
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.step_ends
    }

    fn advance(&mut self, now: Instant, out: &mut Vec<Emission>) {
        while let Some(ends) = self.step_ends.filter(|ends| *ends <= now) {
            self.finish_step(ends, out);
        }
    }

    fn status_at(&self, _now: Instant) -> Status {
        let (running, waiting) = (self.running.len() as u32, self.waiting.len() as u32);
        let kv_usage = self.reserved as f64 / self.params.kv_tokens.max(1) as f64;
        let places = f64::from(running + waiting) / f64::from(self.params.max_running.max(1));
        Status {
            load: kv_usage.max(places).min(1.0),
            response_time_s: self.response_time.0,
            running,
            waiting,
            queued_tokens: self
                .running
                .iter()
                .chain(&self.waiting)
                .map(|s| u64::from(s.target - s.computed.min(s.target)))
                .sum(),
            kv_usage,
            prompt_tokens: self.prompt_tokens,
            generation_tokens: self.generation_tokens,
            preemptions: self.preemptions,
            ..Status::default()
        }
    }
}

#[cfg(test)]
mod tests;
