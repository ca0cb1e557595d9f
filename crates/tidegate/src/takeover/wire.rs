//! What goes over the socket of a hand-over.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What both sides have to speak. It changes with the meaning of anything that is handed over.
pub(super) const PROTOCOL: u32 = 1;
/// Bound on a line, in bytes.
const LIMIT_LINE_BYTES: usize = 1 << 20;
/// Bound on the state, in bytes.
pub(super) const LIMIT_STATE_BYTES: u64 = 64 << 20;
/// Most sockets that are taken.
const MAX_SOCKETS: usize = 8192;
/// Sockets per message; the kernel takes 253.
const BATCH: usize = 64;

/// What the new process says first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) version: String,
    pub(super) pid: u32,
}

/// What the old one answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// So many sockets and bytes of state follow.
    Offer(Offer),
    /// Nothing follows.
    Refused {
        /// Why.
        why: String,
    },
}

/// What follows.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) version: String,
    pub(super) pid: u32,
    /// In the order in which they come.
    pub(super) sockets: Vec<Socket>,
    pub(super) state_bytes: u64,
    /// The system's monotonic clock at the instant of the state, in nanoseconds.
    pub(super) monotonic_ns: u64,
}

/// A listening socket.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Socket {
    /// Of the admin API, not of requests.
    pub(super) admin: bool,
    /// As the config has it.
    pub(super) address: SocketAddr,
}

/// The new process accepts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) ready: bool,
}

/// The system's monotonic clock, which all processes of a machine share.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Writes one line.
pub(super) fn write_line(mut to: impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    to.write_all(&text)
}

/// Reads one line, byte by byte: what comes after it may carry sockets, which a longer read would lose.
pub(super) fn read_line<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut text = Vec::new();
    let mut byte = [0u8];
    loop {
        from.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return Ok(serde_json::from_slice(&text)?);
        }
        text.push(byte[0]);
        if text.len() > LIMIT_LINE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line of a hand-over is too long"));
        }
    }
}

/// Sends sockets.
pub(super) fn send_sockets(to: &UnixStream, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    for batch in sockets.chunks(BATCH) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !rights.push(SendAncillaryMessage::ScmRights(batch)) {
            return Err(io::Error::other("too many sockets for one message"));
        }
        sendmsg(to, &[IoSlice::new(b"S")], &mut rights, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Receives as many sockets as were announced.
pub(super) fn receive_sockets(from: &UnixStream, announced: usize) -> io::Result<Vec<OwnedFd>> {
    let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    if announced > MAX_SOCKETS {
        return Err(wrong("more sockets than any gateway has"));
    }
    let mut sockets: Vec<OwnedFd> = Vec::with_capacity(announced);
    while sockets.len() < announced {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0u8];
        let got = recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
        let before = sockets.len();
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                sockets.extend(fds);
            }
        }
        if got.bytes == 0 || sockets.len() == before {
            return Err(wrong("the running gateway sent fewer sockets than it announced"));
        }
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd as _;

    #[test]
    fn sockets_arrive_in_their_order_and_work() {
        let (here, there) = UnixStream::pair().unwrap();
        let sent: Vec<TcpListener> = (0..150).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let fds: Vec<_> = sent.iter().map(|s| s.as_fd()).collect();
        write_line(&here, &Ready { ready: true }).unwrap();
        send_sockets(&here, &fds).unwrap();
        assert!(read_line::<Ready>(&there).unwrap().ready);
        let got = receive_sockets(&there, sent.len()).unwrap();
        for (old, new) in sent.iter().zip(got) {
            assert_eq!(TcpListener::from(new).local_addr().unwrap(), old.local_addr().unwrap());
        }
    }

    #[test]
    fn what_does_not_come_is_said() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(here);
        assert!(receive_sockets(&there, 1).is_err());
        assert!(receive_sockets(&there, MAX_SOCKETS + 1).is_err());
        assert!(read_line::<Ready>(&b"{\"ready\": tr"[..]).is_err());
        assert!(read_line::<Ready>(&b"{\"ready\": 3}\n"[..]).is_err());
    }
}
