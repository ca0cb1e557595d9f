//! What is said about each kind of problem: the exact place, what was found, and the hint.

mod common;

use common::{check, in_pool, on_top, problems};

#[test]
fn an_unknown_key_names_the_nearest_one_with_an_example() {
    check(
        &in_pool("    polcy: adaptive"),
        "5:5 unknown_key pools.p.polcy | an unknown key, `polcy` | did you mean `policy`? For example: `policy: adaptive`",
    );
    check(&in_pool("    zzzzzzzzzz: 5s"), "5:5 unknown_key pools.p.zzzzzzzzzz | an unknown key, `zzzzzzzzzz` |");
}

#[test]
fn a_key_on_the_wrong_level_is_told_where_it_belongs() {
    check(
        &in_pool("    health:\n    interval: 5s\n    listeners: []"),
        "5:5 missing pools.p.health.http | no `http` | for example: `http: { path: /health }`
         6:5 unknown_key pools.p.interval | an unknown key, `interval` | `interval` belongs in `health`: indent it below `health:`
         7:5 unknown_key pools.p.listeners | an unknown key, `listeners` | `listeners` is a key of the top level; check the indentation",
    );
}

#[test]
fn a_wrongly_nested_list_does_not_hide_the_other_problems() {
    check(
        "listeners:\n  - address: 127.0.0.1:1\npools:\n  p:\n    replicas: 0\n  endpoints:\n    - url: http://a:1\nthreads: many\n",
        "4:3 missing pools.p.endpoints | no `endpoints` | for example: `endpoints: [{ url: http://127.0.0.1:8000 }]`
         5:15 out_of_range pools.p.replicas | 0 | for example: `replicas: 2`
         6:3 unknown_key pools.endpoints | `endpoints` where a name is expected | `endpoints` is a key of pools.NAME: indent it further
         8:10 wrong_type threads | many | for example: `threads: 4`",
    );
}

#[test]
fn wrong_types_and_ranges() {
    check(
        &in_pool(
            "    health: { http: {}, interval: 5, timeout: 1sec, jitter: 95, unhealthy_after: 0 }\n    max_load: 90",
        ),
        "5:35 wrong_type pools.p.health.interval | 5 | a duration needs its unit: `5s` or `5ms`
         5:47 wrong_type pools.p.health.timeout | 1sec | the units are ns, us, ms, s, m, h and d
         5:61 out_of_range pools.p.health.jitter | 95 | for example: `jitter: 10%`
         5:82 out_of_range pools.p.health.unhealthy_after | 0 | for example: `unhealthy_after: 3`
         6:15 out_of_range pools.p.max_load | 90 | write `90%` for a percentage",
    );
    check(
        &on_top(
            "log: { level: information, format: JSON }\nlimits: { max_header_bytes: 64kb, max_headers: many }\nthreads:",
        ),
        "3:15 out_of_range log.level | information | did you mean `info`?
         3:36 out_of_range log.format | JSON | did you mean `json`?
         4:29 wrong_type limits.max_header_bytes | 64kb | write `64KB`
         4:48 wrong_type limits.max_headers | many | for example: `max_headers: 128`
         5:1 wrong_type threads | nothing | for example: `threads: 4`",
    );
    check(
        &in_pool("    retry: [1]\n    breaker: none"),
        "5:12 wrong_type pools.p.retry | a list | for example: `{ max_attempts: 3 }`
         6:14 out_of_range pools.p.breaker | none, a breaker that does not exist | `tidegate policies --breakers` explains each",
    );
}

#[test]
fn a_duplicate_key_names_the_line_of_the_first() {
    check(
        &in_pool("    retry: { budget: 0.1 }\n    retry: { budget: 0.2 }"),
        "6:5 duplicate_key pools.p.retry | a second `retry`; the first is on line 5 | remove one of the two",
    );
}

#[test]
fn an_empty_file_says_what_is_missing() {
    let expect = "1:1 missing listeners | no `listeners` | for example: `listeners: [{ address: 127.0.0.1:8080 }]`
        1:1 missing pools | no `pools` | for example: `pools: { chat: { endpoints: [{ url: http://127.0.0.1:8000 }] } }`";
    check("", expect);
    check("# nothing\n", expect);
}

#[test]
fn a_pool_without_endpoints() {
    let hint = "for example: `endpoints: [{ url: http://127.0.0.1:8000 }]`";
    let text = "listeners: [{ address: 127.0.0.1:0 }]\npools:\n  p:\n    endpoints: []\n";
    check(text, &format!("4:16 missing pools.p.endpoints | no `endpoints` | {hint}"));
}

