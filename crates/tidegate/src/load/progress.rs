//! How far a plan is; shared with whoever shows it or ends it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tokio::sync::Notify;

/// Counts that another thread may read while the plan runs.
#[derive(Debug, Default)]
pub struct Progress {
    planned: AtomicU64,
    started: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    stopped: AtomicBool,
    stop: Notify,
}

impl Progress {
    /// Requests that the plan has in all.
    pub fn planned(&self) -> u64 {
        self.planned.load(Relaxed)
    }

    /// Requests that ended, well or not.
    pub fn ended(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    /// Requests that failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Requests on their way.
    pub fn in_flight(&self) -> u64 {
        self.started.load(Relaxed).saturating_sub(self.ended())
    }

    /// Ends the plan now; its report covers what ended before.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        self.stop.notify_waiters();
    }

    /// Waits until somebody calls `stop`.
    pub(super) async fn stopped(&self) {
        loop {
            let told = self.stop.notified();
            if self.stopped.load(Relaxed) {
                return;
            }
            told.await;
        }
    }

    pub(super) fn on_planned(&self, requests: u64) {
        self.planned.fetch_add(requests, Relaxed);
    }

    pub(super) fn on_started(&self) {
        self.started.fetch_add(1, Relaxed);
    }

    pub(super) fn on_ended(&self, ok: bool) {
        self.ended.fetch_add(1, Relaxed);
        self.failed.fetch_add(u64::from(!ok), Relaxed);
    }
}
