//! Sockets that systemd bound before it started the process (`LISTEN_FDS`), found by their addresses.

use std::net::TcpListener;

use anyhow::bail;
use listenfd::ListenFd;
use tidegate_config::Config;
use tidegate_proxy::Inherited;

/// The sockets for the listeners of `config`, and the one of its admin API.
///
/// # Errors
/// If a socket was handed over that no listener has: traffic for it would go nowhere.
pub(crate) fn sockets(config: &Config) -> anyhow::Result<(Inherited, Option<TcpListener>)> {
    let mut given = ListenFd::from_env();
    let (mut inherited, mut admin) = (Inherited::default(), None);
    for place in 0..given.len() {
        let Some(socket) = given.take_tcp_listener(place)? else { continue };
        // A duplicate is closed when another program is started, which what systemd gives is not.
        let socket = socket.try_clone()?;
        let address = socket.local_addr()?;
        if config.listeners.iter().any(|l| l.address == address) {
            inherited.sockets.push((address, socket));
        } else if config.admin.as_ref().is_some_and(|a| a.address == address) {
            admin = Some(socket);
        } else {
            bail!("systemd hands over a socket on {address}, which is no address of `listeners` or `admin`");
        }
    }
    Ok((inherited, admin))
}
