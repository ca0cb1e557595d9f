//! Setting up the log.
//!
//! Lines go to standard error, as standard output belongs to what a subcommand prints. The config decides and no environment variable:
//! one place tells what is logged.

use std::io::IsTerminal;
use tidegate_config::{Log, LogFormat, LogLevel};
use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The log was set up before: it can be once per process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogError;

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the log was set up before in this process")
    }
}

impl std::error::Error for LogError {}

/// Sends log lines of `settings.level` and above to standard error, for people or as one JSON object per line.
///
/// # Errors
/// If the process has a log already.
pub fn init(settings: &Log) -> Result<(), LogError> {
    let color = std::io::stderr().is_terminal();
    tracing::dispatcher::set_global_default(subscriber(settings, std::io::stderr, color)).map_err(|_| LogError)
}

fn subscriber<W>(settings: &Log, writer: W, color: bool) -> tracing::Dispatch
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt().with_max_level(filter(settings.level)).with_writer(writer).with_ansi(color);
    fn boxed(s: impl Subscriber + Send + Sync) -> tracing::Dispatch {
        tracing::Dispatch::new(s)
    }
    match settings.format {
        LogFormat::Text => boxed(lines.finish()),
        LogFormat::Json => {
            boxed(lines.json().flatten_event(true).with_current_span(false).with_span_list(false).finish())
        }
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sink, Telemetry};
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, level: LogLevel) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let dispatch = subscriber(&Log { format, level }, move || writer.clone(), false);
        let text =
            "listeners: [{ address: 127.0.0.1:0 }]\npools: { chat: { endpoints: [{ url: http://127.0.0.1:8001 }] } }";
        let (config, _) = tidegate_config::Config::parse(text, "t.yaml", &|_| None).unwrap();
        tracing::dispatcher::with_default(&dispatch, || {
            tracing::info!(port = 1, "listening");
            Telemetry::new(&config).on_record(&crate::recent::tests::record("id-1"));
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_record_is_one_wide_line_at_debug() {
        let text = logged(LogFormat::Text, LogLevel::Debug);
        assert_eq!(text.lines().count(), 2, "{text}");
        for part in ["DEBUG request: request_id=\"id-1\"", "outcome=\"success\"", "ttft_s=0.02", "pool=\"chat\""] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }

    #[test]
    fn what_a_client_names_ends_no_line_and_no_quotation() {
        let lines = Lines::default();
        let writer = lines.clone();
        for format in [LogFormat::Text, LogFormat::Json] {
            let writer = writer.clone();
            let dispatch = subscriber(&Log { format, level: LogLevel::Debug }, move || writer.clone(), false);
            let evil = "m\" outcome=\"success\r\nforged\u{2028}line\u{1b}[31m";
            let record =
                crate::Record { model: evil.to_owned(), path: evil.to_owned(), ..crate::recent::tests::record("id-1") };
            tracing::dispatcher::with_default(&dispatch, || crate::telemetry::log(&record));
        }
        let bytes = lines.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains(['\r', '\u{1b}']) && !text.contains("m\" outcome"), "{text}");
    }

    #[test]
    fn the_default_level_has_no_line_per_request() {
        let text = logged(LogFormat::Text, LogLevel::Info);
        assert!(text.contains("listening port=1") && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn json_lines_are_objects_with_the_fields_at_the_top() {
        let text = logged(LogFormat::Json, LogLevel::Debug);
        for line in text.lines() {
            assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
        }
        assert!(text.contains(r#""target":"request""#) && text.contains(r#""request_id":"id-1""#), "{text}");
    }
}
