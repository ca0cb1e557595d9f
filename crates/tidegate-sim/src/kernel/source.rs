//! The next request of an open load. Its draws come from a stream of their own, so every policy sees the same arrivals.

use std::sync::Arc;

use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant};

use super::crowd::Crowd;
use super::setup::{Shot, Source};
use crate::engine::EngineRequest;
use crate::workload::Arrivals;

/// Stream of the seed from which arrivals are drawn.
const ARRIVALS_STREAM: u64 = 2;

/// The place of no tenant: of requests whose sender is not told.
pub(super) const NOBODY: u32 = u32::MAX;

/// A request to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    pub(super) at: Instant,
    pub(super) request: EngineRequest,
    /// The place of its tenant.
    pub(super) tenant: u32,
    /// The blocks of its prompt.
    pub(super) prompt: (u32, u32),
}

/// Requests yet to come.
#[derive(Debug)]
pub(super) enum Feed {
    /// By a process.
    Process { arrivals: Arrivals, until: Instant, tokens: (u32, u32), rng: Rng },
    /// As recorded.
    Trace { shots: Arc<[Shot]>, next: usize },
    /// By tenants.
    Crowd(Crowd),
    /// Clients ask by themselves.
    None,
}

impl Feed {
    pub(super) fn new(source: &Source, seed: u64) -> Self {
        match source {
            Source::Open { arrivals, length, tokens } => Self::Process {
                arrivals: *arrivals,
                until: Instant::ORIGIN + *length,
                tokens: *tokens,
                rng: Rng::stream(seed, ARRIVALS_STREAM),
            },
            Source::Tenants { parties, length } => Self::Crowd(Crowd::new(parties, *length, seed)),
            Source::Trace(recorded) => Self::Trace { shots: Arc::clone(&recorded.shots), next: 0 },
            Source::Closed { .. } => Self::None,
        }
    }

    /// The request after one that came at `last`, if there is one.
    pub(super) fn next(&mut self, last: Instant, stream: bool) -> Option<Coming> {
        match self {
            Self::Process { arrivals, until, tokens, rng } => {
                // At least a nanosecond, so that an absurd rate still lets time pass.
                let at = last + arrivals.gap(rng).max(Duration::from_nanos(1));
                (at < *until).then(|| Coming { at, request: request(*tokens, stream), tenant: NOBODY, prompt: (0, 0) })
            }
            Self::Trace { shots, next } => {
                let shot = shots.get(*next)?;
                *next += 1;
                let lengths = (shot.prompt_tokens, shot.output_tokens);
                let request = EngineRequest { query: shot.key, ..request(lengths, stream) };
                // Nobody is there by this number where all are one.
                Some(Coming { at: Instant::ORIGIN + shot.at, request, tenant: shot.client, prompt: shot.prompt })
            }
            Self::Crowd(crowd) => {
                let (at, tokens, tenant) = crowd.next()?;
                Some(Coming { at, request: request(tokens, stream), tenant, prompt: (0, 0) })
            }
            Self::None => None,
        }
    }
}

/// A request of so many prompt and answer tokens.
pub(super) fn request((prompt_tokens, output_tokens): (u32, u32), stream: bool) -> EngineRequest {
    EngineRequest { prompt_tokens, cached_tokens: 0, query: None, output_tokens: output_tokens.max(1), stream }
}
