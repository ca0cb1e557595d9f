//! Every decision Tidegate takes: who may enter, when, and where it goes.
//!
//! Each decision is a function of state, event, `now` and a generator. This crate cannot read a clock, draw an unseeded number,
//! spawn, block or do I/O, so the live proxy, the simulator and a replayed journal drive the very same code.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod affinity;
pub mod balance;
pub mod breaker;
pub mod descriptor;
pub mod endpoint;
pub mod event;
pub mod explain;
pub mod hash;
pub mod health;
pub mod id;
pub mod journal;
pub mod limit;
pub mod load;
pub mod outcome;
pub mod placement;
pub mod pool;
pub mod prefix;
pub mod queue;
pub mod ramp;
pub mod request;
pub mod retry;
pub mod rng;
pub mod saved;
pub mod stats;
pub mod time;
pub mod tune;
