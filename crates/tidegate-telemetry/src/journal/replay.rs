//! Taking every decision of a journal again.

use super::changes::{Change, Watch};
use super::line::{Answer, Input, Line};
use super::settings::{Adaptive, Settings};
use std::collections::HashMap;
use std::io::{self, BufRead};
use std::time::Duration;
use tidegate_core::id::EndpointId;
use tidegate_core::journal::Decided;
use tidegate_core::pool::config::EndpointConfig;
use tidegate_core::pool::{Decision, Pool, Ticket};
use tidegate_core::queue::Waiter;
use tidegate_core::request::Request;
use tidegate_core::time::Instant;

/// What came of a replay.
#[derive(Debug)]
pub struct Replay {
    /// The pool.
    pub settings: Settings,
    /// Inputs fed.
    pub inputs: u64,
    /// Decisions taken again.
    pub decisions: u64,
    /// The first decision that came out otherwise; the replay ends there, as everything after depends on it.
    pub mismatch: Option<Mismatch>,
    /// Seconds of the pool's time that the journal covers.
    pub covers_s: f64,
    /// Whether the last line was cut off in writing; it is left out.
    pub cut: bool,
    /// What breakers did, and when endpoints had their full share again, in order.
    pub changes: Vec<Change>,
}

/// A decision that came out otherwise.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its line in the file, from 1.
    pub line: u64,
    /// What the journal has.
    pub recorded: String,
    /// What came out.
    pub replayed: String,
}

/// Why a journal cannot be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// The file cannot be read.
    Read(io::Error),
    /// A line is not what it should be.
    Line {
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        message: String,
    },
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot read the journal: {error}"),
            Self::Line { line, message } => write!(f, "line {line}: {message}"),
        }
    }
}

impl std::error::Error for ReplayError {}

/// Feeds a journal to a fresh pool and compares every decision. A last line that was cut off in writing is left out.
///
/// # Errors
/// If the file cannot be read or is no journal of this version.
pub fn replay(journal: impl BufRead) -> Result<Replay, ReplayError> {
    let mut lines = Lines { journal, text: Vec::new(), read: 0 };
    let wrong = |line, message: String| ReplayError::Line { line, message };
    let first = lines.advance()?.map_or(Ok(None), |text| serde_json::from_slice(text).map(Some));
    let settings: Settings = first
        .map_err(|e| wrong(1, format!("not the first line of a journal: {}", in_line(&e))))?
        .ok_or_else(|| wrong(1, "not the first line of a journal: the file is empty".to_owned()))?;
    let pool = Pool::new(settings.core().map_err(|m| wrong(1, m))?, settings.checked, settings.seed);
    let mut again = Again { pool, tickets: HashMap::new(), waiters: HashMap::new(), decisions: 0 };
    let mut watch = Watch::default();
    let mut result =
        Replay { settings, inputs: 0, decisions: 0, mismatch: None, covers_s: 0.0, cut: false, changes: Vec::new() };
    let mut began = None;
    while lines.advance()?.is_some() {
        let n = lines.read;
        let line: Line<'_> = match serde_json::from_slice(&lines.text) {
            Ok(line) => line,
            Err(_) if lines.is_open() => {
                result.cut = true;
                break;
            }
            Err(e) => return Err(wrong(n, in_line(&e))),
        };
        let now = Instant::from_nanos(line.t);
        result.covers_s = now.secs_since(*began.get_or_insert(now));
        result.inputs += 1;
        result.mismatch = again.feed(n, now, line.input).map_err(|m| wrong(n, m))?;
        result.decisions = again.decisions;
        watch.look(result.covers_s, now, &mut again.pool, &mut result.changes);
        if result.mismatch.is_some() {
            break;
        }
    }
    Ok(result)
}

/// The lines of a journal, with their number. Bytes and not text: a line may be cut off inside a character.
struct Lines<R> {
    journal: R,
    text: Vec<u8>,
    read: u64,
}

impl<R: BufRead> Lines<R> {
    fn advance(&mut self) -> Result<Option<&[u8]>, ReplayError> {
        self.text.clear();
        let found = self.journal.read_until(b'\n', &mut self.text).map_err(ReplayError::Read)?;
        self.read += 1;
        Ok((found > 0).then_some(&*self.text))
    }

    /// Whether the line at hand has no end: the writer did not get that far.
    fn is_open(&self) -> bool {
        self.text.last() != Some(&b'\n')
    }
}

/// An error of the parser within one line: its own line number, always 1, would stand beside the journal's.
fn in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())) {
        Some(what) => format!("column {}: {what}", error.column()),
        None => text,
    }
}