#[test]
fn endpoints_are_http_and_each_stands_once() {
    check(
        "listeners: [{ address: 127.0.0.1:0 }]\npools:\n  p:\n    endpoints:\n      - url: ftp://a:1\n      - url: http://a:1\n      - url: http://A:1/\n      - url: https://a:1\n",
        "5:14 wrong_type pools.p.endpoints[0].url | ftp://a:1 | for example: `url: http://127.0.0.1:8000`
         7:14 contradiction pools.p.endpoints[2].url | http://a:1 a second time; the first is on line 6 | remove one of the two; for a larger share give it a `weight`",
    );
}

#[test]
fn routes_lead_to_pools_that_exist_and_can_be_reached() {
    check(
        &on_top("routes:\n  - { match: { path: /v1/ }, pool: pp }\n  - { match: { path: /v1/chat }, pool: p }\n  - pool: p\n  - pool: p"),
        "4:36 contradiction routes[0].pool | `pp`, a pool that does not exist | did you mean `p`?
         5:5 contradiction routes[1] | a route that is never reached: routes[0] on line 4 takes all of its requests | put the narrower route first, or remove one of the two
         7:5 contradiction routes[3] | a second route that takes everything; the first is routes[2] on line 6 | put the narrower route first, or remove one of the two",
    );
}

#[test]
fn several_pools_need_routes_and_every_pool_one() {
    let pools = "listeners: [{ address: 127.0.0.1:0 }]\npools:\n  a: { endpoints: [{ url: http://a:1 }] }\n  b: { endpoints: [{ url: http://b:1 }] }\n";
    check(pools, "1:1 missing routes | no `routes` | for example: `routes: [{ match: { path: /v1/ }, pool: chat }]`");
    check(
        &format!("{pools}routes: [{{ pool: a }}]\n"),
        "4:3 contradiction pools.b | `b`, to which no route leads | add `- { match: { path: /... }, pool: b }` to routes, or remove the pool",
    );
}

#[test]
fn two_sockets_on_one_address() {
    check(
        &on_top("admin: { address: 127.0.0.1:8080 }"),
        "3:19 contradiction admin.address | 127.0.0.1:8080, which listeners[0].address on line 1 listens on | give one of the two another port",
    );
    check(
        "listeners: [{ address: 127.0.0.1:0 }, { address: 127.0.0.1:0 }]\npools: { p: { endpoints: [{ url: http://a:1 }] } }",
        "",
    );
}

#[test]
fn warm_up_steps_ascend_and_end_at_one() {
    let example = "for example: `steps: [{ at: 0s, share: 0.25 }, { at: 30s, share: 0.5 }, { at: 60s, share: 1 }]`";
    check(
        &in_pool("    warm_up:\n      steps:\n        - { at: 1s, share: 0.5 }\n        - { at: 1s, share: 0.4 }"),
        &format!(
            "7:17 contradiction pools.p.warm_up.steps[0].at | a first step at 1s | {example}
             8:17 contradiction pools.p.warm_up.steps[1].at | 1s after 1s | {example}
             8:28 contradiction pools.p.warm_up.steps[1].share | share 0.4 after 0.5 | {example}
             8:28 contradiction pools.p.warm_up.steps[1].share | a last step with share 0.4 | {example}"
        ),
    );
    check(
        &in_pool("    warm_up: { steps: [{ at: 0s, share: 2 }] }"),
        "5:41 out_of_range pools.p.warm_up.steps[0].share | 2 | write `2%` for a percentage",
    );
}

#[test]
fn times_that_contradict_each_other() {
    check(
        &in_pool("    timeouts: { first_byte: 60s, total: 10s }"),
        "5:29 contradiction pools.p.timeouts.first_byte | 1m, longer than total (10s) | lower first_byte or raise total; `total: none` has no bound",
    );
    check(
        &in_pool("    health: { http: {}, tcp: {}, interval: 1s, timeout: 2s }"),
        "5:30 contradiction pools.p.health.tcp | tcp beside http | an HTTP check opens a connection too: remove `tcp`
         5:57 contradiction pools.p.health.timeout | 2s, longer than the interval of 1s | for example: `timeout: 500ms`",
    );
    check(
        &in_pool("    load: { status: { interval: 5s }, max_age: 1s }"),
        "5:48 contradiction pools.p.load.max_age | 1s, shorter than the polling interval of 5s | for example: `max_age: 15s`",
    );
    check(
        &in_pool("    breaker: { name: classic, cool_down: 60s, max_cool_down: 30s }"),
        "5:14 contradiction pools.p.breaker | cool_down 1m, longer than max_cool_down (30s) | lower cool_down or raise max_cool_down",
    );
    check(
        &in_pool("    breaker: off\n    outlier: { consecutive_5xx: 3 }"),
        "6:14 contradiction pools.p.outlier | outlier beside breaker: both say how endpoints go out | remove one of the two; `breaker` can be told more",
    );
}

