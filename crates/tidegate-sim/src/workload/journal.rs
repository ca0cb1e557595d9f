//! The journal of a pool of `tidegate serve` as a trace: every request that came to it, when, how long, and how its prompt began.
//!
//! A journal is JSON lines: the pool's settings, then its inputs with their times in nanoseconds (docs/operations.md). Taken of an admission
//! that is no retry: when, prompt tokens, the tenant's hash, the key that `consistent_hash` went by, and the hashes of its prompt's blocks where the pool looked at prefixes. The
//! length of the answer is what its last dispatch was settled with: the engine's usage, or, where no limit counts tokens, the events of its
//! stream. A retry or hedge belongs to a request of the same prompt and tenant that
//! was sent to the endpoint it names last and has no answer yet. Equal block hashes become equal ids, so what prompts share is kept; what they
//! said was never in the journal.
//!
//! Models are left out (a journal is of one pool, and has them as hashes); nothing is known of whether answers were streams, of prompts nobody read, and of answers that never came;
//! what that concerns is counted, and said in [`Trace::notes`].

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde::de::IgnoredAny;
use tidegate_core::time::Duration;

use super::trace::{MAX_REQUESTS, Trace, TraceError, TraceRequest};

/// What the first line must have to be that of a journal.
#[derive(Deserialize)]
struct Head {
    pool: String,
    #[serde(rename = "tidegate")]
    _version: String,
    #[serde(rename = "seed")]
    _seed: u64,
}

/// What is read of a line; one of its parts is there, or none where the input says nothing of requests.
#[derive(Deserialize)]
struct Line {
    t: u64,
    admit: Option<Admit>,
    claimed: Option<(Key, Claimed)>,
    settled: Option<Settled>,
}

type Key = (u32, u32);
/// Dispatch, endpoint, rule and detail.
type Sent = (Key, u32, IgnoredAny, IgnoredAny);

#[derive(Deserialize)]
struct Admit {
    hash: Option<u64>,
    prompt: Option<u32>,
    #[serde(default)]
    attempted: Vec<u32>,
    tenant: Option<(u64, IgnoredAny, IgnoredAny, IgnoredAny)>,
    prefix: Option<(Vec<u64>, u32)>,
    sent: Option<Sent>,
    waits: Option<Key>,
}

#[derive(Deserialize)]
struct Claimed {
    sent: Option<Sent>,
}

#[derive(Deserialize)]
struct Settled {
    key: Key,
    #[serde(default)]
    tokens: u32,
    verdict: serde_json::Value,
}

/// A request under way.
struct Asked {
    at: u64,
    prompt: Option<u32>,
    tenant: u64,
    key: Option<u64>,
    blocks: Vec<(u32, u32)>,
    /// Endpoints it was sent to, while it has no answer.
    sent_to: Vec<u32>,
    output: Option<u32>,
}

#[derive(Default)]
struct Reading {
    asked: Vec<Asked>,
    /// Requests without an answer by tenant and prompt: those a retry may be of.
    open: HashMap<(u64, Option<u32>), Vec<usize>>,
    waiting: HashMap<Key, usize>,
    running: HashMap<Key, usize>,
    ids: HashMap<u64, u32>,
    block_tokens: u32,
}

/// Whether the text begins as a journal does.
pub fn is_journal(text: &str) -> bool {
    text.lines().next().is_some_and(|line| serde_json::from_str::<Head>(line).is_ok())
}

/// Reads a journal. A last line that was cut off in writing is left out, as `tidegate replay` does.
///
/// # Errors
/// A line that is none of a journal, or no request in it.
pub fn read(text: &str) -> Result<Trace, TraceError> {
    let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()).peekable();
    let head = lines.next().and_then(|(_, line)| serde_json::from_str::<Head>(line).ok());
    let Some(head) = head else {
        return Err(TraceError { line: 1, message: "not the settings of a pool, with which a journal begins".into() });
    };
    let (mut reading, mut cut) = (Reading::default(), false);
    while let Some((at, line)) = lines.next() {
        match serde_json::from_str::<Line>(line) {
            Ok(line) => reading.take(line),
            Err(_) if lines.peek().is_none() && !text.ends_with('\n') => cut = true,
            Err(e) => return Err(TraceError { line: at + 1, message: format!("no input of a journal: {e}") }),
        }
        if reading.asked.len() > MAX_REQUESTS {
            return Err(TraceError { line: at + 1, message: format!("more than {MAX_REQUESTS} requests") });
        }
    }
    if reading.asked.is_empty() {
        return Err(TraceError { line: 1, message: format!("the journal of pool {} has no request in it", head.pool) });
    }
    Ok(reading.trace(&head.pool, cut))
}

