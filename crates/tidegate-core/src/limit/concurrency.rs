//! Requests in flight at once: a total, divided into seats that are guaranteed, lent and borrowed.
//!
//! Kubernetes' API priority and fairness (flowcontrol/v1): `nominal = ceil(total x shares / sum of shares)`, `lendable =
//! round(nominal x lendable share)`, `borrowing = round(nominal x borrowing share)`, absent: without limit. A tenant may hold `nominal +
//! borrowing` seats; whatever of `nominal - lendable`, rounded down, it does not use is kept free for it, so a guaranteed seat never waits for a
//! borrower to end. Names that are not listed share one group. O(1) per permit.
//!
//! A [`Permit`] is not `Clone` and consumed when it is returned, so it cannot be returned twice; whoever holds it returns it however the
//! request ends.

use super::directory::{Directory, OTHERS};
use alloc::string::String;
use alloc::vec::Vec;

/// The part of a name, or of all that are not listed.
#[derive(Clone, Debug, PartialEq)]
pub struct SeatShare {
    /// Its part of the total, relative to the others' (at least 0).
    pub shares: f64,
    /// Part of its nominal seats that others may use while it does not (0..1).
    pub lendable: f64,
    /// Seats it may use beyond its nominal ones, as a part of these (at least 0); absent: what there is.
    pub borrowing: Option<f64>,
}

impl Default for SeatShare {
    fn default() -> Self {
        Self { shares: 30.0, lendable: 0.0, borrowing: None }
    }
}

/// What a [`Concurrency`] is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct ConcurrencyConfig {
    /// Requests in flight at once, all together.
    pub total: u32,
    /// Requests in flight at once of each name, listed or not; absent: what its group may hold.
    pub each: Option<u32>,
    /// Names with a share of their own.
    pub groups: Vec<(String, SeatShare)>,
    /// The share of all other names together.
    pub others: SeatShare,
    /// Names without a share of their own that are counted one by one; beyond it they count as one name.
    pub max_names: usize,
}

/// Why no permit was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// All seats that are not kept for others are taken.
    Total,
    /// The name, or its group, holds all it may.
    Name,
}

/// A seat. Return it with [`Concurrency::release`].
#[must_use = "a permit that is dropped stays taken"]
#[derive(Debug)]
pub struct Permit {
    slot: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Seats kept free for it: nominal less lendable.
    guaranteed: u32,
    /// Seats it may hold.
    most: u32,
    in_flight: u32,
}

impl Group {
    fn kept_free(&self) -> u32 {
        self.guaranteed.saturating_sub(self.in_flight)
    }
}

