//! Work ahead as engines and this replica know of it, caches, and goals: what `adaptive`, `least_work` and `prefix_affinity` stand on.
mod driver;

use driver::params;
use tidegate_core::event::Event;
use tidegate_core::explain::Explain;
use tidegate_core::id::EndpointId;
use tidegate_core::load::{Degraded, LoadReport, WorkReport};
use tidegate_core::outcome::{Failure, Outcome, Verdict};
use tidegate_core::pool::config::{EndpointConfig, LoadConfig, PoolConfig};
use tidegate_core::pool::{Decision, Pool, Shed, Ticket};
use tidegate_core::prefix::{PrefixConfig, chain};
use tidegate_core::request::Request;
use tidegate_core::time::{Duration, Instant};

const A: EndpointId = EndpointId(0);
const B: EndpointId = EndpointId(1);

struct World {
    pool: Pool,
    now: Instant,
    out: Vec<(EndpointId, Ticket)>,
}

impl World {
    fn new(policy: &str, n: usize, change: impl Fn(&mut PoolConfig)) -> Self {
        let mut cfg = PoolConfig::new(params(policy, &[]));
        cfg.load = Some(LoadConfig { max_age: Duration::from_secs(10), per_request: None, by_answers: false });
        cfg.max_load = None;
        cfg.prefix = Some(PrefixConfig::default());
        change(&mut cfg);
        let mut pool = Pool::new(cfg, false, 1);
        for k in 0..n {
            pool.add(Instant::ORIGIN, EndpointConfig::new(format!("e{k}")));
        }
        let mut world = Self { pool, now: Instant::ORIGIN, out: Vec::new() };
        world.pass(1.0);
        world
    }

    fn pass(&mut self, seconds: f64) {
        self.now = self.now + Duration::from_secs_f64(seconds);
    }

