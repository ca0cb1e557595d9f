//! Things the binary lets an operator do to an endpoint beyond what every gateway can: the demo's "kill engine".

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What an action runs; the error is shown to the operator.
pub type Running = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// A switch per endpoint, `POST /api/pools/{pool}/endpoints/{endpoint}/actions/{name}` with `{"on": true|false}`.
#[derive(Clone)]
pub struct Action {
    /// Its name in the path: lower-case letters.
    pub name: &'static str,
    /// The button that switches it on, such as "Kill engine".
    pub on: &'static str,
    /// The button that switches it off, such as "Revive engine".
    pub off: &'static str,
    /// Switches it.
    pub run: Arc<dyn Fn(Target, bool) -> Running + Send + Sync>,
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Action").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The endpoint an action is about: places in the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The pool.
    pub pool: usize,
    /// The endpoint in it.
    pub endpoint: usize,
}
