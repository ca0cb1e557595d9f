//! Arbitrary streams of events into a pool with any policy: what must hold after every single one of them.
mod driver;
mod world;

use driver::{FAILED, Service, cases, secs};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tidegate_core::pool::Ticket;
use world::{World, configured, op};

fn settings() -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases: 400, failure_persistence: Some(Box::new(persistence)), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(settings())]

    #[test]
    fn whatever_happens_the_pool_holds_together(
        (case, flags, ops) in world::run(),
    ) {
        world::drive(case, flags, &ops);
    }

    #[test]
    fn equal_streams_give_equal_decisions(
        case in 0usize..64, flags in any::<u8>(), ops in prop::collection::vec(op(), 1..120),
    ) {
        let run = || {
            let mut world = World::new(configured(case, flags), flags & 64 != 0);
            (0..4).for_each(|_| world.add(1.0, None));
            let mut seen = Vec::new();
            for op in &ops {
                world.apply(op);
                seen.push((world.pool.in_flight(), world.out.last().map(Ticket::endpoint), world.pool.next_deadline()));
            }
            seen
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn an_idle_pool_returns_to_its_initial_picking_state() {
    // After failures, slow answers and reports, an hour of nothing: every policy treats its endpoints alike again. Not so the textbook
    // forms, which never forget, and hashing, whose shares are those of the ring.
    for case in cases() {
        if case.label.contains("form=") || case.label.starts_with("consistent_hash") {
            continue;
        }
        let services = [Service::Delay(0.05), Service::Delay(1.5), Service::Ends(FAILED, 0.01), Service::Queue(0.3)];
        let mut rig = driver::Rig::of(&case.cfg, &services, 3);
        rig.run(20.0, 60.0);
        rig.advance(rig.now + secs(60.0));
        rig.stop_reports();
        let later = rig.now + secs(3600.0);
        rig.advance(later);
        rig.services.fill(Service::Queue(0.1));
        rig.run(20.0, 20.0);
        rig.take_sent();
        rig.run(20.0, 60.0);
        let total: u32 = rig.sent.iter().sum();
        for &n in &rig.sent {
            assert!((0.5..1.6).contains(&(4.0 * f64::from(n) / f64::from(total))), "{}: {:?}", case.label, rig.sent);
        }
    }
}
