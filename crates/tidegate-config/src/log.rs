//! What is logged, and how.

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};

/// Log settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// The least severe level that is written.
    pub level: LogLevel,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The least severe level that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something failed that should not.
    Error,
    /// Something that may need a look.
    Warn,
    /// What an operator wants to know on a quiet day.
    Info,
    /// What helps to find a fault.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The word in the config, which log filters understand too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl Section for Log {
    const TABLE: &'static Table = &Table {
        place: "log",
        summary: "What is logged, and how.",
        keys: &[
            Key {
                name: "format",
                kind: Kind::Choice(&["text", "json"]),
                absent: Absent::Default("text"),
                summary: "Lines for people, or one JSON object per line.",
                example: "json",
            },
            Key {
                name: "level",
                kind: Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
                absent: Absent::Default("info"),
                summary: "The least severe level that is written.",
                example: "info",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let format = if r.choice("format") == "json" { LogFormat::Json } else { LogFormat::Text };
        let level = match r.choice("level") {
            "error" => LogLevel::Error,
            "warn" => LogLevel::Warn,
            "debug" => LogLevel::Debug,
            "trace" => LogLevel::Trace,
            _ => LogLevel::Info,
        };
        Self { format, level }
    }
}
