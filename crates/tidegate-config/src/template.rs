//! Templates: whole config files that stand for a kind of service, and the keys of a pool that names one.
//!
//! `template: interactive` in a pool means: the pool of that file, but for its endpoints, with what this pool says itself on top. Tables are
//! merged key by key, anything else is replaced; a policy or breaker of another name replaces the template's whole. So overriding one
//! field changes that field and no other.

use crate::node::{self, Content, Node, Span};

/// A template.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// Its name.
    pub name: &'static str,
    /// The file it stands for.
    pub text: &'static str,
}

impl Template {
    /// What it is for: the first line of the file.
    pub fn summary(&self) -> &'static str {
        let line = self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']);
        line.split_once(": ").map_or(line, |(_, rest)| rest)
    }

    /// The template called `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        TEMPLATES.iter().find(|t| t.name == name)
    }
}

/// All templates.
pub const TEMPLATES: &[Template] = &[
    Template { name: "interactive", text: include_str!("../templates/interactive.yaml") },
    Template { name: "batch", text: include_str!("../templates/batch.yaml") },
    Template { name: "long_running", text: include_str!("../templates/long_running.yaml") },
    Template { name: "rag_embedding", text: include_str!("../templates/rag_embedding.yaml") },
    Template { name: "rag_vector_search", text: include_str!("../templates/rag_vector_search.yaml") },
    Template { name: "llm_proxy", text: include_str!("../templates/llm_proxy.yaml") },
];

/// Names of the templates, for the key that chooses one.
pub(crate) const NAMES: &[&str] =
    &["interactive", "batch", "long_running", "rag_embedding", "rag_vector_search", "llm_proxy"];

/// Puts under every pool that names a template what the template says.
pub(crate) fn expand(root: &mut Node) {
    let Some(pools) = entry_mut(root, "pools") else { return };
    let Content::Map(pools) = &mut pools.content else { return };
    for (_, pool) in pools {
        let Some((name, span)) = entry_mut(pool, "template").and_then(|n| Some((text(n)?.to_owned(), n.span))) else {
            continue;
        };
        let Some(mut below) = Template::find(&name).and_then(|t| only_pool(t.text)) else { continue };
        point_at(&mut below, span);
        merge(pool, below);
    }
}

/// The only pool of a file, without its endpoints.
fn only_pool(text: &str) -> Option<Node> {
    let mut root = node::parse(text).root?;
    let Content::Map(pools) = &mut entry_mut(&mut root, "pools")?.content else { return None };
    let (_, mut pool) = pools.pop()?;
    if let Content::Map(entries) = &mut pool.content {
        entries.retain(|(key, _)| self::text(key) != Some("endpoints"));
    }
    Some(pool)
}

/// What a problem with the template's part is shown at: the user's line that chose it.
fn point_at(node: &mut Node, span: Span) {
    node.span = span;
    match &mut node.content {
        Content::Scalar { .. } => {}
        Content::List(items) => items.iter_mut().for_each(|n| point_at(n, span)),
        Content::Map(entries) => entries.iter_mut().for_each(|(k, v)| {
            point_at(k, span);
            point_at(v, span);
        }),
    }
}

/// Adds to `own` what it does not say itself.
fn merge(own: &mut Node, below: Node) {
    if name_of(own).is_some_and(|name| name_of(&below) != Some(name)) {
        return;
    }
    let (Content::Map(own), Content::Map(below)) = (&mut own.content, below.content) else { return };
    // In the template's order, so that what is said anew stands where it stood.
    let mut merged = Vec::with_capacity(own.len() + below.len());
    for (key, value) in below {
        match own.iter().position(|(k, _)| text(k) == text(&key)) {
            Some(place) => {
                let (key, mut mine) = own.remove(place);
                merge(&mut mine, value);
                merged.push((key, mine));
            }
            None => merged.push((key, value)),
        }
    }
    merged.append(own);
    *own = merged;
}

/// The policy or breaker that a mapping is about.
fn name_of(node: &Node) -> Option<&str> {
    let Content::Map(entries) = &node.content else { return None };
    entries.iter().find(|(k, _)| text(k) == Some("name")).and_then(|(_, v)| text(v))
}

fn text(node: &Node) -> Option<&str> {
    if let Content::Scalar { text, .. } = &node.content { Some(text) } else { None }
}

fn entry_mut<'n>(node: &'n mut Node, name: &str) -> Option<&'n mut Node> {
    let Content::Map(entries) = &mut node.content else { return None };
    entries.iter_mut().find(|(k, _)| text(k) == Some(name)).map(|(_, v)| v)
}
