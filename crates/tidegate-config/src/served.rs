//! What routes take, compared with what the endpoints of their pools are said to serve.

use crate::endpoint::Endpoint;
use crate::nearest::{closest, nearest};
use crate::pool::Pool;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::reader::Reader;
use crate::route::Route;
use crate::walk::Complaint;

/// How the place of a route's models is marked.
pub(crate) const OF_ROUTE: &str = "models of a route";
/// Names in a complaint.
const MOST_NAMED: usize = 5;

/// Says which patterns of routes no request can be served by: where every endpoint of a pool says all that it serves, what none of them says is
/// refused with 404.
pub(crate) fn check(r: &mut Reader<'_, '_>, routes: &[Route], pools: &[Pool]) {
    // What could not be read may be the model that is missed.
    if r.walk.problems.iter().any(Problem::is_error) {
        return;
    }
    let marks: Vec<_> = r.walk.marks.iter().filter(|m| m.what == OF_ROUTE).cloned().collect();
    for (at, route) in routes.iter().enumerate() {
        let path = format!("routes[{at}].match.models");
        let Some(mark) = marks.iter().find(|m| m.place.path == path) else { continue };
        let Some(names) = pools.iter().find(|p| p.name == route.pool).and_then(served) else { continue };
        let idle = route.matches.models.iter().filter(|glob| !names.iter().any(|name| glob.matches(name)));
        let idle: Vec<&str> = idle.map(|glob| glob.as_str()).collect();
        let Some(first) = idle.first() else { continue };
        let named = closest(first, names.iter().copied(), MOST_NAMED);
        let more = if names.len() > named.len() { " and others" } else { "" };
        let complaint = Complaint {
            found: format!("{}, which no endpoint of the pool {} serves: 404", idle.join(", "), route.pool),
            allowed: format!("{}{more}", named.join(", ")),
            hint: match idle.iter().find_map(|name| Some((name, meant(name, &names)?))) {
                Some((name, meant)) => format!("did you mean `{meant}` in place of `{name}`?"),
                None => "add it to `models` or `adapters` of the endpoints that serve it, or remove it here".to_owned(),
            },
        };
        r.walk.problem(Severity::Warning, ProblemKind::Contradiction, &mark.place, complaint);
    }
}

/// The one of `names` that `pattern` is a slip of the fingers for.
fn meant<'a>(pattern: &str, names: &[&'a str]) -> Option<&'a str> {
    if pattern.contains('*') { None } else { nearest(pattern, names.iter().copied()) }
}

/// All that the endpoints of `pool` serve; `None` where one may serve more than the config says.
fn served(pool: &Pool) -> Option<Vec<&str>> {
    let asks = pool.models.is_some();
    let is_said = |e: &Endpoint| e.models.is_some() && !(asks && e.adapters.is_empty());
    let names = |e| -> Vec<&str> { said(e).collect() };
    pool.endpoints.iter().all(is_said).then(|| pool.endpoints.iter().flat_map(names).collect())
}

fn said(endpoint: &Endpoint) -> impl Iterator<Item = &str> {
    endpoint.models.iter().flatten().chain(&endpoint.adapters).map(String::as_str)
}
