//! A live engine's state: the model, who waits for what, the fault that is on.
//!
//! One engine lives on one thread, so its state is shared by `Rc` and cells; no borrow is held across an await. An answer is two
//! counters and a waker: the model says how many tokens there are, the body renders what it has not sent yet. So a slow client
//! costs no memory, and a burst of tokens leaves in one write.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};

use tidegate_core::hash::FixedMap;
use tidegate_core::rng::Rng;
use tidegate_core::time::Instant;
use tidegate_sim::engine::{
    Admission, Detail, Emission, Emitted, Engine, EngineModel, EngineRequest, PromptCache, Rejection, RequestId, Status,
};
use tidegate_sim::fault::{Fault, FaultKind};
use tokio::sync::Notify;

use super::Config;
use super::clock::{Clock, unix_s};
use super::openai;
use super::stats::{Cancellation, Stats};

/// Streams of the seed; the model's own is 1.
const FAULT_STREAM: u64 = 101;
const LENGTH_STREAM: u64 = 102;

/// Everything one engine's tasks share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) clock: Clock,
    /// Told when the model has something to do earlier than before.
    pub(super) model_changed: Notify,
    /// Told when a fault was set or ended.
    pub(super) fault_changed: Notify,
    /// Changes of the fault so far, and how many of them the listener has followed.
    fault_changes: Cell<u64>,
    listener_follows: Cell<u64>,
    /// Connections of users that are open.
    connections: Cell<usize>,
    /// Told when the listener follows or a connection closes.
    settled: Notify,
    state: RefCell<State>,
}

/// Longest wait for a fault to take effect; only an address that somebody else took in the meantime needs it.
const SETTLE: std::time::Duration = std::time::Duration::from_secs(1);

struct State {
    model: Engine,
    /// Prompts it has in memory, as far as it keeps any.
    cache: Option<PromptCache>,
    emissions: Vec<Emission>,
    answers: FixedMap<RequestId, Rc<Answer>>,
    fault: Fault,
    fault_ends: Option<Instant>,
    fault_rng: Rng,
    length_rng: Rng,
    stats: Stats,
}

