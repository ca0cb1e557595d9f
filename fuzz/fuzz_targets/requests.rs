//! What clients send over HTTP/1.1, as the guard reads it and as the HTTP library behind it does.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_proxy::fuzzing::requests(data));
