//! Streams of server-sent events, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_proxy::fuzzing::events(data));
