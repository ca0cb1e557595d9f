//! One line of a journal after the first.

use super::settings::{Adaptive, Settings};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;
use tidegate_core::event::Event;
use tidegate_core::id::{EndpointId, ProbeId, RequestKey};
use tidegate_core::journal::{Decided, Entry};
use tidegate_core::load::{LoadReport, Unfit, WorkReport};
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::placement::Serves;
use tidegate_core::prefix::{CacheBatch, CacheTold};
use tidegate_core::saved::SavedPool;
use tidegate_core::time::Instant;

/// A time in nanoseconds of the pool's clock, and an input.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line<'a> {
    /// Nanoseconds.
    pub(super) t: u64,
    #[serde(flatten, borrow)]
    pub(super) input: Input<'a>,
}

/// An input. Names are short, as a busy pool writes thousands of lines a second.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Input<'a> {
    Added {
        endpoint: u32,
        name: Cow<'a, str>,
        weight: f64,
        max_in_flight: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adaptive: Option<Adaptive>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serves: Option<Box<Serves>>,
    },
    Changed {
        endpoint: u32,
        weight: f64,
        max_in_flight: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adaptive: Option<Adaptive>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serves: Option<Box<Serves>>,
    },
    /// New settings, written as in the first line; the seed counts for nothing.
    Reconfigured(Box<Settings>),
    Restored(Box<SavedPool>),
    Serves(u32, Box<Serves>),
    Removed(u32),
    FirstByte((u32, u32)),
    Connected((u32, u32), u64),
    Probed(u32, u64, bool),
    Progress(u32, u64),
    Checked(u32, bool),
    Load {
        endpoint: u32,
        at: u64,
        load: Option<f64>,
        response_time_s: Option<f64>,
        utilisation: [Option<f64>; 3],
        /// Running, waiting, queued tokens, generated, prompts, memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        work: Option<[Option<f64>; 6]>,
        /// The place of the reason among all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unfit: Option<usize>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holds_for: Option<u64>,
    },
    LoadMissed(u32),
    /// Endpoint and rank; number and how many, whether it was emptied, tokens stored and removed.
    CacheBatch((u32, u8), (u64, u32, bool, u64, u64)),
    /// Endpoint and rank, and whether its events are heard.
    CacheHeard((u32, u8), bool),
    Drain(u32, bool),
    Weight(u32, f64),
    MaxInFlight(u32),
    Deadline(()),
    Admit {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<u32>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attempted: Vec<u32>,
        /// Tenant, its weight, priority class, cost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<(u64, f64, u8, f64)>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<u8>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<u64>,
        /// Blocks of the prompt, and tokens of one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prefix: Option<(Vec<u64>, u32)>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttft_goal: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tpot_goal: Option<u64>,
        /// Hash of the model, most tokens of answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<(u64, u32)>,
        #[serde(flatten, borrow)]
        decided: Answer<'a>,
    },
    /// A waiting request took its decision.
    Claimed((u32, u32), #[serde(borrow)] Answer<'a>),
    /// The client of a waiting request left.
    Left((u32, u32)),
    Settled {
        key: (u32, u32),
        verdict: Ended,
        tokens: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cached: Option<u32>,
    },
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer<'a> {
    /// Dispatch, endpoint, rule, detail.
    Sent((u32, u32), u32, Cow<'a, str>, Cow<'a, str>),
    /// The place in the queue.
    Waits((u32, u32)),
    /// The code of the refusal.
    Shed(Cow<'a, str>),
}

/// The verdict of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    Success,
    ClientError,
    Cancelled,
    Throttled(Option<Duration>),
    Connect,
    Reset,
    Malformed,
    FirstByteTimeout,
    Status,
    Truncated,
    Stalled,
}

impl<'a> Line<'a> {
    pub(super) fn of(now: Instant, entry: &Entry<'a>) -> Self {
        Self { t: now.as_nanos(), input: Input::of(entry) }
    }
}

