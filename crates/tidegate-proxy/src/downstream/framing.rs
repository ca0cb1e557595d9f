//! A strict look at the raw head of every request, before the HTTP library sees it.
//!
//! The library silently prefers one of two framings and merges equal duplicates. Whoever reads the same bytes differently behind us
//! could be made to see another request, so anything ambiguous is refused here: two lengths, a length with a transfer coding, a
//! transfer coding other than `chunked`, whitespace before a colon, folded lines, bare CR or LF. The state machine then skips the body
//! to find the next head; it copies nothing.

use crate::request::error::ProxyError;

/// Bounds on a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    pub(crate) bytes: usize,
    pub(crate) headers: usize,
}

/// How the body after a head is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
}

/// A fault in a head or a body.
pub(crate) type Fault = ProxyError;

fn bad(code: &'static str, message: &'static str) -> Fault {
    ProxyError::BadRequest { code, message, status: 400 }
}

/// Looks for the end of a head, remembering where it was: a client that sends byte by byte must not make us start over each time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadScan {
    line: usize,
    lines: usize,
    after_cr: bool,
}

impl HeadScan {
    /// Takes the next bytes; returns how many belong to the head once its empty line is complete. `Err` on a bare CR, a bare LF or NUL.
    pub(crate) fn scan(&mut self, buf: &[u8]) -> Result<Option<usize>, Fault> {
        for (i, &b) in buf.iter().enumerate() {
            match b {
                b'\n' if !self.after_cr => return Err(bad("bad_line_ending", "a line of the head ends in a bare LF")),
                b'\n' if self.line == 0 && self.lines > 0 => return Ok(Some(i + 1)),
                b'\n' => (self.line, self.lines, self.after_cr) = (0, self.lines + 1, false),
                _ if self.after_cr => return Err(bad("bad_line_ending", "the head holds a bare CR")),
                b'\r' => self.after_cr = true,
                0 => return Err(bad("bad_byte", "the head holds a NUL byte")),
                _ => self.line += 1,
            }
        }
        Ok(None)
    }
}

/// Reads the framing of a complete head.
pub(crate) fn check_head(head: &[u8], limits: HeadLimits) -> Result<Framing, Fault> {
    if head.len() > limits.bytes {
        return Err(ProxyError::BadRequest {
            code: "headers_too_large",
            message: "the request's line and headers are larger than limits.max_header_bytes",
            status: 431,
        });
    }
    let mut lines = head[..head.len() - 2].split_inclusive(|&b| b == b'\n').map(|l| &l[..l.len() - 2]);
    let request_line = lines.next().unwrap_or_default();
    let version_1_0 = check_request_line(request_line)?;
    let mut seen = Seen::default();
    for line in lines {
        seen.take(line)?;
        if seen.headers > limits.headers {
            return Err(ProxyError::BadRequest {
                code: "too_many_headers",
                message: "the request has more headers than limits.max_headers",
                status: 431,
            });
        }
    }
    seen.framing(version_1_0)
}

/// Checks method, target and version; true for HTTP/1.0.
fn check_request_line(line: &[u8]) -> Result<bool, Fault> {
    let mut parts = line.split(|&b| b == b' ');
    let (method, target, version) = (parts.next(), parts.next(), parts.next());
    let wrong = || bad("bad_request_line", "the request line is not `METHOD TARGET HTTP/1.1`");
    let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next()) else {
        return Err(wrong());
    };
    if method.is_empty()
        || !method.iter().all(|&b| is_token(b))
        || target.is_empty()
        || target.iter().any(|&b| b <= b' ' || b >= 127)
    {
        return Err(wrong());
    }
    let begins = |with: &[u8]| target.get(..with.len()).is_some_and(|t| t.eq_ignore_ascii_case(with));
    if method != b"CONNECT" && target[0] != b'/' && target != b"*" && !begins(b"http://") && !begins(b"https://") {
        return Err(bad("bad_target", "the request's target is neither a path that starts with / nor an absolute URL"));
    }
    if method == b"CONNECT" {
        return Err(ProxyError::BadRequest {
            code: "connect_not_supported",
            message: "this is no forward proxy",
            status: 501,
        });
    }
    match version {
        b"HTTP/1.1" => Ok(false),
        b"HTTP/1.0" => Ok(true),
        _ => Err(ProxyError::BadRequest { code: "bad_version", message: "the request is not HTTP/1.1", status: 505 }),
    }
}

