//! Runs a plan: the open and the closed loop.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_core::time::Instant;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::Client;
use super::pacer::Pacer;
use super::plan::{Lengths, Pattern, Plan};
use super::progress::Progress;
use super::report::{Report, Round};
use crate::engine::clock::Clock;

/// Runs a plan to its end, or until `progress.stop()`. Blocks the calling thread (not to be called from async code that must go
/// on meanwhile); the work is done by a thread with its own runtime. An error means that the plan could not start: requests that
/// fail are in the report.
pub fn run_plan(plan: &Plan, progress: &Arc<Progress>) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("load".into()).spawn_scoped(scope, move || {
            let tasks = tokio::task::LocalSet::new();
            tasks.block_on(&runtime, run(plan.clone(), progress.clone()))
        })?;
        thread.join().map_err(|_| anyhow::anyhow!("the load thread failed"))?
    })
}

async fn run(plan: Plan, progress: Arc<Progress>) -> anyhow::Result<Report> {
    let clock = Clock::start();
    let shots = plan.shots();
    let client = Rc::new(Client::new(plan.clone(), clock).await?);
    let start = clock.now();
    let run = Run { plan, client, progress, clock, start };
    match &run.plan.pattern {
        &Pattern::Closed { clients, requests, rounds, lengths } => {
            for round in 1..=rounds {
                if !run.closed_round(clients.max(1), requests, lengths, round).await {
                    break;
                }
            }
        }
        Pattern::Open { .. } | Pattern::Trace(_) => run.open(shots).await?,
    }
    let mut report = run.client.report.borrow().clone();
    report.took = clock.now().since(start);
    Ok(report)
}

struct Run {
    plan: Plan,
    client: Rc<Client>,
    progress: Arc<Progress>,
    clock: Clock,
    start: Instant,
}

impl Run {
    async fn open(&self, shots: Vec<super::Shot>) -> std::io::Result<()> {
        self.progress.on_planned(shots.len() as u64);
        let places = Arc::new(Semaphore::new(self.plan.max_in_flight.max(1)));
        let mut tasks = JoinSet::new();
        let mut pacer = Pacer::start(self.clock, self.start, shots)?;
        let whole = async {
            while let Some(shot) = pacer.next().await {
                let intended = self.start + shot.at;
                // Never closed.
                let Ok(place) = places.clone().acquire_owned().await else { return };
                while tasks.try_join_next().is_some() {}
                let (asking, lengths) = (self.asking(), shot.lengths);
                tasks.spawn_local(async move {
                    asking.ask(intended, lengths).await;
                    drop(place);
                });
            }
            while tasks.join_next().await.is_some() {}
        };
        tokio::select! {
            () = whole => {}
            () = self.progress.stopped() => self.client.report.borrow_mut().unfinished = self.progress.in_flight(),
        }
        Ok(())
    }

    /// One round; whether it came to its end.
    async fn closed_round(&self, clients: usize, requests: u64, lengths: Lengths, round: u32) -> bool {
        self.progress.on_planned(requests);
        let left = Rc::new(Cell::new(requests));
        let begun = self.clock.now();
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let (asking, left) = (self.asking(), left.clone());
            tasks.spawn_local(async move {
                while left.get() > 0 {
                    left.set(left.get() - 1);
                    asking.ask(asking.clock.now(), lengths).await;
                }
            });
        }
        tokio::select! {
            () = async { while tasks.join_next().await.is_some() {} } => {
                let total_s = self.clock.now().secs_since(begun);
                self.client.report.borrow_mut().rounds.push(Round { round, total_s });
                true
            }
            () = self.progress.stopped() => {
                self.client.report.borrow_mut().unfinished = self.progress.in_flight();
                false
            }
        }
    }

    fn asking(&self) -> Asking {
        let good = (self.plan.good_ttft_s, self.plan.good_interval_s);
        Asking { client: self.client.clone(), progress: self.progress.clone(), clock: self.clock, good }
    }
}

/// What a task needs to ask and to report.
struct Asking {
    client: Rc<Client>,
    progress: Arc<Progress>,
    clock: Clock,
    good: (f64, f64),
}

impl Asking {
    async fn ask(&self, intended: Instant, lengths: Lengths) {
        self.progress.on_started();
        let sample = self.client.ask(intended, lengths).await;
        self.progress.on_ended(sample.error.is_none());
        self.client.report.borrow_mut().on_sample(sample, self.good.0, self.good.1);
    }
}
