use super::*;
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use std::vec::Vec;

fn at(s: u64) -> Instant {
    Instant::ORIGIN + Duration::from_secs(s)
}

/// Above 0.5 for 30 s: scale by 0.8 within 10..=1000, at most once in 60 s. A sample each second.
fn config() -> RuleConfig {
    RuleConfig {
        name: "shed".into(),
        target: "rate_limits.all".into(),
        when: Condition { op: Op::Above, value: 0.5, clear: 0.5 },
        hold: Duration::from_secs(30),
        stale_after: Duration::from_secs(3),
        step: Step::Scale(0.8),
        bounds: Bounds { min: 10.0, max: 1000.0, whole: false },
        cooldown: Duration::from_secs(60),
        revert: None,
        configured: 100.0,
    }
}

/// Plays one sample a second and carries changes out; the seconds and values of the changes.
fn play(rule: &mut Rule, seconds: core::ops::Range<u64>, metric: impl Fn(u64) -> Option<f64>) -> Vec<(u64, f64)> {
    let mut present = rule.config().configured;
    let mut changes = Vec::new();
    for s in seconds {
        if let Some(change) = rule.on_sample(at(s), metric(s), present) {
            assert_eq!((change.before, change.at), (present, at(s)));
            present = change.after;
            changes.push((s, present));
        }
    }
    changes
}

#[test]
fn acts_once_the_condition_held_throughout_and_again_after_the_cooldown() {
    let mut rule = Rule::new(config());
    let changes = play(&mut rule, 0..200, |_| Some(0.6));
    let expected = [(30, 80.0), (90, 64.0), (150, 51.2)];
    assert_eq!(changes.len(), expected.len(), "{changes:?}");
    for ((s, value), (wanted_s, wanted)) in changes.into_iter().zip(expected) {
        assert!(s == wanted_s && (value - wanted).abs() < 1e-9, "{s} {value}");
    }
}

#[test]
fn a_flapping_metric_never_acts() {
    assert!(play(&mut Rule::new(config()), 0..1000, |s| Some(if s % 30 == 29 { 0.4 } else { 9.0 })).is_empty());
}

#[test]
fn the_bound_itself_is_not_above_it() {
    assert!(play(&mut Rule::new(config()), 0..100, |_| Some(0.5)).is_empty());
    let mut cfg = config();
    cfg.when.op = Op::AtLeast;
    assert_eq!(play(&mut Rule::new(cfg), 0..40, |_| Some(0.5)).len(), 1);
}

#[test]
fn missing_and_impossible_metrics_never_act_and_begin_the_time_anew() {
    for odd in [None, Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY)] {
        assert!(play(&mut Rule::new(config()), 0..500, |_| odd).is_empty(), "{odd:?}");
        let now_and_then = |s: u64| if s.is_multiple_of(20) { odd } else { Some(9.0) };
        assert!(play(&mut Rule::new(config()), 0..500, now_and_then).is_empty(), "{odd:?}");
    }
}

#[test]
fn a_gap_in_the_samples_begins_the_time_anew() {
    let mut rule = Rule::new(config());
    assert!(rule.on_sample(at(0), Some(9.0), 100.0).is_none());
    assert!(rule.on_sample(at(40), Some(9.0), 100.0).is_none(), "nothing was seen in between");
    assert_eq!(rule.state_at(at(41)).holds_since, Some(at(40)));
    assert_eq!(rule.state_at(at(44)).value, None, "stale");
}

#[test]
fn one_change_in_a_cooldown_however_many_samples_come() {
    let mut cfg = config();
    cfg.hold = Duration::ZERO;
    let mut rule = Rule::new(cfg);
    let changes = (0..60_000).filter(|ms| {
        let now = Instant::ORIGIN + Duration::from_millis(*ms);
        rule.on_sample(now, Some(9.0), 100.0).is_some()
    });
    assert_eq!(changes.count(), 1);
}

#[test]
fn bounds_are_never_crossed_and_a_change_to_the_same_value_is_none() {
    let mut rng = Rng::new(7);
    for step in [Step::Scale(0.5), Step::Scale(3.0), Step::Add(-37.0), Step::Add(250.0), Step::Set(5000.0)] {
        for whole in [false, true] {
            let bounds = Bounds { min: 10.0, max: 300.0, whole };
            let mut cfg = RuleConfig { step, bounds, hold: Duration::ZERO, cooldown: Duration::ZERO, ..config() };
            cfg.revert = Some(Revert { hold: Duration::ZERO });
            let mut rule = Rule::new(cfg);
            let mut present = 100.0;
            for s in 0..500 {
                let metric = if rng.next_u64().is_multiple_of(3) { 0.1 } else { 0.9 };
                if let Some(change) = rule.on_sample(at(s), Some(metric), present) {
                    assert!((10.0..=300.0).contains(&change.after) && change.after != change.before, "{change:?}");
                    assert!(!whole || change.after.fract() == 0.0, "{change:?}");
                    present = change.after;
                }
            }
        }
    }
}

