//! Many runs over threads, their results in order.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

/// Runs `count` jobs. `on_done` is told after each, on the calling thread, how many are done of how many, and what came of it.
pub(super) fn over<T: Send + Default>(
    count: usize,
    threads: NonZeroUsize,
    run: impl Fn(usize) -> T + Sync,
    mut on_done: impl FnMut(usize, usize, &T),
) -> Vec<T> {
    let mut results: Vec<T> = (0..count).map(|_| T::default()).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (done, finished) = mpsc::channel::<(usize, T)>();
        for _ in 0..threads.get().min(count) {
            let (done, next, run) = (done.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    let job = next.fetch_add(1, Relaxed);
                    if job >= count || done.send((job, run(job))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        for (k, (job, result)) in finished.iter().enumerate() {
            on_done(k + 1, count, &result);
            results[job] = result;
        }
    });
    results
}
