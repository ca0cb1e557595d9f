//! The whole file.

use crate::concurrency_limits::ConcurrencyLimit;
use crate::endpoint;
use crate::journal::Journal;
use crate::key::{Absent, Key, Kind, Table};
use crate::lifecycle::{Reload, Shutdown, Takeover};
use crate::limits::Limits;
use crate::listener::{Admin, Listener};
use crate::log::Log;
use crate::node::{self, Node, Span};
use crate::pool::Pool;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::rate_limits::RateLimit;
use crate::reader::{Reader, Section, Switch, section};
use crate::route::{self, Match, Route};
use crate::rules::{self, Draft, Rule, Targets};
use crate::served;
use crate::slo;
use crate::template;
use crate::tenants::{self, Tenants};
use crate::walk::{Complaint, NOTHING, Place, Walk};
use std::path::Path;
use tidegate_core::descriptor::Descriptor;

/// Bound on the size of a config file, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Characters of a line that a problem shows.
const MAX_EXCERPT: usize = 160;
/// Characters of a path, of what was found and of a hint that a problem shows.
const MAX_TEXT: usize = 400;

/// A validated config.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where requests come in; at least one.
    pub listeners: Vec<Listener>,
    /// The admin API; `None` if it is switched off.
    pub admin: Option<Admin>,
    /// Threads that serve requests (at least 1); `None` takes one per core.
    pub threads: Option<usize>,
    /// What is logged, and how.
    pub log: Log,
    /// The journal of decisions; `None` writes none.
    pub journal: Option<Journal>,
    /// When the file is read again.
    pub reload: Reload,
    /// How the gateway ends.
    pub shutdown: Shutdown,
    /// Where the next process takes over; `None`: nowhere.
    pub takeover: Option<Takeover>,
    /// Bounds on what a client may send.
    pub limits: Limits,
    /// Who asks; `None`: nobody is told apart.
    pub tenants: Option<Tenants>,
    /// Limits on rates.
    pub rate_limits: Vec<RateLimit>,
    /// Limits on requests in flight, over all pools.
    pub concurrency_limits: Vec<ConcurrencyLimit>,
    /// Rules that step limits while metrics are beyond their bounds.
    pub rules: Vec<Rule>,
    /// Which request goes to which pool, the first match wins; at least one. A file without routes has one that takes everything.
    pub routes: Vec<Route>,
    /// The pools, in the file's order; at least one.
    pub pools: Vec<Pool>,
}

