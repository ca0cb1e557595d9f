//! Asking for a page again and again, and telling what it says.
//!
//! A question that gets no answer tells that it failed and nothing about the metric: core counts what it last saw for three intervals and
//! no longer. A page that is there and lacks the metric is told as missing at once.

use super::query;
use super::reading::{Reading, Unread};
use crate::client::Client;
use crate::dial::{Dial, Tcp};
use crate::miss::Miss;
use crate::pace::Pace;
use crate::watch::Clock;
use std::sync::Arc;
use tidegate_config::{Asked, Source};
use tidegate_core::rng::Rng;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Bound on a page, in bytes.
const LIMIT_BYTES: usize = 16 << 20;
/// Share of the interval by which each wait is shortened or lengthened.
const JITTER: f64 = 0.05;

/// What a question came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// The metric.
    Value(f64),
    /// There is an answer, and the metric is not in it.
    Missing(String),
    /// There is no good answer.
    Failed(String),
}

impl From<Result<f64, Unread>> for Seen {
    fn from(read: Result<f64, Unread>) -> Self {
        read.map_or_else(|why| Self::Missing(why.to_string()), Self::Value)
    }
}

/// Where what is seen goes, by the place of its source; called on the runtime of the tasks, so it must not block for long.
pub type TellSeen = Arc<dyn Fn(usize, Seen) + Send + Sync>;

/// The running questions. Dropping it stops them.
#[derive(Debug)]
#[must_use = "dropping it stops the questions"]
pub struct Follow {
    tasks: JoinSet<()>,
}

impl Follow {
    /// Stops all tasks and waits until they are gone.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Asks for the pages of `sources` on the current tokio runtime, the first of each at once; Tidegate's own metrics are left to the caller.
/// All waits follow from `seed`.
///
/// # Panics
/// Outside of a tokio runtime with time and I/O.
pub fn follow<'s>(sources: impl Iterator<Item = &'s Source>, tell: &TellSeen, clock: &Clock, seed: u64) -> Follow {
    follow_through(&Arc::new(Tcp::default()), sources, tell, clock, seed)
}

pub(crate) fn follow_through<'s, D: Dial>(
    dial: &Arc<D>,
    sources: impl Iterator<Item = &'s Source>,
    tell: &TellSeen,
    clock: &Clock,
    seed: u64,
) -> Follow {
    let mut tasks = JoinSet::new();
    for (place, source) in sources.enumerate() {
        let (asked, reading) = match source {
            Source::Own { .. } => continue,
            Source::Page { asked, metric, window } => (asked, Some(Reading::new(metric.clone(), *window))),
            Source::Query(asked) => (asked, None),
        };
        let client = Client::new(Arc::clone(dial), asked.url.base.clone());
        let rng = Rng::stream(seed, place as u64);
        let (asked, tell, clock) = (asked.clone(), Arc::clone(tell), Arc::clone(clock));
        tasks.spawn(Follower { place, client, asked, reading, tell, clock, rng }.run());
    }
    Follow { tasks }
}

/// The loop of one source.
struct Follower<D> {
    place: usize,
    client: Client<D>,
    asked: Asked,
    /// `None` for the queries of a server.
    reading: Option<Reading>,
    tell: TellSeen,
    clock: Clock,
    rng: Rng,
}

impl<D: Dial> Follower<D> {
    async fn run(mut self) {
        let mut pace = Pace::new(self.rng.clone(), JITTER);
        loop {
            pace.on_ask();
            let seen = match timeout(self.asked.timeout, self.ask()).await.unwrap_or(Err(Miss::Timeout)) {
                Ok(read) => Seen::from(read),
                Err(miss) => {
                    self.client.close();
                    Seen::Failed(miss.to_string())
                }
            };
            (self.tell)(self.place, seen);
            pace.wait(self.asked.every).await;
        }
    }

    async fn ask(&mut self) -> Result<Result<f64, Unread>, Miss> {
        let response = self.client.head(&self.asked.url.path).await?;
        let Some(reading) = &mut self.reading else {
            let status = response.status();
            let body = self.client.body(response.into_body(), LIMIT_BYTES).await?;
            // A server says in the body of a 400 what is wrong with a query.
            let read = query::read(&body);
            return if status.is_success() || matches!(read, Err(Miss::Refused(_))) {
                read
            } else {
                Err(Miss::Status(status.as_u16()))
            };
        };
        let body = self.client.page(response, LIMIT_BYTES).await?;
        Ok(reading.on_page((self.clock)(), &String::from_utf8_lossy(&body)))
    }
}
