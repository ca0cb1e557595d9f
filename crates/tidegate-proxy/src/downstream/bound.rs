//! The listening sockets of a gateway: bound, or handed over by the process before it.

use crate::downstream::listener;
use crate::state::inherit::Inherited;
use crate::state::start_error::StartError;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tidegate_config::Config;

/// The sockets of one core.
#[derive(Default)]
pub(crate) struct Bound {
    pub(crate) sockets: Vec<std::net::TcpListener>,
    pub(crate) shared: Vec<listener::Shared>,
    /// Places of their listeners in the config.
    places: Vec<usize>,
}

/// The sockets once more, for the process that takes over.
pub(crate) fn duplicate(
    config: &Config,
    bound: &[Bound],
) -> Result<Vec<(SocketAddr, std::net::TcpListener)>, StartError> {
    let mut sockets = Vec::new();
    for core in bound {
        for (&place, socket) in core.places.iter().zip(&core.sockets) {
            let address = config.listeners[place].address;
            let copy = socket.try_clone().map_err(|error| StartError::Listen { address, error })?;
            sockets.push((address, copy));
        }
    }
    Ok(sockets)
}

/// Binds every listener, one socket per core, apart from those that are handed over.
pub(crate) fn bind_all(
    config: &Config,
    threads: usize,
    inherited: &mut Inherited,
) -> Result<(Vec<SocketAddr>, Vec<Bound>), StartError> {
    let mut bound: Vec<Bound> = (0..threads).map(|_| Bound::default()).collect();
    let mut addresses = Vec::new();
    for (place, listener) in config.listeners.iter().enumerate() {
        let wrong = |error| StartError::Listen { address: listener.address, error };
        let http2 = config.limits.http2.is_some();
        let secure = listener.tls.as_ref().map(|tls| tidegate_tls::server(tls, http2).map(Arc::new)).transpose();
        let shared = listener::Shared { open: Arc::default(), secure: secure.map_err(StartError::Tls)? };
        let mut address = listener.address;
        let handed = inherited.take(address, threads).map_err(wrong)?;
        if handed.iter().all(Vec::is_empty) {
            refuse_shared_port(address).map_err(wrong)?;
        }
        for (core, handed) in bound.iter_mut().zip(handed) {
            let sockets = if handed.is_empty() { vec![listener::bind(address).map_err(wrong)?] } else { handed };
            for socket in sockets {
                address = socket.local_addr().map_err(wrong)?;
                core.sockets.push(socket);
                core.shared.push(shared.clone());
                core.places.push(place);
            }
        }
        addresses.push(address);
    }
    Ok((addresses, bound))
}

/// The cores share a port among themselves, and the kernel would let a second gateway of the same user join in unnoticed and take half
/// of the traffic. A plain bind first finds out.
fn refuse_shared_port(address: SocketAddr) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1)
}
