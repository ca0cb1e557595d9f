//! Reads a stream of server-sent events just far enough to time it.
//!
//! Counts events that carry content, and notes the end mark and errors inside the stream. Events are not parsed as JSON: at tens of
//! thousands a second the client would become the bottleneck. A content event is a `data:` line that is neither `[DONE]` nor an
//! error and, if it has `choices`, has text in one.

/// Longest line kept across chunks, bytes; the rest of a longer one is ignored.
const LONGEST_LINE: usize = 1 << 20;

/// A reader's state across chunks.
#[derive(Debug, Default)]
pub(super) struct Events {
    partial: Vec<u8>,
    /// `[DONE]` was seen.
    pub(super) done: bool,
    /// An error was sent inside the stream.
    pub(super) error: bool,
}

impl Events {
    /// Reads a chunk; returns how many content events ended in it.
    pub(super) fn read(&mut self, mut chunk: &[u8]) -> u32 {
        let mut content = 0;
        while let Some(end) = chunk.iter().position(|b| *b == b'\n') {
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            if self.partial.is_empty() {
                content += self.line(line);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                content += self.line(&whole);
                whole.clear();
                self.partial = whole;
            }
            chunk = rest;
        }
        let room = LONGEST_LINE.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&chunk[..chunk.len().min(room)]);
        content
    }

    fn line(&mut self, line: &[u8]) -> u32 {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(name) = line.strip_prefix(b"event:") {
            self.error |= name.trim_ascii() == b"error";
            return 0;
        }
        let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { return 0 };
        if data == b"[DONE]" {
            self.done = true;
            return 0;
        }
        if data.starts_with(b"{\"error\"") || data.starts_with(b"{\"object\":\"error\"") {
            self.error = true;
            return 0;
        }
        u32::from(has_content(data))
    }
}

fn has_content(data: &[u8]) -> bool {
    let Some(choices) = find(data, b"\"choices\":") else { return !data.is_empty() };
    let choices = &data[choices..];
    // `content` also ends `reasoning_content`; arguments are those of tool calls.
    [&b"content\":\""[..], b"\"text\":\"", b"\"arguments\":\""].iter().any(|key| {
        let value = find(choices, key).and_then(|at| choices.get(at + key.len()));
        value.is_some_and(|first| *first != b'"')
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        : comment\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n";

    #[test]
    fn counts_content_however_the_stream_is_cut() {
        for size in 1..STREAM.len() {
            let mut e = Events::default();
            let content: u32 = STREAM.chunks(size).map(|c| e.read(c)).sum();
            assert_eq!((content, e.done, e.error), (2, true, false), "chunks of {size}");
        }
    }

    #[test]
    fn errors_inside_the_stream_are_seen() {
        let mut e = Events::default();
        e.read(b"data: {\"error\":{\"message\":\"x\"}}\n\n");
        assert!(e.error && !e.done);
        let mut e = Events::default();
        e.read(b"event: error\ndata: {}\n\n");
        assert!(e.error);
    }

    #[test]
    fn text_completions_and_other_streams_count_too() {
        let mut e = Events::default();
        assert_eq!(e.read(b"data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n"), 1);
        assert_eq!(e.read(b"data: tick\n\n"), 1);
    }
}
