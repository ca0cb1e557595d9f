//! `fleet`: the engines of a scenario.

use std::time::Duration;

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};

use super::key::{number, or};
use super::services::{Cpu, Embedding, Vector};
use crate::engine::EngineSpec;
use crate::engine::article::ArticleParams;
use crate::engine::background::BackgroundParams;
use crate::engine::fixed::FixedParams;
use crate::engine::llm::LlmParams;
use crate::kernel::elastic::{Autoscale, ColdStart, Group};
use crate::kernel::setup::Site;

/// Engines of one kind.
#[derive(Clone, Debug)]
pub struct Engines {
    name: String,
    count: u32,
    /// Whether there is one of them in the file: its endpoint has no number.
    is_alone: bool,
    weight: f64,
    max_in_flight: Option<u32>,
    cold_start: ColdStart,
    grace: Option<Duration>,
    autoscale: Option<Autoscale>,
    spec: EngineSpec,
}

impl Engines {
    /// Whether something is said about how they come and go.
    pub fn changes(&self) -> bool {
        self.autoscale.is_some() || self.cold_start != ColdStart::default() || self.grace.is_some()
    }

    /// Whether they keep the answers to queries.
    pub fn keeps_answers(&self) -> bool {
        matches!(self.spec, EngineSpec::Vector(params) if params.cache > 0)
    }

    /// What starts and stops them.
    pub fn autoscale(&self) -> Option<&Autoscale> {
        self.autoscale.as_ref()
    }

    /// Endpoints there can be of them.
    pub fn most(&self) -> u32 {
        self.autoscale.map_or(self.count, |a| a.max)
    }
}

/// The groups of a fleet that are scaled, by their places among its endpoints.
pub fn groups(fleet: &[Engines]) -> Vec<Group> {
    let mut from = 0;
    let mut groups = Vec::new();
    for e in fleet {
        let sites = from..from + e.most();
        from = sites.end;
        groups.extend(e.autoscale.map(|autoscale| Group { sites, initial: e.count, autoscale }));
    }
    groups
}

/// The endpoints of a fleet: `name` alone, or `name-1`, `name-2`, ... where there can be more than 1.
pub fn sites(fleet: &[Engines]) -> Vec<Site> {
    let mut sites = Vec::new();
    for e in fleet {
        for k in 1..=e.most() {
            let name = if e.is_alone && k == 1 { e.name.clone() } else { format!("{}-{k}", e.name) };
            let (weight, max_in_flight) = (e.weight, e.max_in_flight);
            let (cold_start, grace) = (e.cold_start, e.grace);
            sites.push(Site { weight, max_in_flight, cold_start, grace, ..Site::new(name, e.spec) });
        }
    }
    sites
}

/// How many engines a fleet has.
pub fn size(fleet: &[Engines]) -> u32 {
    fleet.iter().map(|e| e.count).sum()
}

/// The same fleet with `total` engines, its kinds in proportion by the rule of Sainte-Lague: one engine after the other goes to the kind
/// with the largest count / (2 given + 1), the first of equals. Unlike rounding, a larger fleet then has at least as many of every kind.
pub fn resized(fleet: &[Engines], total: u32) -> Vec<Engines> {
    let mut sized: Vec<Engines> = fleet.iter().map(|e| Engines { count: 0, ..e.clone() }).collect();
    for _ in 0..total {
        let claim = |k: usize| f64::from(fleet[k].count) / f64::from(2 * sized[k].count + 1);
        let next = (0..fleet.len()).fold(0, |best, k| if claim(k) > claim(best) { k } else { best });
        if let Some(kind) = sized.get_mut(next) {
            kind.count += 1;
        }
    }
    sized
}

/// What a fleet is made of, in words: `5 a100 + 3 half`.
pub fn words(fleet: &[Engines]) -> String {
    let kinds = fleet.iter().filter(|e| e.count > 0).map(|e| format!("{} {}", e.count, e.name));
    kinds.collect::<Vec<_>>().join(" + ")
}