impl<'a> Input<'a> {
    fn of(entry: &Entry<'a>) -> Self {
        match *entry {
            Entry::Added(id, cfg) => Self::Added {
                endpoint: id.0,
                name: Cow::Borrowed(&cfg.name),
                weight: cfg.weight,
                max_in_flight: cfg.max_in_flight,
                adaptive: cfg.adaptive.map(Adaptive::of),
                serves: (!cfg.serves.is_empty()).then(|| Box::new(cfg.serves.clone())),
            },
            Entry::Changed(id, cfg) => Self::Changed {
                endpoint: id.0,
                weight: cfg.weight,
                max_in_flight: cfg.max_in_flight,
                adaptive: cfg.adaptive.map(Adaptive::of),
                serves: (!cfg.serves.is_empty()).then(|| Box::new(cfg.serves.clone())),
            },
            Entry::Reconfigured(cfg, checked) => Self::Reconfigured(Box::new(Settings::of("", cfg, checked, 0))),
            Entry::Restored(saved) => Self::Restored(Box::new((*saved).clone())),
            Entry::Serves(id, serves) => Self::Serves(id.0, Box::new((*serves).clone())),
            Entry::Removed(id) => Self::Removed(id.0),
            Entry::Event(event) => Self::event(event),
            Entry::Deadline => Self::Deadline(()),
            Entry::Admitted(request, decided) => Self::Admit {
                hash: request.hash_key,
                session: request.affinity_key,
                prompt: request.prompt_tokens,
                attempted: request.attempted.iter().map(|id| id.0).collect(),
                tenant: (request.tenant != 0 || request.priority != 0 || request.cost > 0.0).then_some((
                    request.tenant,
                    request.tenant_weight,
                    request.priority,
                    request.cost,
                )),
                class: (request.class != 0).then_some(request.class),
                deadline: request.deadline.map(Instant::as_nanos),
                prefix: (!request.prefix.is_empty()).then(|| (request.prefix.to_vec(), request.block_tokens)),
                ttft_goal: request.ttft_goal.map(nanos),
                tpot_goal: request.tpot_goal.map(nanos),
                model: (request.model != 0 || request.max_output != 0).then_some((request.model, request.max_output)),
                decided: Answer::of(decided),
            },
            Entry::Claimed(id, decided) => Self::Claimed(id.parts(), Answer::of(decided)),
            Entry::Left(id) => Self::Left(id.parts()),
            Entry::Settled(key, outcome) => Self::Settled {
                key: key.parts(),
                verdict: Ended::of(outcome.verdict),
                tokens: outcome.output_tokens,
                cached: outcome.cached_tokens,
            },
        }
    }

    fn event(event: &Event) -> Self {
        match *event {
            Event::FirstByte(key) => Self::FirstByte(key.parts()),
            Event::Connected { key, connection } => Self::Connected(key.parts(), connection),
            Event::Probed { endpoint, probe, passed } => Self::Probed(endpoint.0, probe.0, passed),
            Event::Progress { endpoint, tokens } => Self::Progress(endpoint.0, tokens),
            Event::Checked { endpoint, passed } => Self::Checked(endpoint.0, passed),
            Event::LoadReported { endpoint, report } => Self::Load {
                endpoint: endpoint.0,
                at: report.sampled_at.as_nanos(),
                load: kept(report.load),
                response_time_s: kept(report.response_time_s),
                utilisation: report.utilisation.map(kept),
                work: (!report.work.is_empty()).then(|| numbers(&report.work)),
                unfit: report.unfit.map(|why| why as usize),
                holds_for: report.holds_for.map(nanos),
            },
            Event::LoadMissed(endpoint) => Self::LoadMissed(endpoint.0),
            Event::CacheTold { endpoint, rank, told } => Self::cache((endpoint.0, rank), told),
            Event::Drain { endpoint, draining } => Self::Drain(endpoint.0, draining),
            Event::Weight { endpoint, weight } => Self::Weight(endpoint.0, weight),
            Event::MaxInFlight(max) => Self::MaxInFlight(max),
        }
    }

    fn cache(of: (u32, u8), told: CacheTold) -> Self {
        match told {
            CacheTold::Heard => Self::CacheHeard(of, true),
            CacheTold::Lost => Self::CacheHeard(of, false),
            CacheTold::Batch(b) => {
                Self::CacheBatch(of, (b.sequence, b.batches, b.cleared, b.stored_tokens, b.removed_tokens))
            }
        }
    }

    /// The event of this line, if it is one.
    pub(super) fn to_event(&self) -> Option<Event> {
        Some(match *self {
            Self::FirstByte(key) => Event::FirstByte(RequestKey::from_parts(key)),
            Self::Connected(key, connection) => Event::Connected { key: RequestKey::from_parts(key), connection },
            Self::Probed(endpoint, probe, passed) => {
                Event::Probed { endpoint: EndpointId(endpoint), probe: ProbeId(probe), passed }
            }
            Self::Progress(endpoint, tokens) => Event::Progress { endpoint: EndpointId(endpoint), tokens },
            Self::Checked(endpoint, passed) => Event::Checked { endpoint: EndpointId(endpoint), passed },
            Self::Load { endpoint, at, load, response_time_s, utilisation, work, unfit, holds_for } => {
                Event::LoadReported {
                    endpoint: EndpointId(endpoint),
                    report: LoadReport {
                        sampled_at: Instant::from_nanos(at),
                        load,
                        response_time_s,
                        utilisation,
                        work: work.map_or_else(WorkReport::default, work_report),
                        unfit: unfit.and_then(|place| Unfit::ALL.get(place).copied()),
                        holds_for: holds_for.map(Duration::from_nanos),
                    },
                }
            }
            Self::LoadMissed(endpoint) => Event::LoadMissed(EndpointId(endpoint)),
            Self::CacheBatch((endpoint, rank), (sequence, batches, cleared, stored_tokens, removed_tokens)) => {
                let batch = CacheBatch { sequence, batches, cleared, stored_tokens, removed_tokens };
                Event::CacheTold { endpoint: EndpointId(endpoint), rank, told: CacheTold::Batch(batch) }
            }
            Self::CacheHeard((endpoint, rank), is_heard) => {
                let told = if is_heard { CacheTold::Heard } else { CacheTold::Lost };
                Event::CacheTold { endpoint: EndpointId(endpoint), rank, told }
            }
            Self::Drain(endpoint, draining) => Event::Drain { endpoint: EndpointId(endpoint), draining },
            Self::Weight(endpoint, weight) => Event::Weight { endpoint: EndpointId(endpoint), weight },
            Self::MaxInFlight(max) => Event::MaxInFlight(max),
            _ => return None,
        })
    }
}

