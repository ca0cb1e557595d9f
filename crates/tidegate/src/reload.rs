//! Reading the config again while the gateway runs: when the file changes, on SIGHUP, or when an operator asks.
//!
//! The file is looked at instead of watched by the kernel: that sees every way of replacing it, on every file system, a Kubernetes ConfigMap
//! among them, and costs a `stat` a second. A change counts once two looks see the same, so a file that is half written is not read. A
//! file that is rejected changes nothing, is told to log, metrics and admin API, and is not read again until it changes.

mod files;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::control::Control;
use files::Files;
use tidegate_admin::{ConfigBook, ConfigView, RejectedView, Reloading};
use tidegate_config::{Config, Problem};
use tokio::sync::{mpsc, oneshot};

/// Reloads that operators may ask for at once; more are told to come back.
const MAX_ASKED: usize = 16;

/// What is answered to whoever asked.
type Answer = Result<ConfigView, RejectedView>;

/// Reads and validates the file at `path`.
///
/// # Errors
/// All its problems, if at least one of them is an error.
pub(crate) fn load(path: &Path) -> Result<(Config, Vec<Problem>), Vec<Problem>> {
    let (config, mut warnings) = Config::load(path)?;
    let mut found = crate::rules::problems(&config, path);
    found.extend(tidegate_tls::problems(&config, path));
    if found.iter().any(Problem::is_error) {
        return Err(found);
    }
    warnings.extend(found);
    Ok((config, warnings))
}

/// Why the file is read again.
#[derive(Debug)]
pub(crate) enum Reason {
    /// It changed.
    File,
    /// SIGHUP.
    Signal,
    /// An operator waits for the answer.
    Admin(oneshot::Sender<Answer>),
}

impl Reason {
    fn as_str(&self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Signal => "signal",
            Self::Admin(_) => "admin",
        }
    }
}

/// Reloads one file for one process.
pub(crate) struct Reloader {
    file: PathBuf,
    /// What the process was started with, and what is in force.
    started: Config,
    in_force: Config,
    files: Files,
    book: Arc<Book>,
    asked: mpsc::Receiver<oneshot::Sender<Answer>>,
}

impl Reloader {
    /// `config` was read from `file`, with these warnings, and is about to be in force, because of `by`.
    pub(crate) fn new(file: &Path, config: &Config, warnings: &[Problem], by: &'static str) -> Self {
        let view = ConfigView {
            file: file.display().to_string(),
            generation: 1,
            loaded_unix_s: unix_s(),
            loaded_by: by,
            needs_restart: Vec::new(),
            warnings: warnings.iter().map(Problem::to_json).collect(),
            rejected: None,
        };
        let (ask, asked) = mpsc::channel(MAX_ASKED);
        Self {
            file: file.to_owned(),
            started: config.clone(),
            in_force: config.clone(),
            files: Files::of(file, config),
            book: Arc::new(Book { view: Mutex::new(view), ask }),
            asked,
        }
    }

    /// What the admin API is given.
    pub(crate) fn book(&self) -> Arc<dyn ConfigBook> {
        Arc::clone(&self.book) as _
    }

    /// The config in force, apart from what needs a restart.
    pub(crate) fn in_force(&self) -> &Config {
        &self.in_force
    }

    /// Waits for a change of the files, or for an operator.
    pub(crate) async fn next(&mut self) -> Reason {
        tokio::select! {
            asked = self.asked.recv() => match asked {
                Some(asked) => Reason::Admin(asked),
                None => std::future::pending().await,
            },
            () = self.files.change() => Reason::File,
        }
    }

    /// Reads the file and puts it in force, or says why not.
    pub(crate) async fn reload(&mut self, control: &mut Control, reason: Reason) {
        self.files.look();
        let answer = match load(&self.file) {
            Ok((config, warnings)) => self.apply(control, &config, &warnings, reason.as_str()).await,
            Err(problems) => Err(rejected(&problems)),
        };
        if let Err(why) = &answer {
            control.telemetry().on_rejected();
            tracing::error!(
                file = %self.file.display(),
                reason = reason.as_str(),
                why = why.message,
                "the config is rejected; the one in force stays"
            );
            self.book.view().rejected = Some(why.clone());
        }
        if let Reason::Admin(asked) = reason {
            let _ = asked.send(answer);
        }
    }

    async fn apply(
        &mut self,
        control: &mut Control,
        config: &Config,
        warnings: &[Problem],
        reason: &'static str,
    ) -> Answer {
        let failed = |error: tidegate_proxy::StartError| RejectedView {
            at_unix_s: unix_s(),
            message: error.to_string(),
            problems: Vec::new(),
        };
        let generation = control.reload(config).await.map_err(failed)?;
        self.files.follow(&self.file, config);
        self.in_force = config.clone();
        let needs_restart = config.needs_restart(&self.started);
        tracing::info!(file = %self.file.display(), generation, reason, "a new config is in force");
        if !needs_restart.is_empty() {
            let keys = needs_restart.join(", ");
            tracing::warn!(keys, "these settings changed and need a restart or a hand-over; the others are in force");
        }
        for warning in warnings {
            tracing::warn!(problem = one_line(warning), "the config has a warning");
        }
        let mut view = self.book.view();
        (view.generation, view.loaded_unix_s, view.loaded_by) = (generation, unix_s(), reason);
        (view.needs_restart, view.rejected) = (needs_restart, None);
        view.warnings = warnings.iter().map(Problem::to_json).collect();
        Ok(view.clone())
    }
}

/// What the admin API shows of the config.
struct Book {
    view: Mutex<ConfigView>,
    ask: mpsc::Sender<oneshot::Sender<Answer>>,
}

impl Book {
    fn view(&self) -> std::sync::MutexGuard<'_, ConfigView> {
        // A view that a panic left is a view.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConfigBook for Book {
    fn config(&self) -> ConfigView {
        self.view().clone()
    }

    fn reload(&self) -> Reloading {
        let ask = self.ask.clone();
        Box::pin(async move {
            let busy = || RejectedView {
                at_unix_s: unix_s(),
                message: "the gateway reloads already, or ends; ask again".to_owned(),
                problems: Vec::new(),
            };
            let (answer, answered) = oneshot::channel();
            ask.try_send(answer).map_err(|_| busy())?;
            answered.await.unwrap_or_else(|_| Err(busy()))
        })
    }
}

fn rejected(problems: &[Problem]) -> RejectedView {
    let errors: Vec<String> = problems.iter().filter(|p| p.is_error()).map(one_line).collect();
    RejectedView {
        at_unix_s: unix_s(),
        message: errors.join("; "),
        problems: problems.iter().map(Problem::to_json).collect(),
    }
}

/// Place, what was found, and the hint, which names the nearest key.
fn one_line(p: &Problem) -> String {
    let place = if p.line > 0 { format!("{}:{}", p.source, p.line) } else { p.source.clone() };
    format!("{place}: {}: found {}; allowed: {}; {}", p.path, p.found, p.allowed, p.hint)
}

#[allow(clippy::disallowed_methods, reason = "wall time, only shown")]
fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}