#[derive(Default)]
struct Seen {
    headers: usize,
    length: Option<u64>,
    chunked: bool,
    hosts: usize,
}

impl Seen {
    fn take(&mut self, line: &[u8]) -> Result<(), Fault> {
        self.headers += 1;
        let colon = line.iter().position(|&b| b == b':').unwrap_or(0);
        let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        if colon == 0 || !name.iter().all(|&b| is_token(b)) {
            return Err(bad("bad_header", "a header line has no valid name before its colon"));
        }
        // Blanks and tabs, and nothing else that some take for a blank.
        let value = trim_blanks(value);
        if name.eq_ignore_ascii_case(b"content-length") {
            let digits = !value.is_empty() && value.len() < 20 && value.iter().all(u8::is_ascii_digit);
            if !digits {
                return Err(bad("bad_content_length", "Content-Length is not a plain number"));
            }
            if self.length.is_some() {
                return Err(bad("two_content_lengths", "the request has more than one Content-Length"));
            }
            self.length = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(bad("bad_transfer_encoding", "Transfer-Encoding is something else than one `chunked`"));
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
            if !value.iter().all(|&b| b.is_ascii_alphanumeric() || b"-._~%:[]!$&'()*+,;=".contains(&b)) {
                return Err(bad("bad_host", "the Host header is no host"));
            }
        }
        Ok(())
    }

    fn framing(&self, version_1_0: bool) -> Result<Framing, Fault> {
        if self.hosts > 1 || (self.hosts == 0 && !version_1_0) {
            return Err(bad("bad_host", "the request must have exactly one Host header"));
        }
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(bad("two_framings", "the request has both Content-Length and Transfer-Encoding")),
            (true, None) if version_1_0 => Err(bad("bad_transfer_encoding", "HTTP/1.0 has no Transfer-Encoding")),
            (true, None) => Ok(Framing::Chunked),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }
}

fn trim_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// Skips one chunked body, byte by byte of its framing and by whole slices of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunks {
    state: ChunkState,
    lenient: bool,
}