impl Answer<'_> {
    pub(super) fn of(decided: Decided) -> Self {
        match decided {
            Decided::Sent { key, endpoint, rule, detail } => {
                Self::Sent(key.parts(), endpoint.0, rule.into(), detail.into())
            }
            Decided::Waits(id) => Self::Waits(id.parts()),
            Decided::Shed(why) => Self::Shed(why.code().into()),
        }
    }
}

impl Ended {
    fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Success => Self::Success,
            Verdict::ClientError => Self::ClientError,
            Verdict::Cancelled => Self::Cancelled,
            Verdict::Throttled { retry_after } => Self::Throttled(retry_after),
            Verdict::Failed(Failure::Connect) => Self::Connect,
            Verdict::Failed(Failure::Reset) => Self::Reset,
            Verdict::Failed(Failure::Malformed) => Self::Malformed,
            Verdict::Failed(Failure::FirstByteTimeout) => Self::FirstByteTimeout,
            Verdict::Failed(Failure::Status) => Self::Status,
            Verdict::Failed(Failure::Truncated) => Self::Truncated,
            Verdict::Failed(Failure::Stalled) => Self::Stalled,
        }
    }

    /// The outcome with `tokens` of output, and of the prompt from a cache.
    pub(super) fn outcome(self, output_tokens: u32, cached_tokens: Option<u32>) -> Outcome {
        let verdict = match self {
            Self::Success => Verdict::Success,
            Self::ClientError => Verdict::ClientError,
            Self::Cancelled => Verdict::Cancelled,
            Self::Throttled(retry_after) => Verdict::Throttled { retry_after },
            Self::Connect => Verdict::Failed(Failure::Connect),
            Self::Reset => Verdict::Failed(Failure::Reset),
            Self::Malformed => Verdict::Failed(Failure::Malformed),
            Self::FirstByteTimeout => Verdict::Failed(Failure::FirstByteTimeout),
            Self::Status => Verdict::Failed(Failure::Status),
            Self::Truncated => Verdict::Failed(Failure::Truncated),
            Self::Stalled => Verdict::Failed(Failure::Stalled),
        };
        Outcome { verdict, output_tokens, cached_tokens }
    }
}

fn numbers(work: &WorkReport) -> [Option<f64>; 6] {
    let WorkReport { running, waiting, queued_tokens, generated_total, prompt_total, kv_usage } = *work;
    [running, waiting, queued_tokens, generated_total, prompt_total, kv_usage].map(kept)
}

/// What JSON has no number for is impossible all the same: as it was told, not as if nothing had been.
fn kept(number: Option<f64>) -> Option<f64> {
    number.map(|n| if n.is_finite() { n } else { -1.0 })
}

fn work_report(numbers: [Option<f64>; 6]) -> WorkReport {
    let [running, waiting, queued_tokens, generated_total, prompt_total, kv_usage] = numbers;
    WorkReport { running, waiting, queued_tokens, generated_total, prompt_total, kv_usage }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_engines_are_read_as_they_were_written() {
        let (endpoint, rank) = (EndpointId(3), 2);
        let batch =
            CacheBatch { sequence: u64::MAX, batches: 4, cleared: true, stored_tokens: 640, removed_tokens: 16 };
        for event in [
            Event::CacheTold { endpoint, rank, told: CacheTold::Batch(batch) },
            Event::CacheTold { endpoint, rank, told: CacheTold::Heard },
            Event::CacheTold { endpoint, rank, told: CacheTold::Lost },
            Event::LoadMissed(endpoint),
            Event::LoadReported {
                endpoint,
                report: LoadReport {
                    load: Some(0.5),
                    unfit: Some(Unfit::NodeCpu),
                    holds_for: Some(Duration::from_secs(12)),
                    ..LoadReport::default()
                },
            },
        ] {
            let text = serde_json::to_string(&Line::of(Instant::from_nanos(7), &Entry::Event(&event))).unwrap();
            let line: Line<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!((line.t, line.input.to_event()), (7, Some(event)), "{text}");
        }
    }
}