#[derive(Clone, Copy, Debug)]
struct Name {
    group: usize,
    in_flight: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Concurrency {
    cfg: ConcurrencyConfig,
    /// Others first, then those listed.
    groups: Vec<Group>,
    names: Directory<Name>,
    in_flight: u32,
    kept_free: u32,
}

impl Concurrency {
    /// All seats free.
    pub fn new(cfg: ConcurrencyConfig) -> Self {
        let names = Directory::new(cfg.max_names);
        let mut seats = Self { cfg: cfg.clone(), groups: Vec::new(), names, in_flight: 0, kept_free: 0 };
        seats.set(cfg);
        seats
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests in flight at once, all together.
    pub fn total(&self) -> u32 {
        self.cfg.total
    }

    /// A new total, for instance from a gradient. Nobody is evicted: those over their share end first.
    pub fn set_total(&mut self, total: u32) {
        self.cfg.total = total;
        self.divide();
    }

    /// New shares. Requests in flight stay counted, each for its name, wherever that now belongs.
    pub fn set(&mut self, cfg: ConcurrencyConfig) {
        self.cfg = cfg;
        self.names.set_bound(self.cfg.max_names + self.cfg.groups.len());
        self.groups = alloc::vec![Group::default(); self.cfg.groups.len() + 1];
        for (name, _) in &self.cfg.groups {
            if self.names.find(0, name).is_none() {
                self.names.insert(0, name, Name { group: 0, in_flight: 0 });
            }
        }
        let slots: Vec<u32> = self.names.iter().map(|(slot, ..)| slot).collect();
        for slot in slots {
            let Some((_, name)) = self.names.name(slot) else { continue };
            let group = self.cfg.groups.iter().position(|(listed, _)| listed == name).map_or(0, |at| at + 1);
            if let Some(name) = self.names.get_mut(slot) {
                name.group = group;
                self.groups[group].in_flight += name.in_flight;
            }
        }
        self.divide();
    }

    /// In flight and at most of every listed name, and last of all others (an empty name).
    pub fn groups(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        let names = self.cfg.groups.iter().map(|(name, _)| name.as_str());
        let listed = names.zip(&self.groups[1..]).map(|(name, g)| (name, g.in_flight, g.most));
        listed.chain(self.groups.first().map(|g| ("", g.in_flight, g.most)))
    }

    /// In flight and at most, of a listed name or of all others.
    pub fn seats_of(&self, name: &str) -> (u32, u32) {
        let group = self.group_of(name).map_or(0, |(_, n)| n.group);
        (self.groups[group].in_flight, self.groups[group].most)
    }

    /// Whether `name` could be given a seat. Changes nothing.
    pub fn check(&self, name: &str) -> Result<(), Refused> {
        let known = self.group_of(name).map(|(_, n)| n);
        let (group, held) = known.map_or((0, 0), |n| (n.group, n.in_flight));
        let seats = &self.groups[group];
        if self.in_flight >= self.cfg.total {
            return Err(Refused::Total);
        }
        if seats.in_flight >= seats.most || self.cfg.each.is_some_and(|each| held >= each) {
            return Err(Refused::Name);
        }
        let kept_for_others = self.kept_free - seats.kept_free();
        let is_free = self.in_flight.saturating_add(kept_for_others) < self.cfg.total || seats.kept_free() > 0;
        if is_free { Ok(()) } else { Err(Refused::Total) }
    }

    /// Gives `name` a seat, or says why not.
    pub fn acquire(&mut self, name: &str) -> Result<Permit, Refused> {
        self.check(name)?;
        let slot = self.slot(name);
        self.count(slot, true);
        Ok(Permit { slot })
    }

    /// Takes a seat back.
    #[allow(clippy::needless_pass_by_value, reason = "a permit that is returned is gone")]
    pub fn release(&mut self, permit: Permit) {
        self.count(permit.slot, false);
    }

    fn count(&mut self, slot: u32, more: bool) {
        let change = |n: u32| if more { n.saturating_add(1) } else { n.saturating_sub(1) };
        let Some(name) = self.names.get_mut(slot) else { return };
        name.in_flight = change(name.in_flight);
        let seats = &mut self.groups[name.group];
        self.kept_free -= seats.kept_free();
        seats.in_flight = change(seats.in_flight);
        self.kept_free += seats.kept_free();
        self.in_flight = change(self.in_flight);
    }

    fn group_of(&self, name: &str) -> Option<(u32, Name)> {
        let slot = self.names.find(0, name).or_else(|| {
            let would_share = self.names.is_full();
            would_share.then(|| self.names.find(0, OTHERS)).flatten()
        })?;
        self.names.get(slot).map(|n| (slot, *n))
    }

    fn slot(&mut self, name: &str) -> u32 {
        if let Some(slot) = self.names.find(0, name) {
            self.names.touch(slot);
            return slot;
        }
        if self.names.is_full() {
            match self.names.victim(|_, n| n.group == 0 && n.in_flight == 0) {
                Some(gone) => {
                    self.names.remove(gone);
                }
                None if name != OTHERS => return self.slot(OTHERS),
                None => {}
            }
        }
        self.names.insert(0, name, Name { group: 0, in_flight: 0 })
    }

    /// The formulas.
    fn divide(&mut self) {
        let shares = || core::iter::once(&self.cfg.others).chain(self.cfg.groups.iter().map(|(_, s)| s));
        let sum: f64 = shares().map(|s| s.shares.max(0.0)).sum();
        let total = f64::from(self.cfg.total);
        for (group, share) in self.groups.iter_mut().zip(shares()) {
            let nominal = if sum > 0.0 { libm::ceil(total * share.shares.max(0.0) / sum) } else { 0.0 };
            let lendable = libm::round(nominal * share.lendable.clamp(0.0, 1.0));
            let borrowing = share.borrowing.map_or(total, |part| libm::round(nominal * part.max(0.0)));
            // Rounded down, so that guaranteed seats never exceed the total together.
            let exact = if sum > 0.0 { total * share.shares.max(0.0) / sum } else { 0.0 };
            group.guaranteed = (nominal - lendable).min(exact) as u32;
            group.most = (nominal + borrowing).min(total) as u32;
        }
        self.kept_free = self.groups.iter().map(Group::kept_free).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn seats(total: u32, groups: &[(&str, f64, f64, Option<f64>)]) -> Concurrency {
        let share = |&(_, shares, lendable, borrowing): &(&str, f64, f64, Option<f64>)| SeatShare {
            shares,
            lendable,
            borrowing,
        };
        Concurrency::new(ConcurrencyConfig {
            total,
            each: None,
            groups: groups.iter().map(|g| (g.0.into(), share(g))).collect(),
            others: SeatShare { shares: 0.0, lendable: 0.0, borrowing: Some(0.0) },
            max_names: 100,
        })
    }

    fn fill(seats: &mut Concurrency, name: &str) -> Vec<Permit> {
        core::iter::from_fn(|| seats.acquire(name).ok()).collect()
    }

    #[test]
    fn a_guaranteed_seat_never_waits_for_a_borrower() {
        let mut s = seats(10, &[("a", 5.0, 0.4, None), ("b", 5.0, 1.0, None)]);
        let b = fill(&mut s, "b");
        assert_eq!(b.len(), 7, "its five and the two that a lends");
        assert_eq!(fill(&mut s, "a").len(), 3);
        assert!(matches!(s.check("a"), Err(Refused::Total)));
        b.into_iter().for_each(|p| s.release(p));
        assert_eq!(fill(&mut s, "a").len(), 7, "what b lends, a may use");
    }

    #[test]
    fn guaranteed_seats_are_there_and_the_total_holds_whoever_borrows() {
        let mut rng = crate::rng::Rng::new(9);
        for _ in 0..200 {
            let names = ["a", "b", "c"];
            let borrowing = |rng: &mut crate::rng::Rng| (rng.below(2) == 0).then(|| rng.unit() * 2.0);
            let groups: Vec<_> =
                names.iter().map(|n| (*n, rng.uniform(0.1, 5.0), rng.unit(), borrowing(&mut rng))).collect();
            let total = 1 + rng.below(40) as u32;
            let mut s = seats(total, &groups);
            let mut held: Vec<Permit> = Vec::new();
            for _ in 0..300 {
                if rng.below(3) > 0 {
                    held.extend(s.acquire(names[rng.below(3)]));
                } else if !held.is_empty() {
                    s.release(held.swap_remove(rng.below(held.len())));
                }
                assert!(s.in_flight() <= total && s.in_flight() as usize == held.len());
                for (at, name) in names.iter().enumerate() {
                    assert!(s.groups[at + 1].kept_free() == 0 || s.check(name).is_ok(), "{name} of {groups:?}");
                }
            }
        }
    }

    #[test]
    fn borrowing_can_be_forbidden() {
        let mut s = seats(10, &[("a", 5.0, 1.0, Some(0.0)), ("b", 5.0, 1.0, Some(0.4))]);
        let (a, b) = (fill(&mut s, "a"), fill(&mut s, "b"));
        assert_eq!((a.len(), b.len()), (5, 5));
        a.into_iter().for_each(|p| s.release(p));
        assert_eq!(fill(&mut s, "b").len(), 2, "40 % of five");
        assert!(matches!(s.check("b"), Err(Refused::Name)));
    }

    #[test]
    fn permits_come_back_once_however_requests_end() {
        let mut s = Concurrency::new(ConcurrencyConfig {
            total: 50,
            each: Some(2),
            groups: vec![],
            others: SeatShare::default(),
            max_names: 10,
        });
        let mut rng = crate::rng::Rng::new(4);
        let mut held: Vec<Permit> = Vec::new();
        for _ in 0..100_000 {
            if rng.below(2) == 0 {
                held.extend(s.acquire(&alloc::format!("t{}", rng.below(40))));
            } else if !held.is_empty() {
                s.release(held.swap_remove(rng.below(held.len())));
            }
            assert_eq!(s.in_flight() as usize, held.len());
        }
        held.drain(..).for_each(|p| s.release(p));
        assert_eq!((s.in_flight(), s.kept_free), (0, 50));
        assert!(s.names.len() <= 11);
    }

    #[test]
    fn a_reload_with_other_names_forgets_no_request_in_flight() {
        let mut s = seats(10, &[("a", 5.0, 1.0, None), ("b", 5.0, 1.0, None)]);
        let mut held: Vec<Permit> = (0..4).filter_map(|_| s.acquire("a").ok()).collect();
        held.extend(s.acquire("b"));
        let mut cfg = s.cfg.clone();
        cfg.groups.remove(0);
        cfg.others.shares = 1.0;
        s.set(cfg);
        assert_eq!((s.in_flight(), s.seats_of("b").0, s.seats_of("a").0), (5, 1, 4));
        held.into_iter().for_each(|p| s.release(p));
        assert_eq!((s.in_flight(), s.seats_of("b").0, s.seats_of("a").0), (0, 0, 0));
    }

    #[test]
    fn a_smaller_total_evicts_nobody_and_admits_nobody_above_it() {
        let mut s = seats(10, &[("a", 1.0, 1.0, None)]);
        let mut held = fill(&mut s, "a");
        s.set_total(4);
        assert!(s.acquire("a").is_err());
        held.drain(..7).for_each(|p| s.release(p));
        assert_eq!((s.in_flight(), fill(&mut s, "a").len()), (3, 1));
    }
}
