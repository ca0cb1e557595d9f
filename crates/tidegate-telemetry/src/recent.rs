//! The last records, for look-ups by request id and for the live page.
//!
//! One lock per slot and an atomic turn, so that cores writing records do not wait for each other nor for a reader of the whole ring.
//! Slots reuse their strings: a full ring allocates nothing.

use crate::record::Record;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Records that are kept.
pub const RECENT_RECORDS: usize = 1000;
/// Bytes kept of each text in a record: a path or a request id may be as long as a head.
const LIMIT_BYTES: usize = 512;

/// A record that is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// How many records came before it since the start.
    pub number: u64,
    /// When the request ended, in seconds since 1970 by the wall clock; to show, not to compute with.
    pub ended_unix_s: f64,
    /// The record, each text cut to 512 bytes.
    pub record: Record,
}

/// A ring of the last records.
#[derive(Debug)]
pub(crate) struct Recent {
    next: AtomicU64,
    slots: Box<[Mutex<Option<Kept>>]>,
}

impl Recent {
    pub(crate) fn new(slots: usize) -> Self {
        Self { next: AtomicU64::new(0), slots: (0..slots).map(|_| Mutex::new(None)).collect() }
    }

    /// Keeps a copy of `record`.
    pub(crate) fn push(&self, record: &Record) {
        let number = self.next.fetch_add(1, Relaxed);
        let mut slot = self.slots[(number % self.slots.len() as u64) as usize].lock();
        match &mut *slot {
            // A slower core whose turn came a whole round ago must not replace what is newer.
            Some(kept) if kept.number > number => {}
            Some(kept) => {
                (kept.number, kept.ended_unix_s) = (number, unix_s());
                copy(&mut kept.record, record);
            }
            None => {
                let mut copied = Record::default();
                copy(&mut copied, record);
                *slot = Some(Kept { number, ended_unix_s: unix_s(), record: copied });
            }
        }
    }

    /// At most `limit` records, the newest first.
    pub(crate) fn newest(&self, limit: usize) -> Vec<Kept> {
        let end = self.next.load(Relaxed);
        let held = (self.slots.len() as u64).min(end);
        let numbers = (end - held..end).rev().take(limit);
        numbers.filter_map(|n| self.slots[(n % self.slots.len() as u64) as usize].lock().clone()).collect()
    }

    /// The records of a request id, the newest first: clients may use an id again.
    pub(crate) fn find(&self, request_id: &str) -> Vec<Kept> {
        let request_id = cut(request_id);
        let matching =
            |slot: &Mutex<Option<Kept>>| slot.lock().as_ref().filter(|k| k.record.request_id == request_id).cloned();
        let mut found: Vec<Kept> = self.slots.iter().filter_map(matching).collect();
        found.sort_by_key(|k| std::cmp::Reverse(k.number));
        found
    }
}

/// Copies a record into one whose strings are used again.
fn copy(to: &mut Record, from: &Record) {
    let text = |to: &mut String, from: &str| {
        to.clear();
        to.push_str(cut(from));
    };
    text(&mut to.request_id, &from.request_id);
    to.method.clone_from(&from.method);
    text(&mut to.path, &from.path);
    text(&mut to.reason, &from.reason);
    text(&mut to.model, &from.model);
    to.pool = Arc::clone(&from.pool);
    to.endpoint = Arc::clone(&from.endpoint);
    (to.stream, to.status, to.outcome, to.attempts) = (from.stream, from.status, from.outcome, from.attempts);
    to.tenant = Arc::clone(&from.tenant);
    (to.output_tokens, to.queued_s) = (from.output_tokens, from.queued_s);
    (to.prompt_tokens, to.output_events, to.bytes_out) = (from.prompt_tokens, from.output_events, from.bytes_out);
    (to.ttft_s, to.total_s) = (from.ttft_s, from.total_s);
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LIMIT_BYTES)]
}

#[allow(clippy::disallowed_methods, reason = "wall time, only shown")]
fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A successful record of pool `chat`.
    pub(crate) fn record(id: &str) -> Record {
        Record {
            request_id: id.to_owned(),
            method: "POST".into(),
            path: "/v1/chat/completions".to_owned(),
            pool: "chat".into(),
            endpoint: "http://127.0.0.1:8001".into(),
            status: 200,
            outcome: "success",
            attempts: 1,
            ttft_s: 0.02,
            total_s: 0.3,
            ..Record::default()
        }
    }

    #[test]
    fn the_ring_holds_the_last_and_forgets_the_first() {
        let ring = Recent::new(4);
        assert!(ring.newest(10).is_empty());
        (0..6).for_each(|k| ring.push(&record(&format!("r{k}"))));
        let ids = |kept: Vec<Kept>| kept.into_iter().map(|k| k.record.request_id).collect::<Vec<_>>();
        assert_eq!(ids(ring.newest(10)), ["r5", "r4", "r3", "r2"]);
        assert_eq!(ids(ring.newest(2)), ["r5", "r4"]);
        assert!(ring.find("r1").is_empty());
        assert_eq!(ring.find("r3")[0].number, 3);
    }

    #[test]
    fn an_id_used_twice_gives_both_the_newest_first() {
        let ring = Recent::new(4);
        ["a", "b", "a"].iter().for_each(|id| ring.push(&record(id)));
        assert_eq!(ring.find("a").iter().map(|k| k.number).collect::<Vec<_>>(), [2, 0]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let ring = Recent::new(1);
        let long = "é".repeat(1000);
        ring.push(&record(&long));
        assert_eq!(ring.newest(1)[0].record.request_id.len(), LIMIT_BYTES);
        assert_eq!(ring.find(&long).len(), 1, "a look-up by the whole id still finds it");
    }

    #[test]
    fn many_writers_lose_nothing() {
        let ring = Recent::new(64);
        std::thread::scope(|scope| {
            for t in 0..4 {
                let ring = &ring;
                scope.spawn(move || (0..16).for_each(|k| ring.push(&record(&format!("{t}-{k}")))));
            }
        });
        assert_eq!(ring.newest(64).len(), 64);
        for t in 0..4 {
            (0..16).for_each(|k| assert_eq!(ring.find(&format!("{t}-{k}")).len(), 1));
        }
    }
}
