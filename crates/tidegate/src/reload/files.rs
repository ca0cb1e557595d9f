//! Whether files changed, by looking at them now and then.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_config::{Config, Identify, KeySet};

/// What of a file tells that it is another: device, inode, length, and times of its last changes; `None`: it is not there.
type Mark = Option<(u64, u64, u64, i64, i64, i64, i64)>;

/// The files of one config.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    every: Option<Duration>,
    /// As they were read.
    read: Vec<Mark>,
}

impl Files {
    /// `file` and the files that `config`, read from it, names.
    pub(super) fn of(file: &Path, config: &Config) -> Self {
        let mut files = Self { paths: Vec::new(), every: None, read: Vec::new() };
        files.follow(file, config);
        files
    }

    /// Looks at the files of another config from now on. What is known of a file stays known, so that a change since it was read is seen.
    pub(super) fn follow(&mut self, file: &Path, config: &Config) {
        let mut paths = vec![file.to_owned()];
        let ways = config.tenants.iter().flat_map(|t| &t.identify);
        paths.extend(ways.filter_map(|way| match way {
            Identify::Jwt(jwt) => match &jwt.keys {
                KeySet::File(path) => Some(path.clone()),
                KeySet::Url { .. } => None,
            },
            _ => None,
        }));
        let known = |path: &PathBuf| self.paths.iter().position(|p| p == path).map(|at| self.read[at]);
        self.read = paths.iter().map(|path| known(path).unwrap_or_else(|| mark(path))).collect();
        (self.paths, self.every) = (paths, config.reload.watch);
    }

    /// Takes note of the files as they are: they are about to be read.
    pub(super) fn look(&mut self) {
        self.read = marks(&self.paths);
    }

    /// Ends once the files differ from what was read and two looks in a row saw the same.
    pub(super) async fn change(&self) {
        let Some(every) = self.every else { return std::future::pending().await };
        let mut last = self.read.clone();
        loop {
            tokio::time::sleep(every).await;
            let seen = marks(&self.paths);
            if seen == last && seen != self.read {
                return;
            }
            last = seen;
        }
    }
}

fn marks(paths: &[PathBuf]) -> Vec<Mark> {
    paths.iter().map(|path| mark(path)).collect()
}

fn mark(path: &Path) -> Mark {
    let m = std::fs::metadata(path).ok()?;
    Some((m.dev(), m.ino(), m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()))
}
