//! What the two shared locks cost when several threads want them: `tidegate-bench contention`.
//!
//! Every thread does what a request of the gateway does under the pool's lock (admit, first byte, settle) and under that of the limits (expected
//! length, reserve, what is left, settle), in the gateway's order and with its mutex, and spins between requests for as long as the rest of a
//! request takes. Counted are the takings that found the lock taken, how long locks were held, and how long was waited for.

use clap::Args;
use parking_lot::Mutex;
use std::cell::Cell;
use std::time::Instant as Clock;
use tidegate_core::balance::registry;
use tidegate_core::descriptor::Params;
use tidegate_core::event::Event;
use tidegate_core::limit::limits::config::{LimitConfig, LimitsConfig, RateConfig, RuleConfig};
use tidegate_core::limit::{Actual, Ask, Limits, OutputEstimate, Quantity, Scope};
use tidegate_core::outcome::{Outcome, Verdict};
use tidegate_core::pool::config::{EndpointConfig, PoolConfig};
use tidegate_core::pool::{Decision, Pool};
use tidegate_core::request::Request;
use tidegate_core::time::{Duration, Instant};

/// Threads for which the share of time under a lock is computed.
const COMPUTED_FOR: f64 = 32.0;
/// Tenants, in turn.
const TENANTS: [&str; 3] = ["a", "b", "c"];

/// What to measure.
#[derive(Args, Debug)]
pub struct Contention {
    /// Threads, one line of the table each
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Endpoints of the pool
    #[arg(long, default_value_t = 4)]
    endpoints: usize,
    /// Microseconds a request takes outside the locks, one line of the table each
    #[arg(long, value_delimiter = ',', default_value = "0,20")]
    other_us: Vec<u64>,
    /// Requests per thread
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
}

/// A value behind the gateway's mutex, with a count of who waited.
struct Watched<T> {
    value: Mutex<T>,
    began: Clock,
}

/// One thread's takings of one lock.
#[derive(Default)]
struct Takings {
    all: Cell<u64>,
    waited: Cell<u64>,
    held_ns: Cell<u64>,
    waited_ns: Cell<u64>,
}

impl<T> Watched<T> {
    fn with<R>(&self, takings: &Takings, f: impl FnOnce(&mut T, Instant) -> R) -> R {
        let asked = Clock::now();
        let mut value = self.value.try_lock().unwrap_or_else(|| {
            takings.waited.set(takings.waited.get() + 1);
            self.value.lock()
        });
        let got = Clock::now();
        let result =
            f(&mut value, Instant::ORIGIN + Duration::from_nanos(got.duration_since(self.began).as_nanos() as u64));
        drop(value);
        takings.all.set(takings.all.get() + 1);
        takings.waited_ns.set(takings.waited_ns.get() + got.duration_since(asked).as_nanos() as u64);
        takings.held_ns.set(takings.held_ns.get() + got.elapsed().as_nanos() as u64);
        result
    }
}

/// The limits of the process and the lengths they learn.
struct Governed {
    limits: Limits,
    lengths: OutputEstimate,
}

struct Shared {
    pool: Watched<Pool>,
    governed: Watched<Governed>,
}

impl Shared {
    fn new(endpoints: usize) -> Self {
        let mut pool = Pool::new(PoolConfig::new(Params::defaults(registry::default_policy())), false, 1);
        for k in 0..endpoints {
            pool.add(Instant::ORIGIN, EndpointConfig::new(format!("http://10.0.{}.{}:8000", k / 256, k % 256)));
        }
        let rule = |name: &str, quantity| RuleConfig {
            name: name.into(),
            only: None,
            quantity,
            limit: LimitConfig::Rate(RateConfig::new(Scope::Tenant, 1e12, Duration::from_secs(60))),
        };
        let rules = vec![rule("requests", Quantity::Requests), rule("tokens", Quantity::TotalTokens)];
        let limits = Limits::new(Instant::ORIGIN, &LimitsConfig { rules, concurrency: Vec::new() });
        let governed = Governed { limits, lengths: OutputEstimate::new(10_000) };
        let began = Clock::now();
        Self {
            pool: Watched { value: Mutex::new(pool), began },
            governed: Watched { value: Mutex::new(governed), began },
        }
    }