#[test]
fn a_default_gives_way_to_what_is_set() {
    let text = in_pool(
        "    timeouts: { total: 10s }\n    health: { tcp: {}, interval: 100ms }\n    load: { status: { interval: 50ms } }\n    outlier: { max_ejection_percent: 50 }",
    );
    check(&text, "");
    let (config, _) = tidegate_config::Config::parse(&text, "gw.yaml", &common::env).unwrap();
    let pool = &config.pools[0];
    let millis = |d: std::time::Duration| d.as_millis();
    assert_eq!(pool.timeouts.first_byte.map(millis), Some(10_000));
    assert_eq!(pool.health.as_ref().map(|h| millis(h.timeout)), Some(100));
    assert_eq!(
        pool.load.as_ref().map(|l| (millis(l.status.as_ref().unwrap().timeout), millis(l.max_age))),
        Some((50, 150))
    );
    let breaker = pool.core().breaker;
    let seconds = ["cool_down", "max_cool_down", "forgive_after"].map(|name| breaker.seconds(name));
    assert_eq!((breaker.descriptor().name, seconds), ("classic", [Some(30.0), Some(300.0), Some(10.0)]));
    assert_eq!((breaker.integer("consecutive_errors"), breaker.float("max_ejected")), (5, 0.5));
}

#[test]
fn goals_and_caches_say_what_is_wrong_with_them() {
    check(
        &in_pool("    slo: { tfft: 2s, tpot: 100 }"),
        "5:12 unknown_key pools.p.slo.tfft | an unknown key, `tfft` | did you mean `ttft`? For example: `ttft: 2s`
         5:28 wrong_type pools.p.slo.tpot | 100 | a duration needs its unit: `100s` or `100ms`",
    );
    check(
        &in_pool("    slo: { refuse_late: true }"),
        "5:25 contradiction pools.p.slo.refuse_late | refuse_late without ttft or tpot: only requests and tenants with a goal of their own are refused | for example: `ttft: 2s`",
    );
    check(
        &in_pool("    prefix_cache: { tokens: 10, blocks: 64 }"),
        "5:29 out_of_range pools.p.prefix_cache.tokens | 10 | for example: `tokens: 430_000`
         5:33 unknown_key pools.p.prefix_cache.blocks | an unknown key, `blocks` | did you mean `block`? For example: `block: 256`",
    );
    check(&in_pool("    prefix_cache: off\n    replicas: auto\n    slo: { ttft: 2s, refuse_late: true }"), "");
}

