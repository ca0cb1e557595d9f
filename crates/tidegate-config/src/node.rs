//! YAML as a tree in which every node knows its place.
//!
//! The parser's events become a small tree of our own instead of going through serde, because serde stops at the first problem and this
//! crate reports all of them. Keys stay in order and duplicates stay in, so that the reader can point at the second one. An alias is a
//! copy of its anchor; a bound on nodes and on depth keeps aliases of aliases from growing without end.

use granit_parser::{Event, Options, Parser, ScalarStyle, StructureStyle};
use std::collections::BTreeMap;

/// Bound on the nodes of one file, copies made by aliases included.
const MAX_NODES: usize = 100_000;
/// Bound on nesting; a valid config is nine levels deep.
const MAX_DEPTH: usize = 64;
/// Syntax errors after which no further one is looked for.
const MAX_SYNTAX_ERRORS: usize = 8;

/// A place in the text: line and column from 1, and how many characters to underline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) width: usize,
    /// The last line of the node, for masking secrets that run over several.
    pub(crate) last_line: usize,
}

impl Span {
    /// The first character of the file.
    pub(crate) const START: Self = Self { line: 1, column: 1, width: 1, last_line: 1 };

    fn of(text: &str, span: &granit_parser::Span) -> Self {
        let (start, end) = (span.start, span.end);
        let slice = span.slice(text).unwrap_or_default();
        let first_line = slice.lines().next().unwrap_or_default().trim_end();
        Self {
            line: start.line().max(1),
            column: start.col() + 1,
            width: first_line.chars().count().max(1),
            last_line: end.line().max(start.line()),
        }
    }
}

/// A node and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) content: Content,
    /// Nodes below and including this one.
    size: usize,
    /// Levels below and including this one.
    depth: usize,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Text; `plain` if it stands without quotes.
    Scalar { text: String, plain: bool },
    /// A list.
    List(Vec<Node>),
    /// A mapping, in order, duplicates included.
    Map(Vec<(Node, Node)>),
}

impl Node {
    fn new(span: Span, content: Content) -> Self {
        let (size, depth) = match &content {
            Content::Scalar { .. } => (0, 0),
            Content::List(items) => items.iter().fold((0, 0), |(s, d), n| (s + n.size, d.max(n.depth))),
            Content::Map(entries) => entries
                .iter()
                .flat_map(|(k, v)| [k, v])
                .fold((0usize, 0), |(s, d), n| (s.saturating_add(n.size), d.max(n.depth))),
        };
        Self { span, content, size: size.saturating_add(1), depth: depth + 1 }
    }

    /// An empty mapping at `span`: what an absent table with defaults is read from.
    pub(crate) fn empty_map(span: Span) -> Self {
        Self::new(span, Content::Map(Vec::new()))
    }

    /// Everything from the node's start to the end of its last line: what is masked if it holds a secret.
    pub(crate) fn secret_span(&self) -> Span {
        let last = match &self.content {
            Content::Scalar { .. } => return self.span,
            Content::List(items) => items.iter().map(|n| n.secret_span().last_line).max(),
            Content::Map(entries) => entries.iter().map(|(_, v)| v.secret_span().last_line).max(),
        };
        let last_line = last.unwrap_or(self.span.last_line).max(self.span.last_line);
        Span { width: usize::MAX, last_line, ..self.span }
    }

    /// Whether the node is YAML's nothing: `key:` alone, `~` or `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null"))
    }
}

/// Text that is not YAML, or more of it than is read.
#[derive(Clone, Debug)]
pub(crate) struct SyntaxError {
    pub(crate) span: Span,
    pub(crate) message: String,
}

/// The tree of a file, with what was wrong with its syntax.
#[derive(Debug)]
pub(crate) struct Tree {
    /// `None` if the file is empty, or broken beyond reading.
    pub(crate) root: Option<Node>,
    pub(crate) errors: Vec<SyntaxError>,
}

/// Parses `text`. The parser stops at an error, so the line to blame is blanked and the rest is read again: one broken line does not hide
/// the problems of the others. If the text stays broken, only the first error is told, as the rest may be its consequences.
pub(crate) fn parse(text: &str) -> Tree {
    let mut text = text.to_owned();
    let mut errors = Vec::new();
    let mut attempt = Builder::default().build(&text);
    loop {
        match attempt {
            Ok(root) => return Tree { root, errors },
            Err(failure) => {
                let Some((error, repaired, next)) = repair(&text, failure.clone()) else {
                    errors.push(failure.error);
                    errors.truncate(1);
                    return Tree { root: None, errors };
                };
                errors.push(error);
                if errors.len() >= MAX_SYNTAX_ERRORS && next.is_err() {
                    errors.truncate(1);
                    return Tree { root: None, errors };
                }
                (text, attempt) = (repaired, next);
            }
        }
    }
}

/// Why parsing stopped, and which brackets were open then.
#[derive(Clone, Debug)]
struct Failure {
    error: SyntaxError,
    open: Vec<Span>,
}

type Attempt = Result<Option<Node>, Failure>;

