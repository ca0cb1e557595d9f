//! Cache events: whole loops against scripted publishers, in paused time.

use super::Told;
use crate::dial::Dial;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_config::EndpointUrl;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::prefix::{CacheBatch, CacheTold};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const EVENTS: &str = "prefix_cache: { events: { topic: kv, ranks: 1 } }";
const READY: &[u8] = b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04XPUB";

/// What a publisher does on one connection.
#[derive(Clone, Copy)]
enum Turn {
    /// Nobody is there.
    Refuse,
    /// Takes the connection and says nothing.
    Mute,
    /// Says this after the handshake and closes.
    Say(&'static [(u64, &'static [u8])]),
    /// The same, and stays; whether it answers pings.
    Stay(&'static [(u64, &'static [u8])], bool),
}

/// A publisher that takes its turns, one for each connection; the last one again and again.
struct Publisher {
    /// What it answers at port 5558.
    kept: &'static [(u64, &'static [u8])],
    turns: Mutex<VecDeque<Turn>>,
    asked: Mutex<Vec<String>>,
}

impl Publisher {
    fn new(turns: &[Turn]) -> Arc<Self> {
        Self::keeping(turns, &[])
    }

    fn keeping(turns: &[Turn], kept: &'static [(u64, &'static [u8])]) -> Arc<Self> {
        Arc::new(Self { kept, turns: Mutex::new(turns.iter().copied().collect()), asked: Mutex::default() })
    }

    fn listen(self: &Arc<Self>, lines: &str) -> Told {
        Told::with(lines, "http://engine:1", |watch, pool, ears| {
            watch.start_through(self, pool, &[EndpointId(0)], ears, 7);
        })
    }
}

async fn speak(mut io: DuplexStream, said: &[(u64, &[u8])], stays: Option<bool>) {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xFF, 0x7F, 3, 1);
    greeting[12..16].copy_from_slice(b"NULL");
    io.write_all(&greeting).await.unwrap();
    io.write_all(READY).await.unwrap();
    let mut heard = [0; 64 + 27 + 5];
    io.read_exact(&mut heard).await.unwrap();
    assert!(heard.ends_with(b"\0\x03\x01kv"), "{heard:?}");
    for (number, payload) in said {
        let mut message = b"\x01\x02kv\x01\x08".to_vec();
        message.extend(number.to_be_bytes());
        message.extend([0, payload.len() as u8]);
        message.extend(*payload);
        io.write_all(&message).await.unwrap();
    }
    let mut ping = [0; 9];
    while let Some(answers) = stays
        && io.read_exact(&mut ping).await.is_ok()
    {
        assert_eq!(&ping, b"\x04\x07\x04PING\0\0");
        if answers {
            io.write_all(b"\x04\x05\x04PONG").await.unwrap();
        }
    }
}

