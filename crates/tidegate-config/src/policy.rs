//! A pool's policy: a bare name, or a mapping with `name` and the parameters its core descriptor lists.

use crate::affinity::{KeySource, key_source};
use crate::key::Kind;
use crate::nearest::nearest;
use crate::node::{Content, Node};
use crate::problem::ProblemKind;
use crate::reader::{Reader, below, scalar_value};
use crate::scalar;
use crate::walk::{Complaint, Place, Walk, describe};
use tidegate_core::descriptor::{Descriptor, Param, ParamKind, Params, Value};

/// A policy with its parameters.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The descriptor and what was set.
    pub params: Params,
    /// Where the key of a hashing policy is found; `None` for policies without one.
    pub key: Option<KeySource>,
}

/// Every policy, in the order in which docs list them.
pub(crate) fn all() -> &'static [&'static Descriptor] {
    tidegate_core::balance::registry::all()
}

/// A list of descriptors that a key chooses from.
pub(crate) struct Registered {
    /// The key, which is also the word for one of them.
    pub(crate) key: &'static str,
    /// What the key may hold.
    pub(crate) kind: Kind,
    /// The name shown in examples.
    pub(crate) example: &'static str,
    /// What lists and explains them.
    pub(crate) explained_by: &'static str,
}

/// What the config knows of policies beside their descriptors.
const POLICIES: Registered =
    Registered { key: "policy", kind: Kind::Policy, example: "adaptive", explained_by: "`tidegate policies`" };

/// One of a list with its parameters.
pub(crate) struct Chosen {
    pub(crate) params: Params,
    pub(crate) key: Option<KeySource>,
    pub(crate) path: Option<String>,
}

impl Chosen {
    fn new(descriptor: &'static Descriptor) -> Self {
        Self { params: Params::defaults(descriptor), key: None, path: None }
    }
}

/// A list of descriptors and how to speak of it.
struct Choice<'a> {
    of: &'a Registered,
    all: &'a [&'static Descriptor],
}

/// Reads the key `policy`; `None` once the problem is recorded.
pub(crate) fn read(r: &mut Reader<'_, '_>, default: &str) -> Option<Policy> {
    let all = r.walk.policies;
    read_registered(r, &POLICIES, all, default).map(|Chosen { params, key, .. }| Policy { params, key })
}

/// Reads the key of `of`, which chooses one of `all`; `None` once the problem is recorded.
pub(crate) fn read_registered(
    r: &mut Reader<'_, '_>,
    of: &Registered,
    all: &[&'static Descriptor],
    default: &str,
) -> Option<Chosen> {
    let choice = Choice { of, all };
    let Some((node, place)) = r.node(of.key) else {
        return all.iter().find(|d| d.name == default).map(|d| Chosen::new(d));
    };
    match &node.content {
        Content::Scalar { .. } if !node.is_null() => {
            let chosen = Chosen::new(find(r.walk, &choice, node, &place)?);
            demand_key(r.walk, &choice, &chosen, &place);
            Some(chosen)
        }
        Content::Map(entries) => with_params(r.walk, &choice, entries, &place),
        _ => {
            r.wrong_shape(of.key, node, &place);
            None
        }
    }
}

/// The descriptor that `node` names.
fn find(walk: &mut Walk<'_>, choice: &Choice<'_>, node: &Node, place: &Place) -> Option<&'static Descriptor> {
    let Registered { key, kind, example, explained_by } = choice.of;
    let name = scalar_value(walk, kind, key, example, node, place, scalar::text)?;
    let found = choice.all.iter().find(|d| d.name == name).copied();
    if found.is_none() {
        let names = || choice.all.iter().map(|d| d.name);
        let complaint = Complaint {
            found: format!("{}, a {key} that does not exist", describe(node, false)),
            allowed: format!("one of {}", names().collect::<Vec<_>>().join(", ")),
            hint: match nearest(&name, names()) {
                Some(n) => format!("did you mean `{n}`? {explained_by} explains each"),
                None => format!("{explained_by} explains each"),
            },
        };
        walk.error(ProblemKind::OutOfRange, place, complaint);
    }
    found
}

/// The mapping form.
fn with_params(walk: &mut Walk<'_>, choice: &Choice<'_>, entries: &[(Node, Node)], place: &Place) -> Option<Chosen> {
    let is_name = |k: &Node| matches!(&k.content, Content::Scalar { text, .. } if text == "name");
    let Some((_, name)) = entries.iter().find(|(k, _)| is_name(k)) else {
        let complaint = Complaint {
            found: "no `name`".to_owned(),
            allowed: format!("the name of a {}", choice.of.key),
            hint: format!("for example: `{}: {{ name: {} }}`", choice.of.key, choice.of.example),
        };
        walk.error(ProblemKind::Missing, &below(place, "name", place.span), complaint);
        return None;
    };
    let descriptor = find(walk, choice, name, &below(place, "name", name.span))?;
    let mut chosen = Chosen::new(descriptor);
    let mut seen: Vec<&str> = Vec::new();
    for (key, value) in entries {
        let Content::Scalar { text, .. } = &key.content else {
            unknown_param(walk, choice, descriptor, &describe(key, false), &below(place, "", key.span));
            continue;
        };
        let at = below(place, text, key.span);
        if seen.contains(&text.as_str()) {
            let complaint = Complaint {
                found: format!("a second `{text}`"),
                allowed: "each key once".to_owned(),
                hint: "remove one of the two".to_owned(),
            };
            walk.error(ProblemKind::DuplicateKey, &at, complaint);
            continue;
        }
        seen.push(text);
        match descriptor.param(text) {
            Some(param) => set(walk, &mut chosen, param, value, &at),
            None if text != "name" => unknown_param(walk, choice, descriptor, text, &at),
            None => {}
        }
    }
    check_thresholds(walk, &chosen.params, place);
    if !seen.iter().any(|n| descriptor.param(n).is_some_and(|p| p.kind == ParamKind::Key)) {
        demand_key(walk, choice, &chosen, place);
    }
    Some(chosen)
}

