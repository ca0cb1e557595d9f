//! Listening to what an engine tells of its prefix cache.
//!
//! One task per rank: connect, subscribe, read batch after batch, and tell the pool. Batches that follow each other are told together, at most
//! ten times a second, so that a busy engine costs the pool's lock no more than a page does. Nothing is queued here: what is not read stays
//! with the publisher, which throws away what it cannot send, and the next number shows that. A publisher that is not there, or says what
//! nobody understands, is seen in the endpoint's signals; requests go on by what is known without it.

use crate::cache_format::{CacheFormat, Changes};
use crate::dial::Dial;
use crate::watch::{Tell, TellFacts};
use crate::zmtp::{Fault, Heard, Subscription};
use bytes::Bytes;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_config::EndpointUrl;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::prefix::{CacheBatch, CacheTold};
use tidegate_core::rng::Rng;
use tidegate_telemetry::SignalFacts;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Its name among an endpoint's signals.
pub(crate) const SOURCE: &str = "cache_events";
/// Longest time until a publisher has greeted.
const OPEN: Duration = Duration::from_secs(5);
/// Longest time for which batches are held back to be told together.
const TOGETHER: Duration = Duration::from_millis(100);
/// Silence after which a publisher is asked for a sign of life, and after which it counts as gone if it gives none.
const SILENCE: Duration = Duration::from_secs(10);
/// First wait before another attempt; it doubles up to the longest.
const WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Longest time until earlier batches were answered, and the shortest between two questions for them.
const REPLAY: Duration = Duration::from_secs(5);
const REPLAY_EVERY: Duration = Duration::from_secs(10);
/// Batches that engines keep to be asked for, if nothing else is said.
const KEPT: u64 = 10_000;
/// The number behind the last answer.
const END: u64 = u64::MAX;
/// Share by which each wait is shortened or lengthened.
const JITTER: f64 = 0.3;

/// The loop of one rank of one endpoint.
pub(crate) struct CacheListener<D> {
    pub(crate) id: EndpointId,
    pub(crate) rank: u8,
    pub(crate) url: EndpointUrl,
    /// Where it answers with earlier batches.
    pub(crate) replay: Option<EndpointUrl>,
    pub(crate) topic: String,
    pub(crate) dial: Arc<D>,
    pub(crate) tell: Tell,
    pub(crate) board: Arc<RankBoard>,
    pub(crate) rng: Rng,
}

impl<D: Dial> CacheListener<D> {
    pub(crate) async fn run(mut self) {
        let (mut failed, mut heard) = (0, HeardSoFar::default());
        loop {
            let Err(fault) = self.listen(&mut heard, &mut failed).await;
            self.tell(CacheTold::Lost);
            self.board.say(self.rank, Some(format!("{}: {fault}", self.url.authority())));
            let wait = (WAIT * 2u32.saturating_pow(failed)).min(LONGEST_WAIT);
            failed = (failed + 1).min(16);
            sleep(self.rng.jitter(wait, JITTER)).await;
        }
    }

    async fn listen(&self, so_far: &mut HeardSoFar, failed: &mut u32) -> Result<Infallible, Fault> {
        let open = async {
            let io = self.dial.dial(&self.url).await.map_err(Fault::Connect)?;
            Subscription::open(io, self.topic.as_bytes()).await
        };
        let mut subscription = timeout(OPEN, open).await.unwrap_or(Err(Fault::NoGreeting))?;
        self.tell(CacheTold::Heard);
        self.board.say(self.rank, None);
        so_far.is_gap_said = false;
        let (mut held, mut heard_at, mut asked) = (Held::default(), Instant::now(), false);
        loop {
            let until = held.until.unwrap_or(heard_at + SILENCE * if asked { 2 } else { 1 });
            let next = match timeout_at(until, subscription.next()).await {
                Ok(Ok(next)) => Some(next),
                Ok(Err(fault)) => {
                    self.flush(&mut held);
                    return Err(fault);
                }
                Err(_) => None,
            };
            if let Some(next) = next {
                (heard_at, asked, *failed) = (Instant::now(), false, 0);
                if let Heard::Message(parts) = next {
                    self.on_message(so_far, &mut held, &parts).await;
                }
            } else if held.until.is_none() {
                if asked {
                    return Err(Fault::Silent);
                }
                if subscription.answers_pings() {
                    subscription.ping().await?;
                    asked = true;
                } else {
                    heard_at = Instant::now();
                }
            }
            if held.until.is_some_and(|until| until <= Instant::now()) {
                self.flush(&mut held);
            }
        }
    }

