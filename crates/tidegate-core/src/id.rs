//! Names of things inside one pool.

/// An endpoint's slot in its pool. A slot is reused only after its endpoint was removed and its last request ended, so an id held by a
/// ticket never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

impl EndpointId {
    /// The slot as an index into per-endpoint arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A probe that the pool asked for, unique within its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u64);

/// A request in flight: a slot and how often the slot was used, so that a late event about an ended request finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl RequestKey {
    /// Slot and generation, for a journal.
    pub const fn parts(self) -> (u32, u32) {
        (self.slot, self.generation)
    }

    /// The key of these parts. One that was never given out finds no request.
    pub const fn from_parts((slot, generation): (u32, u32)) -> Self {
        Self { slot, generation }
    }
}
