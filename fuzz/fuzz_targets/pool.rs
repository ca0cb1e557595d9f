//! Arbitrary event streams into a pool: bytes become the same operations that the property tests draw, in the same world with the same
//! onlooker.
#![no_main]

#[path = "../../crates/tidegate-core/tests/driver/mod.rs"]
#[allow(dead_code)]
mod driver;
#[path = "../../crates/tidegate-core/tests/world/mod.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|data: &[u8]| world::bytes::drive_bytes(data));
