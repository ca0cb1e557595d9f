//! What a stream of server-sent events says of itself, whatever the pieces it comes in: how many events it has, whether one of them is an
//! error, and whether it said that it is over. Nothing is parsed but the beginning of each line; an error's text is, once.

use serde_json::Value;
use tidegate_core::outcome::{Failure, Verdict};

/// Bytes looked at of an error's line: enough for its text. A longer one is taken as an error that says nothing of itself.
const KEPT: usize = 16 * 1024;
/// Bytes of a line that say what it is; of one that is no error no more are kept.
const GLANCE: usize = 48;

/// How a whole stream ends. It depends on what was asked for; of an unknown kind of stream nothing is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Marker {
    /// It just ends.
    #[default]
    None,
    /// `data: [DONE]`: chat completions and completions.
    Done,
    /// `event: response.completed`, or `response.incomplete`: responses.
    Response,
    /// `event: message_stop`: messages.
    MessageStop,
}

impl Marker {
    /// What a stream from `path` ends with.
    pub(crate) fn of(path: &str) -> Self {
        match path.trim_end_matches('/').rsplit('/').next() {
            Some("completions") => Self::Done,
            Some("responses") => Self::Response,
            Some("messages") => Self::MessageStop,
            _ => Self::None,
        }
    }
}

/// A stream of events being watched.
#[derive(Debug)]
pub(crate) struct Events {
    marker: Marker,
    /// The beginning of the line under way.
    line: Vec<u8>,
    /// Bytes of the line under way.
    length: usize,
    has_data: bool,
    /// The event under way is the marker.
    is_marker: bool,
    count: u64,
    has_ended: bool,
    error: Option<Verdict>,
}

impl Events {
    pub(crate) fn new(marker: Marker) -> Self {
        Self {
            marker,
            line: Vec::new(),
            length: 0,
            has_data: false,
            is_marker: false,
            count: 0,
            has_ended: false,
            error: None,
        }
    }

    /// Takes the next piece; how many events with data it completes, markers apart.
    pub(crate) fn on_bytes(&mut self, mut piece: &[u8]) -> u64 {
        let before = self.count;
        while let Some(end) = memchr::memchr(b'\n', piece) {
            let (line, rest) = (&piece[..end], &piece[end + 1..]);
            if self.length == 0 {
                self.on_line(line.strip_suffix(b"\r").unwrap_or(line));
            } else {
                self.keep(line);
                let mut line = std::mem::take(&mut self.line);
                if line.len() == self.length && line.ends_with(b"\r") {
                    line.pop();
                }
                self.on_line(&line);
                line.clear();
                (self.line, self.length) = (line, 0);
            }
            piece = rest;
        }
        if !piece.is_empty() {
            self.keep(piece);
        }
        self.count - before
    }

    fn keep(&mut self, more: &[u8]) {
        self.length += more.len();
        let (begin, rest) = more.split_at(more.len().min(GLANCE.saturating_sub(self.line.len())));
        self.line.extend_from_slice(begin);
        // What a line is must not depend on how much of it comes at once: its first bytes decide, and only they.
        if !rest.is_empty() && is_error(&self.line) {
            let room = KEPT.saturating_sub(self.line.len());
            self.line.extend_from_slice(&rest[..rest.len().min(room)]);
        }
    }

    fn on_line(&mut self, line: &[u8]) {
        if line.is_empty() {
            if self.has_data && !self.is_marker {
                self.count += 1;
            }
            self.has_ended |= self.is_marker;
            (self.has_data, self.is_marker) = (false, false);
            return;
        }
        if let Some(data) = field(line, b"data:") {
            self.has_data = true;
            self.is_marker |= self.marker == Marker::Done && data == b"[DONE]";
            if is_error(line) {
                self.error.get_or_insert(verdict_of(&data[..data.len().min(KEPT - (line.len() - data.len()))]));
            }
        } else if let Some(event) = field(line, b"event:") {
            match event {
                b"error" | b"response.failed" => {
                    self.error.get_or_insert(Verdict::Failed(Failure::Status));
                }
                b"response.completed" | b"response.incomplete" => self.is_marker |= self.marker == Marker::Response,
                b"message_stop" => self.is_marker |= self.marker == Marker::MessageStop,
                _ => {}
            }
        }
    }

    /// Whether something more would begin a new event.
    pub(crate) fn is_between_events(&self) -> bool {
        self.length == 0 && !self.has_data
    }

    /// Whether it said that it is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether it ended without the marker it should have ended with, and without saying what went wrong.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.marker != Marker::None && !self.has_ended && self.error.is_none()
    }

    /// What the error in it comes to, if it has one.
    pub(crate) fn error(&self) -> Option<Verdict> {
        self.error
    }
}

/// The value of a line that begins with `name`.
fn field<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let value = line.strip_prefix(name)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

/// Whether the line's data is an object whose first member is an error: `{"error": {..}}`, or `{"object": "error"}`. Its first
/// [`GLANCE`] bytes decide.
fn is_error(line: &[u8]) -> bool {
    let line = &line[..line.len().min(GLANCE)];
    let inner = || {
        let object = field(line, b"data:")?.strip_prefix(b"{")?.trim_ascii_start();
        let member =
            |name: &[u8]| Some(object.strip_prefix(name)?.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start());
        let error = member(b"\"error\"").is_some_and(|value| !value.starts_with(b"null") && !value.is_empty());
        Some(error || member(b"\"object\"").is_some_and(|value| value.starts_with(b"\"error\"")))
    };
    inner().unwrap_or(false)
}