#[test]
fn two_endpoints_do_not_share_a_publisher_and_no_name_is_two_things() {
    let text = |second: &str| {
        format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\npools: {{ p: {{ prefix_cache: {{ events: {{}} }}, endpoints: [{{ url: http://a:1 }}, {{ url: http://a:2{second} }}] }} }}"
        )
    };
    check(
        &text(""),
        "2:56 contradiction pools.p.endpoints | two endpoints with one publisher of cache events: each counts what the other holds | for example, at an endpoint: `cache_events: tcp://127.0.0.1:5558`",
    );
    check(&text(", cache_events: 'tcp://a:5558'"), "");
    check(
        &text(", cache_events: 'tcp://a:5558', models: [m], adapters: [m]"),
        "2:150 contradiction pools.p.endpoints[1].adapters | m among models and adapters | remove it from `models`",
    );
}

#[test]
fn what_endpoints_serve_says_what_is_wrong_with_it_and_reaches_core() {
    let text =
        in_pool("    policy: random\n    models: { pth: /v1/models, interval: 1s, timeout: 2s }\n    adapter_load: 1");
    check(
        &text,
        "6:15 unknown_key pools.p.models.pth | an unknown key, `pth` | did you mean `path`? For example: `path: /v1/models`
         6:55 contradiction pools.p.models.timeout | 2s, longer than the interval of 1s | for example: `timeout: 500ms`
         7:19 contradiction pools.p.adapter_load | adapter_load under random, which does not go by it | choose one of them, or leave it out
         7:19 wrong_type pools.p.adapter_load | 1 | a duration needs its unit: `1s` or `1ms`",
    );
    let text = "listeners: [{ address: 127.0.0.1:0 }]\npools: { p: { adapter_load: 2s, endpoints: [{ url: http://a:1, models: m, adapters: [x, y], max_adapters: 4, max_context: 8192 }] } }";
    let pool = tidegate_config::Config::parse(text, "gw.yaml", &|_| None).unwrap().0.pools.remove(0);
    assert_eq!(pool.core().adapter_load, std::time::Duration::from_secs(2));
    let hash = |name: &str| tidegate_core::hash::hash_bytes(name.as_bytes());
    let expected = tidegate_core::placement::Serves {
        models: Some(vec![hash("m")]),
        adapters: vec![hash("x"), hash("y")],
        max_adapters: Some(4),
        adapters_in_use: None,
        max_context: Some(8192),
        is_unread: false,
    };
    assert_eq!(pool.core_endpoints()[0].serves, expected);
}

#[test]
fn what_is_remembered_and_asked_for_reaches_core() {
    let text = in_pool(
        "    prefix_cache: { tokens: 5000, memory: 1MiB }\n    replicas: 3\n    slo: { ttft: 2s, refuse_late: true }",
    );
    let core = tidegate_config::Config::parse(&text, "gw.yaml", &|_| None).unwrap().0.pools[0].core();
    assert_eq!(core.prefix, Some(tidegate_core::prefix::PrefixConfig { tokens: 5000, memory: 1 << 20 }));
    assert_eq!((core.replicas, core.learn_replicas, core.refuse_late), (3.0, false, true));
}

#[test]
fn metrics_as_a_source_of_load_say_what_is_wrong_with_them() {
    check(
        &in_pool("    load: { metrics: { engine: vlmm, pth: /metrics, interval: 1s, timeout: 2s, load: a / b } }"),
        "5:32 out_of_range pools.p.load.metrics.engine | vlmm | did you mean `vllm`?
         5:38 unknown_key pools.p.load.metrics.pth | an unknown key, `pth` | did you mean `path`? For example: `path: /metrics`
         5:76 contradiction pools.p.load.metrics.timeout | 2s, longer than the interval of 1s | for example: `timeout: 500ms`
         5:86 wrong_type pools.p.load.metrics.load | a / b | the name of a metric has letters, digits, _ and : only; one function, without arithmetic",
    );
    let hint = "for example: `metrics: { load: 'max(my_busy_ratio)' }`, or `status` beside `metrics`";
    check(
        &in_pool("    load: { metrics: {} }\n    max_load: 0.8"),
        &format!(
            "6:15 contradiction pools.p.max_load | max_load in a pool whose metrics tell requests and tokens, and no load in 0..1 | remove max_load, or add a source, {hint}"
        ),
    );
    check(&in_pool("    load: { metrics: { load: max(x) } }\n    max_load: 0.8"), "");
    check(
        &in_pool("    load: { accelerator: {} }\n    max_load: 0.8"),
        &format!(
            "6:15 contradiction pools.p.max_load | max_load in a pool whose sources tell no load in 0..1; GPUs and nodes have gates of their own | remove max_load, or add a source, {hint}"
        ),
    );
    check(
        &in_pool("    load: { accelerator: { path: /m, url: 'http://{hst}:1/', max_temprature: 90, xid_errors: off }, orca: true }"),
        "5:43 wrong_type pools.p.load.accelerator.url | http://{hst}:1/ | the one word in braces that is known is {host}
         5:62 unknown_key pools.p.load.accelerator.max_temprature | an unknown key, `max_temprature` | did you mean `max_temperature`? For example: `max_temperature: 90`
         5:94 out_of_range pools.p.load.accelerator.xid_errors | off | for example: `xid_errors: gate`",
    );
    let sources = check_of_empty_load();
    assert!(
        ["status", "metrics", "accelerator", "node", "orca"].iter().all(|s| sources.contains(&format!("`{s}: "))),
        "{sources}"
    );
    check(
        &in_pool("    load: { node: { max_cpu: 200%, max_mem: 1 } }"),
        "5:30 out_of_range pools.p.load.node.max_cpu | 200% | for example: `max_cpu: 95%`
         5:36 unknown_key pools.p.load.node.max_mem | an unknown key, `max_mem` | did you mean `max_memory`? For example: `max_memory: 95%`",
    );
    check(
        &in_pool("    policy: { name: weighted_round_robin, weights: auto }\n    load: { node: {}, orca: true }"),
        "",
    );
    check(
        &in_pool("    load: { metrics: { path: /m, url: 'http://{host}:8002/metrics' } }"),
        "5:30 contradiction pools.p.load.metrics.path | path beside url | the URL has a path of its own: remove `path`",
    );
    check(&in_pool("    load: { orca: true }\n    max_load: 0.8"), "");
}

/// What is said of `load` without a source.
fn check_of_empty_load() -> String {
    let found = problems(&in_pool("    load: { max_age: 9s }"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].found.starts_with("none of status, metrics"), "{found:?}");
    found[0].hint.clone()
}

#[test]
fn load_settings_need_a_source_of_load() {
    let hint = "for example: `load: { status: { path: /status, interval: 1s } }`";
    check(
        &in_pool("    max_load: 0.9"),
        &format!(
            "5:15 contradiction pools.p.max_load | max_load in a pool whose endpoints report no load | remove max_load, or add a source, {hint}"
        ),
    );
    let text = in_pool("    policy: fastest_recovery");
    check(
        &text,
        &format!(
            "5:13 contradiction pools.p.policy | fastest_recovery in a pool whose endpoints report no load: it falls back to what is seen here | {hint}"
        ),
    );
    assert!(problems(&text).iter().all(|p| !p.is_error()), "a warning, not an error");
    check(&in_pool("    policy: fastest_recovery\n    load: { status: {} }\n    max_load: off"), "");
    let auto = in_pool("    policy: { name: weighted_round_robin, weights: auto }");
    check(
        &auto,
        &format!(
            "5:13 contradiction pools.p.policy | weighted_round_robin with `weights: auto` in a pool whose endpoints report no load: the static weights hold | {hint}; the page may carry `cpu`, `gpu` and `memory` (0..1) beside `current_load`"
        ),
    );
    assert!(problems(&auto).iter().all(|p| !p.is_error()), "a warning, not an error");
    check(&format!("{auto}    load: {{ status: {{}} }}\n"), "");
    check(&in_pool("    policy: weighted_round_robin"), "");
}

#[test]
fn policies_and_their_parameters() {
    check(
        &in_pool("    policy: rond_robin"),
        "5:13 out_of_range pools.p.policy | rond_robin, a policy that does not exist | did you mean `round_robin`? `tidegate policies` explains each",
    );
    check(
        &in_pool("    policy: { name: fastest_recovery, form: emma, windwo: 3s, window: 1ms }\n    load: { status: {} }"),
        "5:45 out_of_range pools.p.policy.form | emma | did you mean `ema`?
         5:51 unknown_key pools.p.policy.windwo | an unknown parameter of fastest_recovery, `windwo` | did you mean `window`? For example: `window: 60s`
         5:71 out_of_range pools.p.policy.window | 1ms | for example: `window: 60s`",
    );
    check(
        &in_pool("    policy: { form: ema }"),
        "5:13 missing pools.p.policy.name | no `name` | for example: `policy: { name: adaptive }`",
    );
    check(
        &in_pool("    policy: { name: adaptive, virtual_nodes: 3 }"),
        "5:31 unknown_key pools.p.policy.virtual_nodes | an unknown parameter of adaptive, `virtual_nodes` | `virtual_nodes` is a parameter of consistent_hash",
    );
    check(
        &in_pool("    policy: { name: hybrid, calm_below: 95% }\n    load: { status: {} }"),
        "5:13 contradiction pools.p.policy.calm_below | calm_below 0.95, above alarm_above 0.9 | for example: `calm_below: 0.7, alarm_above: 0.9`",
    );
}

#[test]
fn keys_of_hashing_and_affinity() {
    check(
        &in_pool("    policy: consistent_hash"),
        "5:13 missing pools.p.policy.key | consistent_hash without `key` | for example: `policy: { name: consistent_hash, key: { header: x-session-id } }`",
    );
    check(
        &in_pool("    policy: { name: consistent_hash, key: { headr: x } }\n    affinity: { key: { header: x, cookie: y } }"),
        "5:43 contradiction pools.p.policy.key | none of header, cookie and body | for example: `key: { header: x-session-id }`
         5:45 unknown_key pools.p.policy.key.headr | an unknown key, `headr` | did you mean `header`? For example: `header: x-session-id`
         6:22 contradiction pools.p.affinity.key | 2 sources | for example: `key: { header: x-session-id }`",
    );
    check(&in_pool("    policy: { name: consistent_hash, key: tenant }\n    affinity: { key: tenant }"), "");
}

#[test]
fn admin_beyond_loopback_needs_a_token() {
    check(
        &on_top("admin: { address: 0.0.0.0:9090 }"),
        "3:19 contradiction admin.address | 0.0.0.0:9090 without a token: anybody who reaches it could drain endpoints | for example: `token: \"${TIDEGATE_ADMIN_TOKEN}\"`, or `address: 127.0.0.1:9090`",
    );
    check(&on_top("admin: { address: 0.0.0.0:9090, token: \"${TOKEN}\" }"), "");
    check(&on_top("admin: off"), "");
}

#[test]
fn what_can_be_switched_off_says_so() {
    for (text, word) in [
        (on_top("admin: no"), "admin"),
        (on_top("journal: false"), "journal"),
        (in_pool("    warm_up: false"), "warm_up"),
    ] {
        let found = problems(&text);
        assert_eq!(found.len(), 1, "{text}");
        assert!(found[0].allowed.ends_with(", or off"), "{word}: {}", found[0].allowed);
        assert_eq!(found[0].hint, "write `off`", "{word}");
    }
}

#[test]
fn an_empty_token_is_said_to_be_empty() {
    for token in ["\"\"", "\"${EMPTY}\""] {
        let found = problems(&on_top(&format!("admin: {{ token: {token} }}")));
        let said: Vec<_> = found.iter().map(|p| (p.found.as_str(), p.allowed.as_str())).collect();
        assert_eq!(said, [("an empty text", "a secret of at least one character")], "{token}");
    }
}

#[test]
fn a_long_line_is_cut_around_the_problem() {
    let long = "x".repeat(200_000);
    for text in [
        format!("listeners: [{{ address: 127.0.0.1:0 }}]\npools: {{ {long}: 3, p: {{ endpoints: 7 }} }} # {long}\n"),
        on_top(&format!("threads: {long}")),
        in_pool(&format!("    health: {{ http: {{ path: {long} }} }}")),
        on_top(&format!("a{long}: b: c")),
    ] {
        let found = problems(&text);
        assert!(!found.is_empty());
        for p in found {
            assert!(p.excerpt.chars().count() <= 166 && p.caret <= 163 && p.to_string().len() < 3000, "{p}");
        }
    }
    let found = problems(&on_top(&format!("log: {{ format: text, {}level: loud }}", " ".repeat(5000))));
    let marked: String = found[0].excerpt.chars().skip(found[0].caret).take(found[0].width).collect();
    assert_eq!((marked.as_str(), found[0].column), ("loud", 5029));
}

#[test]
fn an_endpoint_is_not_a_listener_of_the_gateway() {
    let text = |listener: &str, endpoint: &str| {
        format!(
            "listeners: [{{ address: \"{listener}\" }}]\npools: {{ p: {{ endpoints: [{{ url: \"http://{endpoint}\" }}] }} }}\n"
        )
    };
    check(
        &text("127.0.0.1:8080", "127.0.0.1:8080"),
        "2:34 contradiction pools.p.endpoints[0].url | http://127.0.0.1:8080, which is listeners[0] of this gateway: it would send to itself for ever | give the engine another port, or the listener",
    );
    for (listener, endpoint, is_loop) in [
        ("0.0.0.0:8080", "127.0.0.1:8080", true),
        ("0.0.0.0:8080", "127.0.0.1:8081", false),
        ("0.0.0.0:8080", "localhost:8080", true),
        ("0.0.0.0:8080", "10.0.0.5:8080", false),
        ("0.0.0.0:8080", "[::1]:8080", false),
        ("[::]:8080", "127.0.0.1:8080", true),
        ("[::1]:8080", "localhost:8080", true),
        ("127.0.0.1:8080", "0.0.0.0:8080", true),
        ("10.0.0.5:80", "10.0.0.5", true),
        ("10.0.0.5:8080", "localhost:8080", false),
        ("127.0.0.1:8080", "127.0.0.2:8080", false),
    ] {
        assert_eq!(!problems(&text(listener, endpoint)).is_empty(), is_loop, "{listener} {endpoint}");
    }
}

#[test]
fn variables_of_the_environment() {
    check(
        &on_top("admin: { token: \"${UNSET}\" }\nthreads: ${also unset}\nlog: { level: \"${EMPTY:-debug}\" }"),
        "3:17 environment admin.token | ${UNSET}, which is not set | set UNSET in the environment, or give a default: ${UNSET:-VALUE}
         4:10 environment threads | ${also unset} | a variable's name has letters, digits and _ only",
    );
    check(&on_top("routes:\n  - { match: { headers: { x-a: \"$${b}\" } }, pool: \"${POOL:-p}\" }"), "");
}

#[test]
fn secrets_are_not_shown() {
    for text in [
        "admin: { address: 0.0.0.0:9090, token: hunter2, x: 1 }",
        "admin: { tokn: hunter2 }",
        "admin: { token: hunter2, token: hunter2 }",
        "admin: { token: [hunter2] }",
        "admin: { token: \"hunter2 }",
        "admin: { x: 1, token: ${TOKEN} }",
        "admin:\n  x: 1\n  token: |\n    hunter2\n   y: hunter2",
    ] {
        let found = problems(&on_top(text));
        assert!(!found.is_empty(), "{text}");
        for p in found {
            let shown = format!("{p}{p:?}{}", p.to_json());
            assert!(!shown.contains("hunter2") && !shown.contains("s3cret"), "{text}\n{shown}");
        }
    }
}

#[test]
fn broken_syntax_does_not_hide_what_stands_elsewhere() {
    check(
        "a: b: c\nlisteners: [{ address: x }]\nthreads: many\n",
        "1:5 syntax  | mapping values are not allowed in this context | compare the indentation, quotes and brackets with the lines before it
         2:24 wrong_type listeners[0].address | x | for example: `address: 127.0.0.1:8080`
         3:10 wrong_type threads | many | for example: `threads: 4`",
    );
    check(
        "listeners: [{ address: 127.0.0.1:1 }\npools:\n  p:\n    pollicy: x\n",
        "1:12 syntax  | a bracket that is not closed | compare the indentation, quotes and brackets with the lines before it
         4:5 unknown_key pools.p.pollicy | an unknown key, `pollicy` | did you mean `policy`? For example: `policy: adaptive`",
    );
    check(
        "listeners:\n  - address: 127.0.0.1:1\n\tx: 1\nthreads: many\n",
        "3:1 syntax  | a tab in the indentation, where only spaces may stand | compare the indentation, quotes and brackets with the lines before it
         4:10 wrong_type threads | many | for example: `threads: 4`",
    );
}

#[test]
fn aliases_are_bounded() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        let refs = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
    }
    let found = problems(&bomb);
    assert!(found.iter().any(|p| p.found.contains("nodes")), "{found:?}");
}

#[test]
fn tenants_and_limits_that_do_not_fit_together() {
    let tenants = "tenants:\n  identify: [{ api_key: {} }]\n  named:\n    acme: { pools: [q] }";
    check(&on_top(tenants), "6:20 contradiction tenants.named.acme.pools | `q`, which no pool matches |");
    let limits = "rate_limits:\n  - { name: a, limit: 10 requests/s, per: tenant }\n  - { name: b, limit: 10 requests/s, shares: { x: {} } }\nconcurrency_limits: [{ name: c, max_in_flight: 9, each: 3 }, { name: d, max_in_flight: 9 }]";
    let hint = "a limit per tenant, where everybody is the same tenant | for example: `tenants: { identify: [{ api_key: {} }] }`";
    check(
        &on_top(limits),
        &format!(
            "4:43 contradiction rate_limits[0].per | {hint}
             5:46 contradiction rate_limits[1].shares | {hint}
             6:57 contradiction concurrency_limits[0].each | {hint}"
        ),
    );
    check(
        &on_top("rate_limits: [{ name: a, limit: 10 requests/s, overrides: { x: { amount: 3 } } }]"),
        "3:59 contradiction rate_limits[0].overrides | names in `overrides` of a limit that is for everybody together | for example: `per: tenant`",
    );
}

#[test]
fn shares_that_could_not_hold_what_they_say() {
    let of = |shares: &str| {
        on_top(&format!(
            "tenants: {{ identify: [{{ api_key: {{}} }}] }}\nrate_limits:\n  - name: a\n    limit: 100 requests/s\n    levels: tenant/model\n    shares: {shares}"
        ))
    };
    check(
        &of("{ x: { assured: 50 requests/s, ceiling: 40 requests/s } }"),
        "8:13 contradiction rate_limits[0].shares | a ceiling for `x` that is below what it is assured | raise the ceiling of `x`, or lower `assured`",
    );
    check(
        &of("{ x: { assured: 50 requests/s, children: { m: { assured: 60 requests/s } } } }"),
        "8:13 contradiction rate_limits[0].shares | children of `x` that are assured more in all than it is itself | raise `assured` of `x`, or lower theirs",
    );
}

#[test]
fn a_key_in_clear_where_its_digest_belongs_is_not_shown() {
    for keys in ["sk-live-1234", "[sk-live-1234, sk-live-5678]", "\n        - sk-live-1234\n        - sk-live-5678"] {
        let text =
            on_top(&format!("tenants:\n  identify: [{{ api_key: {{}} }}]\n  named:\n    acme:\n      keys: {keys}"));
        let found = problems(&text);
        assert!(!found.is_empty(), "{keys}");
        for p in &found {
            assert!(p.allowed.contains("sha256:") && p.hint.contains("tidegate key"), "{p:?}");
            assert!(!format!("{p:?} {p}").contains("live"), "{p:?}");
        }
    }
}

#[test]
fn settings_that_do_nothing_under_a_policy_are_said() {
    let warned = |more: &str| common::summary(&in_pool(more));
    assert!(warned("    policy: round_robin\n    prefix_cache: {}\n").contains("prefix_cache under round_robin"));
    assert!(warned("    policy: prefix_affinity\n").contains("without prefix_cache"));
    assert!(
        warned("    policy: random\n    slo: { ttft: 1s, refuse_late: true }\n").contains("refuse_late under random")
    );
    assert_eq!(warned("    policy: adaptive\n    prefix_cache: {}\n    slo: { ttft: 1s, refuse_late: true }\n"), "");
    assert!(warned("    slo: {}\n").contains("slo without a goal: only requests"));
    let misspelt = warned("    slo: { tfft: 2s }\n");
    assert!(misspelt.contains("did you mean `ttft`?") && !misspelt.contains("without a goal"), "{misspelt}");
}

#[test]
fn what_endpoints_say_of_themselves_and_nobody_asks_for_is_said() {
    let warned = |of_endpoint: &str, more: &str| {
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  p:\n    endpoints: [{{ url: http://a:1, {of_endpoint} }}]\n{more}"
        );
        common::summary(&text)
    };
    assert!(warned("gpus: [0]", "").contains("gpus of an endpoint without load.accelerator"));
    assert_eq!(warned("gpus: [0, GPU-8f2a]", "    load: { accelerator: {} }\n"), "");
    assert!(warned("gpus: [-1]", "    load: { accelerator: {} }\n").contains("an index from 0 up, or a UUID"));
    assert!(warned("cache_events: tcp://a:1", "").contains("nobody listens"));
    assert_eq!(warned("cache_events: tcp://a:1", "    prefix_cache: { events: { ranks: 8, topic: kv } }\n"), "");
    let wrong = warned("cache_events: http://a:1", "    prefix_cache: { events: { url: a:1, rank: 2 } }\n");
    assert!(wrong.contains("write tcp://host:port") && wrong.contains("did you mean `ranks`?"), "{wrong}");
}

#[test]
fn places_for_adapters_that_nobody_knows_are_said() {
    let warned = |of_endpoint: &str, more: &str| {
        common::summary(&format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  p:\n    endpoints: [{{ url: http://a:1, {of_endpoint} }}]\n{more}"
        ))
    };
    let found = warned("max_adapters: 4", "");
    assert!(found.contains("max_adapters of http://a:1 without adapters"), "{found}");
    assert_eq!(warned("max_adapters: 4, adapters: [x]", ""), "");
    assert_eq!(warned("max_adapters: auto", ""), "");
    assert_eq!(warned("max_adapters: 4", "    models: {}\n"), "");
}

#[test]
fn a_route_for_a_model_that_its_pool_does_not_serve_is_said() {
    let warned = |models: &str, endpoints: &str, more: &str| {
        common::summary(&format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\nroutes:\n  - {{ match: {{ models: {models} }}, pool: p }}\n  - {{ pool: q }}\n\
             pools:\n  p: {{ endpoints: [{endpoints}]{more} }}\n  q: {{ endpoints: [{{ url: http://z:1 }}] }}\n"
        ))
    };
    const BOTH: &str =
        "{ url: http://a:1, models: [llama-8b] }, { url: http://b:1, models: [qwen], adapters: [qwen-de] }";
    let found = warned("['llama-*', qwen-dee, mistral]", BOTH, "");
    assert!(found.contains("qwen-dee, mistral, which no endpoint of the pool p serves"), "{found}");
    assert!(
        found.contains("routes[0].match.models") && found.ends_with("did you mean `qwen-de` in place of `qwen-dee`?"),
        "{found}"
    );
    for fine in ["['llama-*', qwen-de]", "['*']", "qwen"] {
        assert_eq!(warned(fine, BOTH, ""), "", "{fine}");
    }
    // Who is asked, or says nothing, may serve more.
    assert_eq!(warned("mistral", BOTH, ", models: {}"), "", "adapters of the first are not known");
    assert!(
        warned("mistral", "{ url: http://b:1, models: [qwen], adapters: [qwen-de] }", ", models: {}")
            .contains("mistral")
    );
    assert_eq!(warned("mistral", "{ url: http://a:1, models: [llama] }, { url: http://b:1 }", ""), "");
    let broken = warned(
        "mistral",
        "{ url: http://a:1, models: [llama] }, { url: http://b:1, models: [mistral], weight: x }",
        "",
    );
    assert!(!broken.contains("no endpoint of the pool"), "what could not be read may serve it: {broken}");
}

#[test]
fn goals_of_tenants_need_a_pool_that_asks_for_them() {
    let warned = |slo: &str, more: &str| {
        let tenants = format!(
            "tenants:\n  identify: [{{ header: {{ name: x, trust: [127.0.0.1] }} }}]\n  named: {{ a: {{ slo: {slo} }} }}\n"
        );
        common::summary(&format!("{tenants}{}", in_pool(more)))
    };
    assert!(warned("{ ttft: 5s }", "").contains("where no pool has `slo`"));
    assert!(warned("{}", "    slo: { ttft: 2s }\n").contains("slo without a goal"));
    assert_eq!(warned("{ ttft: 5s }", "    slo: {}\n"), "", "it says where these count");
}