impl Section for Config {
    const TABLE: &'static Table = &Table {
        place: "",
        summary: "The whole file.",
        keys: &[
            Key {
                name: "listeners",
                kind: Kind::List(Listener::TABLE),
                absent: Absent::Required,
                summary: "Addresses on which requests come in.",
                example: "[{ address: 127.0.0.1:8080 }]",
            },
            Key {
                name: "admin",
                kind: Kind::TableOr(Admin::TABLE, "off"),
                absent: Absent::Default("{}"),
                summary: "The admin API, metrics and the live page.",
                example: "{ address: 127.0.0.1:9090 }",
            },
            Key {
                name: "threads",
                kind: Kind::Integer { min: 1, max: 1024, word: None },
                absent: Absent::Means("one per core"),
                summary: "Threads that serve requests.",
                example: "4",
            },
            Key {
                name: "log",
                kind: Kind::Table(Log::TABLE),
                absent: Absent::Default("{}"),
                summary: "What is logged, and how.",
                example: "{ format: json, level: info }",
            },
            Key {
                name: "journal",
                kind: Kind::TableOr(Journal::TABLE, "off"),
                absent: Absent::Means("no journal is written"),
                summary: "A file per pool from which every decision can be taken again, with `tidegate replay`.",
                example: "{ folder: /var/lib/tidegate/journal }",
            },
            Key {
                name: "reload",
                kind: Kind::Table(Reload::TABLE),
                absent: Absent::Default("{}"),
                summary: "When the file is read again.",
                example: "{ watch: 5s }",
            },
            Key {
                name: "shutdown",
                kind: Kind::Table(Shutdown::TABLE),
                absent: Absent::Default("{}"),
                summary: "How the gateway ends.",
                example: "{ delay: 5s, drain_timeout: 10m }",
            },
            Key {
                name: "takeover",
                kind: Kind::TableOr(Takeover::TABLE, "off"),
                absent: Absent::Means("no process can take over"),
                summary: "Where the next process of this gateway takes over its sockets and its state.",
                example: "{ socket: /run/tidegate/takeover.sock }",
            },
            Key {
                name: "limits",
                kind: Kind::Table(Limits::TABLE),
                absent: Absent::Default("{}"),
                summary: "Bounds on what a client may send.",
                example: "{ max_body_bytes: 64MiB }",
            },
            Key {
                name: "tenants",
                kind: Kind::Table(Tenants::TABLE),
                absent: Absent::Means("nobody is told apart"),
                summary: "Who asks, and how that is known.",
                example: "{ identify: [{ api_key: {} }], unknown: anonymous }",
            },
            Key {
                name: "rate_limits",
                kind: Kind::List(RateLimit::TABLE),
                absent: Absent::Means("no limits on rates"),
                summary: "Limits on rates. Every one must admit a request.",
                example: "[{ name: tokens, limit: 10_000 tokens/min, per: tenant }]",
            },
            Key {
                name: "concurrency_limits",
                kind: Kind::List(ConcurrencyLimit::TABLE),
                absent: Absent::Means("no limits over all pools"),
                summary: "Limits on requests in flight, over all pools.",
                example: "[{ name: streams, max_in_flight: 200, each: 16 }]",
            },
            Key {
                name: "rules",
                kind: Kind::List(Draft::TABLE),
                absent: Absent::Means("limits stand still"),
                summary: "Auto-tuning: limits that are stepped while a metric is beyond its bound.",
                example: "[{ name: shed, when: { metric: p99(tidegate_ttft_seconds), op: \">\", value: 500ms }, do: { scale: 0.8, target: rate_limits.all, min: 10 } }]",
            },
            Key {
                name: "routes",
                kind: Kind::List(Route::TABLE),
                absent: Absent::Means("everything goes to the only pool"),
                summary: "Which request goes to which pool; the first match wins.",
                example: "[{ match: { path: /v1/ }, pool: chat }]",
            },
            Key {
                name: "pools",
                kind: Kind::Named(Pool::TABLE),
                absent: Absent::Required,
                summary: "Endpoints that can serve the same request, under a name of your choice.",
                example: "{ chat: { endpoints: [{ url: http://127.0.0.1:8000 }] } }",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let listeners: Vec<Listener> = r.list("listeners");
        if listeners.is_empty() && r.is_set("listeners") && r.all_good(&["listeners"]) {
            r.missing("listeners");
        }
        let admin = match r.switch("admin") {
            Switch::On(admin) => Some(admin),
            Switch::Off | Switch::Absent => None,
        };
        let threads = r.integer_or_none("threads").and_then(|n| usize::try_from(n).ok());
        let log = r.table_or_default("log");
        let journal = match r.switch("journal") {
            Switch::On(journal) => Some(journal),
            Switch::Off | Switch::Absent => None,
        };
        let (reload, shutdown) = (r.table_or_default("reload"), r.table_or_default("shutdown"));
        let takeover = match r.switch("takeover") {
            Switch::On(takeover) => Some(takeover),
            Switch::Off | Switch::Absent => None,
        };
        let limits = r.table_or_default("limits");
        let tenants: Option<Tenants> = r.table("tenants");
        let rate_limits: Vec<RateLimit> = r.list("rate_limits");
        let concurrency_limits: Vec<ConcurrencyLimit> = r.list("concurrency_limits");
        let drafts: Vec<Draft> = r.list("rules");
        let mut routes: Vec<Route> = r.list("routes");
        let pools: Vec<Pool> = r.named::<Pool>("pools").into_iter().map(|(name, pool)| Pool { name, ..pool }).collect();
        if pools.is_empty() && r.is_set("pools") && r.all_good(&["pools"]) {
            r.missing("pools");
        }
        ["rate limit", "concurrency limit", "rule"].iter().for_each(|what| check_names(r, what));
        let targets = Targets { rates: &rate_limits, concurrency: &concurrency_limits, pools: &pools };
        let rules = rules::resolve(r.walk, drafts, &targets);
        let classes: Vec<String> = pools
            .iter()
            .filter_map(|p| p.queue.as_ref())
            .flat_map(|q| q.core().classes.iter().map(|c| c.name.clone()))
            .collect();
        tenants::check_priorities(r, &classes);
        let names: Vec<&str> = pools.iter().map(|p| p.name.as_str()).collect();
        if r.all_good(&["pools", "tenants"]) {
            tenants::check_uses(r, tenants.as_ref(), &names);
        }
        tenants::check_certificates(r, &listeners);
        slo::check(r);
        check_addresses(r);
        check_loops(r, &listeners);
        route::check(r, &routes, &pools);
        served::check(r, &routes, &pools);
        if let (true, [only]) = (routes.is_empty(), pools.as_slice()) {
            routes.push(Route { matches: Match::default(), pool: only.name.clone(), class: 0, priority: None });
        }
        Self {
            listeners,
            admin,
            threads,
            log,
            journal,
            reload,
            shutdown,
            takeover,
            limits,
            tenants,
            rate_limits,
            concurrency_limits,
            rules,
            routes,
            pools,
        }
    }
}

/// Limits and rules are found by their names, so each is unique.
fn check_names(r: &mut Reader<'_, '_>, what: &str) {
    let marks: Vec<_> = r.walk.marks.iter().filter(|m| m.what == what && !m.text.is_empty()).cloned().collect();
    for (i, mark) in marks.iter().enumerate() {
        let Some(first) = marks.iter().take(i).find(|m| m.text == mark.text) else { continue };
        let complaint = Complaint {
            found: format!("the {what} `{}` a second time; the first is on line {}", mark.text, first.place.span.line),
            allowed: "each name once".to_owned(),
            hint: "rename one of the two".to_owned(),
        };
        r.walk.error(ProblemKind::Contradiction, &mark.place, complaint);
    }
}

/// Two sockets cannot listen on one address. Port 0 takes any free one and never collides.
fn check_addresses(r: &mut Reader<'_, '_>) {
    let marks: Vec<_> = r.walk.marks.iter().filter(|m| m.what == "address").cloned().collect();
    for (i, mark) in marks.iter().enumerate() {
        let Some(first) = marks.iter().take(i).find(|m| m.text == mark.text && !m.text.ends_with(":0")) else {
            continue;
        };
        let complaint = Complaint {
            found: format!("{}, which {} on line {} listens on", mark.text, first.place.path, first.place.span.line),
            allowed: "each address once".to_owned(),
            hint: "give one of the two another port".to_owned(),
        };
        r.walk.error(ProblemKind::Contradiction, &mark.place, complaint);
    }
}

/// An endpoint that is a listener of this gateway would have every request sent here again, for ever.
fn check_loops(r: &mut Reader<'_, '_>, listeners: &[Listener]) {
    let marks: Vec<_> = r.walk.marks.iter().filter(|m| m.what == "url").cloned().collect();
    for mark in marks {
        let Ok(url) = endpoint::url(&Kind::Url, &mark.text) else { continue };
        let Some(at) = listeners.iter().position(|l| url.reaches(l.address)) else { continue };
        let complaint = Complaint {
            found: format!("{}, which is listeners[{at}] of this gateway: it would send to itself for ever", mark.text),
            allowed: "the address of an engine".to_owned(),
            hint: "give the engine another port, or the listener".to_owned(),
        };
        r.walk.error(ProblemKind::Contradiction, &mark.place, complaint);
    }
}

impl Config {
    /// Reads and validates the file at `path`, with the process's environment for `${NAME}`.
    ///
    /// # Errors
    /// All problems, if at least one of them is an error; see [`Config::parse`].
    pub fn load(path: &Path) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        let name = path.display().to_string();
        match read_file(path) {
            Ok(text) => Self::parse(&text, &name, &|variable| std::env::var(variable).ok()),
            Err(found) => Err(vec![Problem {
                severity: Severity::Error,
                kind: ProblemKind::Unreadable,
                source: name,
                line: 0,
                column: 0,
                width: 1,
                path: String::new(),
                found,
                allowed: "a readable YAML file of at most 4MiB in UTF-8".to_owned(),
                hint: "copy one from examples/ to begin with".to_owned(),
                excerpt: String::new(),
                caret: 0,
            }]),
        }
    }