impl Section for Engines {
    const TABLE: &'static Table = &Table {
        place: "fleet[]",
        summary: "Engines of one kind. Exactly one of `fixed`, `load`, `llm`, `embedding`, `vector` and `cpu` says which model they are.",
        keys: &[
            Key {
                name: "name",
                kind: Kind::Name,
                absent: Absent::Default("engine"),
                summary: "Name of the endpoint; with `count` it gets a number.",
                example: "a100",
            },
            Key {
                name: "count",
                kind: Kind::Integer { min: 1, max: 100_000, word: None },
                absent: Absent::Default("1"),
                summary: "How many of them.",
                example: "8",
            },
            Key {
                name: "weight",
                kind: Kind::Number { min: 0.001, max: 1e6 },
                absent: Absent::Default("1"),
                summary: "Static weight.",
                example: "2",
            },
            Key {
                name: "max_in_flight",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
                absent: Absent::Means("no bound"),
                summary: "Most requests at one of them from one gateway.",
                example: "64",
            },
            Key {
                name: "cold_start",
                kind: Kind::Table(ColdStart::TABLE),
                absent: Absent::Means("an engine that starts serves at once"),
                summary: "How long one that starts during the run takes.",
                example: "{ min: 15s, max: 30s }",
            },
            Key {
                name: "grace",
                kind: Kind::Duration { min: 0.0, max: 86_400.0, word: Some("any") },
                absent: Absent::Default("any"),
                summary: "How long one that leaves may go on with what it has; then it stops, and what is left breaks off.",
                example: "30s",
            },
            Key {
                name: "autoscale",
                kind: Kind::Table(Autoscale::TABLE),
                absent: Absent::Means("always `count`"),
                summary: "Starts and stops them as the load asks for; `count` are there at the beginning.",
                example: "{ in_flight: 16, max: 8 }",
            },
            Key {
                name: "fixed",
                kind: Kind::Table(Fixed::TABLE),
                absent: Absent::Means("another model"),
                summary: "A delay per request.",
                example: "{ delay: 1s }",
            },
            Key {
                name: "load",
                kind: Kind::Table(Load::TABLE),
                absent: Absent::Means("another model"),
                summary: "The article's model: time and rejects follow a drifting load.",
                example: "{ per_request: 0.01 }",
            },
            Key {
                name: "llm",
                kind: Kind::Table(Llm::TABLE),
                absent: Absent::Means("another model"),
                summary: "Continuous batching with chunked prefill and KV memory.",
                example: "{ preset: a100-8b }",
            },
            Key {
                name: "embedding",
                kind: Kind::Table(Embedding::TABLE),
                absent: Absent::Means("another model"),
                summary: "Requests are collected in a window and computed together.",
                example: "{ window: 5ms, max_batch: 32 }",
            },
            Key {
                name: "vector",
                kind: Kind::Table(Vector::TABLE),
                absent: Absent::Means("another model"),
                summary: "A search in an index, faster where its answer is cached.",
                example: "{ vectors: 10_000_000, hit_rate: 30% }",
            },
            Key {
                name: "cpu",
                kind: Kind::Table(Cpu::TABLE),
                absent: Absent::Means("another model"),
                summary: "Cores that all requests share.",
                example: "{ cores: 8, work: 40ms }",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let name = r.text("name").unwrap_or_default();
        let count = u32::try_from(r.integer("count")).unwrap_or(1);
        let weight = r.number("weight");
        let max_in_flight = r.integer_or_none("max_in_flight").and_then(|n| u32::try_from(n).ok());
        let (cold_start, autoscale) = (r.table("cold_start").unwrap_or_default(), r.table::<Autoscale>("autoscale"));
        if let Some(a) = autoscale.filter(|a| !(a.min..=a.max).contains(&count)) {
            let found = format!("count {count}, autoscaled from {} to {}", a.min, a.max);
            let hint = format!("for example: `count: {}`", a.min);
            r.contradiction("autoscale", found, "count from min to max", hint);
        }
        let grace = r.duration_or_none("grace");
        let fixed = r.table::<Fixed>("fixed").map(|f| EngineSpec::Fixed(f.0));
        let load = r.table::<Load>("load").map(|l| EngineSpec::Load(l.0));
        let llm = r.table::<Llm>("llm").map(|l| EngineSpec::Llm(l.0));
        let embedding = r.table::<Embedding>("embedding").map(|e| EngineSpec::Embedding(e.0));
        let vector = r.table::<Vector>("vector").map(|v| EngineSpec::Vector(v.0));
        let cpu = r.table::<Cpu>("cpu").map(|c| EngineSpec::Cpu(c.0));
        let models = [fixed, load, llm, embedding, vector, cpu];
        let models: Vec<EngineSpec> = models.into_iter().flatten().collect();
        if models.len() != 1 {
            let found = if models.is_empty() { "no model" } else { "more than one model" };
            let key = if r.is_set("fixed") { "fixed" } else { "llm" };
            r.contradiction(
                key,
                found.to_owned(),
                "one of fixed, load, llm, embedding, vector, cpu",
                "for example: `fixed: { delay: 1s }`".to_owned(),
            );
        }
        let spec = models.first().copied().unwrap_or(EngineSpec::Fixed(FixedParams::default()));
        let is_alone = autoscale.map_or(count, |a| a.max) == 1;
        Self { name, count, is_alone, weight, max_in_flight, cold_start, grace, autoscale, spec }
    }
}

struct Fixed(FixedParams);

impl Section for Fixed {
    const TABLE: &'static Table = &Table {
        place: "fleet[].fixed",
        summary: "An engine that takes the same time for every request.",
        keys: &[
            Key {
                name: "delay",
                kind: Kind::Duration { min: 0.0, max: 3600.0, word: None },
                absent: Absent::Required,
                summary: "Time a request occupies the engine.",
                example: "7s",
            },
            Key {
                name: "slots",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: Some("any") },
                absent: Absent::Default("any"),
                summary: "Requests served at a time; 1 serves one after the other.",
                example: "1",
            },
            Key {
                name: "max_waiting",
                kind: Kind::Integer { min: 0, max: 10_000_000, word: None },
                absent: Absent::Default("100_000"),
                summary: "Requests that may wait for a slot before 503.",
                example: "100",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self(FixedParams {
            delay_s: r.duration("delay").as_secs_f64(),
            slots: r.integer_or_none("slots").and_then(|n| u32::try_from(n).ok()),
            max_waiting: u32::try_from(r.integer("max_waiting")).unwrap_or(u32::MAX),
            ..FixedParams::default()
        })
    }
}

struct Load(ArticleParams);

impl Section for Load {
    const TABLE: &'static Table = &Table {
        place: "fleet[].load",
        summary: "u = clip(b + per_request n, 0, 1); a request takes 0.1 + 0.9 u seconds, fixed at admission; u > 0.9 rejects. The \
                  background b drifts with momentum between `low` and `high`, plus surges that drain.",
        keys: &[
            number("per_request", (0.0, 1.0), or("0.01"), "Load that one request of ours adds."),
            Key {
                name: "tv",
                kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
                absent: Absent::Default("1s"),
                summary: "Time constant of the background's velocity.",
                example: "1s",
            },
            number("sv", (0.0, 10.0), or("0.03"), "Standard deviation of the velocity, load per second."),
            number("low", (0.0, 2.0), or("0.05"), "Lower bound of the background."),
            number("high", (0.0, 2.0), or("0.45"), "Upper bound of the background."),
            number("surge_rate", (0.0, 100.0), or("0.04"), "Surges per second; each jumps to a level from 1.5 to 1.6."),
            number("drain", (0.0, 100.0), or("0.2"), "How fast a surge drains, load per second."),
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let background = BackgroundParams {
            tv_s: r.duration("tv").as_secs_f64(),
            sv: r.number("sv"),
            low: r.number("low"),
            high: r.number("high"),
            surge_rate: r.number("surge_rate"),
            drain: r.number("drain"),
            ..BackgroundParams::default()
        };
        if background.low > background.high {
            let found = format!("low {}, above high {}", background.low, background.high);
            r.contradiction("low", found, "low at most high", "for example: `low: 0.05, high: 0.45`".to_owned());
        }
        Self(ArticleParams { load_per_request: r.number("per_request"), background, ..ArticleParams::default() })
    }
}

struct Llm(LlmParams);

/// A parameter of the model that takes the place of the preset's.
const fn own(name: &'static str, kind: Kind, summary: &'static str, example: &'static str) -> Key {
    Key { name, kind, absent: Absent::Means("the preset's"), summary, example }
}

/// Time per step or token.
const SHORT: Kind = Kind::Duration { min: 0.0, max: 60.0, word: None };
/// A number of tokens or sequences.
const COUNT: Kind = Kind::Integer { min: 1, max: 1_000_000_000, word: None };

impl Section for Llm {
    const TABLE: &'static Table = &Table {
        place: "fleet[].llm",
        summary: "A step takes step + per_token (tokens beyond free_tokens) + per_kv_token (KV tokens): an 8B model on an A100, an H100, or \
                  half an A100, or an engine you measured (docs/real-engines.md fits one).",
        keys: &[
            Key {
                name: "preset",
                kind: Kind::Choice(&["a100-8b", "h100-8b", "half-a100"]),
                absent: Absent::Default("a100-8b"),
                summary: "The measured engine.",
                example: "h100-8b",
            },
            own("step", SHORT, "Time of an empty step.", "10ms"),
            own("per_token", SHORT, "Time per token of a step beyond `free_tokens`.", "66us"),
            own(
                "free_tokens",
                Kind::Integer { min: 0, max: 1_000_000, word: None },
                "Tokens of a step that cost nothing beyond `step`.",
                "64",
            ),
            own("per_kv_token", SHORT, "Time per step and KV token in memory.", "80ns"),
            own("token_budget", COUNT, "Most tokens a step computes, of prompts and answers together.", "2048"),
            own("max_running", COUNT, "Most sequences computed at a time; fewer than `token_budget`.", "256"),
            own("kv_tokens", COUNT, "KV memory, tokens: what a prompt and its answer must fit into.", "430_000"),
            Key {
                name: "max_waiting",
                kind: Kind::Integer { min: 0, max: 10_000_000, word: None },
                absent: Absent::Default("100_000"),
                summary: "Requests that may wait before 503.",
                example: "1000",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let preset = LlmParams::preset(r.choice("preset")).unwrap_or(LlmParams::A100_8B);
        let mut count = |name| r.integer_or_none(name).and_then(|n| u32::try_from(n).ok());
        let (budget, running, free) = (count("token_budget"), count("max_running"), count("free_tokens"));
        let kv_tokens = r.integer_or_none("kv_tokens").unwrap_or(preset.kv_tokens);
        let max_waiting = u32::try_from(r.integer("max_waiting")).unwrap_or(u32::MAX);
        let mut time = |name| r.duration_or_none(name).map(|d| d.as_secs_f64());
        let (step, per_token, per_kv_token) = (time("step"), time("per_token"), time("per_kv_token"));
        let params = LlmParams {
            t0_s: step.unwrap_or(preset.t0_s),
            lin_s: per_token.unwrap_or(preset.lin_s),
            kv_s: per_kv_token.unwrap_or(preset.kv_s),
            free_tokens: free.unwrap_or(preset.free_tokens),
            token_budget: budget.unwrap_or(preset.token_budget),
            max_running: running.unwrap_or(preset.max_running),
            kv_tokens,
            max_waiting,
            ..preset
        };
        if params.t0_s + params.lin_s + params.kv_s <= 0.0 {
            let (allowed, hint) = ("a step that takes time", "for example: `step: 10ms`".to_owned());
            r.contradiction("step", "a step that takes no time".to_owned(), allowed, hint);
        }
        if params.max_running >= params.token_budget {
            let found = format!("max_running {}, token_budget {}", params.max_running, params.token_budget);
            let key = if running.is_some() { "max_running" } else { "token_budget" };
            let hint = "for example: `token_budget: 2048, max_running: 256`".to_owned();
            r.contradiction(key, found, "max_running below token_budget", hint);
        }
        Self(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, count: u32) -> Engines {
        let spec = EngineSpec::Fixed(FixedParams::default());
        let cold_start = ColdStart::default();
        let (is_alone, name) = (count == 1, name.into());
        let (max_in_flight, grace, autoscale) = (None, None, None);
        Engines { name, count, is_alone, weight: 1.0, max_in_flight, cold_start, grace, autoscale, spec }
    }

    #[test]
    fn a_larger_fleet_has_no_less_of_any_kind() {
        let fleet = [kind("a", 5), kind("b", 3), kind("c", 1)];
        let counts = |total| resized(&fleet, total).iter().map(|e| e.count).collect::<Vec<_>>();
        assert_eq!((counts(9), counts(18)), (vec![5, 3, 1], vec![10, 6, 2]));
        assert_eq!((counts(1), counts(3)), (vec![1, 0, 0], vec![2, 1, 0]));
        let grows = |n| counts(n).iter().zip(counts(n + 1)).all(|(few, many)| *few <= many);
        assert!((1..60).all(grows));
        assert_eq!((size(&fleet), words(&resized(&fleet, 3)).as_str()), (9, "2 a + 1 b"));
    }

    #[test]
    fn an_engine_of_one_s_own_is_the_preset_but_for_what_is_said() {
        let read = |text: &str| tidegate_config::parse_as::<Llm>(text, "s", &|_| None).map(|(llm, _)| llm.0);
        let own = read(
            "{ preset: h100-8b, step: 4ms, per_token: 9ms, free_tokens: 0, per_kv_token: 2us, token_budget: 512, max_running: 1, kv_tokens: 4096 }",
        );
        let params = own.unwrap();
        assert_eq!((params.t0_s, params.lin_s, params.kv_s, params.free_tokens), (0.004, 0.009, 2e-6, 0));
        assert_eq!((params.token_budget, params.max_running, params.kv_tokens), (512, 1, 4096));
        assert_eq!(read("{ preset: h100-8b }").unwrap(), LlmParams::H100_8B);
        assert!(read("{ step: 0, per_token: 0, per_kv_token: 0 }").is_err());
        assert!(read("{ max_running: 4096 }").is_err() && read("{ token_budget: 100 }").is_err());
    }

    #[test]
    fn an_engine_keeps_its_name_in_a_fleet_of_another_size() {
        let fleet = [kind("a", 1), kind("b", 2)];
        let names = |total| sites(&resized(&fleet, total)).into_iter().map(|s| s.name).collect::<Vec<_>>();
        assert_eq!(names(3), ["a", "b-1", "b-2"]);
        assert_eq!(names(6), ["a", "a-2", "b-1", "b-2", "b-3", "b-4"]);
    }
}