impl Reading {
    fn take(&mut self, line: Line) {
        let Line { t, admit, claimed, settled } = line;
        if let Some(admit) = admit {
            self.admit(t, admit);
        }
        if let Some((waiter, claimed)) = claimed
            && let Some(at) = self.waiting.remove(&waiter)
        {
            self.sent(at, claimed.sent);
        }
        if let Some(settled) = settled
            && let Some(at) = self.running.remove(&settled.key)
            && settled.verdict == "success"
        {
            self.answered(at, settled.tokens);
        }
    }

    fn admit(&mut self, t: u64, admit: Admit) {
        let who = (admit.tenant.map_or(0, |tenant| tenant.0), admit.prompt);
        let at = match admit.attempted.last() {
            None => {
                let blocks = admit.prefix.map(|(hashes, tokens)| self.blocks(&hashes, tokens)).unwrap_or_default();
                let ((tenant, prompt), key) = (who, admit.hash);
                self.asked.push(Asked { at: t, prompt, tenant, key, blocks, sent_to: Vec::new(), output: None });
                let at = self.asked.len() - 1;
                self.open.entry(who).or_default().push(at);
                at
            }
            Some(last) => {
                let asked = &self.asked;
                let of = |at: &&usize| asked[**at].sent_to.last() == Some(last);
                // One whose beginning is before the journal's is nobody's.
                let Some(at) = self.open.get(&who).and_then(|open| open.iter().rev().find(of)).copied() else { return };
                at
            }
        };
        match admit.waits {
            Some(waiter) => {
                self.waiting.insert(waiter, at);
            }
            None => self.sent(at, admit.sent),
        }
    }

    fn sent(&mut self, at: usize, sent: Option<Sent>) {
        if let Some((key, endpoint, ..)) = sent {
            self.asked[at].sent_to.push(endpoint);
            self.running.insert(key, at);
        }
    }

    fn answered(&mut self, at: usize, tokens: u32) {
        let asked = &mut self.asked[at];
        asked.output = Some(tokens);
        if let Some(open) = self.open.get_mut(&(asked.tenant, asked.prompt)) {
            open.retain(|other| *other != at);
        }
    }

