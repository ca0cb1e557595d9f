//! Writing a journal: formatted under the pool's lock, written by a thread.
//!
//! The recorder only appends to a buffer; full buffers go to the thread over a bounded channel. When the disk cannot keep up, or
//! `max_bytes` is reached, the journal ends there and says so: a request never waits for it, and a journal with a hole could not be replayed.

use super::line::Line;
use super::settings::Settings;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use tidegate_core::journal::{Entry, Recorder};
use tidegate_core::time::Instant;

/// Bytes gathered before they are handed to the thread.
const BUFFER: usize = 64 * 1024;
/// Longest time, by the pool's clock, that a line stays in the buffer while others come.
const FLUSH_AFTER_S: f64 = 0.5;
/// Buffers on their way to the disk.
const QUEUE: usize = 64;

/// Why a journal cannot be written.
#[derive(Debug)]
pub struct JournalError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub error: io::Error,
}

impl std::fmt::Display for JournalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot write the journal {}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for JournalError {}

/// Writes the journal of one pool. Dropping it writes what is left and waits for the disk.
#[derive(Debug)]
pub struct JournalWriter {
    buffer: Vec<u8>,
    flushed: Instant,
    left_bytes: u64,
    to_disk: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
    pool: String,
}

impl JournalWriter {
    /// Begins `folder/POOL.jsonl`, replacing what was there, with at most `max_bytes`.
    ///
    /// # Errors
    /// If the file or its thread cannot be made.
    pub fn create(folder: &Path, settings: &Settings, max_bytes: u64) -> Result<Self, JournalError> {
        let path = folder.join(format!("{}.jsonl", settings.pool));
        let wrong = |error| JournalError { path: path.clone(), error };
        std::fs::create_dir_all(folder).map_err(wrong)?;
        // A new file, not the old one emptied: the process that is being replaced may still write to that.
        let _ = std::fs::remove_file(&path);
        let mut file = File::create(&path).map_err(wrong)?;
        let first = serde_json::to_string(settings).map_err(|e| wrong(io::Error::other(e)))?;
        writeln!(file, "{first}").map_err(wrong)?;
        let (to_disk, buffers) = sync_channel(QUEUE);
        let shown = path.display().to_string();
        let thread = std::thread::Builder::new().name("tidegate-journal".to_owned());
        let thread = thread.spawn(move || write_out(file, &buffers, &shown)).map_err(wrong)?;
        Ok(Self {
            buffer: Vec::with_capacity(BUFFER + 1024),
            flushed: Instant::ORIGIN,
            left_bytes: max_bytes,
            to_disk: Some(to_disk),
            thread: Some(thread),
            pool: settings.pool.clone(),
        })
    }

    fn flush(&mut self) {
        let Some(to_disk) = &self.to_disk else { return };
        let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(BUFFER + 1024));
        if to_disk.try_send(full).is_err() {
            tracing::warn!(pool = %self.pool, "the disk cannot keep up: the journal ends here");
            self.to_disk = None;
        }
    }
}

impl Recorder for JournalWriter {
    fn on_entry(&mut self, now: Instant, entry: &Entry<'_>) {
        if self.to_disk.is_none() {
            return;
        }
        let before = self.buffer.len();
        // Writing into memory cannot fail, and a journal must never fail a request.
        let _ = serde_json::to_writer(&mut self.buffer, &Line::of(now, entry));
        self.buffer.push(b'\n');
        let size = (self.buffer.len() - before) as u64;
        match self.left_bytes.checked_sub(size) {
            Some(left) => self.left_bytes = left,
            None => {
                self.buffer.truncate(before);
                self.flush();
                tracing::warn!(pool = %self.pool, "the journal has reached journal.max_bytes and ends here");
                self.to_disk = None;
                return;
            }
        }
        if self.buffer.len() >= BUFFER || now.secs_since(self.flushed) >= FLUSH_AFTER_S {
            self.flushed = now;
            self.flush();
        }
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        if let Some(to_disk) = self.to_disk.take() {
            // At the end waiting is right: nobody is served any more.
            let _ = to_disk.send(std::mem::take(&mut self.buffer));
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_out(mut file: File, buffers: &Receiver<Vec<u8>>, path: &str) {
    while let Ok(buffer) = buffers.recv() {
        if let Err(error) = file.write_all(&buffer) {
            tracing::error!(path, %error, "cannot write the journal: it ends here");
            return;
        }
    }
}
