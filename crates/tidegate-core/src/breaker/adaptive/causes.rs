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
/// Share of the requests sent within an episode that must have failed. Where answers take a minute, failures are all that has come so far;
/// who still waits is no failure.
const OF_SENT: f64 = 0.2;
/// Tenants told apart.
const TENANTS: usize = 8;

/// Requests of one tenant within an episode.
#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    id: u64,
    sent: u32,
    failed: u32,
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

/// Requests back within which another tenant is one who could say.
const LATELY: u32 = 64;

/// The two tenants that sent last, whatever the episode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix {
    /// Tenant, and the number of its last request; numbers begin at 1.
    last: [(u64, u32); 2],
    sent: u32,
}

impl Mix {
    /// A request was sent.
    pub(super) fn on_dispatch(&mut self, id: u64) {
        self.sent = self.sent.wrapping_add(1).max(1);
        if self.last[0].0 != id {
            self.last.swap(0, 1);
        }
        self.last[0] = (id, self.sent);
    }

    /// Whether somebody else than `id` sent one lately.
    fn has_other(&self, id: u64) -> bool {
        self.last.iter().any(|&(t, at)| at != 0 && t != id && self.sent.wrapping_sub(at) < LATELY)
    }
}

/// Who was seen in an episode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Causes {
    connection: Option<u64>,
    two_connections: bool,
    /// The first tenants that were seen; later ones are in the sums only.
    tenants: [Tenant; TENANTS],
    seen: u8,
    sent: u32,
    failed: u32,
}

impl Causes {
    /// A failure counted, of `connection`; `tenant` where it was a request.
    pub(super) fn on_failure(&mut self, connection: u64, tenant: Option<u64>) {
        match self.connection {
            None => self.connection = Some(connection),
            Some(first) if first != connection => self.two_connections = true,
            Some(_) => {}
        }
        if let Some(id) = tenant {
            self.failed += 1;
            if let Some(t) = self.tenant(id) {
                t.failed += 1;
            }
        }
    }

    /// A request was sent.
    pub(super) fn on_dispatch(&mut self, id: u64) {
        self.sent += 1;
        if let Some(t) = self.tenant(id) {
            t.sent += 1;
        }
    }

    fn tenant(&mut self, id: u64) -> Option<&mut Tenant> {
        let seen = usize::from(self.seen);
        let place = self.tenants[..seen].iter().position(|t| t.id == id).unwrap_or(seen);
        let tenant = self.tenants.get_mut(place)?;
        if place == seen {
            tenant.id = id;
            self.seen += 1;
        }
        Some(tenant)
    }

    /// At least two connections, and without the tenant that failed most, still `OF_SENT` of what was sent failed. Not just a second
    /// tenant: in an episode of a tenant whose requests fail everywhere, a background failure of another is never far. Nor every tenant
    /// that succeeds: where answers take a minute, nobody has succeeded yet while the requests of one fail at once.
    /// Where others usually send but none did so far, theirs is waited for, or a probe that fails as well: `probed`.
    pub(super) fn are_many(&self, mix: &Mix, probed: bool) -> bool {
        let worst = self.tenants.iter().max_by_key(|t| t.failed).copied().unwrap_or_default();
        let (sent, failed) = (self.sent - worst.sent.min(self.sent), self.failed - worst.failed);
        let others = match sent.max(failed) {
            0 => probed || !mix.has_other(worst.id),
            _ => f64::from(failed) >= OF_SENT * f64::from(sent) && failed >= sent.min(2),
        };
        self.two_connections && others && self.is_most()
    }

    fn is_most(&self) -> bool {
        f64::from(self.failed) >= OF_SENT * f64::from(self.sent)
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
    fn one_tenant_that_fails_while_others_do_not_is_not_many() {
        let (mut causes, mut mix) = (Causes::default(), Mix::default());
        mix.on_dispatch(1);
        (0..9).for_each(|connection| causes.on_failure(connection, Some(1)));
        assert!(causes.are_many(&mix, false), "nobody else is there to say otherwise");
        mix.on_dispatch(2);
        mix.on_dispatch(1);
        assert!(
            !causes.are_many(&mix, false) && causes.are_many(&mix, true),
            "somebody else is, or a probe has said it"
        );
        (0..LATELY).for_each(|_| mix.on_dispatch(1));
        assert!(causes.are_many(&mix, false), "not for a long time");
        (0..10).for_each(|_| causes.on_dispatch(2));
        causes.on_failure(3, Some(2));
        assert!(!causes.are_many(&mix, false), "a background failure is no second tenant");
        (0..4).for_each(|_| causes.on_failure(3, Some(2)));
        assert!(causes.are_many(&mix, false));
    }
}