    fn send(&mut self, req: &Request<'_>) -> EndpointId {
        match self.pool.admit(self.now, req, None) {
            Decision::Send { ticket, .. } => {
                let id = ticket.endpoint();
                self.out.push((id, ticket));
                id
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// Ends everything that is out, `verdict` and cached tokens being the same for all.
    fn end_all(&mut self, verdict: Verdict, cached_tokens: Option<u32>) {
        for (_, ticket) in self.out.drain(..) {
            self.pool.settle(self.now, ticket, Outcome { verdict, output_tokens: 1, cached_tokens });
        }
    }

    fn report(&mut self, endpoint: EndpointId, work: WorkReport) {
        let report = LoadReport { sampled_at: self.now, work, ..LoadReport::default() };
        self.pool.on_event(self.now, Event::LoadReported { endpoint, report });
    }

    /// What the policy compares, by slot, for one more request; it leaves at once.
    fn scores(&mut self, req: &Request<'_>) -> Vec<f64> {
        let mut explain = Explain::default();
        if let Decision::Send { ticket, .. } = self.pool.admit(self.now, req, Some(&mut explain)) {
            self.pool.settle(self.now, ticket, Outcome::new(Verdict::Cancelled));
        }
        let mut scores = vec![f64::NAN; 2];
        explain.candidates.iter().for_each(|&(id, score)| scores[id.index()] = score);
        scores
    }
}

fn tokens(n: u32) -> Request<'static> {
    Request { prompt_tokens: Some(n), ..Request::default() }
}

fn told(running: f64, waiting: f64, queued: f64, generated: f64) -> WorkReport {
    WorkReport {
        running: Some(running),
        waiting: Some(waiting),
        queued_tokens: Some(queued),
        generated_total: Some(generated),
        prompt_total: Some(0.0),
        kv_usage: None,
    }
}

#[test]
fn before_anything_is_learned_the_score_is_the_tokens_ahead() {
    let mut w = World::new("least_work", 2, |_| {});
    w.report(A, told(3.0, 2.0, 5_000.0, 10.0));
    w.report(B, told(0.0, 0.0, 0.0, 10.0));
    assert_eq!(w.scores(&tokens(100)), [5_100.0, 100.0]);
    w.pass(1.0);
    assert_eq!(w.scores(&tokens(100))[0], 5_099.0, "a token a second is taken to drain meanwhile");
}

#[test]
fn what_a_report_says_of_our_own_is_not_counted_twice() {
    let mut w = World::new("least_work", 1, |_| {});
    w.send(&tokens(700));
    w.pass(0.5);
    // It knows of our 700, and of 1,300 of others'.
    w.report(A, told(0.0, 2.0, 2_000.0, 10.0));
    assert_eq!(w.scores(&tokens(100))[0], 2_100.0);
    w.send(&tokens(50));
    assert_eq!(w.scores(&tokens(100))[0], 2_150.0, "what was sent since is there at once");
    w.end_all(Verdict::Cancelled, None);
    assert_eq!(w.scores(&tokens(100))[0], 1_400.0, "ours are gone, the others' are not");
}

#[test]
fn counters_that_stand_still_while_tokens_come_are_no_report() {
    // A page that answers is not a page that is true: fresh timestamps prove nothing.
    let mut w = World::new("least_work", 2, |_| {});
    let idle = told(0.0, 0.0, 0.0, 0.0);
    for _ in 0..40 {
        w.report(A, idle);
        w.report(B, told(0.0, 0.0, 9_000.0, 1.0 + w.now.as_secs_f64()));
        w.send(&tokens(100));
        w.pass(0.4);
        w.end_all(Verdict::Success, None);
    }
    w.send(&Request { attempted: &[B], ..tokens(100) });
    let degraded = w.pool.endpoints().loads[A.index()].degraded_at(w.now);
    assert_eq!(degraded, Some(Degraded::Frozen), "and the pool says so");
    let before = w.scores(&tokens(100));
    w.pass(0.1);
    w.report(A, told(0.0, 0.0, 50_000.0, 0.0));
    assert_eq!(w.scores(&tokens(100))[0], before[0], "what a frozen page says counts for nothing");
    w.pass(0.1);
    w.report(A, told(0.0, 0.0, 50_000.0, 77.0));
    assert!(w.scores(&tokens(100))[0] > before[0], "it moves again, so it counts again");
}

#[test]
fn other_replicas_are_learned_from_requests_that_are_not_ours() {
    let mut w = World::new("least_work", 2, |_| {});
    for k in 0..400 {
        while w.out.len() < 4 {
            w.send(&tokens(100));
        }
        w.pass(0.01);
        // Three times as many are there as we sent.
        for id in [A, B] {
            let own = f64::from(w.pool.endpoints().get(id).in_flight);
            w.report(id, told(3.0 * own, 0.0, 0.0, f64::from(k)));
        }
    }
    w.pass(0.1);
    w.report(A, WorkReport::default());
    w.report(B, WorkReport::default());
    let ours: f64 = w.scores(&tokens(100)).iter().sum::<f64>() - 200.0;
    assert!((ours / 400.0 - 3.0).abs() < 0.2, "without a report, our own counts for three: {ours}");
}

#[test]
fn full_memory_is_a_barrier() {
    let mut w = World::new("least_work", 2, |_| {});
    let with = |kv| WorkReport { kv_usage: Some(kv), ..told(0.0, 0.0, 0.0, 1.0) };
    w.report(A, with(0.5));
    w.report(B, with(0.99));
    let scores = w.scores(&tokens(1));
    assert!((scores[0] - 1.15).abs() < 1e-9 && scores[1] > 15.0, "{scores:?}");
}

#[test]
fn a_cached_beginning_is_work_that_need_not_be_done() {
    let blocks: Vec<u64> = chain(0..10).collect();
    let prompt = Request { prefix: &blocks, block_tokens: 100, ..tokens(1_000) };
    for policy in ["least_work", "adaptive", "prefix_affinity"] {
        let mut w = World::new(policy, 2, |_| {});
        let home = w.send(&prompt);
        w.pass(1.0);
        w.end_all(Verdict::Success, Some(0));
        for _ in 0..20 {
            assert_eq!(w.send(&prompt), home, "{policy}");
            w.pass(1.0);
            w.end_all(Verdict::Success, Some(1_000));
        }
        // A process that is gone comes back with nothing.
        w.send(&prompt);
        w.end_all(Verdict::Failed(Failure::Connect), None);
        assert_eq!(w.pool.prefixes().map(|p| p.blocks(home)), Some(0), "{policy}");
    }
}

#[test]
fn counters_that_fell_mean_an_engine_that_started_anew() {
    let blocks: Vec<u64> = chain(0..10).collect();
    let mut w = World::new("least_work", 1, |_| {});
    w.report(A, told(0.0, 0.0, 0.0, 500.0));
    w.send(&Request { prefix: &blocks, block_tokens: 100, ..tokens(1_000) });
    assert_eq!(w.pool.prefixes().map(|p| p.blocks(A)), Some(10));
    w.pass(1.0);
    w.report(A, told(0.0, 0.0, 0.0, 501.0));
    assert_eq!(w.pool.prefixes().map(|p| p.blocks(A)), Some(10));
    w.pass(1.0);
    w.report(A, told(0.0, 0.0, 0.0, 3.0));
    assert_eq!(w.pool.prefixes().map(|p| p.blocks(A)), Some(0));
}

#[test]
fn a_hot_prefix_does_not_drown_its_endpoint() {
    // gateways.md 5 and 11: a cache that everybody shares must not starve the rest of the pool.
    let blocks: Vec<u64> = chain(0..10).collect();
    let prompt = Request { prefix: &blocks, block_tokens: 100, ..tokens(1_000) };
    for policy in ["least_work", "adaptive", "prefix_affinity"] {
        let mut w = World::new(policy, 2, |_| {});
        // A cached prompt is next to no work, so it takes many before computing it elsewhere is worth it.
        for _ in 0..2_000 {
            w.send(&prompt);
        }
        let on = |id| w.pool.endpoints().get(id).in_flight;
        assert!(on(A) >= 60 && on(B) >= 60, "{policy}: {} and {}", on(A), on(B));
    }
}

#[test]
fn misses_do_not_go_to_whoever_holds_least() {
    // gateways.md 5: all misses went to the smallest tree, which was small because it was overloaded.
    let mut w = World::new("prefix_affinity", 2, |_| {});
    for k in 0..40u64 {
        let blocks: Vec<u64> = chain((0..10).map(|b| b + 1000 * k)).collect();
        w.send(&Request { prefix: &blocks, block_tokens: 100, ..tokens(1_000) });
    }
    assert_eq!((w.pool.endpoints().get(A).in_flight, w.pool.endpoints().get(B).in_flight), (20, 20));
}

#[test]
fn what_cannot_meet_its_goal_is_refused_and_an_idle_endpoint_is_always_tried() {
    for policy in ["adaptive", "least_work"] {
        let mut w = World::new(policy, 1, |cfg| cfg.refuse_late = true);
        for _ in 0..30 {
            w.send(&tokens(1_000));
            w.pass(1.0);
            w.end_all(Verdict::Success, None);
        }
        let hurry = Request { ttft_goal: Some(Duration::from_millis(2_500)), ..tokens(1_000) };
        // A thousand tokens take a second: the first is tried though nothing is promised, two more are in time.
        let let_in = (0..10).filter(|_| match w.pool.admit(w.now, &hurry, None) {
            Decision::Send { ticket, .. } => {
                w.out.push((A, ticket));
                true
            }
            Decision::Shed { why, retry_after } => {
                assert_eq!(why, Shed::GoalUnreachable);
                assert!(retry_after.is_some_and(|r| r > Duration::ZERO));
                false
            }
            Decision::Wait { .. } => unreachable!("there is no queue"),
        });
        let let_in = let_in.count();
        assert!((2..=4).contains(&let_in), "{policy}: {let_in}");
        w.end_all(Verdict::Cancelled, None);
        let hopeless = Request { ttft_goal: Some(Duration::from_millis(1)), ..tokens(1_000) };
        assert_eq!(w.send(&hopeless), A, "idle: a prediction that is wrong must be found out");
        assert!(matches!(w.pool.admit(w.now, &tokens(1), None), Decision::Send { .. }), "no goal, no refusal");
    }
}

#[test]
fn a_goal_for_the_pace_leaves_slow_endpoints_out_and_is_refused_where_all_are_slow() {
    let mut w = World::new("adaptive", 2, |cfg| cfg.refuse_late = true);
    let streams = |w: &mut World, tokens_of: [u64; 2]| {
        for _ in 0..20 {
            while w.pool.endpoints().get(A).in_flight == 0 || w.pool.endpoints().get(B).in_flight == 0 {
                w.send(&tokens(10));
            }
            let keys: Vec<_> = w.out.iter().map(|(_, t)| t.key()).collect();
            w.pass(0.01);
            keys.into_iter().for_each(|key| w.pool.on_event(w.now, Event::FirstByte(key)));
            w.pass(0.5);
            for (id, made) in [A, B].into_iter().zip(tokens_of) {
                let n = u64::from(w.pool.endpoints().stats[id.index()].streams);
                w.pool.on_event(w.now, Event::Progress { endpoint: id, tokens: made * n });
            }
        }
    };
    // Twenty milliseconds between tokens at one, a tenth of a second at the other.
    streams(&mut w, [25, 5]);
    let fast = Request { tpot_goal: Some(Duration::from_millis(50)), ..tokens(10) };
    for _ in 0..10 {
        assert_eq!(w.send(&fast), A);
    }
    w.end_all(Verdict::Cancelled, None);
    streams(&mut w, [5, 5]);
    let Decision::Shed { why, retry_after } = w.pool.admit(w.now, &fast, None) else { unreachable!("both are slow") };
    assert_eq!((why, retry_after), (Shed::PaceUnreachable, Some(Duration::from_secs(1))));
}
