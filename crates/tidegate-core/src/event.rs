//! Everything that can happen to a pool besides a request's coming and going, and what it asks of its shell.
//!
//! Closed enums: the same events drive live traffic, simulation, replay and fuzzing.

use crate::breaker::Level;
use crate::id::{EndpointId, ProbeId, RequestKey};
use crate::load::LoadReport;
use crate::outcome::Outcome;
use crate::pool::Dispatch;
use crate::prefix::CacheTold;
use crate::time::Duration;

/// What the shell tells a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The first byte of an answer arrived.
    FirstByte(RequestKey),
    /// A dispatch goes over this upstream connection: a number of the shell's, fresh for every attempt to connect, so that failures of one
    /// cause are told from failures of many.
    Connected {
        /// The dispatch.
        key: RequestKey,
        /// The connection.
        connection: u64,
    },
    /// A probe that [`Effect::Probe`] asked for ended.
    Probed {
        /// The endpoint.
        endpoint: EndpointId,
        /// The probe.
        probe: ProbeId,
        /// Whether it connected and, where there is a path, was answered with success, in time.
        passed: bool,
    },
    /// Output tokens of all own streams at an endpoint since the last such event; sampled every 0.5 s, so that no token takes a lock.
    Progress {
        /// The endpoint.
        endpoint: EndpointId,
        /// Tokens (events of streams) since the last progress event.
        tokens: u64,
    },
    /// An active health check ended.
    Checked {
        /// The endpoint.
        endpoint: EndpointId,
        /// Whether it passed.
        passed: bool,
    },
    /// A status page or metrics page was read.
    LoadReported {
        /// The endpoint.
        endpoint: EndpointId,
        /// What it said.
        report: LoadReport,
    },
    /// A status page could not be read. Never the same as an idle endpoint.
    LoadMissed(EndpointId),
    /// The engine told of its prefix cache; counts for nothing in pools that remember no prompts.
    CacheTold {
        /// The endpoint.
        endpoint: EndpointId,
        /// Which of its data-parallel ranks, from 0 up.
        rank: u8,
        /// What it told.
        told: CacheTold,
    },
    /// An operator drains an endpoint, or takes it back into use.
    Drain {
        /// The endpoint.
        endpoint: EndpointId,
        /// Whether it takes no new requests.
        draining: bool,
    },
    /// An operator changes a static weight.
    Weight {
        /// The endpoint.
        endpoint: EndpointId,
        /// The new weight; 0 drains.
        weight: f64,
    },
    /// An operator or a rule changes the most requests of the pool in flight (at least 1).
    MaxInFlight(u32),
}

impl Event {
    /// The endpoint it is about; `None` where it is about a request or the whole pool.
    pub fn endpoint(&self) -> Option<EndpointId> {
        match *self {
            Self::FirstByte(_) | Self::Connected { .. } | Self::MaxInFlight(_) => None,
            Self::Progress { endpoint, .. }
            | Self::Probed { endpoint, .. }
            | Self::Checked { endpoint, .. }
            | Self::LoadReported { endpoint, .. }
            | Self::LoadMissed(endpoint)
            | Self::CacheTold { endpoint, .. }
            | Self::Drain { endpoint, .. }
            | Self::Weight { endpoint, .. } => Some(endpoint),
        }
    }
}

/// What a pool tells its policy about one endpoint.
#[derive(Clone, Copy, Debug)]
pub enum EndpointEvent<'a> {
    /// The endpoint joined. `cold`: the others were there before.
    Added {
        /// Whether it joins a pool already in use.
        cold: bool,
    },
    /// The endpoint left for good.
    Removed,
    /// Its static weight changed.
    Reweighted,
    /// The endpoint is back after its breaker was open or its checks failed.
    Returned,
    /// A request was sent to it.
    Dispatched(&'a Dispatch),
    /// The first byte of an answer, and the seconds since the dispatch.
    FirstByte(&'a Dispatch, f64),
    /// A request ended, and the seconds since the dispatch.
    Ended(&'a Dispatch, Outcome, f64),
    /// A report arrived and was accepted as the newest.
    Reported(&'a LoadReport),
    /// Tokens of own streams: `stream_s` is the time integral of the number of running streams over `elapsed`.
    Progress {
        /// Tokens since the last progress event.
        tokens: u64,
        /// Stream-seconds over the same time.
        stream_s: f64,
        /// That time.
        elapsed: Duration,
    },
}

/// What the shell has to do, or to say in a log line and a metric. Core does neither.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Probe an endpoint: out of band, on a new connection, connect and then the breaker's health path, if it has one. The answer is
    /// [`Event::Probed`]; one that takes longer than `timeout` has failed.
    Probe {
        /// The endpoint.
        endpoint: EndpointId,
        /// The probe, to be named in the answer.
        probe: ProbeId,
        /// How long it may take.
        timeout: Duration,
    },
    /// A breaker changed its level. The only place where that is said: logs, journal and metrics read it.
    Breaker {
        /// The endpoint.
        endpoint: EndpointId,
        /// The route class.
        class: u8,
        /// The level until now.
        from: Level,
        /// The level from now on.
        to: Level,
        /// Which test or verdict decided, a short stable word.
        why: &'static str,
    },
    /// The endpoint of this request hangs and was opened: if nothing of the answer has been sent on, the request should go elsewhere,
    /// within the retry budget.
    Redispatch(RequestKey),
    /// Every endpoint fails alike, so no breaker opens: it is the pool or its traffic. Or that is over.
    PoolFailing(bool),
    /// Active checks changed their mind.
    Health {
        /// The endpoint.
        endpoint: EndpointId,
        /// The new verdict.
        healthy: bool,
    },
    /// The decision about a waiting request is there to be claimed.
    Turn(crate::queue::WaiterId),
    /// Too few endpoints pass their checks, or enough do again.
    Panic(bool),
    /// The pool's signal became unusable for an endpoint, or usable again.
    Degraded {
        /// The endpoint.
        endpoint: EndpointId,
        /// Why, or `None` when the signal is good again.
        why: Option<crate::load::Degraded>,
    },
}