struct Again {
    pool: Pool,
    tickets: HashMap<(u32, u32), Ticket>,
    waiters: HashMap<(u32, u32), Waiter>,
    decisions: u64,
}

impl Again {
    fn feed(&mut self, line: u64, now: Instant, input: Input<'_>) -> Result<Option<Mismatch>, String> {
        if let Some(event) = input.to_event() {
            self.pool.on_event(now, event);
            return Ok(None);
        }
        match input {
            Input::Added { endpoint, name, weight, max_in_flight, adaptive, serves } => {
                let (name, adaptive) = (name.into_owned(), adaptive.map(Adaptive::core));
                let serves = serves.map(|s| *s).unwrap_or_default();
                let id = self.pool.add(now, EndpointConfig { name, weight, max_in_flight, adaptive, serves });
                if id != EndpointId(endpoint) {
                    return Err(format!("the endpoint got slot {} instead of {endpoint}", id.0));
                }
            }
            Input::Changed { endpoint, weight, max_in_flight, adaptive, serves } => {
                let (name, adaptive) = (String::new(), adaptive.map(Adaptive::core));
                let serves = serves.map(|s| *s).unwrap_or_default();
                let cfg = EndpointConfig { name, weight, max_in_flight, adaptive, serves };
                self.pool.change(now, EndpointId(endpoint), &cfg);
            }
            Input::Serves(endpoint, told) => self.pool.on_serves(now, EndpointId(endpoint), &told),
            Input::Reconfigured(settings) => self.pool.reconfigure(now, settings.core()?, settings.checked),
            Input::Restored(saved) => self.pool.restore(now, &saved),
            Input::Removed(endpoint) => self.pool.remove(now, EndpointId(endpoint)),
            Input::Deadline(()) => self.pool.on_deadline(now),
            Input::Settled { key, verdict, tokens, cached } => {
                let ticket = self.tickets.remove(&key).ok_or_else(|| format!("no dispatch {key:?} is out"))?;
                self.pool.settle(now, ticket, verdict.outcome(tokens, cached));
            }
            Input::Admit { .. } => return Ok(self.admit(line, now, input)),
            Input::Claimed(key, decided) => {
                let waiter = self.waiters.remove(&key).ok_or_else(|| format!("nobody waits as {key:?}"))?;
                let decision = self.pool.claim(now, waiter);
                return Ok(self.compare(line, decision, &decided));
            }
            Input::Left(key) => {
                let waiter = self.waiters.remove(&key).ok_or_else(|| format!("nobody waits as {key:?}"))?;
                self.pool.leave(now, waiter);
            }
            _ => {}
        }
        Ok(None)
    }

    /// Decides about a request again.
    fn admit(&mut self, line: u64, now: Instant, input: Input<'_>) -> Option<Mismatch> {
        let Input::Admit {
            hash,
            session,
            prompt,
            attempted,
            tenant,
            class,
            deadline,
            prefix,
            ttft_goal,
            tpot_goal,
            model,
            decided,
        } = input
        else {
            return None;
        };
        let (model, max_output) = model.unwrap_or_default();
        let attempted: Vec<EndpointId> = attempted.into_iter().map(EndpointId).collect();
        let (tenant, tenant_weight, priority, cost) = tenant.unwrap_or_default();
        let (prefix, block_tokens) = prefix.unwrap_or_default();
        let request = Request {
            tenant,
            class: class.unwrap_or(0),
            tenant_weight,
            priority,
            cost,
            deadline: deadline.map(Instant::from_nanos),
            hash_key: hash,
            affinity_key: session,
            model,
            max_output,
            prompt_tokens: prompt,
            prefix: &prefix,
            block_tokens,
            matched: &[],
            shared: 0.0,
            starts: &[],
            ttft_goal: ttft_goal.map(Duration::from_nanos),
            tpot_goal: tpot_goal.map(Duration::from_nanos),
            attempted: &attempted,
        };
        let decision = self.pool.admit(now, &request, None);
        self.compare(line, decision, &decided)
    }

    fn compare(&mut self, line: u64, decision: Decision, recorded: &Answer<'_>) -> Option<Mismatch> {
        self.decisions += 1;
        let replayed = Answer::of(Decided::of(&decision));
        if replayed != *recorded {
            let shown = |a: &Answer<'_>| serde_json::to_string(a).unwrap_or_default();
            return Some(Mismatch { line, recorded: shown(recorded), replayed: shown(&replayed) });
        }
        match decision {
            Decision::Send { ticket, .. } => drop(self.tickets.insert(ticket.key().parts(), ticket)),
            Decision::Wait { waiter, .. } => drop(self.waiters.insert(waiter.id().parts(), waiter)),
            Decision::Shed { .. } => {}
        }
        None
    }
}
