//! Which request goes to which pool.

use crate::glob::Glob;
use crate::key::{Absent, Key, Kind, Table};
use crate::node::Content;
use crate::pool::Pool;
use crate::problem::{ProblemKind, Severity};
use crate::reader::{Reader, Section, below, scalar_value};
use crate::scalar;
use crate::served;
use crate::walk::{Complaint, Mark, Place, describe};

/// One route: what it takes and where that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// What the route takes.
    pub matches: Match,
    /// The name of a pool that exists.
    pub pool: String,
    /// Its class, by which breakers judge endpoints apart; 0 where nothing is said.
    pub class: u8,
    /// The priority class of its requests in the pool's queue; `None`: that of the tenant.
    pub priority: Option<String>,
}

/// Conditions that must all hold; one that is empty always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Start of the request's path.
    pub path: Option<String>,
    /// The request's model fits one of these.
    pub models: Vec<Glob>,
    /// The request's tenant fits one of these.
    pub tenants: Vec<Glob>,
    /// Every one of these headers (names in lower case) is present and fits.
    pub headers: Vec<(String, Glob)>,
}

impl Match {
    /// Whether a request fits. `header` gives the value of a header by its lower-case name.
    pub fn accepts<'h>(
        &self,
        path: &str,
        model: Option<&str>,
        tenant: &str,
        header: impl Fn(&str) -> Option<&'h str>,
    ) -> bool {
        self.path.as_deref().is_none_or(|prefix| path.starts_with(prefix))
            && self.takes(model)
            && self.is_open_to(tenant, header)
    }

    /// Whether a request for `model` fits, as far as its model goes.
    pub fn takes(&self, model: Option<&str>) -> bool {
        self.models.is_empty() || model.is_some_and(|m| self.models.iter().any(|glob| glob.matches(m)))
    }

    /// Whether a request of `tenant` with these headers fits, as far as these go.
    pub fn is_open_to<'h>(&self, tenant: &str, header: impl Fn(&str) -> Option<&'h str>) -> bool {
        (self.tenants.is_empty() || self.tenants.iter().any(|glob| glob.matches(tenant)))
            && self.headers.iter().all(|(name, glob)| header(name).is_some_and(|value| glob.matches(value)))
    }

    /// Whether everything is taken.
    pub fn is_catch_all(&self) -> bool {
        self.path.as_deref().is_none_or(|p| p == "/")
            && self.models.is_empty()
            && self.tenants.is_empty()
            && self.headers.is_empty()
    }

    /// Whether every request that fits `other` fits this one too, as far as that is certain.
    fn covers(&self, other: &Self) -> bool {
        let path = match (self.path.as_deref(), other.path.as_deref()) {
            (None | Some("/"), _) => true,
            (Some(mine), Some(theirs)) => theirs.starts_with(mine),
            (Some(_), None) => false,
        };
        let covers = |mine: &[Glob], theirs: &[Glob]| {
            let one = |glob: &Glob| mine.contains(glob) || mine.iter().any(|m| m.as_str() == "*");
            mine.is_empty() || !theirs.is_empty() && theirs.iter().all(one)
        };
        path && covers(&self.models, &other.models)
            && covers(&self.tenants, &other.tenants)
            && self.headers.iter().all(|h| other.headers.contains(h))
    }
}

