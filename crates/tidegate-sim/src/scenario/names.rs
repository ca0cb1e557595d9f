//! Names across sections: endpoints that faults and changes speak of, and names that stand twice.
//!
//! A section is read without knowing the others, so this is a second walk over the same text. It notes every name with its place, as
//! "problems" of which only those are kept, in other words, that are some. Each section is read by its own reader too, which asks for
//! every key; what it complains of is dropped here.

use std::collections::{BTreeMap, HashMap};

use tidegate_config::{Problem, ProblemKind, Reader, Section, Table, parse_as};

use super::Scenario;
use super::elastic::PlannedChange;
use super::fleet::Engines;
use super::outage::Planned;

/// What marks the notes of this walk among the problems, by what is named.
const ENGINE: &str = "engine name";
const FAULT: &str = "fault's endpoint";
const VARIANT: &str = "variant name";
const KINDS: [&str; 3] = [ENGINE, FAULT, VARIANT];
/// Names listed where none is near.
const MOST_NAMES: usize = 20;

/// Notes the value of `key` with its place; `count` travels as the hint.
fn note(r: &mut Reader<'_, '_>, key: &str, kind: &str, count: u64) {
    if let Some(name) = r.text(key).filter(|_| r.all_good(&[key])) {
        r.contradiction(key, name, kind, count.to_string());
    }
}

struct EngineName;

impl Section for EngineName {
    const TABLE: &'static Table = Engines::TABLE;

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let count = Engines::read(r).most();
        note(r, "name", ENGINE, count.into());
        Self
    }
}

struct FaultName;

impl Section for FaultName {
    const TABLE: &'static Table = Planned::TABLE;

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Planned::read(r);
        note(r, "endpoint", FAULT, 1);
        Self
    }
}

struct ChangeName;

impl Section for ChangeName {
    const TABLE: &'static Table = PlannedChange::TABLE;

    fn read(r: &mut Reader<'_, '_>) -> Self {
        PlannedChange::read(r);
        note(r, "endpoint", FAULT, 1);
        Self
    }
}

struct VariantName;

impl Section for VariantName {
    const TABLE: &'static Table = super::Variant::TABLE;

    fn read(r: &mut Reader<'_, '_>) -> Self {
        super::Variant::read(r);
        note(r, "name", VARIANT, 1);
        r.list::<EngineName>("fleet");
        Self
    }
}

struct Names;

impl Section for Names {
    const TABLE: &'static Table = Scenario::TABLE;

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Scenario::read(r);
        r.list::<EngineName>("fleet");
        r.list::<FaultName>("faults");
        r.list::<ChangeName>("changes");
        r.list::<VariantName>("variants");
        Self
    }
}

/// What is wrong with the names of a scenario, in no order.
pub(super) fn problems(text: &str, source: &str, env: &dyn Fn(&str) -> Option<String>) -> Vec<Problem> {
    let Err(notes) = parse_as::<Names>(text, source, env) else { return Vec::new() };
    let is_note = |p: &Problem| p.kind == ProblemKind::Contradiction && KINDS.contains(&p.allowed.as_str());
    let notes: Vec<Problem> = notes.into_iter().filter(is_note).collect();
    let of = |kind: &'static str| notes.iter().filter(move |p| p.allowed == kind);
    // The fleets by where they stand: `fleet` and `variants[2].fleet`.
    let mut fleets: BTreeMap<&str, Vec<&Problem>> = BTreeMap::new();
    for p in of(ENGINE) {
        let place = p.path.rsplit_once('[').map_or("", |(before, _)| before);
        fleets.entry(place).or_default().push(p);
    }
    let mut found: Vec<Problem> = fleets.values().flat_map(|engines| twice_in_fleet(engines)).collect();
    found.extend(twice(of(VARIANT).map(|p| (p.found.clone(), p)), "variant"));
    let variants: Vec<&Problem> = of(VARIANT).collect();
    found.extend(of(FAULT).filter_map(|fault| unknown(fault, &fleets, &variants)));
    // An anchor makes one line several fleets.
    found.sort_by(|a, b| (a.line, a.column, &a.found).cmp(&(b.line, b.column, &b.found)));
    found.dedup_by(|a, b| (a.line, a.column, &a.found) == (b.line, b.column, &b.found));
    found
}

/// The endpoints of an entry of a fleet, as [`super::fleet::sites`] names them.
fn endpoints(entry: &Problem) -> impl Iterator<Item = String> {
    let count: u64 = entry.hint.parse().unwrap_or(1);
    let name = entry.found.clone();
    (1..=count).map(move |k| if count == 1 { name.clone() } else { format!("{name}-{k}") })
}

/// One problem per entry at most: entries of the same name collide in every number.
fn twice_in_fleet(engines: &[&Problem]) -> Vec<Problem> {
    let all = engines.iter().flat_map(|e| endpoints(e).map(|name| (name, *e)));
    let mut found = twice(all, "endpoint");
    found.dedup_by(|a, b| a.path == b.path);
    found
}

fn twice<'a>(names: impl Iterator<Item = (String, &'a Problem)>, what: &str) -> Vec<Problem> {
    let mut first: HashMap<String, &Problem> = HashMap::new();
    let mut found = Vec::new();
    for (name, at) in names {
        match first.get(&name) {
            Some(other) => found.push(Problem {
                found: format!("a second {what} `{name}`; the first is on line {}", other.line),
                allowed: format!("each {what} once"),
                hint: "give each a `name` of its own".to_owned(),
                ..at.clone()
            }),
            None => {
                first.insert(name, at);
            }
        }
    }
    found
}

