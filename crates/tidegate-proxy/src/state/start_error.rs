//! Why a gateway did not start, and what helps.

use std::io;
use std::net::SocketAddr;
use tidegate_telemetry::JournalError;
use tidegate_tls::Fault;

/// Why a gateway did not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The journal of a pool cannot be written.
    Journal(JournalError),
    /// Certificates cannot be used.
    Tls(Fault),
    /// A thread or its runtime could not be made.
    Thread(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        write!(f, " (another process has port {}; choose another in `listeners`)", address.port())
                    }
                    io::ErrorKind::PermissionDenied => f.write_str(" (ports below 1024 need the right to bind them)"),
                    io::ErrorKind::AddrNotAvailable => f.write_str(" (no interface of this machine has that address)"),
                    _ => Ok(()),
                }
            }
            Self::Journal(error) => write!(f, "{error} (see `journal.folder`)"),
            Self::Tls(fault) => fault.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}