/// Answers one question for what is kept.
async fn answer(mut io: DuplexStream, kept: &[(u64, &[u8])]) {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xFF, 0x7F, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    io.write_all(&greeting).await.unwrap();
    io.write_all(b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06ROUTER").await.unwrap();
    let mut asked = [0; 64 + 30 + 12];
    io.read_exact(&mut asked).await.unwrap();
    assert_eq!(asked[94..98], *b"\x01\0\0\x08", "an empty part, and a number");
    let from = u64::from_be_bytes(asked[98..].try_into().unwrap());
    for (number, payload) in kept.iter().filter(|k| k.0 >= from).chain([&(u64::MAX, &b""[..])]) {
        let mut message = b"\x01\0\x01\x08".to_vec();
        message.extend(number.to_be_bytes());
        message.extend([0, payload.len() as u8]);
        message.extend(*payload);
        io.write_all(&message).await.unwrap();
    }
    // Whoever asked closes.
    let _ = io.read_u8().await;
}

impl Dial for Publisher {
    type Io = DuplexStream;

    fn beside(self: &Arc<Self>) -> Arc<Self> {
        Arc::clone(self)
    }

    async fn dial(&self, url: &EndpointUrl) -> io::Result<DuplexStream> {
        self.asked.lock().unwrap().push(url.authority());
        if url.port() == 5558 {
            let (near, far) = tokio::io::duplex(1 << 16);
            drop(tokio::spawn(answer(far, self.kept)));
            return Ok(near);
        }
        let turn = {
            let mut turns = self.turns.lock().unwrap();
            if turns.len() > 1 { turns.pop_front().unwrap() } else { turns[0] }
        };
        let (near, far) = tokio::io::duplex(1 << 16);
        match turn {
            Turn::Refuse => return Err(io::ErrorKind::ConnectionRefused.into()),
            Turn::Mute => drop(tokio::spawn(async move {
                let _far = far;
                std::future::pending::<()>().await;
            })),
            Turn::Say(said) => drop(tokio::spawn(speak(far, said, None))),
            Turn::Stay(said, answers) => drop(tokio::spawn(speak(far, said, Some(answers)))),
        }
        Ok(near)
    }
}

/// Two blocks of 16 tokens are stored; one is removed; all are cleared.
const STORED: &[u8] = b"\x92\xc0\x91\x96\xabBlockStored\x92\x01\x02\xc0\x90\x10\xc0";
const REMOVED: &[u8] = b"\x92\xc0\x91\x92\xacBlockRemoved\x91\x01";
const CLEARED: &[u8] = b"\x92\xc0\x91\x91\xb0AllBlocksCleared";

fn batch(sequence: u64, batches: u32, cleared: bool, stored_tokens: u64, removed_tokens: u64) -> CacheTold {
    CacheTold::Batch(CacheBatch { sequence, batches, cleared, stored_tokens, removed_tokens })
}

impl Told {
    async fn told(&mut self) -> (u128, u8, CacheTold) {
        match self.next().await {
            (at, Event::CacheTold { endpoint: EndpointId(0), rank, told }) => (at, rank, told),
            (_, event) => panic!("{event:?}"),
        }
    }

    fn trouble(&self) -> Option<String> {
        self.facts.lock().unwrap().last().unwrap().trouble.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn batches_in_a_row_are_told_together_and_a_gap_apart() {
    let publisher =
        Publisher::new(&[Turn::Stay(&[(0, STORED), (1, STORED), (2, REMOVED), (4, CLEARED), (5, STORED)], true)]);
    let mut told = publisher.listen(EVENTS);
    assert_eq!(told.told().await, (0, 0, CacheTold::Heard));
    assert_eq!(told.told().await, (0, 0, batch(0, 3, false, 64, 16)));
    assert_eq!(told.told().await, (100, 0, batch(4, 2, true, 32, 0)));
    assert_eq!(*publisher.asked.lock().unwrap(), ["engine:5557"]);
    let facts = told.facts.lock().unwrap().clone();
    assert_eq!((facts[0].source, &facts[0].present, &facts[0].trouble), ("cache_events", &vec!["cache_events"], &None));
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_goes_is_asked_again_and_what_was_heard_is_told_first() {
    let publisher = Publisher::new(&[Turn::Refuse, Turn::Say(&[(7, STORED)]), Turn::Stay(&[(0, STORED)], true)]);
    let mut told = publisher.listen(EVENTS);
    assert_eq!(told.told().await, (0, 0, CacheTold::Lost));
    assert!(told.trouble().is_some_and(|t| t.starts_with("engine:5557: cannot connect")), "{:?}", told.trouble());
    let (at, _, heard) = told.told().await;
    assert!((350..=650).contains(&at) && heard == CacheTold::Heard, "half a second, give or take: {at}");
    assert_eq!(told.told().await.2, batch(7, 1, false, 32, 0));
    assert_eq!(told.told().await.2, CacheTold::Lost);
    assert!(told.trouble().is_some_and(|t| t.contains("closed the connection")));
    assert_eq!(told.told().await.2, CacheTold::Heard);
    assert_eq!(told.told().await.2, batch(0, 1, false, 32, 0));
    assert_eq!(told.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn waits_grow_to_half_a_minute() {
    let publisher = Publisher::new(&[Turn::Refuse]);
    let mut told = publisher.listen(EVENTS);
    let mut times = Vec::new();
    while times.len() < 10 {
        times.push(told.told().await.0);
    }
    let waits: Vec<u128> = times.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(waits[0] <= 650 && waits[2] > waits[0] && waits.iter().all(|w| *w <= 39_000), "{waits:?}");
    assert!(waits[8] >= 21_000, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn who_has_no_news_is_left_in_peace_and_who_is_dead_is_found_out() {
    let alive = Publisher::new(&[Turn::Stay(&[], true)]);
    let mut told = alive.listen(EVENTS);
    assert_eq!(told.told().await.2, CacheTold::Heard);
    assert!(tokio::time::timeout(Duration::from_secs(3600), told.next()).await.is_err(), "an hour without news");
    let dead = Publisher::new(&[Turn::Stay(&[], false)]);
    let mut told = dead.listen(EVENTS);
    assert_eq!(told.told().await.2, CacheTold::Heard);
    assert_eq!(told.told().await, (20_000, 0, CacheTold::Lost));
    assert!(told.trouble().is_some_and(|t| t.contains("no sign of life")));
    let mute = Publisher::new(&[Turn::Mute]);
    let mut told = mute.listen(EVENTS);
    assert_eq!(told.told().await, (5000, 0, CacheTold::Lost));
    assert!(told.trouble().is_some_and(|t| t.contains("no greeting in time")));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_understood_is_said_and_leaves_a_gap() {
    let publisher = Publisher::new(&[Turn::Stay(&[(0, STORED), (1, b"\x93abc"), (2, STORED)], true)]);
    let mut told = publisher.listen(EVENTS);
    told.told().await;
    assert_eq!(told.told().await.2, batch(0, 1, false, 32, 0));
    assert_eq!(told.told().await.2, batch(2, 1, false, 32, 0));
    let troubles: Vec<_> = told.facts.lock().unwrap().iter().map(|f| f.trouble.clone()).collect();
    assert!(matches!(&troubles[..], [None, Some(why), None] if why.contains("no batch")), "{troubles:?}");
}

const REPLAYED: &str = "prefix_cache: { events: { topic: kv, replay: 'tcp://{host}:5558' } }";

#[tokio::test(start_paused = true)]
async fn what_was_missed_is_asked_for_where_the_engine_keeps_it() {
    let kept: &[_] = &[(0, STORED), (1, STORED), (2, REMOVED), (3, STORED), (4, STORED), (5, STORED)];
    let publisher = Publisher::keeping(&[Turn::Stay(&[(3, STORED)], true)], kept);
    let mut told = publisher.listen(REPLAYED);
    assert_eq!(told.told().await.2, CacheTold::Heard);
    assert_eq!(told.told().await.2, batch(0, 4, false, 96, 16), "all from the first on, and none twice");
    let publisher = Publisher::keeping(&[Turn::Stay(&[(0, STORED), (4, STORED)], true)], kept);
    let mut told = publisher.listen(REPLAYED);
    assert_eq!(told.told().await.2, CacheTold::Heard);
    assert_eq!(told.told().await.2, batch(0, 5, false, 128, 16), "a gap that is filled is none");
}

#[tokio::test(start_paused = true)]
async fn what_the_engine_keeps_no_longer_stays_missed() {
    let publisher = Publisher::keeping(&[Turn::Stay(&[(0, STORED), (4, STORED)], true)], &[(2, STORED), (3, STORED)]);
    let mut told = publisher.listen(REPLAYED);
    told.told().await;
    assert_eq!(told.told().await.2, batch(0, 1, false, 32, 0));
    assert_eq!(told.told().await.2, batch(4, 1, false, 32, 0));
}

#[tokio::test(start_paused = true)]
async fn every_rank_has_a_publisher_of_its_own() {
    let publisher = Publisher::new(&[Turn::Stay(&[(0, STORED)], true), Turn::Refuse]);
    let mut told = publisher.listen("prefix_cache: { events: { topic: kv, ranks: 2 } }");
    let mut all = Vec::new();
    while all.len() < 3 {
        all.push(told.told().await);
    }
    let heard = all.iter().find(|t| t.2 == CacheTold::Heard).unwrap().1;
    assert!(all.iter().any(|t| t.1 == 1 - heard && t.2 == CacheTold::Lost), "{all:?}");
    assert!(
        told.trouble().is_some_and(|t| t.starts_with(&format!("rank {}, engine:555", 1 - heard))),
        "{:?}",
        told.trouble()
    );
    let mut asked = publisher.asked.lock().unwrap().clone();
    asked.sort_unstable();
    assert_eq!(asked[..2], ["engine:5557", "engine:5558"]);
}