    async fn on_message(&self, so_far: &mut HeardSoFar, held: &mut Held, parts: &[Bytes]) {
        let Some((sequence, payload)) = numbered(parts) else { return self.say_unread() };
        let before = so_far.next.replace(sequence.wrapping_add(1));
        if let Some(from) = missed_from(before, sequence) {
            let is_whole = self.replay(so_far, held, from, sequence).await;
            if !is_whole && before.is_some() && !std::mem::replace(&mut so_far.is_gap_said, true) {
                self.board.missed(self.rank, from, sequence);
            }
        }
        let Ok(changes) = so_far.format.read(payload) else { return self.say_unread() };
        self.board.say(self.rank, None);
        self.hold(held, sequence, changes);
    }

    fn hold(&self, held: &mut Held, sequence: u64, changes: Changes) {
        if !held.add(sequence, changes) {
            self.flush(held);
            held.add(sequence, changes);
        }
    }

    fn say_unread(&self) {
        let trouble = format!("{}: a message that is no batch of cache events", self.url.authority());
        self.board.say(self.rank, Some(trouble));
    }

    /// Asks for the batches from `from` up to `until`, where the engine keeps them. Whether all of them came.
    async fn replay(&self, so_far: &mut HeardSoFar, held: &mut Held, from: u64, until: u64) -> bool {
        let Some(url) = &self.replay else { return false };
        if so_far.replayed_at.is_some_and(|at| at.elapsed() < REPLAY_EVERY) {
            return false;
        }
        so_far.replayed_at = Some(Instant::now());
        let mut next = from;
        let all = async {
            let io = self.dial.dial(url).await.map_err(Fault::Connect)?;
            let mut answers = Subscription::open_replay(io, from).await?;
            loop {
                let Heard::Message(parts) = answers.next().await? else { continue };
                let Some((sequence, payload)) = numbered(&parts) else { continue };
                // The end, or one that follows none that is kept: the others would leave the same gap.
                if sequence == END || sequence > next {
                    return Ok::<(), Fault>(());
                }
                if sequence == next && sequence < until {
                    let Ok(changes) = so_far.format.read(payload) else { return Ok(()) };
                    self.hold(held, sequence, changes);
                    next += 1;
                }
            }
        };
        match timeout(REPLAY, all).await {
            Ok(Ok(())) => next == until,
            Ok(Err(fault)) => {
                tracing::debug!(url = url.authority(), %fault, "missed cache events cannot be asked for");
                false
            }
            Err(_) => false,
        }
    }

    fn flush(&self, held: &mut Held) {
        if let Some(batch) = std::mem::take(held).batch {
            self.tell(CacheTold::Batch(batch));
        }
    }

    fn tell(&self, told: CacheTold) {
        (self.tell)(Event::CacheTold { endpoint: self.id, rank: self.rank, told });
    }
}

/// The number and the payload of a message.
fn numbered(parts: &[Bytes]) -> Option<(u64, &Bytes)> {
    let [_, number, payload] = parts else { return None };
    Some((u64::from_be_bytes(<[u8; 8]>::try_from(&number[..]).ok()?), payload))
}

/// The first batch that was missed before `sequence`, where `next` was expected; nothing where none was, or where it is kept no longer.
fn missed_from(next: Option<u64>, sequence: u64) -> Option<u64> {
    let from = next.filter(|next| *next <= sequence).unwrap_or(0);
    (from < sequence && sequence - from <= KEPT).then_some(from)
}

/// What has to be known of one publisher's batches to read the next.
#[derive(Debug, Default)]
struct HeardSoFar {
    format: CacheFormat,
    /// The number that comes next.
    next: Option<u64>,
    /// Whether it was said of this connection that batches were missed: of a thousand gaps the first is news.
    is_gap_said: bool,
    /// When earlier batches were asked for.
    replayed_at: Option<Instant>,
}

/// Batches without a gap that are told together.
#[derive(Debug, Default)]
struct Held {
    batch: Option<CacheBatch>,
    until: Option<Instant>,
}

