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

/// Reads the key `policy`; `None` once the problem is recorded.
pub(crate) fn read(r: &mut Reader<'_, '_>, default: &str) -> Option<Policy> {
    let Some((node, place)) = r.node("policy") else {
        let descriptor = r.walk.policies.iter().find(|d| d.name == default)?;
        return Some(Policy { params: Params::defaults(descriptor), key: None });
    };
    match &node.content {
        Content::Scalar { .. } if !node.is_null() => {
            let descriptor = find(r.walk, node, &place)?;
            let policy = Policy { params: Params::defaults(descriptor), key: None };
            demand_key(r.walk, &policy, &place);
            Some(policy)
        }
        Content::Map(entries) => with_params(r.walk, entries, &place),
        _ => {
            r.wrong_shape("policy", node, &place);
            None
        }
    }
}

/// The descriptor that `node` names.
fn find(walk: &mut Walk<'_>, node: &Node, place: &Place) -> Option<&'static Descriptor> {
    let name = scalar_value(walk, &Kind::Policy, "policy", "adaptive", node, place, scalar::text)?;
    let found = walk.policies.iter().find(|d| d.name == name).copied();
    if found.is_none() {
        let names = || walk.policies.iter().map(|d| d.name);
        let complaint = Complaint {
            found: format!("{}, a policy that does not exist", describe(node, false)),
            allowed: format!("one of {}", names().collect::<Vec<_>>().join(", ")),
            hint: match nearest(&name, names()) {
                Some(n) => format!("did you mean `{n}`? `tidegate policies` explains each"),
                None => "`tidegate policies` explains each".to_owned(),
            },
        };
        walk.error(ProblemKind::OutOfRange, place, complaint);
    }
    found
}

/// The mapping form.
fn with_params(walk: &mut Walk<'_>, entries: &[(Node, Node)], place: &Place) -> Option<Policy> {
    let is_name = |k: &Node| matches!(&k.content, Content::Scalar { text, .. } if text == "name");
    let Some((_, name)) = entries.iter().find(|(k, _)| is_name(k)) else {
        let complaint = Complaint {
            found: "no `name`".to_owned(),
            allowed: "the name of a policy".to_owned(),
            hint: "for example: `policy: { name: adaptive }`".to_owned(),
        };
        walk.error(ProblemKind::Missing, &below(place, "name", place.span), complaint);
        return None;
    };
    let descriptor = find(walk, name, &below(place, "name", name.span))?;
    let mut policy = Policy { params: Params::defaults(descriptor), key: None };
    let mut seen: Vec<&str> = Vec::new();
    for (key, value) in entries {
        let Content::Scalar { text, .. } = &key.content else {
            unknown_param(walk, descriptor, &describe(key, false), &below(place, "", key.span));
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
            Some(param) => set(walk, &mut policy, param, value, &at),
            None if text != "name" => unknown_param(walk, descriptor, text, &at),
            None => {}
        }
    }
    check_thresholds(walk, &policy, place);
    if !seen.iter().any(|n| descriptor.param(n).is_some_and(|p| p.kind == ParamKind::Key)) {
        demand_key(walk, &policy, place);
    }
    Some(policy)
}

/// A pair of thresholds must leave room between them.
fn check_thresholds(walk: &mut Walk<'_>, policy: &Policy, place: &Place) {
    let (calm, alarm) = (policy.params.float("calm_below"), policy.params.float("alarm_above"));
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
fn demand_key(walk: &mut Walk<'_>, policy: &Policy, place: &Place) {
    let descriptor = policy.params.descriptor();
    let Some(param) = descriptor.params.iter().find(|p| p.kind == ParamKind::Key) else { return };
    let complaint = Complaint {
        found: format!("{} without `{}`", descriptor.name, param.name),
        allowed: Kind::KeySource.to_string(),
        hint: format!("for example: `policy: {{ name: {}, {}: {} }}`", descriptor.name, param.name, param.example),
    };
    walk.error(ProblemKind::Missing, &below(place, param.name, place.span), complaint);
}

fn unknown_param(walk: &mut Walk<'_>, descriptor: &Descriptor, name: &str, place: &Place) {
    let names: Vec<&str> = std::iter::once("name").chain(descriptor.params.iter().map(|p| p.name)).collect();
    let meant = nearest(name, names.iter().copied()).and_then(|n| descriptor.param(n));
    let others = walk.policies.iter().filter(|d| d.param(name).is_some()).map(|d| d.name).collect::<Vec<_>>();
    let hint = match meant {
        Some(p) => format!("did you mean `{}`? For example: `{}: {}`", p.name, p.name, p.example),
        None if others.is_empty() => format!("`tidegate policies` lists what {} can be told", descriptor.name),
        None => format!("`{name}` is a parameter of {}", others.join(", ")),
    };
    let found = format!("an unknown parameter of {}, `{name}`", descriptor.name);
    walk.error(ProblemKind::UnknownKey, place, Complaint { found, allowed: names.join(", "), hint });
}

/// Sets one parameter from its node; `key` is where its key stands.
fn set(walk: &mut Walk<'_>, policy: &mut Policy, param: &'static Param, node: &Node, key: &Place) {
    let place = if node.is_null() { key.clone() } else { Place { span: node.span, path: key.path.clone() } };
    if param.kind == ParamKind::Key {
        policy.key = key_source(walk, node, &place);
        return;
    }
    let kind = Kind::of_param(param.kind, param.unit);
    let Some(value) = scalar_value(walk, &kind, param.name, param.example, node, &place, param_value) else { return };
    // The kind has the parameter's own range, so core accepts what was read; if it ever does not, the user is told.
    if policy.params.set(param.name, value).is_err() {
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
