//! What both sides write to and read into.

pub(crate) mod batch;
pub(crate) mod buffers;