impl Held {
    /// Takes one more; false if it does not follow what is held.
    fn add(&mut self, sequence: u64, changes: Changes) -> bool {
        let Changes { cleared, stored_tokens, removed_tokens } = changes;
        let Some(held) = &mut self.batch else {
            self.batch = Some(CacheBatch { sequence, batches: 1, cleared, stored_tokens, removed_tokens });
            self.until = Some(Instant::now() + TOGETHER);
            return true;
        };
        if held.sequence.checked_add(u64::from(held.batches)) != Some(sequence) || held.batches == u32::MAX {
            return false;
        }
        held.batches += 1;
        if cleared {
            (held.cleared, held.stored_tokens, held.removed_tokens) = (true, 0, 0);
        }
        held.stored_tokens = held.stored_tokens.saturating_add(stored_tokens);
        held.removed_tokens = held.removed_tokens.saturating_add(removed_tokens);
        true
    }
}

/// What is wrong with the ranks of one endpoint, told as one signal.
pub(crate) struct RankBoard {
    pool: Arc<str>,
    endpoint: Arc<str>,
    tell_facts: TellFacts,
    ranks: Mutex<Vec<Option<String>>>,
}

impl RankBoard {
    /// For so many ranks, none of them heard so far.
    pub(crate) fn new(pool: Arc<str>, endpoint: Arc<str>, tell_facts: TellFacts, ranks: usize) -> Self {
        Self { pool, endpoint, tell_facts, ranks: Mutex::new(vec![Some("not connected yet".to_owned()); ranks]) }
    }

    /// The batches of `rank` from `from` up to `until` were missed.
    fn missed(&self, rank: u8, from: u64, until: u64) {
        let (pool, endpoint, missed) = (&*self.pool, &*self.endpoint, until - from);
        tracing::info!(pool, endpoint, rank, missed, "cache events missed: what it holds is no longer counted");
    }

    /// What is wrong with `rank`, or nothing.
    fn say(&self, rank: u8, trouble: Option<String>) {
        let mut ranks = self.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_one = ranks.len() == 1;
        let Some(known) = ranks.get_mut(usize::from(rank)).filter(|known| **known != trouble) else { return };
        let was_wrong = known.is_some();
        *known = trouble;
        let first = ranks.iter().enumerate().find_map(|(rank, why)| Some((rank, why.as_ref()?)));
        let trouble = first.map(|(rank, why)| if is_one { why.clone() } else { format!("rank {rank}, {why}") });
        let (present, missing) =
            if trouble.is_none() { (vec![SOURCE], Vec::new()) } else { (Vec::new(), vec![SOURCE]) };
        drop(ranks);
        let (pool, endpoint) = (&*self.pool, &*self.endpoint);
        match &trouble {
            Some(reason) if !was_wrong => tracing::info!(pool, endpoint, source = SOURCE, %reason, "cache events lost"),
            Some(reason) => tracing::debug!(pool, endpoint, source = SOURCE, %reason, "cache events still lost"),
            None => tracing::info!(pool, endpoint, source = SOURCE, "cache events heard"),
        }
        let facts = SignalFacts { source: SOURCE, present, missing, trouble, ..SignalFacts::default() };
        (self.tell_facts)(&self.endpoint, facts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(cleared: bool, stored_tokens: u64, removed_tokens: u64) -> Changes {
        Changes { cleared, stored_tokens, removed_tokens }
    }

    #[test]
    fn what_was_missed_is_what_is_between() {
        for (next, sequence, from) in [
            (Some(7), 7, None),
            (Some(7), 9, Some(7)),
            (Some(7), 0, None),
            (Some(7), 3, Some(0)),
            (None, 0, None),
            (None, 5, Some(0)),
            (None, KEPT + 1, None),
            (Some(1), KEPT + 2, None),
        ] {
            assert_eq!(missed_from(next, sequence), from, "{next:?} {sequence}");
        }
    }

    #[tokio::test]
    async fn batches_are_held_together_as_long_as_none_is_missing() {
        let mut held = Held::default();
        assert!(held.add(5, changes(false, 10, 1)) && held.add(6, changes(false, 20, 0)));
        assert!(!held.add(8, changes(false, 1, 0)), "7 is missing");
        assert!(!held.add(0, changes(false, 1, 0)), "another process");
        let batch = CacheBatch { sequence: 5, batches: 2, cleared: false, stored_tokens: 30, removed_tokens: 1 };
        assert_eq!(held.batch, Some(batch));
        assert!(held.add(7, changes(true, 4, 2)));
        let batch = CacheBatch { sequence: 5, batches: 3, cleared: true, stored_tokens: 4, removed_tokens: 2 };
        assert_eq!(held.batch, Some(batch), "what was before the cache was cleared is gone");
    }
}