/// Blanks the line to blame: the one of the error, a tab beside it, or the line of a bracket that is still open, whichever lets the parser
/// come furthest. `None` if nothing helps.
fn repair(text: &str, failure: Failure) -> Option<(SyntaxError, String, Attempt)> {
    let Failure { error, open } = failure;
    let mut suspects = Vec::new();
    for line in [error.span.line, error.span.line + 1] {
        let content = text.lines().nth(line - 1).unwrap_or_default();
        let indent = content.len() - content.trim_start().len();
        if content.get(..indent).is_some_and(|i| i.contains('\t')) {
            let span = Span { line, column: 1, width: indent, last_line: line };
            suspects.push(fail(span, "a tab in the indentation, where only spaces may stand"));
        }
    }
    let line = error.span.line;
    suspects.push(error);
    let brackets = open.into_iter().rev().filter(|s| s.line < line).take(3);
    suspects.extend(brackets.map(|span| fail(span, "a bracket that is not closed")));
    let mut best: Option<(usize, SyntaxError, String, Attempt)> = None;
    for suspect in suspects {
        let mut repaired = text.to_owned();
        if !blank_line(&mut repaired, suspect.span.line) {
            continue;
        }
        let next = Builder::default().build(&repaired);
        let reach = next.as_ref().map_or_else(|f| f.error.span.line, |_| usize::MAX);
        if best.as_ref().is_none_or(|(furthest, ..)| reach > *furthest) {
            best = Some((reach, suspect, repaired, next));
        }
    }
    best.map(|(_, error, repaired, next)| (error, repaired, next))
}

/// Empties line number `line`; `false` if there is nothing on it to remove.
fn blank_line(text: &mut String, line: usize) -> bool {
    let mut start = 0;
    for (i, content) in text.split_inclusive('\n').enumerate() {
        let end = start + content.trim_end_matches(['\n', '\r']).len();
        if i + 1 == line {
            let was_blank = content.trim().is_empty();
            text.replace_range(start..end, "");
            return !was_blank;
        }
        start += content.len();
    }
    false
}

/// A collection that has not ended yet.
struct Frame {
    span: Span,
    anchor: usize,
    items: Vec<Node>,
    is_map: bool,
    is_flow: bool,
}

#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    anchors: BTreeMap<usize, Node>,
    root: Option<Node>,
    nodes: usize,
}

impl Builder {
    fn build(mut self, text: &str) -> Attempt {
        match self.read(text) {
            Ok(()) => Ok(self.root),
            Err(error) => {
                let open = self.stack.iter().filter(|f| f.is_flow).map(|f| f.span).collect();
                Err(Failure { error, open })
            }
        }
    }

    fn read(&mut self, text: &str) -> Result<(), SyntaxError> {
        let mut options = Options::default();
        options.set_emit_comments(false);
        let lines: Vec<&str> = text.lines().collect();
        let mut documents = 0;
        for event in Parser::new_from_str_with_options(text, options) {
            let (event, span) = event.map_err(|e| {
                let (line, column) = (e.marker().line().max(1), e.marker().col() + 1);
                let span = Span { line, column, width: 1, last_line: line };
                SyntaxError { span: clamp(&lines, span), message: e.info() }
            })?;
            let span = clamp(&lines, Span::of(text, &span));
            if let Event::DocumentStart(..) = event {
                documents += 1;
                if documents > 1 {
                    return Err(fail(span, "a second document: a config is one document, without `---` between parts"));
                }
            }
            self.on_event(event, span)?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxError> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let content = Content::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                self.add(Node::new(span, content), anchor, 1)
            }
            Event::SequenceStart(style, anchor, _) => self.open(span, anchor, false, style),
            Event::MappingStart(style, anchor, _) => self.open(span, anchor, true, style),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(id) => match self.anchors.get(&id).cloned() {
                Some(node) => {
                    let cost = node.size;
                    self.add(node, 0, cost)
                }
                None => Err(fail(span, "an alias of the node it stands in")),
            },
            _ => Ok(()),
        }
    }

    fn open(&mut self, span: Span, anchor: usize, is_map: bool, style: StructureStyle) -> Result<(), SyntaxError> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(fail(span, &format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let is_flow = style == StructureStyle::Flow;
        self.stack.push(Frame { span: Span { width: 1, ..span }, anchor, items: Vec::new(), is_map, is_flow });
        Ok(())
    }

    fn close(&mut self) -> Result<(), SyntaxError> {
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let content = if frame.is_map {
            let mut entries = Vec::with_capacity(frame.items.len() / 2);
            let mut items = frame.items.into_iter();
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                entries.push((key, value));
            }
            Content::Map(entries)
        } else {
            Content::List(frame.items)
        };
        self.add(Node::new(frame.span, content), frame.anchor, 1)
    }

    fn add(&mut self, node: Node, anchor: usize, cost: usize) -> Result<(), SyntaxError> {
        self.nodes = self.nodes.saturating_add(cost);
        if self.nodes > MAX_NODES || node.depth + self.stack.len() > MAX_DEPTH {
            return Err(fail(
                node.span,
                &format!("more than {MAX_NODES} nodes or {MAX_DEPTH} levels, aliases included"),
            ));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.stack.last_mut() {
            Some(frame) => frame.items.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }
}

fn fail(span: Span, message: &str) -> SyntaxError {
    SyntaxError { span, message: message.to_owned() }
}

/// Keeps a place inside the text: an error at the end of the file is told on the last line that has something on it.
fn clamp(lines: &[&str], span: Span) -> Span {
    if lines.get(span.line - 1).is_some_and(|l| !l.trim().is_empty()) {
        return span;
    }
    let last = lines.iter().enumerate().take(span.line).rev().find(|(_, l)| !l.trim().is_empty());
    last.map_or(Span::START, |(i, l)| {
        let column = l.trim_end().chars().count().max(1);
        Span { line: i + 1, column, width: 1, last_line: i + 1 }
    })
}