/// The problem of a fault or change whose endpoint is missing in a fleet that it is to happen in.
fn unknown(fault: &Problem, fleets: &BTreeMap<&str, Vec<&Problem>>, variants: &[&Problem]) -> Option<Problem> {
    let own = fleets.get("fleet").map(|fleet| (None, fleet));
    let of_variant = |v: &&Problem| {
        let place = v.path.rsplit_once('.').map_or("", |(before, _)| before);
        let fleet = fleets.get(format!("{place}.fleet").as_str());
        fleet.or_else(|| fleets.get("fleet")).map(|fleet| (Some(v.found.clone()), fleet))
    };
    let used: Vec<_> =
        if variants.is_empty() { own.into_iter().collect() } else { variants.iter().filter_map(of_variant).collect() };
    let lacks = |fleet: &&Vec<&Problem>| !fleet.iter().flat_map(|e| endpoints(e)).any(|name| name == fault.found);
    let (variant, fleet) = used.into_iter().find(|(_, fleet)| lacks(fleet))?;
    let names: Vec<String> = fleet.iter().flat_map(|e| endpoints(e).take(1000)).collect();
    let place = variant.map(|v| format!(" in variant `{v}`")).unwrap_or_default();
    let listed = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if names.len() > MOST_NAMES { ", ..." } else { "" };
    Some(Problem {
        found: format!("`{}`, which is no endpoint{place}", fault.found),
        allowed: format!("one of {listed}{more}"),
        hint: nearest(&fault.found, &names).map(|n| format!("did you mean `{n}`?")).unwrap_or_default(),
        ..fault.clone()
    })
}

/// The name that was probably meant: fewest letters to change, at most a third of them, or the same with a number.
fn nearest<'a>(word: &str, names: &'a [String]) -> Option<&'a String> {
    let limit = (word.chars().count() / 3).clamp(2, 4).min(word.chars().count().saturating_sub(1));
    let numbered = |n: &&String| n.strip_prefix(word).is_some_and(|rest| rest.starts_with('-'));
    let near = names.iter().map(|n| (distance(word, n), n)).filter(|(d, _)| *d <= limit).min_by_key(|(d, _)| *d);
    names.iter().find(numbered).or(near.map(|(_, n)| n))
}

/// Insertions, deletions and substitutions from one to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            row.push((last[j] + usize::from(x != *y)).min(last[j + 1] + 1).min(row[j] + 1));
        }
        last = row;
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<(usize, usize, String)> {
        let problems = Scenario::parse(text, "s.yaml", &|_| None).err().unwrap_or_default();
        problems
            .into_iter()
            .map(|p| (p.line, p.column, format!("{} | {} | {} | {}", p.path, p.found, p.allowed, p.hint)))
            .collect()
    }

    #[test]
    fn a_fault_of_no_endpoint_is_told_with_the_rest() {
        let text = "fleet:\n  - { name: a100, count: 2, fixed: { delay: 1 parsec } }\nworkload: { arrivals: { rate: 1 } }\nfaults:\n  \
                    - { endpoint: a100-3, kind: hang }\n  - { endpoint: a100-2, kind: hang }\n  - { endpoint: a100, kind: hang }\n";
        let all = told(text);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].2.starts_with("fleet[0].fixed.delay"), "{all:?}");
        let wanted =
            "faults[0].endpoint | `a100-3`, which is no endpoint | one of a100-1, a100-2 | did you mean `a100-1`?";
        assert_eq!((all[1].0, all[1].1, all[1].2.as_str()), (5, 17, wanted));
        assert!(all[2].0 == 7 && all[2].2.ends_with("did you mean `a100-1`?"), "{all:?}");
    }

    #[test]
    fn a_fault_must_exist_in_the_fleet_of_every_variant() {
        let text = "fleet: [{ name: a, fixed: { delay: 1s } }]\nworkload: { arrivals: { rate: 1 } }\nfaults: [{ endpoint: a, kind: hang }]\n\
                    variants:\n  - { name: same }\n  - { name: other, fleet: [{ name: bcd, fixed: { delay: 1s } }] }\n";
        let all = told(text);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].0 == 3 && all[0].2.contains("no endpoint in variant `other` | one of bcd"), "{all:?}");
    }

    #[test]
    fn names_that_stand_twice_are_located() {
        let text = "fleet:\n  - { name: a, count: 3, fixed: { delay: 1s } }\n  - { name: a, count: 2, fixed: { delay: 1s } }\n  \
                    - { name: a-2, fixed: { delay: 1s } }\n  - { fixed: { delay: 1s } }\n  - { fixed: { delay: 1s } }\n\
                    workload: { arrivals: { rate: 1 } }\nvariants:\n  - { name: v }\n  - { name: v }\n";
        let all = told(text);
        let lines: Vec<usize> = all.iter().map(|p| p.0).collect();
        assert_eq!(lines, [3, 4, 6, 10], "{all:?}");
        assert!(all[0].2.contains("fleet[1].name | a second endpoint `a-1`; the first is on line 2"), "{all:?}");
        assert!(all[2].2.contains("a second endpoint `engine`; the first is on line 5"), "{all:?}");
        assert!(all[3].2.contains("variants[1].name | a second variant `v`; the first is on line 9"), "{all:?}");
    }

    #[test]
    fn one_fleet_of_several_variants_is_told_once() {
        let text = "workload: { arrivals: { rate: 1 } }\nvariants:\n  - name: v\n    fleet: &f\n      - { name: a, fixed: { delay: 1s } }\n      \
                    - { name: a, fixed: { delay: 1s } }\n  - { name: w, fleet: *f }\n";
        assert_eq!(told(text).len(), 1, "{:?}", told(text));
    }
}
