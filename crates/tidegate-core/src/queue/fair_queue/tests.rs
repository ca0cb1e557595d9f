use super::*;
use crate::queue::ClassConfig;
use std::collections::BTreeMap;
use std::string::ToString;
use std::vec::Vec;

fn at(s: f64) -> Instant {
    Instant::from_secs_f64(s)
}

fn waiting(tenant: u64, weight: f64, priority: u8, cost: f64) -> Waiting {
    Waiting {
        hash_key: None,
        affinity_key: None,
        model: 0,
        max_output: 0,
        prompt_tokens: None,
        prefix: Vec::new(),
        block_tokens: 0,
        due: None,
        tpot_goal: None,
        attempted: Vec::new(),
        tenant,
        route_class: 0,
        weight,
        priority,
        cost,
        queued_at: Instant::ORIGIN,
        deadline: Instant::FAR_FUTURE,
    }
}

fn queue(classes: &[f64]) -> FairQueue {
    let classes = classes.iter().map(|&share| ClassConfig { name: share.to_string(), share }).collect();
    FairQueue::new(QueueConfig {
        max_waiting: 100_000,
        max_per_tenant: 100_000,
        max_wait: Duration::from_secs(1_000_000),
        classes,
    })
}

/// Cost served of each tenant over `n` requests.
fn serve(q: &mut FairQueue, n: usize) -> BTreeMap<u64, f64> {
    let mut served = BTreeMap::new();
    for k in 0..n {
        let Some((_, w)) = q.pop_next(at(k as f64), |_| May::Go) else { break };
        *served.entry(w.tenant).or_default() += w.cost;
    }
    served
}

#[test]
fn a_tenant_with_long_prompts_gets_no_more_tokens_than_one_with_short_ones() {
    let mut q = queue(&[0.0]);
    for _ in 0..2000 {
        q.push(waiting(1, 1.0, 0, 1000.0)).unwrap();
    }
    for _ in 0..20_000 {
        q.push(waiting(2, 1.0, 0, 10.0)).unwrap();
    }
    let served = serve(&mut q, 5000);
    assert!((served[&1] - served[&2]).abs() <= 1000.0, "{served:?}");
}

#[test]
fn shares_follow_the_weights() {
    let mut q = queue(&[0.0]);
    for _ in 0..2000 {
        for (tenant, weight) in [(1, 3.0), (2, 1.0)] {
            q.push(waiting(tenant, weight, 0, 7.0)).unwrap();
        }
    }
    let served = serve(&mut q, 1000);
    assert!((served[&1] / served[&2] - 3.0).abs() < 0.05, "{served:?}");
}

#[test]
fn a_burst_of_one_tenant_does_not_delay_another() {
    let mut q = queue(&[0.0]);
    for _ in 0..1000 {
        q.push(waiting(1, 1.0, 0, 50.0)).unwrap();
    }
    serve(&mut q, 10);
    let id = q.push(waiting(2, 1.0, 0, 50.0)).unwrap();
    let order: Vec<WaiterId> = (0..2).filter_map(|_| Some(q.pop_next(at(1.0), |_| May::Go)?.0)).collect();
    assert!(order.contains(&id), "the newcomer is among the next two");
}

#[test]
fn a_low_class_keeps_its_reserved_share_and_no_more() {
    let mut q = queue(&[0.0, 0.2]);
    for _ in 0..2000 {
        q.push(waiting(1, 1.0, 0, 10.0)).unwrap();
        q.push(waiting(2, 1.0, 1, 10.0)).unwrap();
    }
    let served = serve(&mut q, 1000);
    assert!((served[&2] / 10_000.0 - 0.2).abs() < 0.01, "{served:?}");
    // Nothing of the high class waits: all is the low one's.
    let mut q = queue(&[0.0, 0.2]);
    q.push(waiting(2, 1.0, 1, 10.0)).unwrap();
    assert_eq!(serve(&mut q, 1)[&2], 10.0);
}

#[test]
fn who_leaves_is_gone_at_once_and_leaves_nothing_behind() {
    let mut q = queue(&[0.0]);
    for round in 0..1000 {
        let ids: Vec<_> = (0..50).map(|k| q.push(waiting(k % 3, 1.0, 0, 1.0)).unwrap()).collect();
        for id in ids {
            assert!(q.remove(id).is_some());
            assert!(q.remove(id).is_none(), "once");
        }
        assert!(q.is_empty() && q.next_deadline().is_none(), "round {round}");
    }
    assert!(q.deadlines.len() < 200 && q.slots.len() <= 50 && q.classes[0].tenants.is_empty());
}

