//! JSON bodies, against a parser that builds the whole value.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_proxy::fuzzing::sniffer(data));