/// What a chunked body carries.
pub(crate) enum Carried<'b> {
    /// The next of its data.
    Data(&'b [u8]),
    /// The next byte of a trailer's line; lines end in CR, without their LF.
    Trailer(u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    SizeStart,
    Size(u64),
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
}

impl Chunks {
    /// As [`Chunks::default`], for answers: some servers pad sizes with blanks.
    pub(crate) fn lenient() -> Self {
        Self { lenient: true, ..Self::default() }
    }

    /// Takes from `buf`; returns how many bytes belong to the body, and whether it has ended.
    pub(crate) fn skip(&mut self, buf: &[u8]) -> Result<(usize, bool), Fault> {
        self.read(buf, |_| {})
    }

    /// As [`Chunks::skip`], handing on what the framing carries.
    pub(crate) fn read(&mut self, buf: &[u8], mut on: impl FnMut(Carried<'_>)) -> Result<(usize, bool), Fault> {
        let mut at = 0;
        while at < buf.len() {
            if let ChunkState::Data(left) = self.state {
                let n = left.min((buf.len() - at) as u64);
                on(Carried::Data(&buf[at..at + n as usize]));
                at += n as usize;
                self.state = if n == left { ChunkState::DataCr } else { ChunkState::Data(left - n) };
                continue;
            }
            let ended = self.state == ChunkState::EndLf;
            self.state = self
                .next(buf[at])
                .ok_or_else(|| bad("bad_chunk", "the chunked body is not framed as RFC 9112 says"))?;
            if matches!(self.state, ChunkState::Trailer | ChunkState::TrailerLf) {
                on(Carried::Trailer(buf[at]));
            }
            at += 1;
            if ended {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    fn next(self, b: u8) -> Option<ChunkState> {
        use ChunkState as S;
        Some(match (self.state, b) {
            (S::SizeStart, _) => S::Size(u64::from(hex(b)?)),
            (S::Size(0), b'\r') | (S::Extension(0), b'\r') => S::SizeLf(0),
            (S::Size(n) | S::Extension(n), b'\r') => S::SizeLf(n),
            (S::Size(n), b';') => S::Extension(n),
            (S::Size(n), b' ' | b'\t') if self.lenient => S::Extension(n),
            (S::Size(n), _) => S::Size(n.checked_mul(16)?.checked_add(u64::from(hex(b)?))?),
            (S::Extension(_), b'\n') => return None,
            (S::Extension(n), _) => S::Extension(n),
            (S::SizeLf(0), b'\n') => S::TrailerStart,
            (S::SizeLf(n), b'\n') => S::Data(n),
            (S::DataCr, b'\r') => S::DataLf,
            (S::DataLf, b'\n') => S::SizeStart,
            (S::TrailerStart, b'\r') => S::EndLf,
            (S::TrailerStart | S::Trailer, b'\n') => return None,
            (S::TrailerStart, _) => S::Trailer,
            (S::Trailer, b'\r') => S::TrailerLf,
            (S::Trailer, _) => S::Trailer,
            (S::TrailerLf, b'\n') => S::TrailerStart,
            (S::EndLf, b'\n') => S::SizeStart,
            _ => return None,
        })
    }
}

fn hex(b: u8) -> Option<u8> {
    (b as char).to_digit(16).map(|d| d as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes: 4096, headers: 16 };
    fn head(lines: &str) -> Result<Framing, &'static str> {
        let text = format!("POST / HTTP/1.1\r\n{lines}\r\n");
        let end = HeadScan::default().scan(text.as_bytes()).map_err(|e| e.code())?.unwrap_or(0);
        check_head(&text.as_bytes()[..end], LIMITS).map_err(|e| e.code())
    }

    #[test]
    fn plain_framings_pass() {
        assert_eq!(head("Host: a\r\nContent-Length: 12\r\n"), Ok(Framing::Length(12)));
        assert_eq!(head("Host: a\r\nTransfer-Encoding: chunked\r\n"), Ok(Framing::Chunked));
        assert_eq!(head("Host: a\r\n"), Ok(Framing::Length(0)));
    }

    #[test]
    fn smuggling_vectors_are_refused() {
        let cases = [
            ("Host: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n", "two_content_lengths"),
            ("Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n", "two_content_lengths"),
            ("Host: a\r\nContent-Length: 1, 1\r\n", "bad_content_length"),
            ("Host: a\r\nContent-Length: +1\r\n", "bad_content_length"),
            ("Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", "two_framings"),
            ("Host: a\r\nTransfer-Encoding: chunked\t\r\nContent-Length: 1\r\n", "two_framings"),
            ("Host: a\r\nTransfer-Encoding: xchunked\r\n", "bad_transfer_encoding"),
            ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", "bad_transfer_encoding"),
            ("Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "bad_transfer_encoding"),
            ("Host: a\r\nContent-Length : 1\r\n", "bad_header"),
            ("Host: a\r\nX: 1\r\n folded\r\n", "bad_header"),
            ("Host: a\r\nX: 1\nContent-Length: 5\r\n", "bad_line_ending"),
            ("Host: a\r\nX: 1\rContent-Length: 5\r\n", "bad_line_ending"),
            ("Host: a\r\nTransfer-Encoding: \x0cchunked\r\n", "bad_transfer_encoding"),
            ("Host: a\r\nContent-Length: 1\x0c\r\n", "bad_content_length"),
            ("Host: a\r\nHost: b\r\n", "bad_host"),
            ("X: 1\r\n", "bad_host"),
        ];
        for (lines, code) in cases {
            assert_eq!(head(lines), Err(code), "{lines:?}");
        }
    }

    #[test]
    fn chunked_bodies_end_where_they_end() {
        let body = b"5;ext=1\r\nhello\r\n0\r\nTrailer: x\r\n\r\nGET / HTTP/1.1\r\n";
        for split in 1..body.len() {
            let mut c = Chunks::default();
            let (mut used, mut ended) = c.skip(&body[..split]).unwrap();
            if !ended {
                let (n, e) = c.skip(&body[split..]).unwrap();
                (used, ended) = (used + n, e);
            }
            assert_eq!((used, ended), (body.len() - 16, true), "split at {split}");
        }
        assert!(Chunks::default().skip(b"5\nhello\r\n0\r\n\r\n").is_err(), "bare LF after a size");
        assert!(Chunks::default().skip(b"0x5\r\n").is_err());
        assert!(Chunks::default().skip(b"5\r\nhelloX").is_err());
    }
}
