//! JSON requests at a given rate, for the time a proxy adds where it is not overloaded.
//!
//! Requests come at random (exponential gaps), by one blocking thread per connection: timers of an event loop round to a millisecond, which
//! would send them in bursts. A request whose connection was still busy counts from when it should have gone.

use crate::client::{Meter, Target};
use crate::figures::{Figures, Quantiles};
use crate::message;
use hdrhistogram::Histogram;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long an answer may take.
const LONGEST: Duration = Duration::from_secs(2);

/// How long after the end what was due before is still sent.
const LATE: Duration = Duration::from_millis(500);

/// Runs the phase at `per_s` requests per second.
///
/// # Errors
/// If a histogram cannot be made or a thread fails.
pub fn run(target: &Target, per_s: f64) -> anyhow::Result<Figures> {
    let begin = Instant::now() + Duration::from_secs_f64(target.warm_s);
    let end = begin + Duration::from_secs_f64(target.seconds);
    let mean_s = target.connections as f64 / per_s.max(1.0);
    let threads: Vec<_> = (0..target.connections)
        .map(|connection| {
            let (request, port) = (target.request(connection, None), target.port);
            std::thread::spawn(move || Line { port, request, mean_s, begin, end, seed: connection as u64 + 1 }.run())
        })
        .collect();
    std::thread::sleep(begin.saturating_duration_since(Instant::now()));
    let meter = Meter::start(target.pid);
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    let (mut figures, mut times, mut failed, mut in_time) = (meter.stop(1), Histogram::<u64>::new(3)?, 0, 0);
    for thread in threads {
        let (of_one, failures, before_end) = thread.join().map_err(|_| anyhow::anyhow!("a client thread failed"))??;
        times.add(of_one)?;
        failed += failures;
        in_time += before_end;
    }
    figures.per_s = in_time as f64 / target.seconds;
    figures.cpu_us /= in_time.max(1) as f64;
    Ok(Figures { delay: Quantiles::of(&times), failed, ..figures })
}

/// One connection and its arrivals.
struct Line {
    port: u16,
    request: Vec<u8>,
    mean_s: f64,
    begin: Instant,
    end: Instant,
    seed: u64,
}

impl Line {
    /// Times of what was due while it counted, failures among it, and how many of the answers came before the end.
    fn run(mut self) -> anyhow::Result<(Histogram<u64>, u64, u64)> {
        let (mut times, mut failed, mut in_time, mut free_at) = (Histogram::new(3)?, 0, 0, Instant::now());
        let mut connection = None;
        let mut due = Instant::now();
        loop {
            due += Duration::from_secs_f64(self.mean_s * self.exponential());
            // What is still due long after the end would only lengthen the run of a proxy that is overloaded.
            if due >= self.end || free_at > self.end + LATE {
                return Ok((times, failed, in_time));
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let began = if free_at > due { due } else { Instant::now() };
            let answered = self.ask(&mut connection);
            free_at = Instant::now();
            if answered.is_err() {
                connection = None;
            }
            if due >= self.begin && answered.is_ok() {
                in_time += u64::from(free_at < self.end);
                times.record(free_at.duration_since(began).as_micros() as u64)?;
            } else if due >= self.begin {
                failed += 1;
            }
        }
    }

    fn ask(&self, connection: &mut Option<TcpStream>) -> anyhow::Result<()> {
        if connection.is_none() {
            let stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LONGEST))?;
            *connection = Some(stream);
        }
        let Some(stream) = connection else { anyhow::bail!("no connection") };
        stream.write_all(&self.request)?;
        let (mut buffer, mut have) = ([0; 4096], 0);
        loop {
            let read = stream.read(&mut buffer[have..])?;
            anyhow::ensure!(read > 0, "closed, or an answer of more than 4 KiB");
            have += read;
            if let Some(status) = message::whole_answer(&buffer[..have])? {
                anyhow::ensure!(status == 200, "status {status}");
                return Ok(());
            }
        }
    }

    /// Exponential with mean 1, by xorshift.
    fn exponential(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let uniform = (self.seed >> 11) as f64 / (1u64 << 53) as f64;
        -(1.0 - uniform).ln()
    }
}