/// What an error in a stream comes to: by its `code` or `status` where that is one of HTTP's, else the endpoint's fault.
fn verdict_of(data: &[u8]) -> Verdict {
    let told: Option<Value> = serde_json::from_slice(data).ok();
    let code = told.as_ref().and_then(|told| {
        let error = told.get("error").filter(|e| e.is_object()).unwrap_or(told);
        let number = |v: &Value| v.as_u64().or_else(|| v.as_str()?.parse().ok());
        ["code", "status", "status_code"]
            .iter()
            .filter_map(|name| number(error.get(name)?))
            .find(|n| (400..600).contains(n))
    });
    match code {
        Some(code) => Verdict::of_status(code as u16, None, code == 503),
        None => Verdict::Failed(Failure::Status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(marker: Marker, text: &str, split: usize) -> (u64, bool, Option<Verdict>, bool) {
        let mut events = Events::new(marker);
        let n = events.on_bytes(&text.as_bytes()[..split]) + events.on_bytes(&text.as_bytes()[split..]);
        (n, events.is_cut_short(), events.error(), events.is_between_events())
    }

    #[test]
    fn a_stream_is_read_at_whatever_byte_it_is_split() {
        let failed = Some(Verdict::Failed(Failure::Status));
        let cases = [
            (Marker::Done, "data: {\"a\":1}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n", (2, false, None, true)),
            (Marker::Done, "data: {\"a\":1}\r\n\r\n: alive\r\n\r\ndata: [DONE]\r\n\r\n", (1, false, None, true)),
            (Marker::Done, "data:{\"a\":1}\n\ndata:[DONE]\n\n", (1, false, None, true)),
            (Marker::Done, "data: {\"a\":\"[DONE]\"}\n\n", (1, true, None, true)),
            (Marker::Done, "data: {\"a\":1}\n\ndata: {\"b\"", (1, true, None, false)),
            (Marker::Done, "data: {\"error\":null,\"a\":1}\n\n", (1, true, None, true)),
            (Marker::Done, "data: {\"error\": {\"message\":\"out of memory\"}}\n\n", (1, false, failed, true)),
            (
                Marker::Done,
                "data: {\"object\":\"error\",\"code\":400}\n\n",
                (1, false, Some(Verdict::ClientError), true),
            ),
            (
                Marker::Done,
                "data: {\"error\":{\"message\":\"slow down\",\"code\":\"429\"}}\n\n",
                (1, false, Some(Verdict::Throttled { retry_after: None }), true),
            ),
            (Marker::MessageStop, "event: ping\ndata: {}\n\nevent: message_stop\ndata: {}\n\n", (1, false, None, true)),
            (Marker::MessageStop, "event: error\ndata: {\"type\":\"error\"}\n\n", (1, false, failed, true)),
            (Marker::Response, "event: response.completed\ndata: {}\n\n", (0, false, None, true)),
            (Marker::Response, "event: response.created\ndata: {}\n\n", (1, true, None, true)),
            (Marker::None, "data: 1\n\ndata: 2\ndata: 3\n\n", (2, false, None, true)),
        ];
        for (marker, text, wanted) in cases {
            for split in 0..=text.len() {
                assert_eq!(watch(marker, text, split), wanted, "{text:?} split at {split}");
            }
            let mut events = Events::new(marker);
            let n: u64 = text.bytes().map(|b| events.on_bytes(&[b])).sum();
            assert_eq!(
                (n, events.is_cut_short(), events.error()),
                (wanted.0, wanted.1, wanted.2),
                "{text:?} by the byte"
            );
        }
    }

    #[test]
    fn a_long_error_says_the_same_whole_and_in_pieces() {
        // Found by fuzzing: of an error of more than a kilobyte, split over two reads, only the beginning was kept, and what was the
        // client's fault counted against the endpoint.
        let long = format!("data: {{\"error\":{{\"message\":\"{}\",\"code\":400}}}}\n\n", "x".repeat(1200));
        let blanks = format!("data: {{{}\"error\":{{\"code\":400}}}}\n\n", " ".repeat(60));
        for (text, wanted) in [(long, Some(Verdict::ClientError)), (blanks, None)] {
            for split in 0..=text.len() {
                assert_eq!(watch(Marker::Done, &text, split).2, wanted, "split at {split}");
            }
        }
    }

    #[test]
    fn long_lines_are_not_kept() {
        let mut events = Events::new(Marker::Done);
        for _ in 0..1000 {
            events.on_bytes(&[b'x'; 1000]);
        }
        assert!(events.line.capacity() <= 2 * KEPT);
        events.on_bytes(b"\n\ndata: [DONE]\n\n");
        assert!(events.has_ended());
    }

    #[test]
    fn paths_say_what_ends_a_stream() {
        assert_eq!(Marker::of("/v1/chat/completions"), Marker::Done);
        assert_eq!(Marker::of("/openai/v1/completions/"), Marker::Done);
        assert_eq!(Marker::of("/v1/responses"), Marker::Response);
        assert_eq!(Marker::of("/v1/messages"), Marker::MessageStop);
        assert_eq!(Marker::of("/generate_stream"), Marker::None);
    }
}
