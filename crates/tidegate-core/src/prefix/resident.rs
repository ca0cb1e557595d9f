//! What an engine itself says it holds: the sum of its cache events.
//!
//! Engines number the batches of their events from 0. So whoever saw all of them knows how many tokens the cache holds; who missed one, or came
//! late, knows what changes and not how much there is, until the cache is told to be empty. A number lower than expected is another process,
//! whose cache began empty. Every data-parallel rank has a cache and numbers of its own.

use alloc::vec::Vec;

/// Ranks of one endpoint that are told apart.
pub const MOST_RANKS: u8 = 64;
/// Prompts sent without a word of their blocks, after which a connection counts as silent.
const SILENT_PROMPTS: u32 = 20;

/// Numbered batches of a rank's events, one after the other without a gap. What came before the cache was cleared is left out of their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBatch {
    /// The number of the first: 0 for the first of a process.
    pub sequence: u64,
    /// How many they are, at least 1.
    pub batches: u32,
    /// Whether the whole cache was emptied.
    pub cleared: bool,
    /// Tokens of blocks that were stored, after it was emptied.
    pub stored_tokens: u64,
    /// Tokens of blocks that were removed, after it was emptied.
    pub removed_tokens: u64,
}

/// What is told of the events of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheTold {
    /// From now on its events are heard.
    Heard,
    /// A batch.
    Batch(CacheBatch),
    /// Its events are not heard: no connection, or what comes is not understood.
    Lost,
}

/// How far an endpoint's events can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// Some rank is not connected.
    Missing,
    /// Connected, and nothing came although prompts were sent.
    Silent,
    /// Events come, but some were missed: how much there is, is not known.
    Uncounted,
    /// All of them were heard.
    Counted,
}

impl Hearing {
    /// A short stable word for the API and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Silent => "silent",
            Self::Uncounted => "uncounted",
            Self::Counted => "counted",
        }
    }
}

/// What follows for what is remembered of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consequence {
    /// Nothing.
    None,
    /// It holds so many tokens and no more.
    AtMost(u64),
    /// It holds nothing of what it held.
    Empty,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    is_heard: bool,
    /// The number of the next batch, once one was seen.
    next: Option<u64>,
    /// Tokens it holds, where every batch since it was empty was seen.
    tokens: Option<u64>,
}

/// The cache of one endpoint by its own events.
#[derive(Clone, Debug, Default)]
pub struct Resident {
    ranks: Vec<Rank>,
    prompts_since: u32,
    /// Batches that were missed at some time, counted by gap.
    gaps: u64,
}

impl Resident {
    /// Tokens held by all ranks, where every batch of each was seen.
    pub fn tokens(&self) -> Option<u64> {
        self.ranks.iter().map(|r| r.tokens.filter(|_| r.is_heard)).try_fold(0u64, |sum, t| Some(sum.saturating_add(t?)))
    }

    /// How far the events can be relied on; `None` where nobody listens.
    pub fn hearing(&self) -> Option<Hearing> {
        if self.ranks.is_empty() {
            return None;
        }
        Some(if self.ranks.iter().any(|r| !r.is_heard) {
            Hearing::Missing
        } else if self.prompts_since >= SILENT_PROMPTS {
            Hearing::Silent
        } else if self.tokens().is_none() {
            Hearing::Uncounted
        } else {
            Hearing::Counted
        })
    }

    /// How often batches were missed.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// A prompt was sent of which it had not all blocks.
    pub(super) fn on_sent(&mut self) {
        self.prompts_since = self.prompts_since.saturating_add(1);
    }

    /// What rank `rank` told.
    pub(super) fn on_told(&mut self, rank: u8, told: CacheTold) -> Consequence {
        let place = usize::from(rank.min(MOST_RANKS - 1));
        if self.ranks.len() <= place {
            self.ranks.resize(place + 1, Rank::default());
        }
        match told {
            CacheTold::Heard => {
                self.ranks[place].is_heard = true;
                self.prompts_since = 0;
                Consequence::None
            }
            CacheTold::Lost => {
                self.ranks[place].is_heard = false;
                Consequence::None
            }
            CacheTold::Batch(batch) => self.on_batch(place, batch),
        }
    }

