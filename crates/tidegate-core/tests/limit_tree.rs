//! The hierarchical bucket: its bound, its shares, and what a tick costs.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tidegate_core::limit::tree::{Kind, NodeId, Share, TICK, Tree};
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant, duration_from_secs};

fn secs(s: f64) -> Instant {
    Instant::from_secs_f64(s)
}

fn share(assured: f64, weight: f64) -> Share {
    Share { assured, weight: Some(weight), ceiling: None }
}

fn flat(rate: f64, largest: f64, shares: &[Share]) -> (Tree, Vec<NodeId>) {
    let mut tree = Tree::new(Instant::ORIGIN, rate, largest);
    let root = tree.root();
    let leaves = shares.iter().filter_map(|s| tree.add(Instant::ORIGIN, root, Kind::Leaf, s)).collect();
    (tree, leaves)
}

/// Tokens admitted of each leaf, when each asks `demand` requests of one token per second, evenly and in random order.
fn drive(tree: &mut Tree, leaves: &[NodeId], from_s: f64, to_s: f64, demand: &[f64], seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    let mut taken = vec![0.0; leaves.len()];
    let mut owed = vec![0.0; leaves.len()];
    let mut ms = from_s * 1e3;
    while ms < to_s * 1e3 {
        let mut asks = Vec::new();
        for (at, rate) in demand.iter().enumerate() {
            owed[at] += rate * 1e-3;
            while owed[at] >= 1.0 {
                owed[at] -= 1.0;
                asks.push(at);
            }
        }
        for k in (1..asks.len()).rev() {
            asks.swap(k, rng.below(k + 1));
        }
        for at in asks {
            taken[at] += f64::from(u8::from(tree.try_take(secs(ms * 1e-3), leaves[at], 1.0).is_ok()));
        }
        ms += 1.0;
    }
    taken
}

#[derive(Clone, Debug)]
struct Case {
    rate: f64,
    largest: f64,
    /// Assured (part of the rate), weight, ceiling (part of the rate, 0 is none), levels below.
    shares: Vec<(f64, f64, f64, u8)>,
    /// Milliseconds to pass (negative: the clock steps back), which leaf, cost (part of the largest), what is done with it.
    steps: Vec<(i32, u8, f64, u8)>,
}

fn case() -> impl Strategy<Value = Case> {
    let share = (0.0..0.5f64, prop_oneof![Just(0.0), 0.0..10.0f64], prop_oneof![Just(0.0), 0.01..0.8f64], 0u8..3);
    let step = (prop_oneof![8 => 0i32..4, 2 => -30i32..200, 1 => 0i32..5000], any::<u8>(), 0.0..1.5f64, 0u8..8);
    (
        1.0..1e5f64,
        prop_oneof![Just(1.0), 1.0..40_000.0f64],
        prop::collection::vec(share, 1..6),
        prop::collection::vec(step, 50..600),
    )
        .prop_map(|(rate, largest, shares, steps)| Case { rate, largest, shares, steps })
}

struct Run {
    tree: Tree,
    leaves: Vec<NodeId>,
    now: Instant,
    latest: Instant,
    /// Instant (the latest seen), tokens: what was taken, less what was given back, plus what was charged.
    admitted: Vec<(f64, f64)>,
    held: Vec<(NodeId, f64)>,
}

fn build(case: &Case) -> Run {
    let mut tree = Tree::new(Instant::ORIGIN, case.rate, case.largest);
    let mut leaves = Vec::new();
    for &(assured, weight, ceiling, below) in &case.shares {
        let ceiling = (ceiling > 0.0).then_some(ceiling * case.rate);
        let mut share = Share { assured: assured * case.rate, weight: Some(weight), ceiling };
        let mut parent = tree.root();
        for _ in 0..below {
            parent = tree.add(Instant::ORIGIN, parent, Kind::Branch, &share).unwrap_or(parent);
            share = Share { assured: share.assured * 0.4, weight: Some(1.0), ceiling: None };
            leaves.extend(tree.add(Instant::ORIGIN, parent, Kind::Leaf, &share));
        }
        leaves.extend(tree.add(Instant::ORIGIN, parent, Kind::Leaf, &share));
    }
    Run { tree, leaves, now: secs(20.0), latest: secs(20.0), admitted: Vec::new(), held: Vec::new() }
}