    /// Validates `text`; `source_name` stands in messages, `env` answers for `${NAME}`. With the config come the warnings.
    ///
    /// # Errors
    /// All problems in the order of the file, if at least one of them is an error.
    pub fn parse(
        text: &str,
        source_name: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        Self::parse_with(text, source_name, env, crate::policy::all())
    }

    /// [`Config::parse`] with a registry of policies of the caller's.
    pub(crate) fn parse_with(
        text: &str,
        source_name: &str,
        env: &dyn Fn(&str) -> Option<String>,
        policies: &[&'static Descriptor],
    ) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        parse_as_with(text, source_name, env, policies)
    }

    /// The definition of every key, from the top.
    pub fn table() -> &'static Table {
        Self::TABLE
    }

    /// Threads that serve requests: as set, else one per core.
    pub fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// The pool called `name`.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|p| p.name == name)
    }

    /// The pool of the first route that matches; `None` if no route does. `model` is the request's model if it names one, `header` gives
    /// the value of a header by its lower-case name.
    pub fn route<'h>(
        &self,
        path: &str,
        model: Option<&str>,
        tenant: &str,
        header: impl Fn(&str) -> Option<&'h str>,
    ) -> Option<&Pool> {
        let route = self.routes.iter().find(|route| route.matches.accepts(path, model, tenant, &header))?;
        self.pool(&route.pool)
    }
}

