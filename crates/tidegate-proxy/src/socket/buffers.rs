//! Byte buffers of a core, shared by its connections: one to read into, and a few that come back when what they held has gone.

use bytes::{Buf, Bytes};
use std::cell::RefCell;

/// Bytes read at once.
pub(crate) const READ: usize = 16 * 1024;
/// Largest buffer that is kept for reuse, in bytes.
const LARGEST: usize = 32 * 1024;
/// Buffers a core keeps for reuse.
const MOST: usize = 256;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into_boxed_slice());
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Lends the core's read buffer, [`READ`] bytes long: connections keep none of their own while they wait. Not to be nested.
pub(crate) fn with_scratch<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    SCRATCH.with(|scratch| f(&mut scratch.borrow_mut()))
}

/// An empty buffer.
pub(crate) fn take() -> Vec<u8> {
    SPARE.with(|spare| spare.borrow_mut().pop()).unwrap_or_default()
}

/// Keeps a buffer for reuse.
pub(crate) fn give_back(mut buffer: Vec<u8>) {
    if (1..=LARGEST).contains(&buffer.capacity()) {
        buffer.clear();
        // A thread that ends has no store any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MOST {
                spare.push(buffer);
            }
        });
    }
}

/// A piece of a body: in a buffer of the core, which goes back there, or bytes that somebody else holds as well.
#[derive(Debug)]
pub(crate) enum Piece {
    Pooled { buffer: Vec<u8>, from: usize },
    Shared(Bytes),
}

impl Piece {
    /// Everything in `buffer`, which comes from [`take`].
    pub(crate) fn pooled(buffer: Vec<u8>) -> Self {
        Self::Pooled { buffer, from: 0 }
    }
}

impl std::ops::Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pooled { buffer, from } => &buffer[*from..],
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        self
    }

    fn advance(&mut self, n: usize) {
        match self {
            Self::Pooled { buffer, from } => {
                assert!(n <= buffer.len() - *from, "advanced past the end of a piece");
                *from += n;
            }
            Self::Shared(bytes) => bytes.advance(n),
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Self::Pooled { buffer, .. } = self {
            give_back(std::mem::take(buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_piece_is_gone() {
        let mut buffer = take();
        buffer.extend_from_slice(b"abc");
        let place = buffer.as_ptr();
        let mut piece = Piece::pooled(buffer);
        piece.advance(1);
        assert_eq!(&*piece, b"bc");
        drop(piece);
        let again = take();
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), place);
    }

    #[test]
    fn large_buffers_are_not_kept() {
        give_back(Vec::with_capacity(LARGEST + 1));
        assert_eq!(take().capacity(), 0);
    }
}
