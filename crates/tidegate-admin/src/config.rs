//! `/api/config`: which config is in force, and putting another in force.
//!
//! The file is read and applied in the binary; here is only what an operator sees of it.

use crate::admin::Shared;
use crate::answer::{Answer, Refusal, json};
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;

/// What a reload answers: the config then in force, or why the file was rejected.
pub type Reloading = Pin<Box<dyn Future<Output = Result<ConfigView, RejectedView>> + Send>>;

/// The config as an operator sees and handles it.
pub trait ConfigBook: Send + Sync {
    /// The one in force.
    fn config(&self) -> ConfigView;
    /// Reads the file and puts it in force.
    fn reload(&self) -> Reloading;
}

/// The config in force. Times in seconds since 1970.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigView {
    /// The file.
    pub file: String,
    /// 1 at the start, one more with each reload that was applied.
    pub generation: u64,
    /// When it came in force.
    pub loaded_unix_s: f64,
    /// What made it come in force: `start`, `file`, `signal`, `admin` or `takeover`.
    pub loaded_by: &'static str,
    /// Settings of the file that this process cannot take while it runs, and that a restart or hand-over would.
    pub needs_restart: Vec<&'static str>,
    /// What the file says that does not do what it seems to.
    pub warnings: Vec<Value>,
    /// The last reload, if it was rejected; `null` once one was applied.
    pub rejected: Option<RejectedView>,
}

/// A file that was rejected.
#[derive(Clone, Debug, Serialize)]
pub struct RejectedView {
    /// When, in seconds since 1970.
    pub at_unix_s: f64,
    /// In a sentence.
    pub message: String,
    /// Every problem, as `tidegate check --json` has it.
    pub problems: Vec<Value>,
}

pub(crate) fn view(shared: &Shared) -> Result<ConfigView, Refusal> {
    let book = shared.config.as_ref();
    Ok(book.ok_or_else(|| Refusal::not_found("this gateway runs without a config file"))?.config())
}

pub(crate) async fn reload(shared: &Shared) -> Result<Answer, Refusal> {
    let book = shared.config.as_ref();
    let book = book.ok_or_else(|| Refusal::not_found("this gateway runs without a config file"))?;
    Ok(match book.reload().await {
        Ok(view) => json(StatusCode::OK, &view),
        Err(rejected) => {
            let error = json!({
                "code": "config_rejected",
                "message": rejected.message,
                "problems": rejected.problems,
            });
            json(StatusCode::UNPROCESSABLE_ENTITY, &json!({ "error": error }))
        }
    })
}