/// Validates `text` as a file of another kind than the config, by the same machinery: [`Config::parse`] says what comes back.
///
/// # Errors
/// All problems in the order of the file, if at least one of them is an error.
pub fn parse_as<T: Section>(
    text: &str,
    source_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(T, Vec<Problem>), Vec<Problem>> {
    parse_as_with(text, source_name, env, crate::policy::all())
}

fn parse_as_with<T: Section>(
    text: &str,
    source_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
    policies: &[&'static Descriptor],
) -> Result<(T, Vec<Problem>), Vec<Problem>> {
    // YAML also ends lines by \r alone; with one kind of line end, places and excerpts agree.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
    let text = text.as_str();
    let mut walk = Walk::new(env, policies);
    let tree = node::parse(text);
    let is_broken = !tree.errors.is_empty();
    let mut root = tree.root.unwrap_or_else(|| Node::empty_map(Span::START));
    template::expand(&mut root);
    let config: T = section(&mut walk, &root, &Place { span: Span::START, path: String::new() });
    if is_broken {
        // Parts are gone with the broken lines: only what is wrong by itself is told, not what seems missing or inconsistent.
        let may_follow =
            |p: &Problem| matches!(p.kind, ProblemKind::Missing | ProblemKind::Contradiction) || p.found == NOTHING;
        walk.problems.retain(|p| !may_follow(p));
    }
    for e in tree.errors {
        let complaint = Complaint {
            found: e.message,
            allowed: "YAML: keys and values as `key: value`, nested by spaces".to_owned(),
            hint: "compare the indentation, quotes and brackets with the lines before it".to_owned(),
        };
        walk.error(ProblemKind::Syntax, &Place { span: e.span, path: String::new() }, complaint);
    }
    let problems = finish(walk, text, source_name);
    if problems.iter().any(Problem::is_error) { Err(problems) } else { Ok((config, problems)) }
}

fn read_file(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("a file of {size} bytes"));
    }
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| format!("text that is not UTF-8 at byte {}", e.utf8_error().valid_up_to()))
}

