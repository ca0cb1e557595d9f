//! A value made from files, made again when they change.
//!
//! The files are looked at, not watched: secrets that an orchestrator mounts are swapped by links that watchers lose, and one `stat` per
//! file now and then costs nothing. A value that cannot be made leaves the one before.

use crate::fault::Fault;
use parking_lot::{Mutex, RwLock};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// What tells one version of the files from another: size and time of change of each.
type Seen = Vec<Option<(u64, Option<SystemTime>)>>;

/// A value and the files it comes from.
pub struct Reloaded<T> {
    files: Vec<PathBuf>,
    make: Box<dyn Fn() -> Result<T, Fault> + Send + Sync>,
    current: RwLock<Arc<T>>,
    seen: Mutex<Seen>,
}

/// What can be looked at whatever it makes.
pub trait Refresh: Send + Sync + std::fmt::Debug {
    /// As [`Reloaded::refresh`].
    ///
    /// # Errors
    /// As [`Reloaded::refresh`].
    fn refresh(&self) -> Result<bool, Fault>;
}

impl<T: Send + Sync> Refresh for Reloaded<T> {
    fn refresh(&self) -> Result<bool, Fault> {
        Reloaded::refresh(self)
    }
}

impl<T> std::fmt::Debug for Reloaded<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloaded").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<T> Reloaded<T> {
    /// Makes the value of `files` for the first time.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Result<Self, Fault> {
        // Looked at before they are read: a change between the two is found at the next look.
        let seen = Mutex::new(look(&files));
        let current = RwLock::new(Arc::new(make()?));
        Ok(Self { files, make: Box::new(make), current, seen })
    }

    /// The value of now.
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read())
    }

    /// Looks at the files, and makes the value again if one changed. Returns whether there is a new one.
    ///
    /// # Errors
    /// If it cannot be made of the changed files; the value before stays, and they are not tried again until they change once more.
    pub fn refresh(&self) -> Result<bool, Fault> {
        let found = look(&self.files);
        if std::mem::replace(&mut *self.seen.lock(), found.clone()) == found {
            return Ok(false);
        }
        let made = Arc::new((self.make)()?);
        *self.current.write() = made;
        Ok(true)
    }
}

fn look(files: &[PathBuf]) -> Seen {
    files.iter().map(|f| std::fs::metadata(f).ok().map(|m| (m.len(), m.modified().ok()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_made_leaves_what_was_before() {
        let file = std::env::temp_dir().join(format!("tidegate-reloaded-{}", std::process::id()));
        std::fs::write(&file, "1").unwrap();
        let read = file.clone();
        let number = move || {
            let text = std::fs::read_to_string(&read).map_err(|e| Fault::of(&read, e.to_string()))?;
            text.parse::<u32>().map_err(|e| Fault::of(&read, e.to_string()))
        };
        let reloaded = Reloaded::new(vec![file.clone()], number).unwrap();
        assert_eq!((reloaded.refresh(), *reloaded.current()), (Ok(false), 1));
        std::fs::write(&file, "no number").unwrap();
        assert!(reloaded.refresh().is_err());
        assert_eq!((reloaded.refresh(), *reloaded.current()), (Ok(false), 1), "told once");
        std::fs::write(&file, "22").unwrap();
        assert_eq!((reloaded.refresh(), *reloaded.current()), (Ok(true), 22));
        std::fs::remove_file(&file).unwrap();
        assert!(reloaded.refresh().is_err());
        assert_eq!(*reloaded.current(), 22);
    }
}