    /// One request, as the gateway takes it through both locks.
    fn request(&self, number: u64, of_pool: &Takings, of_limits: &Takings, spin: impl Fn()) {
        let ask = Ask {
            tenant: TENANTS[number as usize % TENANTS.len()],
            model: "m",
            route: "bench",
            prompt_tokens: 20.0,
            output_tokens: 16.0,
            cost: 36.0,
            ..Ask::default()
        };
        self.governed.with(of_limits, |g, _| g.lengths.tokens_for(ask.tenant, ask.model, ask.prompt_tokens, Some(16)));
        let held = self.governed.with(of_limits, |g, now| g.limits.reserve(now, &ask));
        let decision = self.pool.with(of_pool, |p, now| p.admit(now, &Request::default(), None));
        spin();
        if let Decision::Send { ticket, .. } = decision {
            self.pool.with(of_pool, |p, now| p.on_event(now, Event::FirstByte(ticket.key())));
            self.governed.with(of_limits, |g, now| g.limits.headroom_at(now, &ask).map(|h| h.remaining));
            self.pool.with(of_pool, |p, now| p.settle(now, ticket, Outcome::new(Verdict::Success)));
        }
        if let Ok(held) = held {
            let actual = Actual { prompt_tokens: 20.0, output_tokens: 20.0, cost: 40.0 };
            self.governed.with(of_limits, |g, now| g.limits.settle(now, held, &actual));
        }
        spin();
    }
}

/// Measures and prints a table.
pub fn run(asked: &Contention) {
    println!(
        "| threads | other work, us | requests/s | lock | takings per request | held per request, ns | found taken | waited per request, ns | share of the lock at {COMPUTED_FOR} threads |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for other_us in &asked.other_us {
        for threads in &asked.threads {
            line(asked, *threads, *other_us);
        }
    }
}

fn line(asked: &Contention, threads: usize, other_us: u64) {
    let shared = Shared::new(asked.endpoints);
    let half = std::time::Duration::from_micros(other_us) / 2;
    let began = Clock::now();
    let mut sums = [[0u64; 4]; 2];
    std::thread::scope(|scope| {
        let work = |_| {
            scope.spawn(|| {
                let takings = [Takings::default(), Takings::default()];
                for number in 0..asked.requests {
                    shared.request(number, &takings[0], &takings[1], || {
                        let from = Clock::now();
                        while from.elapsed() < half {
                            std::hint::spin_loop();
                        }
                    });
                }
                takings.map(|t| [t.all.get(), t.waited.get(), t.held_ns.get(), t.waited_ns.get()])
            })
        };
        let started: Vec<_> = (0..threads).map(work).collect();
        for counted in started.into_iter().filter_map(|t| t.join().ok()) {
            for (sum, of_one) in sums.iter_mut().flatten().zip(counted.into_iter().flatten()) {
                *sum += of_one;
            }
        }
    });
    let (seconds, requests) = (began.elapsed().as_secs_f64(), (threads as u64 * asked.requests) as f64);
    for (name, [all, waited, held_ns, waited_ns]) in ["pool", "limits"].into_iter().zip(sums) {
        let each = |ns: u64| ns as f64 / requests;
        // How much of its time a thread holds the lock, without others in its way, times so many threads.
        let alone_ns = seconds * 1e9 * threads as f64 / requests - each(sums[0][3]) - each(sums[1][3]);
        println!(
            "| {threads} | {other_us} | {:.0} | {name} | {:.0} | {:.0} | {:.2} % | {:.0} | {:.0} % |",
            requests / seconds,
            all as f64 / requests,
            each(held_ns),
            waited as f64 * 100.0 / all.max(1) as f64,
            each(waited_ns),
            each(held_ns) / alone_ns * COMPUTED_FOR * 100.0,
        );
    }
}
