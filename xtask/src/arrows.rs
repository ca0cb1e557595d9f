//! Which crate may depend on which: anything absent from the table is forbidden.

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};
use std::collections::{BTreeSet, HashMap};

/// Crate, then the crates of ours it may use. Development dependencies are free.
const ARROWS: [(&str, &[&str]); 12] = [
    ("tidegate-core", &[]),
    ("tidegate-config", &["tidegate-core"]),
    ("tidegate-telemetry", &["tidegate-core", "tidegate-config"]),
    ("tidegate-sim", &["tidegate-core", "tidegate-config", "tidegate-telemetry"]),
    ("tidegate-tls", &["tidegate-config"]),
    ("tidegate-signals", &["tidegate-core", "tidegate-config", "tidegate-telemetry", "tidegate-tls"]),
    ("tidegate-proxy", &["tidegate-core", "tidegate-config", "tidegate-telemetry", "tidegate-tls"]),
    ("tidegate-admin", &["tidegate-core", "tidegate-config", "tidegate-telemetry", "tidegate-proxy"]),
    (
        "tidegate",
        &[
            "tidegate-core",
            "tidegate-config",
            "tidegate-telemetry",
            "tidegate-sim",
            "tidegate-signals",
            "tidegate-proxy",
            "tidegate-admin",
            "tidegate-tls",
        ],
    ),
    ("tidegate-testkit", &[]),
    ("tidegate-fuzz", &["tidegate-core", "tidegate-config", "tidegate-proxy"]),
    ("xtask", &[]),
];

/// All that may ever be in core's tree: it needs no clock, no I/O, no runtime and no randomness. `serde`, where asked for, writes down what is
/// handed to another process (`saved.rs`); the last five are its macro, which runs when core is built.
const CORE_TREE: [&str; 10] = [
    "tidegate-core",
    "libm",
    "hashbrown",
    "serde",
    "serde_core",
    "serde_derive",
    "proc-macro2",
    "quote",
    "syn",
    "unicode-ident",
];

/// Crates whose presence in the simulator's tree would let a decision wait or read a clock.
const NOT_IN_SIM: [&str; 6] = ["tokio", "mio", "async-std", "smol", "hyper", "socket2"];

/// Faults against the table.
pub(crate) fn check() -> Vec<String> {
    let metadata = match MetadataCommand::new()
        .other_options(["--filter-platform".into(), "x86_64-unknown-linux-gnu".into()])
        .exec()
    {
        Ok(metadata) => metadata,
        Err(error) => return vec![format!("cargo metadata: {error}")],
    };
    let mut faults = direct(&metadata);
    let core = tree(&metadata, "tidegate-core");
    faults
        .extend(core.iter().filter(|n| !CORE_TREE.contains(&n.as_str())).map(|n| format!("tidegate-core reaches {n}")));
    let sim = tree(&metadata, "tidegate-sim");
    faults.extend(sim.iter().filter(|n| NOT_IN_SIM.contains(&n.as_str())).map(|n| format!("tidegate-sim reaches {n}")));
    faults
}

fn direct(metadata: &Metadata) -> Vec<String> {
    let mut faults = Vec::new();
    for package in metadata.workspace_packages() {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name.as_str()) else {
            faults.push(format!("{}: a crate that the table of arrows in xtask does not know", package.name));
            continue;
        };
        let ours = package.dependencies.iter().filter(|d| d.path.is_some() && d.kind != DependencyKind::Development);
        let wrong = ours.filter(|d| !allowed.contains(&d.name.as_str()));
        faults.extend(wrong.map(|d| format!("{} must not depend on {}", package.name, d.name)));
    }
    faults
}

/// Names of everything that ends up in a build of `root`, build and development dependencies left out.
fn tree(metadata: &Metadata, root: &str) -> BTreeSet<String> {
    let names: HashMap<&PackageId, &str> = metadata.packages.iter().map(|p| (&p.id, p.name.as_str())).collect();
    let Some(resolve) = &metadata.resolve else { return BTreeSet::new() };
    let nodes: HashMap<&PackageId, _> = resolve.nodes.iter().map(|n| (&n.id, n)).collect();
    let mut todo: Vec<&PackageId> = names.iter().filter(|(_, name)| **name == root).map(|(id, _)| *id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if let (Some(name), Some(node)) = (names.get(id), nodes.get(id))
            && seen.insert((*name).to_owned())
        {
            let normal = node.deps.iter().filter(|d| d.dep_kinds.iter().any(|k| k.kind == DependencyKind::Normal));
            todo.extend(normal.map(|d| &d.pkg));
        }
    }
    seen
}
