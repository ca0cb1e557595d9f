//! The body of an answer on its way down: pulled, never pushed, so downstream's pace is upstream's pace.
//!
//! The relay drives the upstream connection itself. It settles the lease when the last byte is through, hands the connection back, and
//! writes the record; dropped before that, the client has left: the connection closes at once, which stops the engine.

use crate::downstream::guard::Watch;
use crate::gateway::Core;
use crate::request::budget::Budget;
use crate::request::events::{Events, Marker};
use crate::request::grpc;
use crate::request::headers::strip_trailers;
use crate::request::lease::Lease;
use crate::request::usage::Tail;
use crate::socket::buffers::Piece;
use crate::state::phase::{LAST_EVENT, Phase, STOPPING};
use crate::state::token_counts::TokenCount;
use crate::upstream::connection::Upstream;
use http_body::{Body, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_config::StreamEnd;
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
    /// What its events say, if it is a stream.
    events: Option<Events>,
    /// Tokens of its endpoint on this core: counting is a load and a store, on memory of this core's own.
    tokens: Arc<TokenCount>,
    between: Option<Duration>,
    total_at: Option<Instant>,
    last_frame: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    /// Its length was not announced, so that words of ours have room behind what came.
    is_open: bool,
    /// How it ends before its time, once that is known.
    ending: Option<Ending>,
    /// The gateway waits no longer; nobody upstream is to blame.
    is_cut: bool,
}

/// An answer that ends before its time. An error at once would take back what the library still holds, so the library first gets a turn to
/// write it.
enum Ending {
    /// A stream's client was told why; that has to be written first.
    Told(Verdict),
    /// All is written.
    Due(Verdict),
}

/// What a stream ends with that broke off, or ended without saying that it is over.
const TRUNCATED_EVENT: &[u8] = b"event: error\ndata: {\"error\":{\"message\":\"the engine's answer broke off: what came is not all of it\",\"type\":\"upstream_error\",\"param\":null,\"code\":\"stream_truncated\"}}\n\n";
/// What a stream ends with whose time is up.
const STALLED_EVENT: &[u8] = b"event: error\ndata: {\"error\":{\"message\":\"the engine sent nothing more in time (timeouts.between_tokens, timeouts.total)\",\"type\":\"upstream_error\",\"param\":null,\"code\":\"stream_stalled\"}}\n\n";

/// How an answer is counted whose stream said that something went wrong.
const IN_BAND: &str = "in_band_error";

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
        let cached_tokens = usage.and_then(|u| u.cached_tokens).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        self.record.cached_of = usage.and_then(|u| Some((u.prompt_tokens, u.cached_tokens?)));
        self.lease.settle(Outcome { verdict, output_tokens, cached_tokens });
        self.core.shared.sink.on_record(&self.record);
        self.watch.on_answered();
    }
}

impl Relay {
    pub(crate) fn new(first: Option<Frame<Piece>>, upstream: Upstream, is_open: bool, end: End) -> Self {
        let timeouts = &end.lease.pool().settings().timeouts;
        let (between, total_at) = (timeouts.between_tokens, timeouts.total.map(|t| end.arrived + t));
        let last_frame = end.core.shared.clock.now();
        let marker = match end.lease.pool().settings().stream_end {
            StreamEnd::Marker => Marker::of(&end.record.path),
            StreamEnd::Any => Marker::None,
        };
        let events = end.record.stream.then(|| Events::new(marker));
        let reads_usage = end.budget.counts_tokens() || end.lease.pool().settings().prefix_cache.is_some();
        let tail = reads_usage.then(|| Tail::new(end.record.stream));
        let tokens = end.core.tokens.borrow_mut().of(end.lease.endpoint());
        let mut relay = Self {
            first,
            tail,
            ending: None,
            is_cut: false,
            upstream: Some(upstream),
            end: Some(end),
            events,
            is_open,
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
        }
        if let (Some(events), Some(data)) = (&mut self.events, frame.data_ref()) {
            let n = events.on_bytes(data);
            end.record.output_events += n;
            self.tokens.add(n);
        }
        // Nothing comes behind trailers.
        if frame.is_trailers() || (self.has_ended() && !self.is_cut_short()) {
            self.complete();
        }
    }

