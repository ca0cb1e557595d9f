//! The formulas. Lower is better in all of them; the scores that are better when higher are negated.

use tidegate_core::balance::{Cx, Outstanding, Pick, Picker, Usable};
use tidegate_core::endpoint::Endpoints;
use tidegate_core::event::EndpointEvent;
use tidegate_core::id::EndpointId;
use tidegate_core::pool::Prediction;
use tidegate_core::pool::config::PoolConfig;
use tidegate_core::request::Request;
use tidegate_core::time::Instant;

use super::Rival;
use super::board::Board;

/// Prompt tokens per second that SMG takes every engine to compute.
const THROUGHPUT: f64 = 15_000.0;
/// Seconds of SMG's barrier.
const BARRIER_S: f64 = 0.15;
/// Tokens of a block of Dynamo's.
const BLOCK: f64 = 16.0;
/// llm-d's weights of queue, KV memory and prefix.
const LLM_D: [f64; 3] = [2.0, 2.0, 3.0];

/// A published rule as a picker.
#[derive(Debug)]
pub(super) struct Rule {
    rival: Rival,
    board: Board,
    ours: Outstanding,
}

impl Rule {
    pub(super) fn new(rival: Rival, cfg: &PoolConfig) -> Self {
        Self { rival, board: Board::default(), ours: Outstanding::new(cfg) }
    }

    fn score(&self, now: Instant, id: EndpointId, req: &Request<'_>, usable: &Usable<'_>, queues: (f64, f64)) -> f64 {
        let known = self.board.get(id);
        let (report, u) = (&known.report, req.work_at(id));
        let waiting = report.waiting.unwrap_or(0.0);
        let batch = report.running.unwrap_or(0.0) + waiting;
        let in_flight = usable.endpoints.get(id).in_flight;
        match self.rival {
            Rival::SmgLeastLoad => {
                let used = report.kv_usage.unwrap_or(0.0).min(0.999);
                (report.queued_tokens.unwrap_or(0.0) + known.since) / THROUGHPUT + BARRIER_S * used / (1.0 - used)
            }
            Rival::Lmetric => (u + report.queued_tokens.unwrap_or(0.0)) * (batch + 1.0),
            Rival::LmetricOurs => (u + self.ours.ahead(id, now, 0.0)) * (self.ours.present(id, now, in_flight) + 1.0),
            Rival::LlmD => {
                let (least, most) = queues;
                let queue = if most > least { (most - waiting) / (most - least) } else { 1.0 };
                let memory = 1.0 - report.kv_usage.unwrap_or(0.0);
                let prefix = req.matched_at(id) / req.work();
                -(LLM_D[0] * queue + LLM_D[1] * memory + LLM_D[2] * prefix)
            }
            Rival::Dynamo => (u + known.queued) / BLOCK + (known.held + req.work()) / BLOCK,
            Rival::Agentgateway => {
                let pending = f64::from(in_flight);
                -(known.health / (1.0 + known.latency_s * (1.0 + 0.1 * pending)))
            }
        }
    }
}

impl Picker for Rule {
    fn pick(&mut self, cx: &mut Cx<'_>, req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let waiting = |id: EndpointId| self.board.get(id).report.waiting.unwrap_or(0.0);
        let all = usable.ids().iter().map(|&id| waiting(id));
        let queues = all.fold((f64::INFINITY, 0.0f64), |(least, most), w| (least.min(w), most.max(w)));
        let drawn: Vec<EndpointId> = match self.rival {
            Rival::Agentgateway => vec![usable.random(cx.rng), usable.random(cx.rng)],
            _ => usable.ids().to_vec(),
        };
        // Equals are chosen among uniformly.
        let (mut best, mut lowest, mut equals) = (None, f64::INFINITY, 0usize);
        for id in drawn {
            let score = self.score(cx.now, id, req, usable, queues);
            if score < lowest {
                (best, lowest, equals) = (Some(id), score, 1);
            } else if score <= lowest {
                equals += 1;
                if cx.rng.below(equals) == 0 {
                    best = Some(id);
                }
            }
        }
        best.map(|id| Pick::of(id, ""))
    }

    fn predict(&self, now: Instant, id: EndpointId, req: &Request<'_>, _endpoints: &Endpoints) -> Prediction {
        Prediction::Work(self.ours.ahead(id, now, 0.0) + req.work_at(id))
    }

    fn on_event(&mut self, now: Instant, id: EndpointId, event: &EndpointEvent<'_>, endpoints: &Endpoints) {
        self.board.on_event(id, event, endpoints);
        self.ours.on_event(now, id, event, endpoints);
    }
}
