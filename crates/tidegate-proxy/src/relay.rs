//! The body of an answer on its way down: pulled, never pushed, so downstream's pace is upstream's pace.
//!
//! The relay drives the upstream connection itself. It settles the lease when the last byte is through, hands the connection back, and
//! writes the record; dropped before that, the client has left: the connection closes at once, which stops the engine.

use crate::budget::Budget;
use crate::buffers::Piece;
use crate::gateway::Core;
use crate::grpc;
use crate::guard::Watch;
use crate::headers::strip_trailers;
use crate::http1::BodyError;
use crate::lease::Lease;
use crate::phase::{LAST_EVENT, Phase, STOPPING};
use crate::upstream::Upstream;
use crate::usage::Tail;
use http_body::{Body, Frame, SizeHint};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::time::Instant;
use tidegate_telemetry::Record;
use tokio::time::Sleep;

/// What goes downstream.
pub(crate) enum Download {
    /// Our own words.
    Own(Option<Piece>),
    /// An endpoint's.
    Relayed(Box<Relay>),
}

/// An answer being relayed.
pub(crate) struct Relay {
    /// A piece that came before the relay did.
    first: Option<Frame<Piece>>,
    upstream: Option<Upstream>,
    end: Option<End>,
    /// The end of the body, where somebody has to know what it used.
    tail: Option<Tail>,
    /// Whether frames are tokens of a stream.
    is_stream: bool,
    /// Tokens of its endpoint on this core: counting is a load and a store, on memory of this core's own.
    tokens: Rc<Cell<u64>>,
    between: Option<Duration>,
    total_at: Option<Instant>,
    last_frame: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    /// What has to be told once all before it is written: an error at once would take back what the library still holds.
    failing: Option<Verdict>,
    /// Time was up, and the client was told.
    is_cut: bool,
}

/// What has to happen once, at the end.
pub(crate) struct End {
    pub(crate) core: Rc<Core>,
    pub(crate) watch: Rc<Watch>,
    pub(crate) lease: Lease,
    /// What the status already said.
    pub(crate) verdict: Verdict,
    pub(crate) record: Record,
    /// What was reserved of the limits; settled with what the answer used.
    pub(crate) budget: Budget,
    pub(crate) arrived: Instant,
}

/// An answer that broke off. The library then aborts the downstream connection, so a client never takes it for whole.
#[derive(Debug)]
pub(crate) struct BrokenOff(&'static str);

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the endpoint's answer broke off ({})", self.0)
    }
}

impl std::error::Error for BrokenOff {}

impl End {
    /// `word` is how it is counted.
    pub(crate) fn finish(mut self, verdict: Verdict, word: &'static str, tail: Option<Tail>) {
        self.record.total_s = self.core.shared.clock.now().secs_since(self.arrived);
        self.record.outcome = word;
        let usage = tail.and_then(|t| t.usage());
        if self.verdict == Verdict::Success {
            self.budget.on_end(usage, self.record.output_events, verdict == Verdict::Success);
        }
        self.record.output_tokens = usage.map_or(self.record.output_events, |u| u.output_tokens);
        let output_tokens = u32::try_from(self.record.output_tokens).unwrap_or(u32::MAX);
        self.lease.settle(Outcome { verdict, output_tokens });
        self.core.shared.sink.on_record(&self.record);
        self.watch.on_answered();
    }
}

impl Relay {
    pub(crate) fn new(first: Option<Frame<Piece>>, upstream: Upstream, end: End) -> Self {
        let timeouts = &end.lease.pool().settings().timeouts;
        let (between, total_at) = (timeouts.between_tokens, timeouts.total.map(|t| end.arrived + t));
        let (is_stream, last_frame) = (end.record.stream, end.core.shared.clock.now());
        let tail = end.budget.counts_tokens().then(Tail::default);
        let tokens = end.core.tokens.borrow_mut().of(end.lease.endpoint());
        let mut relay = Self {
            first,
            tail,
            failing: None,
            is_cut: false,
            upstream: Some(upstream),
            end: Some(end),
            is_stream,
            tokens,
            between,
            total_at,
            last_frame,
            timer: None,
        };
        if relay.first.is_none() && relay.has_ended() {
            relay.complete();
        }
        relay
    }

