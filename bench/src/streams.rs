//! Open streams: each connection asks for a stream, reads it to its end and asks again.
//!
//! Events are counted in the body's data after chunks are undone, so a proxy may cut and join chunks as it likes. Reads per event and the time
//! between reads tell a proxy that passes events on from one that gathers them.

use crate::client::{Meter, Target};
use crate::engine::{STAMP_DIGITS, STAMP_MARK, now_us};
use crate::figures::{Figures, Quantiles};
use crate::message::{self, Body};
use hdrhistogram::Histogram;
use memchr::memmem::Finder;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// Bytes read at a time, into a buffer that all streams share.
const READ_BYTES: usize = 64 * 1024;
/// Events after the stamped ones: usage and the end.
const EXTRA_EVENTS: u64 = 2;

struct Counted {
    delays: Histogram<u64>,
    gaps: Histogram<u64>,
    events: u64,
    reads: u64,
    open: u64,
    failed: u64,
    buffer: Vec<u8>,
    mark: Finder<'static>,
    end: Finder<'static>,
}

/// Runs the phase: streams of `events` events, one every `gap_ms`.
///
/// # Errors
/// If a histogram cannot be made.
pub async fn run(target: Target, events: u64, gap_ms: u64) -> anyhow::Result<Figures> {
    let counted = Rc::new(RefCell::new(Counted {
        delays: Histogram::new(3)?,
        gaps: Histogram::new(3)?,
        events: 0,
        reads: 0,
        open: 0,
        failed: 0,
        buffer: vec![0; READ_BYTES],
        mark: Finder::new(STAMP_MARK),
        end: Finder::new(b"\n\n"),
    }));
    let all = LocalSet::new();
    // All are opened within two thirds of the warm-up, evenly, so that their events do not come together.
    let apart = Duration::from_secs_f64(target.warm_s * 0.66 / target.connections as f64);
    for connection in 0..target.connections {
        let request = target.request(connection, Some((events, gap_ms)));
        let (counted, port) = (Rc::clone(&counted), target.port);
        all.spawn_local(async move {
            tokio::time::sleep(apart * connection as u32).await;
            loop {
                let mut one = Stream { counted: &counted, is_open: false, half: false, events: 0, wanted: events };
                let _ = one.run(port, &request).await;
                one.closed();
                counted.borrow_mut().failed += 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    all.run_until(async {
        tokio::time::sleep(Duration::from_secs_f64(target.warm_s)).await;
        let meter = Meter::start(target.pid);
        counted.borrow_mut().reset();
        tokio::time::sleep(Duration::from_secs_f64(target.seconds)).await;
        let counted = counted.borrow();
        Ok(Figures {
            delay: Quantiles::of(&counted.delays),
            gap: Quantiles::of(&counted.gaps),
            events_per_read: counted.events as f64 / counted.reads.max(1) as f64,
            open: counted.open,
            failed: counted.failed,
            ..meter.stop(counted.events)
        })
    })
    .await
}

impl Counted {
    fn reset(&mut self) {
        self.delays.reset();
        self.gaps.reset();
        (self.events, self.reads, self.failed) = (0, 0, 0);
    }
}

/// One connection and the stream on it.
struct Stream<'a> {
    counted: &'a RefCell<Counted>,
    is_open: bool,
    /// Whether the last piece of data ended in the middle of an event's end.
    half: bool,
    events: u64,
    wanted: u64,
}

impl Stream<'_> {
    async fn run(&mut self, port: u16, request: &[u8]) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        loop {
            stream.write_all(request).await?;
            let mut body = self.read_head(&stream).await?;
            if let Some(body) = &mut body {
                self.read_events(&stream, body).await?;
            }
            self.closed();
            anyhow::ensure!(self.events >= self.wanted + EXTRA_EVENTS, "a stream without its end");
        }
    }

    fn closed(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.counted.borrow_mut().open -= 1;
        }
    }

    /// Reads a head; none where the whole answer came with it.
    async fn read_head(&mut self, stream: &TcpStream) -> anyhow::Result<Option<Body>> {
        let mut head = Vec::new();
        loop {
            stream.readable().await?;
            let counted = &mut *self.counted.borrow_mut();
            match stream.try_read(&mut counted.buffer) {
                Ok(0) => anyhow::bail!("closed before its head"),
                Ok(read) => head.extend_from_slice(&counted.buffer[..read]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(e) => return Err(e.into()),
            }
            let Some((length, status, mut body)) = message::answer_head(&head)? else { continue };
            anyhow::ensure!(status == 200, "status {status}");
            (self.is_open, self.half, self.events) = (true, false, 0);
            counted.open += 1;
            let (end, half) = (&counted.end, &mut self.half);
            let mut found = 0;
            let over = body.feed(&head[length..], |data| found += ends(end, data, half));
            self.events = found;
            counted.events += found;
            counted.reads += u64::from(found > 0);
            return Ok(over.is_none().then_some(body));
        }
    }

    async fn read_events(&mut self, stream: &TcpStream, body: &mut Body) -> anyhow::Result<()> {
        let mut last = None;
        loop {
            stream.readable().await?;
            let counted = &mut *self.counted.borrow_mut();
            let read = match stream.try_read(&mut counted.buffer) {
                Ok(0) => {
                    anyhow::ensure!(body.ends_with_connection(), "broke off");
                    return Ok(());
                }
                Ok(read) => read,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(e) => return Err(e.into()),
            };
            let (now, now_us) = (Instant::now(), now_us());
            let Counted { delays, gaps, mark, end, buffer, .. } = counted;
            if let Some(before) = last.replace(now) {
                let _ = gaps.record(now.duration_since(before).as_micros() as u64);
            }
            let half = &mut self.half;
            let mut found = 0;
            let over = body.feed(&buffer[..read], |data| {
                found += ends(end, data, half);
                for at in mark.find_iter(data) {
                    if let Some(sent_us) = stamp(&data[at + STAMP_MARK.len()..]) {
                        let _ = delays.record(now_us.saturating_sub(sent_us));
                    }
                }
            });
            self.events += found;
            counted.events += found;
            counted.reads += 1;
            if over.is_some() {
                return Ok(());
            }
        }
    }
}

/// Ends of events in a piece of data; `half` says whether the piece before ended in the middle of one.
fn ends(end: &Finder<'_>, data: &[u8], half: &mut bool) -> u64 {
    let first = u64::from(*half && data.first() == Some(&b'\n'));
    let found = end.find_iter(data).count() as u64;
    *half = data.ends_with(b"\n") && !data.ends_with(b"\n\n");
    first + found
}

fn stamp(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text.get(..STAMP_DIGITS)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_across_any_cut() {
        let (text, end) = (b"data: 1\n\ndata: 2\n\ndata: 3\n\n", Finder::new(b"\n\n"));
        for cut in 0..text.len() {
            let mut half = false;
            let count = ends(&end, &text[..cut], &mut half) + ends(&end, &text[cut..], &mut half);
            assert_eq!(count, 3, "cut at {cut}");
        }
    }
}
