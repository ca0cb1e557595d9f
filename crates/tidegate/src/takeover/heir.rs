//! The side of the new process.

use super::wire::{self, Answer, Hello, PROTOCOL, Ready};
use anyhow::{Context, bail};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::time::Instant;
use tidegate_proxy::{Clock, Governor, Inherited, LateUse, Saved};

/// Longest time the running process may take for an answer: it may be at a reload.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What the running process gave.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) inherited: Inherited,
    /// The socket of the admin API.
    pub(crate) admin: Option<TcpListener>,
    stream: UnixStream,
    /// Who gave it.
    pub(crate) pid: u32,
}

/// Asks the process at the door `path` for everything it has; `None` if nobody is there.
///
/// # Errors
/// If it refuses, or what it gives cannot be used. It goes on then.
pub(crate) fn take(path: &Path) -> anyhow::Result<Option<Taken>> {
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot take over at {}", path.display())),
    };
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let hello = Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id() };
    wire::write_line(&stream, &hello)?;
    let offer = match wire::read_line(&stream).context("the running gateway does not answer")? {
        Answer::Offer(offer) => offer,
        Answer::Refused { why } => bail!("the running gateway does not hand over: {why}"),
    };
    if offer.state_bytes > wire::LIMIT_STATE_BYTES {
        bail!("the running gateway announces {} bytes of state", offer.state_bytes);
    }
    let sockets = wire::receive_sockets(&stream, offer.sockets.len())?;
    let mut state = vec![0; usize::try_from(offer.state_bytes)?];
    (&stream).read_exact(&mut state)?;
    let saved: Saved = serde_json::from_slice(&state).context("the state of the running gateway cannot be read")?;
    // Its clock goes on here: what passed since it saved has passed for its balances, too.
    let since = wire::monotonic_ns().saturating_sub(offer.monotonic_ns);
    let clock = Clock::at(Instant::from_nanos(saved.at.saturating_add(since)));
    let (mut inherited, mut admin) = (Inherited { sockets: Vec::new(), known: Some((saved, clock)) }, None);
    for (told, fd) in offer.sockets.iter().zip(sockets) {
        let socket = TcpListener::from(fd);
        if told.admin {
            admin = Some(socket);
        } else {
            inherited.sockets.push((told.address, socket));
        }
    }
    Ok(Some(Taken { inherited, admin, stream, pid: offer.pid }))
}

/// Tells the old process that this one accepts, and charges `governor` with what the old one still uses, on a thread of its own.
///
/// # Errors
/// If the old process is not there any more, or there can be no thread.
pub(crate) fn ready(stream: UnixStream, governor: Arc<Governor>) -> anyhow::Result<()> {
    wire::write_line(&stream, &Ready { ready: true })?;
    stream.set_read_timeout(None)?;
    let listen = move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            match serde_json::from_str::<LateUse>(&line) {
                Ok(used) => governor.charge(&used),
                Err(error) => tracing::warn!(%error, "the old process says something that cannot be read"),
            }
        }
        tracing::info!("the old process has ended");
    };
    std::thread::Builder::new().name("tidegate-late-use".to_owned()).spawn(listen)?;
    Ok(())
}

impl Taken {
    /// Parts it: what a gateway starts from, the admin socket, and the way to tell the old process.
    pub(crate) fn into_parts(self) -> (Inherited, Option<TcpListener>, UnixStream) {
        (self.inherited, self.admin, self.stream)
    }
}
