//! A fixed hash: the same on every machine, version and run.
//!
//! Hash maps with random seeds would make decisions irreproducible, and a ring whose points move between releases would empty every
//! cache behind it. Not resistant to chosen collisions: maps keyed by users' bytes are bounded in size.

use core::hash::{BuildHasher, Hasher};

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection with full avalanche.
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Hash of `bytes`: eight bytes at a time through [`mix`], length last.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut h = 0x9E37_79B9_7F4A_7C15;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for c in chunks {
        h = mix(h ^ u64::from_le_bytes(*c)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    }
    let mut last = [0u8; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(h ^ u64::from_le_bytes(last)) ^ bytes.len() as u64)
}

/// Builds [`FixedHasher`]s; the hasher of every map in core.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedState;

/// A [`Hasher`] over [`mix`], for integer keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher(u64);

impl BuildHasher for FixedState {
    type Hasher = FixedHasher;
    fn build_hasher(&self) -> FixedHasher {
        FixedHasher(0)
    }
}

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = mix(self.0 ^ hash_bytes(bytes));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0 ^ n);
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
}

/// A map with the fixed hasher. Never iterate it where order could reach a decision.
pub type FixedMap<K, V> = hashbrown::HashMap<K, V, FixedState>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_and_content_both_count() {
        assert_ne!(hash_bytes(b""), hash_bytes(b"\0"));
        assert_ne!(hash_bytes(b"a"), hash_bytes(b"a\0"));
        assert_ne!(hash_bytes(b"12345678a"), hash_bytes(b"12345678b"));
    }

    #[test]
    fn never_changes() {
        assert_eq!(
            hash_bytes(b"http://10.0.0.5:8000"),
            2_766_999_964_592_782_029,
            "a changed hash moves every key of every ring"
        );
    }
}