/// Puts the problems in the file's order and gives each its file and its line, secrets masked.
fn finish(walk: Walk<'_>, text: &str, source_name: &str) -> Vec<Problem> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for span in &walk.secrets {
        for number in span.line..=span.last_line {
            let Some(line) = lines.get_mut(number - 1) else { continue };
            let (from, width) = if number == span.line { (span.column - 1, span.width) } else { (0, usize::MAX) };
            *line = mask(line, from, width);
        }
    }
    // Characters, so that a column is a place in them: a file of one long line may have thousands of problems.
    let lines: Vec<Vec<char>> = lines.iter().map(|line| line.chars().collect()).collect();
    let mut problems = walk.problems;
    problems.sort_by_key(|p| (p.line, p.column));
    for p in &mut problems {
        source_name.clone_into(&mut p.source);
        let line = lines.get(p.line - 1).map(Vec::as_slice).unwrap_or_default();
        // A line that is not YAML has no spans to mask by.
        if p.kind == ProblemKind::Syntax {
            let masked: Vec<char> = mask_by_name(&line.iter().collect::<String>()).chars().collect();
            (p.excerpt, p.caret) = around(&masked, p.column - 1);
        } else {
            (p.excerpt, p.caret) = around(line, p.column - 1);
        }
        for field in [&mut p.path, &mut p.found, &mut p.hint] {
            if let Some((at, _)) = field.char_indices().nth(MAX_TEXT) {
                field.truncate(at);
                field.push_str("...");
            }
        }
        // A file may hold escape sequences; what is printed must not.
        for field in [&mut p.excerpt, &mut p.path, &mut p.found, &mut p.hint] {
            *field = printable(field);
        }
        p.width = p.width.min(p.excerpt.chars().count().saturating_sub(p.caret)).max(1);
    }
    problems
}

/// The line, or of a long one the part around character `at`, and where `at` is in it.
fn around(line: &[char], at: usize) -> (String, usize) {
    if line.len() <= MAX_EXCERPT {
        return (line.iter().collect(), at);
    }
    // The end of the window first, so that a problem at the end of the line still shows what leads to it.
    let end = (at.saturating_sub(MAX_EXCERPT / 2) + MAX_EXCERPT).min(line.len());
    let start = end - MAX_EXCERPT;
    let (before, after) = (if start > 0 { "..." } else { "" }, if end < line.len() { "..." } else { "" });
    let part: String = line.get(start..end).unwrap_or_default().iter().collect();
    (format!("{before}{part}{after}"), at.saturating_sub(start) + before.len())
}

/// Control characters other than tabs shown as the replacement character, so that columns stay.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Stars for `width` characters from character `from`, spaces kept; a bare `${NAME}` may be seen.
fn mask(line: &str, from: usize, width: usize) -> String {
    let shown: String = line.chars().skip(from).take(width).filter(|c| !matches!(c, '"' | '\'')).collect();
    if shown.starts_with("${") && shown.ends_with('}') && !shown.contains(":-") {
        return line.to_owned();
    }
    let hide = |(i, c): (usize, char)| if i < from || i - from >= width || c == ' ' { c } else { '*' };
    line.chars().enumerate().map(hide).collect()
}

/// Masks what follows the name of a secret key.
fn mask_by_name(line: &str) -> String {
    let names = secret_names(Config::TABLE);
    match names.iter().filter_map(|n| line.find(n).map(|at| at + n.len() + 1)).min() {
        Some(at) => {
            let from = line.get(..at).unwrap_or_default().chars().count();
            mask(line, from, usize::MAX)
        }
        None => line.to_owned(),
    }
}

fn secret_names(table: &Table) -> Vec<&'static str> {
    let own = table.keys.iter().filter(|k| k.kind.is_secret()).map(|k| k.name);
    own.chain(table.keys.iter().filter_map(|k| k.kind.table()).flat_map(secret_names)).collect()
}
