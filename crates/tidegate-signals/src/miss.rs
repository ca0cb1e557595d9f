//! Why a check or a poll failed, in words for the log.

use std::{fmt, io};

/// Why there was no good answer.
#[derive(Debug)]
pub(crate) enum Miss {
    Connect(io::Error),
    Http(hyper::Error),
    Timeout,
    Status(u16),
    TooLarge(usize),
    NotJson(serde_json::Error),
    NoNumber,
    NoModel,
    /// A body in this coding, which nobody asked for.
    Encoded(String),
    /// A number that cannot be, by its name.
    Impossible(String, f64),
    FirstPage,
    NoSeries(&'static str),
    Refused(String),
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::Http(error) => write!(f, "no valid HTTP answer: {error}"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::TooLarge(limit_bytes) => write!(f, "the answer is longer than {limit_bytes} bytes"),
            Self::NotJson(error) => write!(f, "the answer is not the JSON object expected: {error}"),
            Self::Refused(why) => write!(f, "the server says: {why}"),
            Self::NoSeries(hint) => write!(f, "the page has no series that is known: {hint}"),
            Self::NoModel => f.write_str("the list of models is empty"),
            Self::Encoded(coding) => {
                write!(f, "the answer is encoded as {coding}, though only `identity` was asked for")
            }
            Self::Impossible(name, value) => write!(f, "impossible: {name} {value}"),
            Self::FirstPage => f.write_str("there is no earlier page to compare with yet"),
            Self::NoNumber => f.write_str("the answer has none of response_time, current_load, cpu, gpu, memory"),
        }
    }
}
