//! Says when to start: a thread that sleeps to within some tens of microseconds.
//!
//! The runtime's timer rounds up to a millisecond, which would be in every latency that counts from the intended start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use tidegate_core::time::Instant;
use tokio::sync::mpsc;

use super::plan::Shot;
use crate::engine::clock::Clock;

/// Gives the shots of a plan out, each at its time. Dropping it ends its thread.
pub(super) struct Pacer {
    due: mpsc::UnboundedReceiver<Shot>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the thread; `shots` in order of time, counted from `start`.
    pub(super) fn start(clock: Clock, start: Instant, shots: Vec<Shot>) -> std::io::Result<Self> {
        // Unbounded, but never longer than `shots`, which is bounded.
        let (give, due) = mpsc::unbounded_channel();
        let stopped = Arc::new(AtomicBool::new(false));
        let told = stopped.clone();
        let pace = move || {
            for shot in shots {
                let at = start + shot.at;
                loop {
                    let left = at.since(clock.now());
                    if left.is_zero() {
                        break;
                    }
                    if told.load(Relaxed) {
                        return;
                    }
                    std::thread::park_timeout(left);
                }
                if give.send(shot).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("load-pacer".into()).spawn(pace)?;
        Ok(Self { due, stopped, thread: Some(thread) })
    }

    /// The next shot, when it is time for it; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Shot> {
        self.due.recv().await
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.stopped.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