impl Run {
    fn step(&mut self, case: &Case, &(ms, leaf, cost, what): &(i32, u8, f64, u8)) {
        let passed = Duration::from_millis(u64::from(ms.unsigned_abs()));
        // A clock that stepped back goes on from where it was.
        self.now = if ms < 0 { self.latest - passed } else { self.latest + passed };
        self.latest = self.latest.max(self.now);
        let at = self.latest.as_secs_f64();
        let leaf = self.leaves[usize::from(leaf) % self.leaves.len()];
        let n = if case.largest > 1.0 { cost * case.largest } else { 1.0 };
        match what {
            0 if !self.held.is_empty() => {
                let (leaf, taken) = self.held.swap_remove(0);
                self.tree.advance(self.now);
                self.tree.settle(self.now, leaf, -taken * cost.min(1.0));
            }
            1 => self.tree.advance(self.now),
            2 => {
                let same = Share { assured: 0.1 * case.rate, weight: Some(1.0), ceiling: None };
                self.tree.set_share(self.now, leaf, &same);
            }
            _ => {
                self.tree.advance(self.now);
                let before: Vec<_> = self.leaves.iter().map(|l| self.tree.balance(*l).map(f64::to_bits)).collect();
                match self.tree.try_take(self.now, leaf, n) {
                    Ok(_) => {
                        self.admitted.push((at, n));
                        self.held.push((leaf, n));
                    }
                    Err(_) => {
                        let after: Vec<_> =
                            self.leaves.iter().map(|l| self.tree.balance(*l).map(f64::to_bits)).collect();
                        assert_eq!(before, after, "a refusal leaves every balance bit-identical");
                    }
                }
            }
        }
    }
}