/// What the model has produced for one request.
#[derive(Default)]
pub(super) struct Answer {
    tokens: Cell<u32>,
    done: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Answer {
    /// Tokens so far and whether that is all; the task is woken on the next change.
    pub(super) fn poll(&self, seen: u32, waker: &Waker) -> Poll<(u32, bool)> {
        if self.tokens.get() > seen || self.done.get() {
            return Poll::Ready((self.tokens.get(), self.done.get()));
        }
        let mut slot = self.waker.borrow_mut();
        if !slot.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
        Poll::Pending
    }

    fn on_emitted(&self, what: Emitted) {
        match what {
            Emitted::Token(k) => self.tokens.set(k),
            Emitted::Done { tokens } => {
                self.tokens.set(tokens);
                self.done.set(true);
            }
        }
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Shared {
    pub(super) fn new(config: Config) -> Self {
        let state = State {
            model: config.spec.build(config.seed, config.speed, Detail::EveryToken),
            cache: PromptCache::of(&config.spec),
            emissions: Vec::new(),
            answers: FixedMap::default(),
            fault: Fault::default(),
            fault_ends: None,
            fault_rng: Rng::stream(config.seed, FAULT_STREAM),
            length_rng: Rng::stream(config.seed, LENGTH_STREAM),
            stats: Stats { server_name: config.name.clone(), ..Stats::default() },
        };
        Self {
            config,
            clock: Clock::start(),
            model_changed: Notify::new(),
            fault_changed: Notify::new(),
            fault_changes: Cell::new(0),
            listener_follows: Cell::new(0),
            connections: Cell::new(0),
            settled: Notify::new(),
            state: RefCell::new(state),
        }
    }

    /// Brings the model up to now and hands out what it produced. Returns when to call again.
    pub(super) fn pump(&self) -> Option<Instant> {
        let now = self.clock.now();
        let mut ended = false;
        let state = &mut *self.state.borrow_mut();
        if let Some(ends) = state.fault_ends.filter(|ends| *ends <= now) {
            state.advance(ends);
            state.set_fault(ends, Fault::default());
            ended = true;
        }
        state.advance(now);
        if ended {
            self.on_fault_changed();
        }
        match (state.model.next_event_at(), state.fault_ends) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Switches a fault on (or off, with kind `none`); when it returns, connections are refused, closed or accepted accordingly.
    pub(super) async fn set_fault(&self, fault: Fault) {
        self.pump();
        self.state.borrow_mut().set_fault(self.clock.now(), fault);
        self.on_fault_changed();
        self.model_changed.notify_one();
        let settled = async {
            loop {
                let told = self.settled.notified();
                let closes = matches!(self.fault_kind(), FaultKind::Refuse | FaultKind::Reset);
                let followed = self.listener_follows.get() >= self.fault_changes.get();
                if followed && (!closes || self.connections.get() == 0) {
                    return;
                }
                told.await;
            }
        };
        let _ = tokio::time::timeout(SETTLE, settled).await;
    }

    fn on_fault_changed(&self) {
        self.fault_changes.set(self.fault_changes.get() + 1);
        self.fault_changed.notify_waiters();
    }

    /// How many times the fault has changed; what the listener says it follows.
    pub(super) fn fault_changes(&self) -> u64 {
        self.fault_changes.get()
    }

    /// The listener behaves as the fault's change number `change` wants.
    pub(super) fn on_listener_follows(&self, change: u64) {
        self.listener_follows.set(change);
        self.settled.notify_waiters();
    }

    /// The fault that is on, and for how much longer, seconds.
    pub(super) fn fault(&self) -> (Fault, Option<f64>) {
        let state = self.state.borrow();
        (state.fault, state.fault_ends.map(|ends| ends.secs_since(self.clock.now())))
    }

    /// The kind of fault that is on.
    pub(super) fn fault_kind(&self) -> FaultKind {
        self.state.borrow().fault.kind
    }

    /// Waits while the engine hangs.
    pub(super) async fn while_hung(&self) {
        loop {
            let changed = self.fault_changed.notified();
            if self.fault_kind() != FaultKind::Hang {
                return;
            }
            changed.await;
        }
    }

    /// How the engine stands now.
    pub(super) fn status(&self) -> Status {
        self.pump();
        self.state.borrow().model.status_at(self.clock.now())
    }

    /// Reads or changes the counts.
    pub(super) fn stats<R>(&self, f: impl FnOnce(&mut Stats) -> R) -> R {
        f(&mut self.state.borrow_mut().stats)
    }

    /// Tokens of this prompt that are in memory, from its first on; from now on all of it is. `None`: an engine that keeps no prompts.
    pub(super) fn find_cached(&self, text: &str) -> Option<u32> {
        let state = &mut *self.state.borrow_mut();
        let cached = state.cache.as_mut()?.find(&openai::blocks(text), openai::BLOCK_TOKENS);
        state.stats.cached_tokens += u64::from(cached);
        Some(cached)
    }

    /// A drawn answer length, tokens.
    pub(super) fn draw_output_tokens(&self) -> u32 {
        self.config.output.draw(&mut self.state.borrow_mut().length_rng)
    }

    /// The status that the fault answers this request with, and when to come back.
    pub(super) fn fault_rejects(&self) -> Option<(u16, Option<std::time::Duration>)> {
        let state = &mut *self.state.borrow_mut();
        state.fault.rejects(&mut state.fault_rng)
    }

    /// After how many tokens the fault cuts this answer.
    pub(super) fn fault_cuts(&self, output_tokens: u32) -> Option<u32> {
        let state = &mut *self.state.borrow_mut();
        state.fault.cuts(output_tokens, &mut state.fault_rng)
    }
}

impl State {
    fn advance(&mut self, now: Instant) {
        self.model.advance(now, &mut self.emissions);
        for e in self.emissions.drain(..) {
            if let Emitted::Done { .. } = e.what {
                if let Some(answer) = self.answers.remove(&e.id) {
                    answer.on_emitted(e.what);
                }
            } else if let Some(answer) = self.answers.get(&e.id) {
                answer.on_emitted(e.what);
            }
        }
    }

    fn set_fault(&mut self, now: Instant, fault: Fault) {
        self.fault = fault;
        self.fault_ends = fault.ends_at(now);
        self.model.set_slowdown(now, fault.slowdown());
    }
}

/// A user's connection, counted while it is open.
pub(super) struct OpenConnection(Rc<Shared>);

impl OpenConnection {
    /// Counts a connection in.
    pub(super) fn new(shared: &Rc<Shared>) -> Self {
        shared.connections.set(shared.connections.get() + 1);
        Self(shared.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
        self.0.settled.notify_waiters();
    }
}

/// A request from its arrival to its end. Dropping it before the end means that the client left: the model forgets the request at
/// once.
pub(super) struct Held {
    shared: Rc<Shared>,
    request_id: Option<String>,
    arrived: Instant,
    id: Option<RequestId>,
    answer: Rc<Answer>,
    written: u32,
    ended: bool,
}

impl Held {
    /// Counts a request in.
    pub(super) fn new(shared: &Rc<Shared>, request_id: Option<String>) -> Self {
        shared.stats(|s| {
            s.requests += 1;
            s.in_flight += 1;
        });
        let arrived = shared.clock.now();
        Self { shared: shared.clone(), request_id, arrived, id: None, answer: Rc::default(), written: 0, ended: false }
    }

    /// Gives the request to the model.
    pub(super) fn arrive(&mut self, request: &EngineRequest) -> Result<(), Rejection> {
        self.shared.pump();
        let state = &mut *self.shared.state.borrow_mut();
        match state.model.arrive(self.shared.clock.now(), request) {
            Admission::Rejected(rejection) => Err(rejection),
            Admission::Accepted(id) => {
                self.id = Some(id);
                state.answers.insert(id, self.answer.clone());
                self.shared.model_changed.notify_one();
                Ok(())
            }
        }
    }

    /// Tokens so far beyond those written, and whether that is all.
    pub(super) fn poll_tokens(&self, waker: &Waker) -> Poll<(u32, bool)> {
        self.answer.poll(self.written, waker)
    }

    /// Waits for the whole answer; returns its tokens.
    pub(super) async fn whole(&self) -> u32 {
        std::future::poll_fn(|cx| match self.answer.poll(u32::MAX, cx.waker()) {
            Poll::Ready((tokens, true)) => Poll::Ready(tokens),
            Poll::Ready((_, false)) | Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Tokens written so far.
    pub(super) fn written(&self) -> u32 {
        self.written
    }

    /// Tokens went out, `tokens` in all.
    pub(super) fn on_written(&mut self, tokens: u32) {
        let more = u64::from(tokens.saturating_sub(self.written));
        self.written = tokens;
        self.shared.stats(|s| s.tokens += more);
    }

    /// Seconds since the request came.
    pub(super) fn age_s(&self) -> f64 {
        self.shared.clock.now().secs_since(self.arrived)
    }

    /// The answer is complete.
    pub(super) fn on_completed(&mut self) {
        self.end(|s| s.completed += 1);
    }

    /// The request was refused.
    pub(super) fn on_rejected(&mut self) {
        self.end(|s| s.rejected += 1);
    }

    /// A fault broke the answer off.
    pub(super) fn on_aborted(&mut self) {
        self.end(|s| s.aborted += 1);
    }

    fn end(&mut self, count: impl FnOnce(&mut Stats)) {
        if self.ended {
            return;
        }
        self.ended = true;
        let state = &mut *self.shared.state.borrow_mut();
        state.stats.in_flight -= 1;
        count(&mut state.stats);
        if let Some(id) = self.id.filter(|_| !self.answer.done.get()) {
            state.model.cancel(self.shared.clock.now(), id);
            state.answers.remove(&id);
            self.shared.model_changed.notify_one();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if matches!(self.shared.fault_kind(), FaultKind::Refuse | FaultKind::Reset) {
            return self.on_aborted();
        }
        let cancellation = Cancellation {
            request_id: self.request_id.take(),
            at_s: self.shared.clock.now().as_secs_f64(),
            unix_s: unix_s(),
            after_s: self.age_s(),
            tokens: self.written,
        };
        self.end(|s| s.on_cancel(cancellation));
    }
}