impl Section for Route {
    const TABLE: &'static Table = &Table {
        place: "routes[]",
        summary: "One route: what it takes and where that goes. The first route that matches wins.",
        keys: &[
            Key {
                name: "match",
                kind: Kind::Table(Match::TABLE),
                absent: Absent::Means("everything matches"),
                summary: "Conditions that must all hold.",
                example: "{ path: /v1/, models: [\"llama-*\"] }",
            },
            Key {
                name: "pool",
                kind: Kind::Name,
                absent: Absent::Required,
                summary: "The pool that serves what matches.",
                example: "chat",
            },
            Key {
                name: "priority",
                kind: Kind::Name,
                absent: Absent::Means("that of the tenant"),
                summary: "The priority class of its requests in the pool's queue.",
                example: "interactive",
            },
            Key {
                name: "breaker_class",
                kind: Kind::Integer { min: 0, max: 7, word: None },
                absent: Absent::Default("0"),
                summary: "Requests of different classes have breakers of their own at each endpoint: an engine may fail one kind of work only.",
                example: "1",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let class = u8::try_from(r.integer("breaker_class")).unwrap_or(0);
        let priority = r.value("priority", scalar::name);
        if let Some(class) = &priority {
            r.mark("priority", "priority", class.clone());
        }
        let problems = r.walk.problems.len();
        let matches: Match = r.table("match").unwrap_or_default();
        let is_whole = r.walk.problems.len() == problems;
        let pool = r.value("pool", scalar::name).unwrap_or_default();
        if !pool.is_empty() {
            r.mark("pool", "pool", pool.clone());
        }
        // A route whose conditions could not be read says nothing about the routes after it.
        let place = r.place();
        r.walk.marks.push(Mark { what: if is_whole { "route" } else { "broken route" }, place, text: String::new() });
        Self { matches, pool, class, priority }
    }
}

impl Section for Match {
    const TABLE: &'static Table = &Table {
        place: "routes[].match",
        summary: "Conditions that must all hold; one that is absent always holds.",
        keys: &[
            Key {
                name: "path",
                kind: Kind::Path,
                absent: Absent::Means("any path"),
                summary: "Start of the request's path, compared letter by letter.",
                example: "/v1/",
            },
            Key {
                name: "models",
                kind: Kind::Globs,
                absent: Absent::Means("any model, and requests that name none"),
                summary: "The request's model fits one of these patterns.",
                example: "[\"llama-*\"]",
            },
            Key {
                name: "tenants",
                kind: Kind::Globs,
                absent: Absent::Means("any tenant"),
                summary: "The request's tenant fits one of these patterns: pools of a tenant's own.",
                example: "[acme]",
            },
            Key {
                name: "headers",
                kind: Kind::HeaderGlobs,
                absent: Absent::Means("any headers"),
                summary: "Every one of these headers is present and its value fits the pattern.",
                example: "{ x-tier: gold }",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        if r.is_set("models") {
            r.mark(served::OF_ROUTE, "models", String::new());
        }
        Self {
            path: r.value("path", scalar::path),
            models: globs(r, "models"),
            tenants: globs(r, "tenants"),
            headers: header_globs(r),
        }
    }
}

/// Patterns, one or a list.
pub(crate) fn globs(r: &mut Reader<'_, '_>, name: &str) -> Vec<Glob> {
    r.texts(name, scalar::text).into_iter().map(Glob::new).collect()
}

fn header_globs(r: &mut Reader<'_, '_>) -> Vec<(String, Glob)> {
    let Some((node, place)) = r.node("headers") else { return Vec::new() };
    let Content::Map(entries) = &node.content else {
        r.wrong_shape("headers", node, &place);
        return Vec::new();
    };
    let mut headers: Vec<(String, Glob)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let name = describe(key, false);
        let place = below(&place, &name, key.span);
        let lower = match &key.content {
            Content::Scalar { text, .. } => scalar::header_name(text),
            _ => Err(scalar::Bad::Type(String::new())),
        };
        let Ok(lower) = lower else {
            let allowed = "the name of a header".to_owned();
            let hint = "for example: `x-tier: gold`".to_owned();
            r.walk.error(ProblemKind::WrongType, &place, Complaint { found: name, allowed, hint });
            continue;
        };
        if headers.iter().any(|(n, _)| *n == lower) {
            let complaint = Complaint {
                found: format!("`{lower}` a second time"),
                allowed: "each header once".to_owned(),
                hint: "names of headers are compared without letter case".to_owned(),
            };
            r.walk.error(ProblemKind::DuplicateKey, &place, complaint);
            continue;
        }
        let at = Place { span: if value.is_null() { key.span } else { value.span }, path: place.path };
        let text = scalar_value(r.walk, &Kind::HeaderGlobs, &name, "gold", value, &at, scalar::text);
        headers.extend(text.map(|t| (lower, Glob::new(t))));
    }
    headers
}

/// Checks routes against pools and against each other.
pub(crate) fn check(r: &mut Reader<'_, '_>, routes: &[Route], pools: &[Pool]) {
    let marks = r.walk.marks.clone();
    for mark in marks.iter().filter(|m| m.what == "pool" && !pools.iter().any(|p| p.name == m.text)) {
        unknown_pool(r, mark, pools);
    }
    check_reach(r, routes, &marks);
    if routes.is_empty() && pools.len() > 1 && !r.is_set("routes") {
        r.missing("routes");
    }
    if !routes.is_empty() {
        for pool in pools.iter().filter(|p| !routes.iter().any(|route| route.pool == p.name)) {
            let Some(mark) =
                marks.iter().find(|m| m.what == "pool name" && m.place.path == format!("pools.{}", pool.name))
            else {
                continue;
            };
            let complaint = Complaint {
                found: format!("`{}`, to which no route leads", pool.name),
                allowed: "pools that a route names".to_owned(),
                hint: format!(
                    "add `- {{ match: {{ path: /... }}, pool: {} }}` to routes, or remove the pool",
                    pool.name
                ),
            };
            r.walk.problem(Severity::Warning, ProblemKind::Contradiction, &mark.place, complaint);
        }
    }
}

fn unknown_pool(r: &mut Reader<'_, '_>, mark: &Mark, pools: &[Pool]) {
    let names: Vec<&str> = pools.iter().map(|p| p.name.as_str()).collect();
    let hint = match crate::nearest::nearest(&mark.text, names.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "define it below `pools:`".to_owned(),
    };
    let complaint = Complaint {
        found: format!("`{}`, a pool that does not exist", mark.text),
        allowed: if names.is_empty() {
            "a pool of this file".to_owned()
        } else {
            format!("one of {}", names.join(", "))
        },
        hint,
    };
    r.walk.error(ProblemKind::Contradiction, &mark.place, complaint);
}

/// A route behind one that takes all of its requests is never reached.
fn check_reach(r: &mut Reader<'_, '_>, routes: &[Route], marks: &[Mark]) {
    let places: Vec<&Mark> = marks.iter().filter(|m| m.what.ends_with("route")).collect();
    let whole = |i: usize| places.get(i).is_some_and(|m| m.what == "route");
    for (i, route) in routes.iter().enumerate().filter(|(i, _)| whole(*i)) {
        let first =
            routes.iter().enumerate().take(i).find(|(j, earlier)| whole(*j) && earlier.matches.covers(&route.matches));
        let (Some((j, earlier)), Some(mark)) = (first, places.get(i)) else { continue };
        let line = places.get(j).map_or(0, |m| m.place.span.line);
        let found = if earlier.matches.is_catch_all() && route.matches.is_catch_all() {
            format!("a second route that takes everything; the first is routes[{j}] on line {line}")
        } else {
            format!("a route that is never reached: routes[{j}] on line {line} takes all of its requests")
        };
        let complaint = Complaint {
            found,
            allowed: "routes that can be reached; the first match wins".to_owned(),
            hint: "put the narrower route first, or remove one of the two".to_owned(),
        };
        r.walk.error(ProblemKind::Contradiction, &mark.place, complaint);
    }
}