#[test]
fn nothing_waits_past_its_deadline() {
    let mut q = queue(&[0.0]);
    let early = q.push(Waiting { deadline: at(2.0), ..waiting(1, 1.0, 0, 1.0) }).unwrap();
    let late = q.push(Waiting { deadline: at(5.0), ..waiting(1, 1.0, 0, 1.0) }).unwrap();
    assert_eq!(q.next_deadline(), Some(at(2.0)));
    assert!(q.pop_expired(at(1.9)).is_none());
    assert_eq!(q.pop_expired(at(2.0)).map(|(id, _)| id), Some(early));
    assert!(q.pop_expired(at(2.0)).is_none());
    assert_eq!(q.pop_expired(at(9.0)).map(|(id, _)| id), Some(late));
}

#[test]
fn the_bounds_hold_for_the_queue_and_for_each_tenant() {
    let mut q = FairQueue::new(QueueConfig { max_waiting: 10, max_per_tenant: 4, ..QueueConfig::default() });
    let mut push = |tenant| q.push(waiting(tenant, 1.0, 0, 1.0));
    for _ in 0..4 {
        push(1).unwrap();
    }
    assert_eq!(push(1), Err(QueueFull::Tenant));
    for tenant in 2..8 {
        push(tenant).unwrap();
    }
    assert_eq!(push(9), Err(QueueFull::Queue));
}

#[test]
fn a_wait_that_would_end_too_late_is_refused_at_once() {
    let mut q = queue(&[0.0]);
    for _ in 0..100 {
        q.push(Waiting { deadline: at(55.0), ..waiting(1, 1.0, 0, 1.0) }).unwrap();
    }
    // One a second is served.
    serve(&mut q, 50);
    let short = Waiting { queued_at: at(50.0), deadline: at(60.0), ..waiting(1, 1.0, 0, 1.0) };
    assert_eq!(q.push(short.clone()), Err(QueueFull::TooLong));
    assert!(q.push(Waiting { deadline: at(150.0), ..short.clone() }).is_ok());
    assert!(q.push(Waiting { tenant: 2, ..short }).is_ok(), "who has nothing waiting has a turn soon");
}

#[test]
fn a_request_that_may_not_be_served_yet_does_not_hold_up_other_tenants() {
    let mut q = queue(&[0.0]);
    q.push(waiting(1, 1.0, 0, 1.0)).unwrap();
    q.push(waiting(2, 1.0, 0, 1.0)).unwrap();
    assert_eq!(
        q.pop_next(at(0.0), |w| if w.tenant == 1 { May::StayAndAllBehind } else { May::Go }).map(|(_, w)| w.tenant),
        Some(2)
    );
    assert!(q.pop_next(at(0.0), |w| if w.tenant == 1 { May::StayAndAllBehind } else { May::Go }).is_none());
    assert_eq!(q.len(), 1);
}

#[test]
fn who_is_due_first_goes_first_but_not_who_is_late_already() {
    let mut q = queue(&[0.0]);
    let due = |s: f64| Waiting { due: Some(at(s)), ..waiting(1, 1.0, 0, 1.0) };
    let [lost, patient, hurried] = [1.0, 9.0, 4.0].map(|s| q.push(due(s)).unwrap());
    let whenever = q.push(waiting(1, 1.0, 0, 1.0)).unwrap();
    let order: Vec<WaiterId> = (0..4).filter_map(|_| Some(q.pop_next(at(2.0), |_| May::Go)?.0)).collect();
    assert_eq!(order, [hurried, patient, whenever, lost]);
}

#[test]
fn equal_goals_are_first_come_first_served() {
    let mut q = queue(&[0.0]);
    let ids: Vec<WaiterId> = (0..20)
        .map(|k| {
            let queued_at = at(f64::from(k));
            let due = Some(queued_at + Duration::from_secs(5));
            q.push(Waiting { due, queued_at, ..waiting(1, 1.0, 0, 1.0) }).unwrap()
        })
        .collect();
    let order: Vec<WaiterId> = (0..20).filter_map(|_| Some(q.pop_next(at(0.0), |_| May::Go)?.0)).collect();
    assert_eq!(order, ids);
}

#[test]
fn a_wait_is_predicted_behind_those_that_are_due_before() {
    let mut q = queue(&[0.0]);
    for _ in 0..100 {
        q.push(waiting(1, 1.0, 0, 1.0)).unwrap();
    }
    serve(&mut q, 50);
    let hurried = Waiting { queued_at: at(50.0), deadline: at(60.0), due: Some(at(55.0)), ..waiting(1, 1.0, 0, 1.0) };
    assert_eq!(q.predicted_wait(&hurried), Some(Duration::ZERO));
    assert!(q.push(hurried).is_ok());
}