/// A pair of thresholds must leave room between them.
fn check_thresholds(walk: &mut Walk<'_>, params: &Params, place: &Place) {
    let (calm, alarm) = (params.float("calm_below"), params.float("alarm_above"));
    if calm > alarm {
        let complaint = Complaint {
            found: format!("calm_below {calm}, above alarm_above {alarm}"),
            allowed: "calm_below at most alarm_above".to_owned(),
            hint: "for example: `calm_below: 0.7, alarm_above: 0.9`".to_owned(),
        };
        walk.error(ProblemKind::Contradiction, &below(place, "calm_below", place.span), complaint);
    }
}

/// A policy that hashes a key must be told where it is.
fn demand_key(walk: &mut Walk<'_>, choice: &Choice<'_>, chosen: &Chosen, place: &Place) {
    let descriptor = chosen.params.descriptor();
    let Some(param) = descriptor.params.iter().find(|p| p.kind == ParamKind::Key) else { return };
    let complaint = Complaint {
        found: format!("{} without `{}`", descriptor.name, param.name),
        allowed: Kind::KeySource.to_string(),
        hint: format!(
            "for example: `{}: {{ name: {}, {}: {} }}`",
            choice.of.key, descriptor.name, param.name, param.example
        ),
    };
    walk.error(ProblemKind::Missing, &below(place, param.name, place.span), complaint);
}

fn unknown_param(walk: &mut Walk<'_>, choice: &Choice<'_>, descriptor: &Descriptor, name: &str, place: &Place) {
    let names: Vec<&str> = std::iter::once("name").chain(descriptor.params.iter().map(|p| p.name)).collect();
    let meant = nearest(name, names.iter().copied()).and_then(|n| descriptor.param(n));
    let others = choice.all.iter().filter(|d| d.param(name).is_some()).map(|d| d.name).collect::<Vec<_>>();
    let hint = match meant {
        Some(p) => format!("did you mean `{}`? For example: `{}: {}`", p.name, p.name, p.example),
        None if others.is_empty() => format!("{} lists what {} can be told", choice.of.explained_by, descriptor.name),
        None => format!("`{name}` is a parameter of {}", others.join(", ")),
    };
    let found = format!("an unknown parameter of {}, `{name}`", descriptor.name);
    walk.error(ProblemKind::UnknownKey, place, Complaint { found, allowed: names.join(", "), hint });
}

/// Sets one parameter from its node; `key` is where its key stands.
fn set(walk: &mut Walk<'_>, chosen: &mut Chosen, param: &'static Param, node: &Node, key: &Place) {
    let place = if node.is_null() { key.clone() } else { Place { span: node.span, path: key.path.clone() } };
    if param.kind == ParamKind::Key {
        chosen.key = key_source(walk, node, &place);
        return;
    }
    let kind = Kind::of_param(param.kind, param.unit);
    if param.kind == ParamKind::Path {
        chosen.path = scalar_value(walk, &kind, param.name, param.example, node, &place, scalar::path);
        return;
    }
    let Some(value) = scalar_value(walk, &kind, param.name, param.example, node, &place, param_value) else { return };
    // The kind has the parameter's own range, so core accepts what was read; if it ever does not, the user is told.
    if chosen.params.set(param.name, value).is_err() {
        let hint = format!("for example: `{}: {}`", param.name, param.example);
        let complaint = Complaint { found: describe(node, false), allowed: param.kind.to_string(), hint };
        walk.error(ProblemKind::OutOfRange, &place, complaint);
    }
}

fn param_value(kind: &Kind, text: &str) -> Result<Value, scalar::Bad> {
    match kind {
        Kind::Duration { .. } => {
            Ok(scalar::duration(kind, text)?.map_or(Value::Off, |d| Value::Duration(d.as_secs_f64())))
        }
        Kind::Integer { .. } => Ok(scalar::integer(kind, text)?.map_or(Value::Off, Value::Integer)),
        Kind::Choice(_) => Ok(Value::Choice(scalar::choice(kind, text)?)),
        Kind::Bool => Ok(Value::Bool(scalar::boolean(kind, text)?)),
        _ => Ok(scalar::number(kind, text)?.map_or(Value::Off, Value::Float)),
    }
}
