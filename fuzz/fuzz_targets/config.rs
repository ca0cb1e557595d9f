//! Configs: any text is answered, by a config or by problems with their places.
#![no_main]

#[path = "../../crates/tidegate-config/tests/answered/mod.rs"]
mod answered;

libfuzzer_sys::fuzz_target!(|data: &[u8]| answered::is_answered(&String::from_utf8_lossy(data)));