    /// Block hashes as runs of ids, an id for each hash.
    fn blocks(&mut self, hashes: &[u64], tokens: u32) -> Vec<(u32, u32)> {
        self.block_tokens = tokens;
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for hash in hashes {
            let fresh = self.ids.len() as u32;
            let id = *self.ids.entry(*hash).or_insert(fresh);
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == id => *last = id,
                _ => runs.push((id, id)),
            }
        }
        runs
    }

    fn trace(self, pool: &str, cut: bool) -> Trace {
        let mut lengths: Vec<u32> = self.asked.iter().filter_map(|a| a.output).collect();
        lengths.sort_unstable();
        let median = lengths.get(lengths.len() / 2).copied().unwrap_or(1).max(1);
        let no_answer = self.asked.len() - lengths.len();
        let no_prompt = self.asked.iter().filter(|a| a.prompt.is_none()).count();
        let no_blocks = self.asked.iter().all(|a| a.blocks.is_empty());
        let start = self.asked.iter().map(|a| a.at).min().unwrap_or(0);
        let mut clients: BTreeMap<u64, u32> = BTreeMap::new();
        let mut requests: Vec<TraceRequest> = Vec::with_capacity(self.asked.len());
        for a in self.asked {
            let next = clients.len() as u32;
            requests.push(TraceRequest {
                at: Duration::from_nanos(a.at - start),
                prompt_tokens: a.prompt.unwrap_or(1),
                output_tokens: a.output.unwrap_or(median).max(1),
                client: *clients.entry(a.tenant).or_insert(next),
                key: a.key,
                blocks: a.blocks,
            });
        }
        requests.sort_by_key(|r| r.at);
        let mut notes = vec![format!(
            "journal of pool {pool}: {} requests of {} tenants; which models were asked for is left out, and which answers were streams is not told: all are taken as the \
             workload says",
            requests.len(),
            clients.len()
        )];
        let mut note = |count: usize, what: String| {
            if count > 0 {
                notes.push(format!("journal of pool {pool}: {count} requests {what}"));
            }
        };
        note(
            no_answer,
            format!("have no whole answer in it; their answers are taken to be of {median} tokens, the median"),
        );
        note(no_prompt, "tell no prompt tokens; they count as 1".to_owned());
        if no_blocks {
            notes.push(format!("journal of pool {pool}: no blocks of prompts (the pool has no prefix_cache, or they are shorter than its block), so nothing is found cached"));
        }
        if cut {
            notes.push(format!("journal of pool {pool}: its last line is cut off and left out"));
        }
        Trace { requests, block_tokens: self.block_tokens, notes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"tidegate":"0.1.0","pool":"chat","seed":1,"checked":false,"policy":"adaptive"}"#;

    fn journal(lines: &[&str]) -> String {
        format!("{HEAD}\n{}\n", lines.join("\n"))
    }

    #[test]
    fn requests_answers_tenants_and_what_prompts_share() {
        let text = journal(&[
            r#"{"t":1000000000,"added":{"endpoint":0,"name":"a","weight":1.0,"max_in_flight":null}}"#,
            r#"{"t":5000000000,"admit":{"hash":99,"prompt":700,"tenant":[77,1.0,0,900.0],"prefix":[[11,22],256],"sent":[[0,1],0,"adaptive","price"]}}"#,
            r#"{"t":5500000000,"admit":{"prompt":40,"tenant":[88,1.0,0,0.0],"prefix":[[11,33],256],"waits":[4,1]}}"#,
            r#"{"t":5600000000,"first_byte":[0,1]}"#,
            r#"{"t":6000000000,"settled":{"key":[0,1],"verdict":"success","tokens":31,"cached":0}}"#,
            r#"{"t":6000000000,"claimed":[[4,1],{"sent":[[0,2],0,"adaptive","price"]}]}"#,
            r#"{"t":6200000000,"deadline":null}"#,
            r#"{"t":7000000000,"settled":{"key":[0,2],"verdict":"success","tokens":9}}"#,
            r#"{"t":7500000000,"admit":{"prompt":5,"shed":"pool_full"}}"#,
        ]);
        assert!(is_journal(&text) && !is_journal("{}\n") && !is_journal("t_ms,input_tokens\n"));
        let trace = read(&text).unwrap();
        let found: Vec<_> =
            trace.requests.iter().map(|r| (r.at.as_millis(), r.prompt_tokens, r.output_tokens, r.client)).collect();
        // The one that was refused is taken to have been as long as the others.
        assert_eq!(found, [(0, 700, 31, 0), (500, 40, 9, 1), (2500, 5, 31, 2)]);
        assert_eq!(
            (trace.requests[0].blocks.clone(), trace.requests[1].blocks.clone()),
            (vec![(0, 1)], vec![(0, 0), (2, 2)])
        );
        assert_eq!((trace.block_tokens, trace.requests[0].key, trace.requests[1].key), (256, Some(99), None));
        assert!(
            trace.notes[0].contains("3 requests of 3 tenants")
                && trace.notes[1].contains("1 requests have no whole answer"),
            "{:?}",
            trace.notes
        );
    }

    #[test]
    fn a_retry_is_the_same_request() {
        let text = journal(&[
            r#"{"t":10,"admit":{"prompt":7,"sent":[[0,1],0,"adaptive","price"]}}"#,
            r#"{"t":11,"admit":{"prompt":7,"sent":[[1,1],1,"adaptive","price"]}}"#,
            r#"{"t":20,"settled":{"key":[0,1],"verdict":"reset","tokens":0}}"#,
            r#"{"t":20,"admit":{"prompt":7,"attempted":[0],"sent":[[2,1],1,"adaptive","price"]}}"#,
            r#"{"t":30,"settled":{"key":[2,1],"verdict":"success","tokens":3}}"#,
            r#"{"t":31,"settled":{"key":[1,1],"verdict":{"throttled":null},"tokens":0}}"#,
            r#"{"t":31,"admit":{"prompt":7,"attempted":[1],"sent":[[3,1],0,"adaptive","price"]}}"#,
            r#"{"t":40,"settled":{"key":[3,1],"verdict":"success","tokens":5}}"#,
        ]);
        let trace = read(&text).unwrap();
        let outputs: Vec<u32> = trace.requests.iter().map(|r| r.output_tokens).collect();
        assert_eq!(outputs, [3, 5]);
    }

    #[test]
    fn what_is_cut_is_left_out_and_what_is_none_is_told() {
        let whole = journal(&[r#"{"t":10,"admit":{"prompt":7,"sent":[[0,1],0,"a","b"]}}"#]);
        let cut = format!("{whole}{{\"t\":20,\"adm");
        let trace = read(&cut).unwrap();
        assert!(trace.requests.len() == 1 && trace.notes.iter().any(|n| n.contains("cut off")), "{:?}", trace.notes);
        let broken = format!("{cut}\n{}", r#"{"t":30,"deadline":null}"#);
        assert_eq!(read(&broken).unwrap_err().line, 3);
        assert!(read(&journal(&[])).unwrap_err().message.contains("pool chat has no request"));
    }
}
