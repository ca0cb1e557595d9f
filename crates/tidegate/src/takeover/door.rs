//! The side of the running process.

use super::wire::{self, Answer, Hello, Offer, PROTOCOL, Ready, Socket};
use crate::control::{Control, Offered};
use anyhow::{Context, bail};
use std::io::{BufWriter, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use tidegate_proxy::LateUse;
use tokio::net::UnixListener;
use tokio::sync::mpsc;

/// Longest time for the new process to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for it to be ready: it has read its config before it asks.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Where the next process asks.
#[derive(Debug)]
pub(crate) struct Door {
    listener: UnixListener,
}

/// The next process accepts: this one can go.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) pid: u32,
    telling: JoinHandle<()>,
}

impl HandedOver {
    /// Waits until the next process was told of everything. To be called when no request is left.
    pub(crate) fn finish(self) {
        // It ends with the last word or with the process that listens.
        let _ = self.telling.join();
    }
}

impl Door {
    /// Opens the door at `path`, for its own user alone. One that another process left there is replaced.
    ///
    /// # Errors
    /// If there can be no socket.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let wrong = || format!("cannot make the socket {} (see `takeover.socket`)", path.display());
        // Under another name first, so that nobody enters before the mode is set and the old process's door is there until this one is.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let _ = std::fs::remove_file(&new);
        let listener = UnixListener::bind(&new).with_context(wrong)?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).with_context(wrong)?;
        std::fs::rename(&new, path).with_context(wrong)?;
        Ok(Self { listener })
    }

    /// Waits for somebody at the door.
    pub(crate) async fn visit(&self) -> UnixStream {
        loop {
            if let Ok((stream, _)) = self.listener.accept().await
                && let Ok(stream) = stream.into_std()
                && stream.set_nonblocking(false).is_ok()
            {
                return stream;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Hands everything over to `visitor`. On any error this process goes on as before.
    pub(crate) async fn hand_over(visitor: UnixStream, control: &Control) -> anyhow::Result<HandedOver> {
        let (visitor, hello) = tokio::task::spawn_blocking(move || greet(visitor)).await??;
        let (offered, told) = control.offer()?;
        let sent = tokio::task::spawn_blocking(move || send(visitor, &offered)).await;
        match sent.map_err(anyhow::Error::from).flatten() {
            Ok(visitor) => Ok(HandedOver { pid: hello.pid, telling: tell(visitor, told)? }),
            Err(error) => {
                control.keep();
                Err(error)
            }
        }
    }
}

fn greet(visitor: UnixStream) -> anyhow::Result<(UnixStream, Hello)> {
    visitor.set_read_timeout(Some(HELLO_TIMEOUT))?;
    visitor.set_write_timeout(Some(HELLO_TIMEOUT))?;
    let hello: Hello = wire::read_line(&visitor).context("it did not say who it is")?;
    if hello.protocol != PROTOCOL {
        let why = format!(
            "the running gateway ({}) hands over by protocol {PROTOCOL}, the new one ({}) takes over by protocol {}: restart instead",
            env!("CARGO_PKG_VERSION"),
            hello.version,
            hello.protocol
        );
        wire::write_line(&visitor, &Answer::Refused { why: why.clone() })?;
        bail!(why);
    }
    Ok((visitor, hello))
}

fn send(visitor: UnixStream, offered: &Offered) -> anyhow::Result<UnixStream> {
    let state = serde_json::to_vec(&offered.saved)?;
    let state_bytes = state.len() as u64;
    if state_bytes > wire::LIMIT_STATE_BYTES {
        let why = format!("there are {state_bytes} bytes to hand over, more than {}", wire::LIMIT_STATE_BYTES);
        wire::write_line(&visitor, &Answer::Refused { why: why.clone() })?;
        bail!(why);
    }
    let sockets = offered.sockets.iter().map(|(admin, address, _)| Socket { admin: *admin, address: *address });
    let offer = Offer {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        sockets: sockets.collect(),
        state_bytes,
        monotonic_ns: offered.monotonic_ns,
    };
    wire::write_line(&visitor, &Answer::Offer(offer))?;
    let fds: Vec<_> = offered.sockets.iter().map(|(_, _, socket)| socket.as_fd()).collect();
    wire::send_sockets(&visitor, &fds)?;
    (&visitor).write_all(&state)?;
    visitor.set_read_timeout(Some(READY_TIMEOUT))?;
    let ready: Ready = wire::read_line(&visitor).context("the new process was not ready in time")?;
    if ready.ready { Ok(visitor) } else { bail!("the new process cannot go on") }
}

/// Tells the new process what this one still uses, until it has used the last.
fn tell(visitor: UnixStream, mut told: mpsc::Receiver<LateUse>) -> anyhow::Result<JoinHandle<()>> {
    let tell = move || {
        let mut to = BufWriter::new(&visitor);
        while let Some(used) = told.blocking_recv() {
            let written = wire::write_line(&mut to, &used);
            if written.and_then(|()| if told.is_empty() { to.flush() } else { Ok(()) }).is_err() {
                return;
            }
        }
    };
    Ok(std::thread::Builder::new().name("tidegate-heir".to_owned()).spawn(tell)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_protocol_is_refused_by_name() {
        let (here, there) = UnixStream::pair().unwrap();
        let hello = Hello { protocol: PROTOCOL + 1, version: "9.9.9".to_owned(), pid: 1 };
        wire::write_line(&here, &hello).unwrap();
        let error = greet(there).unwrap_err().to_string();
        let Answer::Refused { why } = wire::read_line(&here).unwrap() else { panic!("not refused") };
        assert!(why == error && why.contains("9.9.9") && why.contains("restart instead"), "{why}");
    }
}