    /// Whether nothing is to come from the endpoint.
    fn has_ended(&self) -> bool {
        self.upstream.as_ref().is_none_or(Upstream::has_ended)
    }

    /// Whether its stream lacks the end it should have.
    fn is_cut_short(&self) -> bool {
        self.events.as_ref().is_some_and(Events::is_cut_short)
    }

    /// Whether its stream said that it is over.
    fn is_over(&self) -> bool {
        self.events.as_ref().is_some_and(Events::has_ended)
    }

    /// The answer is whole: the connection can carry another request.
    fn complete(&mut self) {
        let Some(end) = self.end.take() else { return };
        if let Some(upstream) = self.upstream.take() {
            let connections = &end.lease.pool().settings().connections;
            end.core.idle.borrow_mut().put(end.lease.endpoint(), upstream, self.last_frame, connections);
        }
        // What a stream says in its middle counts for more than the status it began with.
        let in_band = self.events.as_ref().and_then(Events::error).map(|verdict| (verdict, IN_BAND));
        let (verdict, word) = in_band.unwrap_or((end.verdict, end.verdict.as_str()));
        end.finish(verdict, word, self.tail.take());
    }

    /// The answer ends before its time: upstream at once, downstream once what went before is written. A stream tells its client why, where
    /// an event can begin.
    fn fail(&mut self, verdict: Verdict, cx: &mut Context<'_>) -> Poll<Option<Frame<Piece>>> {
        self.upstream = None;
        let events = self.events.as_ref().filter(|e| self.is_open && (self.is_cut || e.is_between_events()));
        if events.is_none() {
            self.ending = Some(Ending::Due(verdict));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ending = Some(Ending::Told(verdict));
        let words = match verdict {
            _ if self.is_cut => LAST_EVENT,
            Verdict::Failed(Failure::Stalled) => STALLED_EVENT,
            _ => TRUNCATED_EVENT,
        };
        Poll::Ready(Some(Frame::data(Piece::Shared(bytes::Bytes::from_static(words)))))
    }

    fn broken(&mut self, verdict: Verdict) -> BrokenOff {
        let word = if self.is_cut { STOPPING } else { verdict.as_str() };
        if let Some(end) = self.end.take() {
            end.finish(verdict, word, self.tail.take());
        }
        BrokenOff(word)
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
        match self.ending.take() {
            Some(Ending::Told(verdict)) => {
                self.ending = Some(Ending::Due(verdict));
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(Ending::Due(verdict)) => return Poll::Ready(Some(Err(self.broken(verdict)))),
            None => {}
        }
        if self.end.as_ref().is_some_and(|end| end.watch.phase.get() == Phase::Cutting) {
            self.is_cut = true;
            return self.fail(Verdict::Cancelled, cx).map(|last| last.map(Ok));
        }
        if let Some(frame) = self.first.take() {
            self.on_frame(&frame);
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(upstream) = &mut self.upstream else { return Poll::Ready(None) };
        let failure = match upstream.poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                strip_trailers(&mut frame);
                self.on_frame(&frame);
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(None) if !self.is_cut_short() => {
                self.complete();
                return Poll::Ready(None);
            }
            // A clean end without the marker, too: the engine gave up, and a client must not take what came for all there is.
            Poll::Ready(_) => Failure::Truncated,
            Poll::Pending => std::task::ready!(self.poll_time(cx)),
        };
        if self.is_over() {
            // The stream said all it had to; how its connection ends is nobody's loss.
            self.upstream = None;
            self.complete();
            return Poll::Ready(None);
        }
        self.fail(Verdict::Failed(failure), cx).map(|last| last.map(Ok))
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
                relay.first.is_none()
                    && (relay.end.is_none() || (relay.ending.is_none() && relay.has_ended() && !relay.is_cut_short()))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            // However much of it is here already: it may get longer.
            Self::Relayed(relay) if relay.is_open && relay.events.is_some() => SizeHint::default(),
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
