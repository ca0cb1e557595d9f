//! What is collected while the tree is walked: problems, marks for checks across sections, and where secrets stand.

use crate::node::{Content, Node, Span};
use crate::problem::{Problem, ProblemKind, Severity};
use tidegate_core::descriptor::Descriptor;

/// Where something stands in the file: its span and its path.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) span: Span,
    pub(crate) path: String,
}

/// A value that another section must agree with, kept with its place: the pool a route names, an address that is listened on.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) what: &'static str,
    pub(crate) place: Place,
    pub(crate) text: String,
}

/// A complaint without its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Complaint {
    pub(crate) found: String,
    pub(crate) allowed: String,
    pub(crate) hint: String,
}

/// The state of one walk over a file.
pub(crate) struct Walk<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) policies: &'a [&'static Descriptor],
    pub(crate) problems: Vec<Problem>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) secrets: Vec<Span>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(env: &'a dyn Fn(&str) -> Option<String>, policies: &'a [&'static Descriptor]) -> Self {
        Self { env, policies, problems: Vec::new(), marks: Vec::new(), secrets: Vec::new() }
    }

    /// Records a problem; the file's name and the line's text are filled in at the end, once all secrets are known.
    pub(crate) fn problem(&mut self, severity: Severity, kind: ProblemKind, place: &Place, complaint: Complaint) {
        let Complaint { found, allowed, hint } = complaint;
        let Span { line, column, width, .. } = place.span;
        let path = place.path.clone();
        let (source, excerpt, caret) = (String::new(), String::new(), 0);
        self.problems.push(Problem {
            severity,
            kind,
            source,
            line,
            column,
            width,
            path,
            found,
            allowed,
            hint,
            excerpt,
            caret,
        });
    }

    /// Records an error.
    pub(crate) fn error(&mut self, kind: ProblemKind, place: &Place, complaint: Complaint) {
        self.problem(Severity::Error, kind, place, complaint);
    }

    /// The text of a scalar with `${NAME}` and `${NAME:-default}` filled in and `$${` read as `${`. `None` if a variable is not set, which
    /// is then already a problem; nothing more is said about such a value.
    pub(crate) fn substitute(&mut self, text: &str, place: &Place) -> Option<String> {
        let (mut out, mut rest, mut complete) = (String::new(), text, true);
        while let Some(at) = rest.find("${") {
            let (before, tail) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = tail.get(2..).unwrap_or_default();
                continue;
            }
            out.push_str(before);
            let Some(end) = tail.find('}') else {
                self.environment(place, tail, "the closing } is missing; write $${ for a literal ${".to_owned());
                return None;
            };
            let whole = tail.get(..=end).unwrap_or_default();
            match self.variable(whole, place) {
                Some(value) => out.push_str(&value),
                None => complete = false,
            }
            rest = tail.get(end + 1..).unwrap_or_default();
        }
        out.push_str(rest);
        complete.then_some(out)
    }

    /// The value of one `${...}`.
    fn variable(&mut self, whole: &str, place: &Place) -> Option<String> {
        let inner = whole.trim_start_matches("${").trim_end_matches('}');
        let (name, default) = inner.split_once(":-").map_or((inner, None), |(n, d)| (n, Some(d)));
        let well_formed = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !well_formed {
            self.environment(place, whole, "a variable's name has letters, digits and _ only".to_owned());
            return None;
        }
        // As in a shell, `:-` also replaces a variable that is set but empty.
        let value = (self.env)(name).filter(|v| default.is_none() || !v.is_empty());
        let value = value.or_else(|| default.map(str::to_owned));
        if value.is_none() {
            let hint = format!("set {name} in the environment, or give a default: ${{{name}:-VALUE}}");
            self.environment(place, &format!("{whole}, which is not set"), hint);
        }
        value
    }

    fn environment(&mut self, place: &Place, found: &str, hint: String) {
        let allowed = "${NAME} of a variable that is set, or ${NAME:-default}".to_owned();
        self.error(ProblemKind::Environment, place, Complaint { found: found.to_owned(), allowed, hint });
    }
}

/// What is found where a key has no value.
pub(crate) const NOTHING: &str = "nothing";
/// What is found where a text has no characters.
pub(crate) const EMPTY: &str = "an empty text";

/// Says what a node is. `secret` hides the text.
pub(crate) fn describe(node: &Node, secret: bool) -> String {
    match &node.content {
        _ if node.is_null() => NOTHING.to_owned(),
        Content::Scalar { text, .. } if text.is_empty() => EMPTY.to_owned(),
        Content::Scalar { .. } if secret => "text".to_owned(),
        Content::Scalar { text, .. } => shorten(text),
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "a mapping".to_owned(),
    }
}

/// The first characters of a text, without line breaks or other control characters.
pub(crate) fn shorten(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut out: String = text.chars().take(60).map(clean).collect();
    if text.chars().nth(60).is_some() {
        out.push_str("...");
    }
    out
}