    fn on_batch(&mut self, place: usize, batch: CacheBatch) -> Consequence {
        self.prompts_since = 0;
        let rank = &mut self.ranks[place];
        rank.is_heard = true;
        let is_anew = rank.next.is_some_and(|next| batch.sequence < next);
        if rank.next.is_some_and(|next| batch.sequence > next) {
            self.gaps += 1;
            rank.tokens = None;
        }
        if batch.sequence == 0 || batch.cleared {
            rank.tokens = Some(0);
        } else if is_anew {
            // Its first batches were missed.
            rank.tokens = None;
        }
        rank.next = Some(batch.sequence.saturating_add(u64::from(batch.batches.max(1))));
        // More removed than stored: something was missed that no number tells.
        rank.tokens = rank.tokens.and_then(|t| t.saturating_add(batch.stored_tokens).checked_sub(batch.removed_tokens));
        if (is_anew || batch.cleared) && self.ranks.len() == 1 {
            return Consequence::Empty;
        }
        // An engine that only stores takes nothing away, and what was sent a moment ago is not computed yet.
        let takes_away = batch.removed_tokens > 0 || batch.cleared || is_anew;
        self.tokens().filter(|_| takes_away).map_or(Consequence::None, Consequence::AtMost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(sequence: u64, stored_tokens: u64, removed_tokens: u64) -> CacheTold {
        CacheTold::Batch(CacheBatch { sequence, batches: 1, cleared: false, stored_tokens, removed_tokens })
    }

    fn cleared(sequence: u64, stored_tokens: u64) -> CacheTold {
        CacheTold::Batch(CacheBatch { sequence, batches: 1, cleared: true, stored_tokens, removed_tokens: 0 })
    }

    #[test]
    fn who_hears_from_the_first_batch_on_can_count() {
        let mut r = Resident::default();
        assert_eq!((r.hearing(), r.tokens()), (None, Some(0)));
        r.on_told(0, CacheTold::Lost);
        assert_eq!(r.hearing(), Some(Hearing::Missing));
        r.on_told(0, CacheTold::Heard);
        assert_eq!((r.hearing(), r.tokens()), (Some(Hearing::Uncounted), None));
        assert_eq!(r.on_told(0, batch(0, 640, 0)), Consequence::None, "storing takes nothing away");
        assert_eq!(r.on_told(0, batch(1, 64, 128)), Consequence::AtMost(576));
        assert_eq!((r.hearing(), r.tokens()), (Some(Hearing::Counted), Some(576)));
    }

    #[test]
    fn a_gap_costs_the_count_until_the_cache_is_known_to_be_empty() {
        let mut r = Resident::default();
        r.on_told(0, batch(0, 640, 0));
        assert_eq!(r.on_told(0, batch(2, 64, 32)), Consequence::None, "the rest is not known, so nothing follows");
        assert_eq!((r.hearing(), r.gaps()), (Some(Hearing::Uncounted), 1));
        assert_eq!(r.on_told(0, cleared(3, 16)), Consequence::Empty);
        assert_eq!((r.hearing(), r.tokens()), (Some(Hearing::Counted), Some(16)));
    }

    #[test]
    fn a_connection_that_broke_and_missed_nothing_goes_on_counting() {
        let mut r = Resident::default();
        r.on_told(0, batch(0, 640, 0));
        r.on_told(0, CacheTold::Lost);
        assert_eq!((r.hearing(), r.tokens()), (Some(Hearing::Missing), None));
        r.on_told(0, CacheTold::Heard);
        r.on_told(0, batch(1, 10, 0));
        assert_eq!((r.tokens(), r.gaps()), (Some(650), 0));
    }

    #[test]
    fn lower_numbers_are_another_process_with_an_empty_cache() {
        let mut r = Resident::default();
        r.on_told(0, batch(70, 640, 0));
        assert_eq!(r.hearing(), Some(Hearing::Uncounted), "who came late cannot count");
        assert_eq!(r.on_told(0, batch(0, 64, 0)), Consequence::Empty);
        assert_eq!(r.tokens(), Some(64));
        assert_eq!(r.on_told(0, batch(1, 64, 0)), Consequence::None);
        assert_eq!(r.on_told(0, batch(1, 64, 0)), Consequence::Empty, "anew, its first batch missed");
        assert_eq!(r.tokens(), None);
    }

    #[test]
    fn ranks_are_added_and_one_that_is_emptied_leaves_the_others() {
        let mut r = Resident::default();
        r.on_told(0, batch(0, 100, 0));
        r.on_told(1, batch(0, 40, 0));
        assert_eq!(r.tokens(), Some(140));
        assert_eq!(r.on_told(0, cleared(1, 0)), Consequence::AtMost(40));
        assert_eq!(r.on_told(1, cleared(1, 0)), Consequence::AtMost(0));
        r.on_told(250, CacheTold::Lost);
        assert_eq!((r.ranks.len(), r.hearing()), (usize::from(MOST_RANKS), Some(Hearing::Missing)), "bounded");
    }

    #[test]
    fn several_batches_at_once_count_as_one_after_the_other() {
        let mut r = Resident::default();
        let three = CacheBatch { sequence: 0, batches: 3, cleared: false, stored_tokens: 30, removed_tokens: 0 };
        r.on_told(0, CacheTold::Batch(three));
        r.on_told(0, batch(3, 10, 0));
        assert_eq!((r.tokens(), r.gaps()), (Some(40), 0));
    }

    #[test]
    fn more_removed_than_stored_is_no_count() {
        let mut r = Resident::default();
        r.on_told(0, batch(0, 10, 0));
        assert_eq!(r.on_told(0, batch(1, 0, 11)), Consequence::None);
        assert_eq!(r.hearing(), Some(Hearing::Uncounted));
    }

    #[test]
    fn prompts_without_a_word_of_their_blocks_are_silence() {
        let mut r = Resident::default();
        r.on_told(0, CacheTold::Heard);
        (0..SILENT_PROMPTS).for_each(|_| r.on_sent());
        assert_eq!(r.hearing(), Some(Hearing::Silent));
        r.on_told(0, batch(7, 1, 0));
        assert_eq!(r.hearing(), Some(Hearing::Uncounted));
    }
}
