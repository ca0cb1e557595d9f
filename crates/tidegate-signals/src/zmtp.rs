//! The subscriber's side of ZeroMQ's wire protocol, ZMTP 3.0 in clear: as much as it takes to hear a publisher.
//!
//! Ours and not the `zeromq` crate's: that one makes room for whatever length a peer announces, so eight bytes from whoever sits at that port
//! end the process (docs/decisions/0011). Here a message is read as it comes, up to a bound. Both sides greet, say READY, and then the
//! subscriber sends its topic. A peer of 3.1 is asked for a sign of life where it is silent, as a publisher without news and a machine
//! without power look alike else.
//! Source: ZeroMQ RFCs 23 (ZMTP 3.0) and 37 (heartbeats of 3.1).

use bytes::{Buf, Bytes, BytesMut};
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bound on a message with all its parts, in bytes: the blocks of a million tokens take about eight.
pub(crate) const LIMIT_BYTES: usize = 16 << 20;
/// Bound on the parts of a message.
const LIMIT_PARTS: usize = 8;
/// Room that is made for each read.
const READ_BYTES: usize = 16 << 10;
const GREETING_BYTES: usize = 64;
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Why nothing can be heard over a connection.
#[derive(Debug)]
pub(crate) enum Fault {
    Connect(io::Error),
    /// Nothing was greeted in time.
    NoGreeting,
    /// Asked for a sign of life, it gave none.
    Silent,
    Io(io::Error),
    /// The other side closed it.
    Closed,
    /// What comes is not the protocol.
    NotZmtp(&'static str),
    /// The other side wants a mechanism other than NULL, such as CURVE.
    Secured(String),
    /// The other side refused, and said why.
    Refused(String),
    TooLarge,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::NoGreeting => f.write_str("no greeting in time"),
            Self::Silent => f.write_str("no sign of life"),
            Self::Io(error) => write!(f, "the connection broke: {error}"),
            Self::Closed => f.write_str("the publisher closed the connection"),
            Self::NotZmtp(what) => write!(f, "what answers is no ZeroMQ publisher: {what}"),
            Self::Secured(mechanism) => write!(f, "the publisher wants the mechanism {mechanism}; only NULL is spoken"),
            Self::Refused(why) => write!(f, "the publisher refused: {why}"),
            Self::TooLarge => write!(f, "a message of more than {LIMIT_BYTES} bytes or {LIMIT_PARTS} parts"),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What came.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    /// A whole message.
    Message(Vec<Bytes>),
    /// The answer to a ping, or a ping of the other side.
    SignOfLife,
}

/// A subscription over one connection.
#[derive(Debug)]
pub(crate) struct Subscription<Io> {
    io: Io,
    read: BytesMut,
    parts: Vec<Bytes>,
    parts_bytes: usize,
    answers_pings: bool,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Subscription<Io> {
    /// Greets, and subscribes to the topics that begin with `topic`.
    ///
    /// # Errors
    /// If the other side is no publisher that speaks in clear.
    pub(crate) async fn open(io: Io, topic: &[u8]) -> Result<Self, Fault> {
        let mut new = Self::greet(io, b"SUB", &[b"PUB", b"XPUB"]).await?;
        let mut subscribe = vec![1];
        subscribe.extend_from_slice(topic);
        new.io.write_all(&frame(0, &subscribe)).await?;
        new.io.flush().await?;
        Ok(new)
    }

    /// Greets, and asks for what was published from batch `from` on: answers of three parts, of which the first is empty.
    ///
    /// # Errors
    /// If the other side answers nobody in clear.
    pub(crate) async fn open_replay(io: Io, from: u64) -> Result<Self, Fault> {
        let mut new = Self::greet(io, b"DEALER", &[b"ROUTER"]).await?;
        let question = [frame(MORE, b""), frame(0, &from.to_be_bytes())].concat();
        new.io.write_all(&question).await?;
        new.io.flush().await?;
        Ok(new)
    }

    async fn greet(io: Io, own: &[u8], peers: &[&[u8]]) -> Result<Self, Fault> {
        let read = BytesMut::with_capacity(READ_BYTES);
        let mut new = Self { io, read, parts: Vec::new(), parts_bytes: 0, answers_pings: false };
        new.io.write_all(&greeting()).await?;
        new.io.write_all(&frame(COMMAND, &ready(own))).await?;
        while new.read.len() < GREETING_BYTES {
            // What is no greeting may never become long enough to be one.
            if new.read.first().is_some_and(|b| *b != 0xFF) {
                return Err(Fault::NotZmtp("no greeting"));
            }
            new.fill().await?;
        }
        let theirs = new.read.split_to(GREETING_BYTES);
        new.answers_pings = is_of_3_1(&theirs)?;
        loop {
            match new.take_frame()? {
                Some((COMMAND, body)) => break is_one_of(peers, &body)?,
                Some(_) => return Err(Fault::NotZmtp("no READY")),
                None => new.fill().await?,
            }
        }
        Ok(new)
    }

    /// Whether [`Self::ping`] is answered.
    pub(crate) fn answers_pings(&self) -> bool {
        self.answers_pings
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// If the connection broke.
    pub(crate) async fn ping(&mut self) -> Result<(), Fault> {
        // No time to live of our own: zero.
        self.io.write_all(&frame(COMMAND, b"\x04PING\0\0")).await?;
        Ok(self.io.flush().await?)
    }

    /// The next that comes. Dropping the future loses nothing of it.
    ///
    /// # Errors
    /// If nothing more will come.
    pub(crate) async fn next(&mut self) -> Result<Heard, Fault> {
        loop {
            let Some((flags, body)) = self.take_frame()? else {
                self.fill().await?;
                continue;
            };
            if flags & COMMAND != 0 {
                if let Some(context) = body.strip_prefix(b"\x04PING").and_then(|rest| rest.get(2..)) {
                    let mut pong = b"\x04PONG".to_vec();
                    pong.extend(context.iter().take(16));
                    self.io.write_all(&frame(COMMAND, &pong)).await?;
                }
                return Ok(Heard::SignOfLife);
            }
            self.parts_bytes += body.len();
            if self.parts_bytes > LIMIT_BYTES || self.parts.len() == LIMIT_PARTS {
                return Err(Fault::TooLarge);
            }
            self.parts.push(body);
            if flags & MORE == 0 {
                self.parts_bytes = 0;
                return Ok(Heard::Message(std::mem::take(&mut self.parts)));
            }
        }
    }

    async fn fill(&mut self) -> Result<(), Fault> {
        self.read.reserve(READ_BYTES);
        if self.io.read_buf(&mut self.read).await? == 0 { Err(Fault::Closed) } else { Ok(()) }
    }

    /// The first frame of what was read, if all of it is there: its flags without the one for its length, and its body.
    fn take_frame(&mut self) -> Result<Option<(u8, Bytes)>, Fault> {
        let Some(&flags) = self.read.first() else { return Ok(None) };
        if flags & !(MORE | LONG | COMMAND) != 0 || flags & (COMMAND | MORE) == COMMAND | MORE {
            return Err(Fault::NotZmtp("a frame of an unknown kind"));
        }
        let mut after = self.read.get(1..).unwrap_or_default();
        let (head, length) = if flags & LONG != 0 {
            if after.len() < 8 {
                return Ok(None);
            }
            (9, after.get_u64())
        } else {
            match after.first() {
                Some(length) => (2, u64::from(*length)),
                None => return Ok(None),
            }
        };
        let length = usize::try_from(length).ok().filter(|l| *l <= LIMIT_BYTES).ok_or(Fault::TooLarge)?;
        if self.read.len() < head + length {
            return Ok(None);
        }
        self.read.advance(head);
        Ok(Some((flags & !LONG, self.read.split_to(length).freeze())))
    }
}

/// Ours: version 3.0, mechanism NULL, not a server of one.
fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = 0xFF;
    greeting[9] = 0x7F;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// The other side's: whether its version is 3.1 or newer.
fn is_of_3_1(greeting: &[u8]) -> Result<bool, Fault> {
    let (Some(0xFF), Some(0x7F), Some(&major), Some(&minor)) =
        (greeting.first(), greeting.get(9), greeting.get(10), greeting.get(11))
    else {
        return Err(Fault::NotZmtp("no greeting"));
    };
    if major < 3 {
        return Err(Fault::NotZmtp("a version before 3.0"));
    }
    let mechanism = greeting.get(12..32).unwrap_or_default().split(|b| *b == 0).next().unwrap_or_default();
    if mechanism != b"NULL" {
        return Err(Fault::Secured(mechanism.escape_ascii().to_string()));
    }
    Ok(major > 3 || minor >= 1)
}

fn ready(own: &[u8]) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend_from_slice(&(own.len() as u32).to_be_bytes());
    body.extend_from_slice(own);
    body
}

/// Whether this READY is that of a socket of one of these types.
fn is_one_of(peers: &[&[u8]], body: &[u8]) -> Result<(), Fault> {
    if let Some(reason) = body.strip_prefix(b"\x05ERROR") {
        let reason = reason.get(1..).unwrap_or_default();
        return Err(Fault::Refused(reason.iter().take(200).copied().collect::<Vec<_>>().escape_ascii().to_string()));
    }
    let mut rest = body.strip_prefix(b"\x05READY").ok_or(Fault::NotZmtp("no READY"))?;
    while let Some((&length, after)) = rest.split_first() {
        let cut = Fault::NotZmtp("a READY that is cut off");
        let (Some(name), Some(size)) =
            (after.get(..usize::from(length)), after.get(usize::from(length)..).and_then(|s| s.first_chunk::<4>()))
        else {
            return Err(cut);
        };
        let value = after.get(usize::from(length) + 4..).unwrap_or_default();
        let Some((value, behind)) = value.split_at_checked(u32::from_be_bytes(*size) as usize) else { return Err(cut) };
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            return if peers.contains(&value) { Ok(()) } else { Err(Fault::NotZmtp("its socket is of another type")) };
        }
        rest = behind;
    }
    Err(Fault::NotZmtp("a READY without a socket type"))
}

/// A short frame; ours have at most a topic, which the config bounds.
fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(body.len() + 9);
    match u8::try_from(body.len()) {
        Ok(length) => frame.extend_from_slice(&[flags, length]),
        Err(_) => {
            frame.push(flags | LONG);
            frame.extend_from_slice(&(body.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(body);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;

    /// A publisher's greeting, of version 3 and this minor one.
    fn their_greeting(minor: u8, mechanism: &[u8]) -> Vec<u8> {
        let mut theirs = greeting();
        theirs[11] = minor;
        theirs[12..16].fill(0);
        theirs[12..12 + mechanism.len()].copy_from_slice(mechanism);
        theirs.to_vec()
    }

    fn their_ready(kind: &[u8]) -> Vec<u8> {
        let mut body = b"\x05READY\x08Identity\0\0\0\0\x0bSocket-Type".to_vec();
        body.extend_from_slice(&(kind.len() as u32).to_be_bytes());
        body.extend_from_slice(kind);
        frame(COMMAND, &body)
    }

    /// Opens a subscription to a publisher that says `said` and nothing else.
    async fn open(said: &[u8]) -> (Result<Subscription<DuplexStream>, Fault>, DuplexStream) {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        theirs.write_all(said).await.unwrap();
        (Subscription::open(ours, b"kv").await, theirs)
    }

    async fn opened(more: &[u8]) -> (Subscription<DuplexStream>, DuplexStream) {
        let said = [their_greeting(1, b"NULL"), their_ready(b"XPUB"), more.to_vec()].concat();
        let (opened, theirs) = open(&said).await;
        (opened.unwrap(), theirs)
    }

    #[tokio::test]
    async fn it_greets_says_ready_and_subscribes() {
        let (subscription, mut theirs) = opened(b"").await;
        assert!(subscription.answers_pings());
        let mut said = vec![0; 64 + 2 + 25 + 5];
        theirs.read_exact(&mut said).await.unwrap();
        assert_eq!(&said[..16], b"\xFF\0\0\0\0\0\0\0\0\x7F\x03\0NULL");
        assert_eq!(&said[64..91], b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB");
        assert_eq!(&said[91..], b"\0\x03\x01kv");
    }

    #[tokio::test]
    async fn messages_of_several_parts_come_whole_and_pings_are_answered() {
        let long = vec![7u8; 70_000];
        let message = [frame(MORE, b"kv"), frame(MORE, b"12345678"), frame(0, &long)].concat();
        let (mut subscription, mut theirs) = opened(&message).await;
        let Heard::Message(parts) = subscription.next().await.unwrap() else { panic!() };
        assert_eq!(parts.iter().map(Bytes::len).collect::<Vec<_>>(), [2, 8, 70_000]);
        theirs.write_all(&frame(COMMAND, b"\x04PING\0\x05abc")).await.unwrap();
        assert_eq!(subscription.next().await.unwrap(), Heard::SignOfLife);
        drop(subscription);
        let mut said = Vec::new();
        theirs.read_to_end(&mut said).await.unwrap();
        assert!(said.ends_with(b"\x04\x08\x04PONGabc"), "{said:?}");
    }

    #[tokio::test]
    async fn a_length_that_nobody_means_is_refused_before_any_room_is_made() {
        let endless = [&[LONG][..], &u64::MAX.to_be_bytes()].concat();
        let (mut subscription, _theirs) = opened(&endless).await;
        assert!(matches!(subscription.next().await, Err(Fault::TooLarge)));
        assert!(subscription.read.capacity() < 1 << 20);
        let many = vec![frame(MORE, b"x"); LIMIT_PARTS + 1].concat();
        let (mut subscription, _theirs) = opened(&many).await;
        assert!(matches!(subscription.next().await, Err(Fault::TooLarge)));
    }

    #[tokio::test]
    async fn what_is_no_publisher_says_what_it_is() {
        for (said, why) in [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "no greeting"),
            (their_greeting(0, b"CURVE"), "the mechanism CURVE"),
            ([their_greeting(0, b"NULL"), their_ready(b"ROUTER")].concat(), "of another type"),
            ([their_greeting(0, b"NULL"), frame(COMMAND, b"\x05ERROR\x07go away")].concat(), "refused: go away"),
            ([their_greeting(0, b"NULL"), frame(COMMAND, b"\x05READY\x40Sock")].concat(), "cut off"),
            ([their_greeting(0, b"NULL"), frame(0, b"x")].concat(), "no READY"),
            ([their_greeting(0, b"NULL"), vec![0x80, 0]].concat(), "unknown kind"),
        ] {
            let (opened, _theirs) = open(&said).await;
            let fault = opened.unwrap_err().to_string();
            assert!(fault.contains(why), "{fault}");
        }
        let (opened, _theirs) = open(&[their_greeting(0, b"NULL"), their_ready(b"PUB")].concat()).await;
        assert!(!opened.unwrap().answers_pings(), "3.0 knows no pings");
    }
}