    fn on_frame(&mut self, frame: &Frame<Piece>) {
        let Some(end) = &mut self.end else { return };
        self.last_frame = end.core.shared.clock.now();
        if let Some(data) = frame.data_ref() {
            end.record.bytes_out += data.len() as u64;
            if let Some(tail) = &mut self.tail {
                tail.on_bytes(data);
            }
        }
        if let Some(trailers) = frame.trailers_ref() {
            end.verdict = grpc::verdict(trailers).unwrap_or(end.verdict);
        } else if self.is_stream {
            end.record.output_events += 1;
            self.tokens.set(self.tokens.get() + 1);
        }
        // Nothing comes behind trailers.
        if self.has_ended() || frame.is_trailers() {
            self.complete();
        }
    }

    /// Whether nothing is to come from the endpoint.
    fn has_ended(&self) -> bool {
        self.upstream.as_ref().is_none_or(Upstream::has_ended)
    }

    /// The answer is whole: the connection can carry another request.
    fn complete(&mut self) {
        let Some(end) = self.end.take() else { return };
        if let Some(upstream) = self.upstream.take() {
            let connections = &end.lease.pool().settings().connections;
            end.core.idle.borrow_mut().put(end.lease.endpoint(), upstream, self.last_frame, connections);
        }
        let verdict = end.verdict;
        end.finish(verdict, verdict.as_str(), self.tail.take());
    }

    /// Gives the library one turn to write what it holds; the error comes at the next.
    fn fail(&mut self, verdict: Verdict, cx: &mut Context<'_>) {
        self.failing = Some(verdict);
        cx.waker().wake_by_ref();
    }

    fn broken(&mut self, verdict: Verdict) -> BrokenOff {
        self.upstream = None;
        let word = if self.is_cut { STOPPING } else { verdict.as_str() };
        if let Some(end) = self.end.take() {
            end.finish(verdict, word, self.tail.take());
        }
        BrokenOff(word)
    }

    /// The gateway waits no longer. Nobody upstream is to blame; a stream tells its client, and that is written before the end is.
    fn cut(&mut self, cx: &mut Context<'_>) -> Poll<Frame<Piece>> {
        let first = !std::mem::replace(&mut self.is_cut, true);
        if first && self.is_stream {
            return Poll::Ready(Frame::data(Piece::Shared(bytes::Bytes::from_static(LAST_EVENT))));
        }
        self.fail(Verdict::Cancelled, cx);
        Poll::Pending
    }

    /// Looks at the clock when nothing moves. One timer per answer, armed when it first waits, looked at only when it fires.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        let Some(end) = &self.end else { return Poll::Pending };
        let clock = end.core.shared.clock;
        loop {
            let due = [self.between.map(|b| self.last_frame + b), self.total_at].into_iter().flatten().min();
            let Some(due) = due else { return Poll::Pending };
            let now = clock.now();
            if now >= due {
                return Poll::Ready(Failure::Stalled);
            }
            let timer = match &mut self.timer {
                Some(timer) if !timer.is_elapsed() => timer,
                _ => self.timer.insert(Box::pin(tokio::time::sleep(due.since(now)))),
            };
            std::task::ready!(timer.as_mut().poll(cx));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end.finish(Verdict::Cancelled, Verdict::Cancelled.as_str(), self.tail.take());
        }
    }
}

impl Relay {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BrokenOff>>> {
        if let Some(verdict) = self.failing.take() {
            return Poll::Ready(Some(Err(self.broken(verdict))));
        }
        if self.end.as_ref().is_some_and(|end| end.watch.phase.get() == Phase::Cutting) {
            return self.cut(cx).map(|last| Some(Ok(last)));
        }
        if let Some(frame) = self.first.take() {
            self.on_frame(&frame);
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(upstream) = &mut self.upstream else { return Poll::Ready(None) };
        match upstream.poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                strip_trailers(&mut frame);
                self.on_frame(&frame);
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(Some(Err(BodyError))) => {
                self.fail(Verdict::Failed(Failure::Truncated), cx);
                return Poll::Pending;
            }
            Poll::Ready(None) => {
                self.complete();
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        if let Poll::Ready(failure) = self.poll_time(cx) {
            self.fail(Verdict::Failed(failure), cx);
        }
        Poll::Pending
    }
}

impl Body for Download {
    type Data = Piece;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BrokenOff>>> {
        match &mut *self {
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Relayed(relay) => relay.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_none(),
            Self::Relayed(relay) => {
                relay.first.is_none() && (relay.end.is_none() || (relay.failing.is_none() && relay.has_ended()))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Relayed(relay) => {
                let first = relay.first.as_ref().and_then(|f| f.data_ref()).map_or(0, |d| d.len() as u64);
                relay
                    .upstream
                    .as_ref()
                    .map_or(Some(0), Upstream::left)
                    .map_or(SizeHint::default(), |n| SizeHint::with_exact(n + first))
            }
        }
    }
}
