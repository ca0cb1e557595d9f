//! A bounded table from names to slots.
//!
//! Tenants, models and routes come from users' bytes, so the table has a bound. When it is full, a hand goes round (second chance, as in
//! page replacement): a few slots are looked at per insertion, and one that was not used since the hand last came by, and that its owner
//! can spare, makes room. O(1) per look-up and insertion; nothing is ever iterated in hash order.

use crate::hash::{hash_bytes, mix};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// Slots the hand looks at per insertion.
const LOOKS: usize = 16;

/// Stands for every name that found no slot.
pub(crate) const OTHERS: &str = "(others)";

#[derive(Clone, Debug)]
struct Slot<T> {
    /// The slot of the level above, 0 at the top.
    parent: u32,
    name: Box<str>,
    value: T,
    used: bool,
}

/// Names, each under a parent, and what is kept for them.
#[derive(Clone, Debug)]
pub(crate) struct Directory<T> {
    table: HashTable<u32>,
    slots: Vec<Option<Slot<T>>>,
    vacant: Vec<u32>,
    hand: usize,
    bound: usize,
}

fn hash_of(parent: u32, name: &str) -> u64 {
    mix(hash_bytes(name.as_bytes()) ^ u64::from(parent))
}

impl<T> Directory<T> {
    /// An empty table of at most `bound` names (at least 1).
    pub(crate) fn new(bound: usize) -> Self {
        Self { table: HashTable::new(), slots: Vec::new(), vacant: Vec::new(), hand: 0, bound: bound.max(1) }
    }

    /// The slot of `name` under `parent`.
    pub(crate) fn find(&self, parent: u32, name: &str) -> Option<u32> {
        let is_it =
            |slot: &u32| self.slots[*slot as usize].as_ref().is_some_and(|s| s.parent == parent && *s.name == *name);
        self.table.find(hash_of(parent, name), is_it).copied()
    }

    /// A new bound; names beyond it stay until others need their places.
    pub(crate) fn set_bound(&mut self, bound: usize) {
        self.bound = bound.max(1);
    }

    /// Marks a slot as used, so that the hand passes it by once.
    pub(crate) fn touch(&mut self, slot: u32) {
        if let Some(Some(s)) = self.slots.get_mut(slot as usize) {
            s.used = true;
        }
    }

    /// Whether a further name needs another to go.
    pub(crate) fn is_full(&self) -> bool {
        self.table.len() >= self.bound
    }

    /// A slot to give up, if the table is full: the first of the next few that was not used lately and that `may_go`.
    pub(crate) fn victim(&mut self, mut may_go: impl FnMut(u32, &T) -> bool) -> Option<u32> {
        for _ in 0..LOOKS.min(self.slots.len()) {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = u32::try_from(self.hand).unwrap_or(u32::MAX);
            let Some(Some(s)) = self.slots.get_mut(self.hand) else { continue };
            if core::mem::take(&mut s.used) || *s.name == *OTHERS {
                continue;
            }
            if may_go(slot, &s.value) {
                return Some(slot);
            }
        }
        None
    }

    /// Enters a name that is not there yet. The owner sees to the bound: names written in a configuration are entered whatever it is.
    pub(crate) fn insert(&mut self, parent: u32, name: &str, value: T) -> u32 {
        let entry = Some(Slot { parent, name: name.into(), value, used: true });
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot as usize] = entry;
                slot
            }
            None => {
                self.slots.push(entry);
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let slots = &self.slots;
        let rehash = |s: &u32| slots[*s as usize].as_ref().map_or(0, |s| hash_of(s.parent, &s.name));
        self.table.insert_unique(hash_of(parent, name), slot, rehash);
        slot
    }

    /// Takes a name out.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let gone = self.slots.get_mut(slot as usize)?.take()?;
        if let Ok(entry) = self.table.find_entry(hash_of(gone.parent, &gone.name), |s| *s == slot) {
            entry.remove();
        }
        self.vacant.push(slot);
        Some(gone.value)
    }

    /// What is kept at a slot.
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref().map(|s| &s.value)
    }

    /// What is kept at a slot, to change it.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut().map(|s| &mut s.value)
    }

    /// Parent and name of a slot.
    pub(crate) fn name(&self, slot: u32) -> Option<(u32, &str)> {
        self.slots.get(slot as usize)?.as_ref().map(|s| (s.parent, &*s.name))
    }

    /// All slots, in order of slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &str, &T)> {
        (0u32..).zip(&self.slots).filter_map(|(slot, s)| s.as_ref().map(|s| (slot, &*s.name, &s.value)))
    }

    /// How many names there are.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn names_from_users_stay_within_the_bound() {
        let mut d = Directory::new(100);
        for k in 0..10_000u32 {
            let name = format!("tenant-{k}");
            if d.is_full() {
                let Some(gone) = d.victim(|_, v| v % 2 == 0) else { continue };
                d.remove(gone);
            }
            let slot = d.insert(k % 3, &name, k);
            assert_eq!(d.find(k % 3, &name), Some(slot));
            assert_eq!(d.find(k % 3 + 1, &name), None, "the same name elsewhere is another");
        }
        assert_eq!((d.len(), d.slots.len()), (100, 100));
        assert!(d.iter().filter(|(_, _, v)| *v % 2 == 1).count() >= 50, "what may not go stays");
    }
}
