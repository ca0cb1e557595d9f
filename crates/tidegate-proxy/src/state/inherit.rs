//! What a gateway takes over from the process before it: sockets that are bound already, and what was known.

use crate::state::clock::Clock;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{SocketAddr, TcpListener};
use tidegate_core::saved::{SavedLimits, SavedPool};

/// What a gateway knows, at one instant of its clock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Saved {
    /// That instant, in nanoseconds.
    pub at: u64,
    /// Balances of limits.
    pub limits: SavedLimits,
    /// Learned lengths of answers, by tenant and model.
    pub lengths: Vec<(String, f64, u32)>,
    /// Pools by name.
    pub pools: Vec<(String, SavedPool)>,
}

/// What limits have to be charged for a request of another process; negative gives back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LateUse {
    /// Its tenant.
    pub tenant: String,
    /// Its model.
    pub model: String,
    /// Its route.
    pub route: String,
    /// Requests.
    pub requests: f64,
    /// Prompt tokens.
    pub prompt_tokens: f64,
    /// Output tokens.
    pub output_tokens: f64,
}

/// What a gateway starts from instead of nothing.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Listening sockets, each with the address that the config gave it.
    pub sockets: Vec<(SocketAddr, TcpListener)>,
    /// What was known, and the clock that goes on.
    pub known: Option<(Saved, Clock)>,
}

impl Inherited {
    /// The sockets of `address`, spread over `threads`: each thread has one at least, and each socket has a thread, as what waits in one that
    /// nobody accepts from would wait for ever.
    pub(crate) fn take(&mut self, address: SocketAddr, threads: usize) -> io::Result<Vec<Vec<TcpListener>>> {
        let (own, rest) = std::mem::take(&mut self.sockets).into_iter().partition(|(a, _)| *a == address);
        self.sockets = rest;
        let own: Vec<(SocketAddr, TcpListener)> = own;
        let mut spread: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
        if own.is_empty() {
            return Ok(spread);
        }
        for (_, socket) in &own {
            socket.set_nonblocking(true)?;
        }
        for (k, thread) in spread.iter_mut().enumerate().skip(own.len()) {
            thread.push(own[k % own.len()].1.try_clone()?);
        }
        for (k, (_, socket)) in own.into_iter().enumerate() {
            spread[k % threads].push(socket);
        }
        Ok(spread)
    }
}