fn settings(cases: u32) -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(persistence)), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(settings(300))]

    /// Late, doubled and backward ticks, random trees and costs, no refunds.
    #[test]
    fn what_is_admitted_stays_within_the_bound_over_any_window(case in case()) {
        let mut run = build(&case);
        run.tree.advance(run.now);
        let (mut stock, mut debt) = (run.tree.largest_stock(), run.tree.largest_debt());
        for step in case.steps.iter().filter(|s| s.3 != 0) {
            run.step(&case, step);
            stock = run.tree.largest_stock().max(stock);
            debt = run.tree.largest_debt().max(debt);
            prop_assert!(run.tree.stock() <= run.tree.largest_stock() * (1.0 + 1e-9) + 1e-6 || step.3 == 2);
        }
        for from in 0..run.admitted.len() {
            let mut sum = 0.0;
            for (at, n) in &run.admitted[from..] {
                sum += n;
                let window = at - run.admitted[from].0;
                let bound = case.rate * (window + TICK.as_secs_f64()) + stock + debt;
                prop_assert!(sum <= bound * (1.0 + 1e-9) + 1e-6, "{sum} in {window} s, bound {bound}");
            }
        }
    }

    /// With refunds: what was taken, less what came back, stays within it.
    #[test]
    fn refunds_and_surcharges_mint_nothing(case in case()) {
        let mut run = build(&case);
        run.tree.advance(run.now);
        let start = run.tree.stock();
        let mut net = 0.0;
        for step in &case.steps {
            let (taken, held) = (run.admitted.len(), run.held.clone());
            run.step(&case, step);
            net += run.admitted[taken..].iter().map(|(_, n)| n).sum::<f64>();
            if step.3 == 0 && !held.is_empty() {
                net -= held[0].1 * step.2.min(1.0);
            }
            let minted = case.rate * run.latest.since(secs(20.0)).as_secs_f64();
            let most = minted + start.max(run.tree.largest_stock()) + run.tree.largest_debt() + case.rate * TICK.as_secs_f64();
            prop_assert!(net <= most * (1.0 + 1e-9) + 1e-6, "{net} of {most}");
        }
    }

    #[test]
    fn equal_steps_give_equal_trees(case in case()) {
        let run = || {
            let mut run = build(&case);
            case.steps.iter().for_each(|step| run.step(&case, step));
            (run.admitted, run.tree.stock().to_bits())
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn a_returning_tenant_gets_its_assured_rate_from_its_first_request() {
    let (mut tree, leaves) = flat(1000.0, 1.0, &[share(500.0, 5.0), share(300.0, 3.0), share(100.0, 1.0)]);
    let before = drive(&mut tree, &leaves, 0.0, 2.0, &[10_000.0, 0.0, 400.0], 1);
    assert!((before[0] + before[2]) / 2000.0 > 0.99, "nothing is wasted while it is away: {before:?}");
    assert!((before[0] / 2.0 - 833.0).abs() < 42.0, "lent by weight: {before:?}");
    let first = drive(&mut tree, &leaves, 2.0, 2.15, &[10_000.0, 300.0, 400.0], 2);
    assert!(first[1] >= 44.0, "all it asked: {first:?}");
    let after = drive(&mut tree, &leaves, 2.15, 6.0, &[10_000.0, 300.0, 400.0], 3);
    assert!(after[1] >= 0.99 * 300.0 * 3.85 && after.iter().sum::<f64>() >= 0.99 * 1000.0 * 3.85, "{after:?}");
}

#[test]
fn uneven_demand_is_shared_max_min_and_not_ever_more_unevenly() {
    let (mut tree, leaves) = flat(1000.0, 1.0, &[share(0.0, 1.0), share(0.0, 1.0), share(0.0, 1.0), share(0.0, 1.0)]);
    drive(&mut tree, &leaves, 0.0, 2.0, &[100.0, 200.0, 3000.0, 9000.0], 1);
    let taken = drive(&mut tree, &leaves, 2.0, 12.0, &[100.0, 200.0, 3000.0, 9000.0], 2);
    for (got, ideal) in taken.iter().zip([1000.0, 2000.0, 3500.0, 3500.0]) {
        assert!((got - ideal).abs() <= 0.05 * ideal, "{taken:?}");
    }
}

#[test]
fn two_levels_share_within_each_tenant_first() {
    let mut tree = Tree::new(Instant::ORIGIN, 1000.0, 1.0);
    let root = tree.root();
    let a = tree.add(Instant::ORIGIN, root, Kind::Branch, &share(600.0, 1.0)).unwrap();
    let b = tree.add(Instant::ORIGIN, root, Kind::Branch, &share(400.0, 1.0)).unwrap();
    let leaf = |tree: &mut Tree, p, g| tree.add(Instant::ORIGIN, p, Kind::Leaf, &share(g, 1.0)).unwrap();
    let leaves =
        [leaf(&mut tree, a, 300.0), leaf(&mut tree, a, 300.0), leaf(&mut tree, b, 200.0), leaf(&mut tree, b, 200.0)];
    drive(&mut tree, &leaves, 0.0, 2.0, &[5000.0, 0.0, 5000.0, 5000.0], 1);
    let taken = drive(&mut tree, &leaves, 2.0, 12.0, &[5000.0, 0.0, 5000.0, 5000.0], 2);
    for (got, ideal) in taken.iter().zip([6000.0, 0.0, 2000.0, 2000.0]) {
        assert!((got - ideal).abs() <= 0.05 * ideal + 1.0, "{taken:?}");
    }
    let back = drive(&mut tree, &leaves, 12.0, 12.5, &[5000.0, 300.0, 5000.0, 5000.0], 3);
    assert!(back[1] >= 149.0, "its sibling gives way at once: {back:?}");
}

#[test]
fn a_ceiling_is_never_exceeded_and_what_it_holds_back_is_not_wasted() {
    let capped = Share { assured: 100.0, weight: Some(10.0), ceiling: Some(200.0) };
    let (mut tree, leaves) = flat(1000.0, 1.0, &[capped, share(100.0, 1.0)]);
    let taken = drive(&mut tree, &leaves, 0.0, 10.0, &[5000.0, 5000.0], 1);
    assert!(taken[0] <= 2000.0 + 10.0 + 1.0 && taken[0] >= 0.98 * 2000.0, "{taken:?}");
    assert!(taken.iter().sum::<f64>() >= 0.99 * 10_000.0, "{taken:?}");
    let refusal = (0..1000).find_map(|_| tree.try_take(secs(10.0), leaves[0], 1.0).err()).unwrap();
    let wait = refusal.retry_after.unwrap();
    assert!(refusal.ceiling && refusal.level == 1 && wait <= Duration::from_millis(5));
}

#[test]
fn ten_thousand_idle_tenants_cost_a_tick_nothing() {
    let shares = vec![share(0.1, 1.0); 10_000];
    let (mut tree, leaves) = flat(1000.0, 1.0, &shares);
    tree.advance(secs(5.0));
    tree.advance(secs(10.0));
    for k in 0..300u32 {
        for leaf in &leaves[..3] {
            let _ = tree.try_take(secs(10.0 + f64::from(k) * 0.01), *leaf, 1.0);
        }
        assert!(tree.visited() <= 3, "{} visited", tree.visited());
    }
    assert!(tree.is_idle(leaves[9_999]) && !tree.is_idle(leaves[0]));
    tree.advance(secs(60.0));
    tree.advance(secs(60.1));
    assert_eq!(tree.visited(), 0, "and when all is quiet, nobody");
}

#[test]
fn a_late_tick_is_made_up_and_a_doubled_or_backward_one_mints_nothing() {
    let (mut tree, leaves) = flat(1000.0, 1.0, &[share(1000.0, 1.0)]);
    let empty =
        |tree: &mut Tree, at: f64| (0..10_000).take_while(|_| tree.try_take(secs(at), leaves[0], 1.0).is_ok()).count();
    assert_eq!(empty(&mut tree, 1.0), 100, "50 ms in the leaf, 50 ms in the pool");
    assert_eq!(empty(&mut tree, 1.0), 0, "doubled");
    assert_eq!(empty(&mut tree, 0.2), 0, "backward");
    assert_eq!(empty(&mut tree, 1.04), 40, "late");
    assert_eq!(empty(&mut tree, 9.0), 100, "much later: what it can hold");
}

#[test]
fn a_request_that_can_never_fit_is_terminal() {
    let (mut tree, leaves) = flat(1000.0, 1.0, &[share(100.0, 1.0)]);
    assert!(tree.try_take(secs(1.0), leaves[0], 6.0).unwrap_err().terminal);
    let (mut tree, leaves) = flat(1000.0, 1000.0, &[share(100.0, 1.0)]);
    assert!(!tree.try_take(secs(1.0), leaves[0], 2000.0).is_err_and(|r| r.terminal));
    assert!(tree.try_take(secs(1.0), leaves[0], 1e9).unwrap_err().terminal);
}

#[test]
fn joining_and_leaving_mint_nothing() {
    let (mut tree, leaves) = flat(100.0, 1.0, &[share(10.0, 1.0)]);
    let root = tree.root();
    let mut taken = 0.0;
    let mut now = secs(1.0);
    while tree.try_take(now, leaves[0], 1.0).is_ok() {
        taken += 1.0;
    }
    for _ in 0..1000 {
        now = now + duration_from_secs(0.001);
        let joined = tree.add(now, root, Kind::Leaf, &share(10.0, 1.0)).unwrap();
        while tree.try_take(now, joined, 1.0).is_ok() {
            taken += 1.0;
        }
        assert!(tree.remove(now, joined) && !tree.remove(now, joined));
        tree.settle(now, joined, -50.0);
    }
    assert!(taken <= tree.bound(1.0), "{taken} of {}", tree.bound(1.0));
}

#[test]
fn a_new_rate_mints_no_burst() {
    let (mut tree, leaves) = flat(1000.0, 1.0, &[share(1000.0, 1.0)]);
    while tree.try_take(secs(1.0), leaves[0], 1.0).is_ok() {}
    tree.set_rate(secs(1.0), 1e6);
    tree.set_share(secs(1.0), leaves[0], &share(1e6, 1.0));
    assert!(tree.try_take(secs(1.0), leaves[0], 1.0).is_err(), "no burst");
    tree.advance(secs(2.0));
    tree.set_share(secs(2.0), leaves[0], &share(10.0, 1.0));
    assert!(tree.balance(leaves[0]).unwrap() <= 1.0, "and less where it shrinks");
}

#[test]
fn a_debt_is_repaid_before_the_tenant_enters_again_and_delays_nobody() {
    let (mut tree, leaves) = flat(100_000.0, 32_000.0, &[share(10_000.0, 0.0), share(50_000.0, 1.0)]);
    assert!(tree.try_take(secs(1.0), leaves[0], 32_000.0).is_ok(), "at once, as debt");
    let mut next = 1.0;
    while tree.try_take(secs(next), leaves[0], 100.0).is_err() {
        next += 0.01;
        assert!(tree.try_take(secs(next), leaves[1], 400.0).is_ok(), "its neighbour has its assured rate");
    }
    assert!((next - 1.0 - 1.6).abs() < 0.05, "16,000 owed at 10,000/s: {next}");
}

#[test]
fn a_kept_request_and_those_behind_it_get_what_a_refused_crowd_gets() {
    let (mut tree, leaves) = flat(1000.0, 1.0, &[share(100.0, 1.0), share(100.0, 1.0)]);
    let mut served = 0.0;
    let mut now = secs(1.0);
    for _ in 0..1000 {
        now = tree.next_tick_at().max(now);
        while tree.try_take(now, leaves[0], 1.0).is_ok() {
            served += 1.0;
        }
        tree.want(now, leaves[0], 49.0, 0.0);
        now = now + Duration::from_micros(1);
    }
    assert!(served >= 0.98 * 10_000.0, "ten seconds of all there is: {served}");
}

#[test]
fn when_to_come_back_is_true_when_tried() {
    for (largest, n) in [(1.0, 1.0), (1000.0, 700.0)] {
        let (mut tree, leaves) = flat(1000.0, largest, &[share(130.0, 0.0), share(870.0, 1.0)]);
        let mut now = secs(1.0);
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            now = now + Duration::from_micros(rng.below(20_000) as u64);
            let Err(refused) = tree.try_take(now, leaves[0], n) else { continue };
            let wait = refused.retry_after.unwrap();
            assert!(tree.clone().try_take(now + wait, leaves[0], n).is_ok(), "{largest}: after {wait:?}");
            if wait > TICK {
                assert!(
                    tree.clone().try_take(now + (wait - TICK), leaves[0], n).is_err(),
                    "{largest}: before {wait:?}"
                );
            }
        }
    }
}
