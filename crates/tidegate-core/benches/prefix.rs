//! The prefix index under a million distinct prompts of 8k tokens: what a request costs, and what the index holds. Run with
//! `cargo bench -p tidegate-core --bench prefix`.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures, and its output is its purpose")]

use std::time::Instant;
use tidegate_core::id::EndpointId;
use tidegate_core::prefix::{PrefixConfig, PrefixIndex, chain};

const PROMPTS: u64 = 1_000_000;
const BLOCK: u32 = 256;
const BLOCKS: u64 = 8192 / BLOCK as u64;
const ENDPOINTS: u32 = 8;

const MIB: f64 = 1_048_576.0;

/// Resident memory of this process, MiB; 0 where the system does not say.
fn resident_mib() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split_whitespace().nth(1).and_then(|p| p.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0 / MIB
}

fn main() {
    let cfg = PrefixConfig { tokens: u64::MAX, ..PrefixConfig::default() };
    let mut index = PrefixIndex::new(cfg, 1.0);
    let (mut matched, mut blocks) = (Vec::new(), Vec::new());
    let (before, start) = (resident_mib(), Instant::now());
    let (mut most, mut found) = (0.0f64, 0usize);
    for n in 0..PROMPTS {
        blocks.clear();
        blocks.extend(chain((0..BLOCKS).map(|b| n * BLOCKS + b)));
        index.look_up(&blocks, BLOCK, &mut matched);
        found += matched.len();
        index.on_sent(EndpointId((n % u64::from(ENDPOINTS)) as u32), &blocks, BLOCK);
        if n % 10_000 == 0 {
            most = most.max(resident_mib() - before);
        }
    }
    let each = start.elapsed() / PROMPTS as u32;
    println!(
        "{PROMPTS} distinct prompts of {BLOCKS} blocks at {ENDPOINTS} endpoints: {each:?} a request, {} blocks held, {:.1} MiB counted, {most:.1} MiB resident at most, bound {} MiB, {found} found",
        index.len(),
        index.bytes() as f64 / MIB,
        cfg.memory >> 20,
    );
    // A prompt that is known at every endpoint: the dearest look-up there is.
    (0..ENDPOINTS).for_each(|e| index.on_sent(EndpointId(e), &blocks, BLOCK));
    let start = Instant::now();
    for _ in 0..100_000 {
        index.look_up(std::hint::black_box(&blocks), BLOCK, &mut matched);
    }
    println!("looking up {BLOCKS} blocks held by all {}: {:?}", matched.len(), start.elapsed() / 100_000);
}
