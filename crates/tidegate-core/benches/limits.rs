//! One request through all limits: reserve, settle. Run with `cargo bench -p tidegate-core --bench limits`.

use divan::Bencher;
use tidegate_core::limit::concurrency::{ConcurrencyConfig, SeatShare};
use tidegate_core::limit::limits::config::{
    ConcurrencyRuleConfig, LimitConfig, LimitsConfig, NamedShare, RateConfig, RuleConfig, SharesConfig,
};
use tidegate_core::limit::tree::Share;
use tidegate_core::limit::{Actual, Ask, Limits, Quantity, Scope};
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, Instant};

fn main() {
    divan::main();
}

const MINUTE: Duration = Duration::from_secs(60);

/// Which rules there are.
#[derive(Clone, Copy, Debug)]
enum Rules {
    /// Tokens per minute of each tenant.
    Plain,
    /// One rate shared by tenants and their models.
    Shares,
    /// Requests and tokens per minute, shares, and requests in flight.
    All,
}

fn config(rules: Rules, tenants: usize, rate: f64) -> LimitsConfig {
    let plain = |name: &str, quantity, amount| RuleConfig {
        name: name.into(),
        only: None,
        quantity,
        limit: LimitConfig::Rate(RateConfig::new(Scope::Tenant, amount, MINUTE)),
    };
    let tpm = plain("tpm", Quantity::TotalTokens, 1e9);
    let named = |k| NamedShare {
        name: format!("tenant-{k}"),
        share: Share { assured: rate / tenants as f64, weight: None, ceiling: Some(rate) },
        children: Vec::new(),
    };
    let others = Share { assured: rate / tenants as f64 / 3.0, weight: None, ceiling: None };
    let shares = RuleConfig {
        name: "shares".into(),
        only: None,
        quantity: Quantity::TotalTokens,
        limit: LimitConfig::Shares(SharesConfig {
            rate,
            largest_cost: 4000.0,
            levels: vec![Scope::Tenant, Scope::Model],
            children: (0..tenants).map(named).collect(),
            others: vec![others, others],
            max_names: 10 * tenants,
        }),
    };
    let seats = ConcurrencyConfig {
        total: 100_000,
        each: Some(1000),
        groups: Vec::new(),
        others: SeatShare::default(),
        max_names: 10 * tenants,
    };
    let seats = ConcurrencyRuleConfig { name: "seats".into(), scope: Scope::Tenant, seats, adaptive: None };
    match rules {
        Rules::Plain => LimitsConfig { rules: vec![tpm], concurrency: Vec::new() },
        Rules::Shares => LimitsConfig { rules: vec![shares], concurrency: Vec::new() },
        Rules::All => {
            LimitsConfig { rules: vec![plain("rpm", Quantity::Requests, 1e9), tpm, shares], concurrency: vec![seats] }
        }
    }
}

/// 10,000 requests/s of 500 tokens reserved and 400 used, each by a random tenant for one of three models; `share` of it fits the rate.
fn bench(bencher: Bencher<'_, '_>, rules: Rules, tenants: usize, share: f64) {
    let mut limits = Limits::new(Instant::ORIGIN, &config(rules, tenants, 4e6 * share));
    let names: Vec<String> = (0..tenants).map(|k| format!("tenant-{k}")).collect();
    let (mut rng, mut now) = (Rng::new(1), Instant::ORIGIN);
    let mut turn = move || {
        now = now + Duration::from_micros(100);
        let model = ["large", "medium", "small"][rng.below(3)];
        let ask = Ask {
            tenant: &names[rng.below(names.len())],
            model,
            route: "chat",
            prompt_tokens: 300.0,
            output_tokens: 200.0,
            ..Ask::default()
        };
        match limits.reserve(now, &ask) {
            Ok(held) => {
                limits.settle(now, held, &Actual { prompt_tokens: 300.0, output_tokens: 100.0, cost: 0.0 });
                true
            }
            Err(_) => false,
        }
    };
    (0..100_000).for_each(|_| {
        turn();
    });
    bencher.bench_local(turn);
}

#[divan::bench(args = [Rules::Plain, Rules::Shares, Rules::All], consts = [10, 1000])]
fn reserve_and_settle<const TENANTS: usize>(bencher: Bencher<'_, '_>, rules: Rules) {
    bench(bencher, rules, TENANTS, 2.0);
}

/// Half of the requests are refused.
#[divan::bench(args = [Rules::Shares, Rules::All], consts = [10, 1000])]
fn overloaded<const TENANTS: usize>(bencher: Bencher<'_, '_>, rules: Rules) {
    bench(bencher, rules, TENANTS, 0.5);
}
