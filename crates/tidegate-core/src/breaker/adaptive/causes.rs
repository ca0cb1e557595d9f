//! How many causes are behind the failures of an episode.
//!
//! Failures come in clumps: one connection that resets kills two hundred requests, one tenant's requests fail wherever they go. What
//! removes false trips is counting causes, not a smarter threshold on counts (notes: governance, section 8a).

use crate::time::{Duration, Instant};

/// Failures of one connection this close are one cause.
const CLUMP: Duration = Duration::from_millis(50);
/// So many of a clump count.
const OF_A_CLUMP: u8 = 2;
/// Clumps remembered.
const CLUMPS: usize = 8;
/// Tenants told apart; more are as good as so many.
const TENANTS: usize = 8;

/// Up to [`TENANTS`] different numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Distinct {
    ids: [u64; TENANTS],
    len: u8,
}

impl Distinct {
    fn insert(&mut self, id: u64) {
        if !self.contains(id) && usize::from(self.len) < TENANTS {
            self.ids[usize::from(self.len)] = id;
            self.len += 1;
        }
    }

    fn contains(&self, id: u64) -> bool {
        self.ids[..usize::from(self.len)].contains(&id)
    }
}

/// Failures of connections in the last moments, whatever the episode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clumps {
    seen: [(u64, Instant, u8); CLUMPS],
    next: u8,
}

impl Clumps {
    /// A failure of `connection`: whether it is the third or later of its clump.
    pub(super) fn is_more_of_one(&mut self, now: Instant, connection: u64) -> bool {
        if let Some((_, since, count)) = self.seen.iter_mut().find(|(c, ..)| *c == connection)
            && now.since(*since) < CLUMP
            && *count > 0
        {
            *count = count.saturating_add(1);
            return *count > OF_A_CLUMP;
        }
        self.seen[usize::from(self.next)] = (connection, now, 1);
        self.next = (self.next + 1) % CLUMPS as u8;
        false
    }
}

/// Who was seen in an episode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Causes {
    connection: Option<u64>,
    two_connections: bool,
    failed: Distinct,
    succeeded: Distinct,
}

impl Causes {
    /// A failure counted.
    pub(super) fn on_failure(&mut self, connection: u64, tenant: u64) {
        match self.connection {
            None => self.connection = Some(connection),
            Some(first) if first != connection => self.two_connections = true,
            Some(_) => {}
        }
        self.failed.insert(tenant);
    }

    /// A success counted.
    pub(super) fn on_success(&mut self, tenant: u64) {
        self.succeeded.insert(tenant);
    }

    /// At least two connections, and at least two tenants or every tenant that succeeds fails as well.
    pub(super) fn are_many(&self) -> bool {
        let succeeded = &self.succeeded.ids[..usize::from(self.succeeded.len)];
        let tenants = self.failed.len >= 2 || succeeded.iter().all(|&t| self.failed.contains(t));
        self.two_connections && tenants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_that_kills_two_hundred_is_one_event() {
        let (mut clumps, now) = (Clumps::default(), Instant::from_secs_f64(5.0));
        let counted = (0..200).filter(|_| !clumps.is_more_of_one(now, 7)).count();
        assert_eq!(counted, 2);
        assert!(!clumps.is_more_of_one(now, 8) && !clumps.is_more_of_one(now + CLUMP, 7));
    }

    #[test]
    fn one_tenant_that_fails_while_others_succeed_is_not_many() {
        let mut causes = Causes::default();
        (0..9).for_each(|connection| causes.on_failure(connection, 1));
        assert!(causes.are_many(), "nobody else is there to say otherwise");
        causes.on_success(2);
        assert!(!causes.are_many());
        causes.on_failure(3, 2);
        assert!(causes.are_many());
    }
}
