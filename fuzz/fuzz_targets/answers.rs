//! What endpoints answer over HTTP/1.1, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_proxy::fuzzing::answers(data));