#[test]
fn a_target_beyond_the_bound_is_not_pulled_against_the_step() {
    let bounds = Bounds { min: 50.0, max: 1000.0, whole: false };
    assert_eq!(Step::Scale(0.8).after(20.0, &bounds), None, "shedding must not raise");
    assert_eq!(Step::Add(100.0).after(2000.0, &bounds), None, "raising must not lower");
    assert_eq!(Step::Scale(0.8).after(2000.0, &bounds), Some(1000.0));
}

#[test]
fn small_whole_numbers_still_move() {
    let bounds = Bounds { min: 1.0, max: 10.0, whole: true };
    assert_eq!(Step::Scale(0.8).after(2.0, &bounds), Some(1.0));
    assert_eq!(Step::Scale(1.2).after(2.0, &bounds), Some(3.0));
    assert_eq!(Step::Scale(0.8).back(1.0, 2.0, &bounds), Some(2.0));
}

#[test]
fn two_rules_on_one_target_build_on_each_other_and_keep_their_own_bounds() {
    let bounds = Bounds { min: 40.0, ..config().bounds };
    let mut a = Rule::new(config());
    let mut b = Rule::new(RuleConfig { step: Step::Add(-50.0), bounds, ..config() });
    let mut present = 100.0;
    let mut seen = Vec::new();
    for s in 0..400 {
        for rule in [&mut a, &mut b] {
            if let Some(change) = rule.on_sample(at(s), Some(1.0), present) {
                assert_eq!(change.before, present);
                present = change.after;
                seen.push(present);
            }
        }
    }
    // 100 -> 80 -> 40 (held at 40, not 30) -> 32, where the second no longer acts: it would have to raise.
    assert_eq!(&seen[..3], [80.0, 40.0, 32.0]);
    assert!(present >= 10.0 && seen.windows(2).all(|w| w[1] < w[0]), "{seen:?}");
}

#[test]
fn a_rule_steps_back_to_the_configured_value_and_no_further() {
    let mut cfg = config();
    cfg.revert = Some(Revert { hold: Duration::from_secs(10) });
    let mut rule = Rule::new(cfg);
    let changes = play(&mut rule, 0..800, |s| Some(if s < 100 { 0.9 } else { 0.1 }));
    let values: Vec<f64> = changes.iter().map(|(_, v)| (v * 1e6) as i64 as f64 / 1e6).collect();
    assert_eq!(values, [80.0, 64.0, 80.0, 100.0]);
}

#[test]
fn between_the_bound_and_the_one_for_the_way_back_nothing_moves() {
    let mut cfg = config();
    cfg.when.clear = 0.3;
    cfg.revert = Some(Revert { hold: Duration::ZERO });
    let mut rule = Rule::new(cfg);
    let changes = play(&mut rule, 0..500, |s| Some(if s <= 30 { 0.9 } else { 0.4 }));
    assert_eq!(changes.len(), 1, "{changes:?}");
}

#[test]
fn an_operator_takes_it_back_and_the_rule_waits_its_cooldown() {
    let mut rule = Rule::new(config());
    assert_eq!(rule.on_operator(at(0), 100.0), None);
    let change = rule.on_operator(at(0), 51.0).unwrap();
    assert_eq!((change.after, change.why, change.metric), (100.0, Why::Operator, None));
    assert_eq!(play(&mut rule, 1..62, |_| Some(1.0)), [(60, 80.0)]);
}

#[test]
fn a_rule_that_is_off_looks_on_and_does_nothing() {
    let mut rule = Rule::new(config());
    rule.set_enabled(false);
    assert!(play(&mut rule, 0..100, |_| Some(1.0)).is_empty());
    let state = rule.state_at(at(99));
    assert_eq!((state.value, state.next_change_at, state.enabled), (Some(1.0), None, false));
    rule.set_enabled(true);
    assert_eq!(play(&mut rule, 100..140, |_| Some(1.0)), [(130, 80.0)], "the time begins when it is let act");
}
