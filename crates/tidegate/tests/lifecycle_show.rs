//! Streams run and short requests come while the config changes and processes replace each other: nothing breaks, fails or is refilled.
//!
//! By default a small show that every test run can afford. The whole one is `make show`, which sets `SHOW_STREAMS`, `SHOW_RELOADS`,
//! `SHOW_HAND_OVERS` and `SHOW_SECONDS`, the length of a stream.
#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

mod lifecycle;

use lifecycle::show::{Size, run};
use std::time::Duration;

fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn streams_and_limits_live_through_reloads_and_hand_overs() {
    let events = 20;
    run(Size {
        streams: number("SHOW_STREAMS", 200) as usize,
        short: 4,
        events,
        pace: Duration::from_secs(u64::from(number("SHOW_SECONDS", 5))) / events,
        reloads: number("SHOW_RELOADS", 4),
        hand_overs: number("SHOW_HAND_OVERS", 1),
    });
}
