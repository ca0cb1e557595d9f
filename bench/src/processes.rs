//! Processes this run started: their CPU time and memory as the kernel accounts them, and their end.

use rustix::process::{Pid, Signal, kill_process};
use std::process::Child;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Seconds of a clock tick in `/proc`.
const TICK_S: f64 = 0.01;
/// How long a process may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// What this run has started and not yet ended; a signal handler ends it too.
static STARTED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A process and everything below it, oldest first.
pub fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|c| c.parse::<u32>().ok()));
        }
    }
    found
}

/// Seconds of CPU a process and everything below it have used.
pub fn cpu_s(root: u32) -> f64 {
    tree(root).into_iter().map(|pid| ticks(pid).unwrap_or(0)).sum::<u64>() as f64 * TICK_S
}

fn ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 2..)?.split(' ').collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Resident memory of a process and everything below it, KiB. Pages that they share count for each of them.
pub fn resident_kib(root: u32) -> u64 {
    let of = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|l| l.starts_with("VmRSS"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    tree(root).into_iter().filter_map(of).sum()
}

/// Seconds for which a CPU ran anything at all, user and kernel, since the machine started.
pub fn core_busy_s(cpu: usize) -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let name = format!("cpu{cpu}");
    let fields = stat.lines().find(|l| l.split_whitespace().next() == Some(name.as_str())).unwrap_or_default();
    fields.split_whitespace().skip(1).take(3).filter_map(|f| f.parse::<u64>().ok()).sum::<u64>() as f64 * TICK_S
}

/// A child process that is ended, with everything below it, when this is dropped.
#[derive(Debug)]
pub struct Started {
    child: Child,
}

impl Started {
    /// Takes charge of a child.
    pub fn new(child: Child) -> Self {
        if let Ok(mut started) = STARTED.lock() {
            started.push(child.id());
        }
        Self { child }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|s| s.is_some())
    }

    /// Waits for its end and gives what it printed.
    ///
    /// # Errors
    /// If it failed, or its output is no text.
    pub fn output(mut self) -> anyhow::Result<String> {
        let mut text = String::new();
        if let Some(mut out) = self.child.stdout.take() {
            std::io::Read::read_to_string(&mut out, &mut text)?;
        }
        anyhow::ensure!(self.child.wait()?.success(), "process {} failed", self.pid());
        Ok(text)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let pid = self.child.id();
        // A child that has been waited for may have left its number to somebody else.
        if !self.has_ended() {
            end(&tree(pid));
        }
        let _ = self.child.wait();
        if let Ok(mut started) = STARTED.lock() {
            started.retain(|p| *p != pid);
        }
    }
}

/// Ends everything this run has started, for a run that is interrupted.
pub fn end_all() {
    let started = STARTED.lock().map(|s| s.clone()).unwrap_or_default();
    end(&started.into_iter().flat_map(tree).collect::<Vec<_>>());
}

/// Asks processes to end, and ends those that do not within the time of grace.
fn end(pids: &[u32]) {
    signal(pids, Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline && pids.iter().any(|p| is_alive(*p)) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<u32> = pids.iter().copied().filter(|p| is_alive(*p)).collect();
    signal(&left, Signal::KILL);
}

fn signal(pids: &[u32], signal: Signal) {
    for pid in pids.iter().filter_map(|p| Pid::from_raw(i32::try_from(*p).ok()?)) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether a process runs; one that has ended and waits to be collected does not.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rfind(')').and_then(|at| stat.as_bytes().get(at + 2).copied()).is_some_and(|state| state != b'Z')
}
