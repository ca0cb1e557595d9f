//! One decision: admit, first byte, settle. Run with `cargo bench -p tidegate-core`, optionally with a policy's name.

use divan::Bencher;
use tidegate_core::balance::registry;
use tidegate_core::descriptor::Params;
use tidegate_core::event::Event;
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::config::{EndpointConfig, PoolConfig};
use tidegate_core::pool::{Decision, Pool, Ticket};
use tidegate_core::request::Request;
use tidegate_core::time::{Duration, Instant};

fn main() {
    divan::main();
}

fn policies() -> Vec<&'static str> {
    registry::all().iter().map(|d| d.name).collect()
}

/// A pool of `n` endpoints with a few requests in flight at each, warmed up so that the policies have learned something.
struct Busy {
    pool: Pool,
    now: Instant,
    key: u64,
    out: std::collections::VecDeque<Ticket>,
}

impl Busy {
    fn new(policy: &str, n: usize) -> Self {
        let descriptor = registry::find(policy).unwrap_or(registry::default_policy());
        let mut pool = Pool::new(PoolConfig::new(Params::defaults(descriptor)), false, 1);
        for k in 0..n {
            pool.add(Instant::ORIGIN, EndpointConfig::new(format!("http://10.0.{}.{}:8000", k / 256, k % 256)));
        }
        let mut busy = Self { pool, now: Instant::ORIGIN, key: 0, out: std::collections::VecDeque::new() };
        for _ in 0..2 * n {
            busy.admit();
        }
        for _ in 0..2000.max(n) {
            busy.turn();
        }
        busy
    }

    fn admit(&mut self) {
        self.key = self.key.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let request = Request { hash_key: Some(self.key), prompt_tokens: Some(500), ..Request::default() };
        if let Decision::Send { ticket, .. } = self.pool.admit(self.now, &request, None) {
            self.out.push_back(ticket);
        }
    }

    /// One request in, one request out.
    fn turn(&mut self) {
        self.now = self.now + Duration::from_micros(100);
        self.admit();
        if let Some(ticket) = self.out.pop_front() {
            self.pool.on_event(self.now, Event::FirstByte(ticket.key()));
            self.pool.settle(self.now, ticket, Outcome::new(Verdict::Success));
        }
    }
}

#[divan::bench(args = policies(), consts = [3, 64, 1024, 10_000])]
fn decision<const N: usize>(bencher: Bencher<'_, '_>, policy: &str) {
    let mut busy = Busy::new(policy, N);
    bencher.bench_local(|| busy.turn());
}
