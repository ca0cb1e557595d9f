//! Heads: a request's to bytes, an answer's from bytes.

use crate::upstream::wanted::Wanted;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{Method, StatusCode, Version};

/// Headers that are added to an answer on its way down: room for them at once is cheaper than growing.
const OURS: usize = 8;
/// Headers an answer may have.
const MAX_HEADERS: usize = 128;

/// How the body of an answer is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes.
    Length(u64),
    Chunked,
    /// Up to the end of the connection.
    Close,
    /// The connection speaks another protocol from here on.
    Upgraded,
}

/// A head that arrived.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) parts: http::response::Parts,
    pub(crate) framing: Framing,
    /// Whether the connection can carry another request afterwards.
    pub(crate) keep_alive: bool,
    /// Bytes of it.
    pub(crate) size: usize,
}

/// A head that is none, or that does not say clearly where its body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Appends the head of a request. `chunked`: its body has no length and is framed in chunks.
pub(crate) fn write(out: &mut Vec<u8>, wanted: &Wanted<'_>, chunked: bool) {
    let target = wanted.uri.path_and_query().map_or("/", |p| p.as_str());
    for part in [wanted.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    write_fields(out, wanted.headers);
    for (name, value) in &wanted.own {
        write_field(out, name, value);
    }
    if chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends header lines; a [`HeaderMap`] holds no line breaks.
pub(crate) fn write_fields(out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        write_field(out, name, value);
    }
}

fn write_field(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Reads the head at the start of `bytes`, the answer to a request of `method`; `None` until it is complete.
pub(crate) fn read(bytes: &[u8], method: &Method) -> Result<Option<Head>, Malformed> {
    let mut room = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut room);
    let size = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Malformed),
    };
    let (code, minor) = (parsed.code.ok_or(Malformed)?, parsed.version.ok_or(Malformed)?);
    let status = StatusCode::from_u16(code).map_err(|_| Malformed)?;
    // One copy of the head holds all values.
    let shared = Bytes::copy_from_slice(&bytes[..size]);
    let headers = fields(parsed.headers, bytes, &shared)?;
    let (framing, mut keep_alive) = framing(status, minor, &headers, method)?;
    keep_alive &= asks_to_stay(minor, &headers) && framing != Framing::Close;
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts.version = if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    parts.headers = headers;
    Ok(Some(Head { parts, framing, keep_alive, size }))
}

/// Reads trailer lines that end in CR LF each.
pub(crate) fn read_trailers(lines: &[u8]) -> Result<HeaderMap, Malformed> {
    let mut room = [httparse::EMPTY_HEADER; MAX_HEADERS];
    match httparse::parse_headers(lines, &mut room) {
        Ok(httparse::Status::Complete((_, found))) => fields(found, lines, &Bytes::copy_from_slice(lines)),
        _ => Err(Malformed),
    }
}

fn fields(found: &[httparse::Header<'_>], bytes: &[u8], shared: &Bytes) -> Result<HeaderMap, Malformed> {
    let start = bytes.as_ptr() as usize;
    let mut headers = HeaderMap::with_capacity(found.len() + OURS);
    for header in found {
        let at = header.value.as_ptr() as usize - start;
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| Malformed)?;
        let value = shared.slice(at..at + header.value.len());
        headers.append(name, HeaderValue::from_maybe_shared(value).map_err(|_| Malformed)?);
    }
    Ok(headers)
}

/// RFC 9112, 6.3; the second value is false where the connection must not be used again.
fn framing(status: StatusCode, minor: u8, headers: &HeaderMap, method: &Method) -> Result<(Framing, bool), Malformed> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok((Framing::Upgraded, false));
    }
    let bodiless = status.is_informational() || matches!(status.as_u16(), 204 | 304);
    if bodiless || *method == Method::HEAD {
        return Ok((Framing::Length(0), true));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        // Another coding would have to be taken off, and a length beside it leaves a doubt about where the body ends.
        if codings.next().is_some() || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(Malformed);
        }
        return Ok((Framing::Chunked, minor > 0 && !headers.contains_key(CONTENT_LENGTH)));
    }
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let text = value.as_bytes().trim_ascii();
        let plain = !text.is_empty() && text.len() < 20 && text.iter().all(u8::is_ascii_digit);
        let n: u64 = value.to_str().ok().filter(|_| plain).and_then(|t| t.trim().parse().ok()).ok_or(Malformed)?;
        if length.is_some_and(|before| before != n) {
            return Err(Malformed);
        }
        length = Some(n);
    }
    Ok((length.map_or(Framing::Close, Framing::Length), true))
}

/// Whether the endpoint keeps the connection open.
fn asks_to_stay(minor: u8, headers: &HeaderMap) -> bool {
    let says = |word: &str| {
        headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(','))
            .any(|token| token.trim().eq_ignore_ascii_case(word))
    };
    if minor == 0 { says("keep-alive") && !says("close") } else { !says("close") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::upload::Upload;

    fn read_as(method: &Method, text: &str) -> Result<Option<Head>, Malformed> {
        read(text.as_bytes(), method)
    }

    fn framed(text: &str) -> Result<(Framing, bool), Malformed> {
        read_as(&Method::POST, text).map(|head| head.map(|h| (h.framing, h.keep_alive)).unwrap())
    }

    #[test]
    fn bodies_end_where_rfc_9112_says() {
        let cases = [
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", Ok((Framing::Length(5), true))),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n", Ok((Framing::Length(5), true))),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", Err(Malformed)),
            ("HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\n", Err(Malformed)),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n", Ok((Framing::Chunked, true))),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", Err(Malformed)),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
                Ok((Framing::Chunked, false)),
            ),
            ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\n", Ok((Framing::Length(5), false))),
            ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 5\r\n\r\n", Ok((Framing::Length(5), true))),
            ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 5\r\n\r\n", Ok((Framing::Length(5), false))),
            ("HTTP/1.1 200 OK\r\n\r\n", Ok((Framing::Close, false))),
            ("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", Ok((Framing::Length(0), true))),
            ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", Ok((Framing::Length(0), true))),
            ("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n", Ok((Framing::Upgraded, false))),
        ];
        for (text, wanted) in cases {
            assert_eq!(framed(text), wanted, "{text:?}");
        }
        let head = read_as(&Method::HEAD, cases[0].0).unwrap().unwrap();
        assert_eq!(head.framing, Framing::Length(0));
    }

    #[test]
    fn a_head_is_waited_for_and_read_whole() {
        let text = "HTTP/1.1 429 Slow Down\r\nRetry-After: 3\r\nx-a:  b \r\nx-a: c\r\ncontent-length: 0\r\n\r\nrest";
        for at in 0..text.len() - 4 {
            assert!(read_as(&Method::GET, &text[..at]).unwrap().is_none(), "{at}");
        }
        let head = read_as(&Method::GET, text).unwrap().unwrap();
        assert_eq!(head.size, text.len() - 4);
        assert_eq!(head.parts.status, 429);
        assert_eq!(head.parts.headers["retry-after"], "3");
        assert_eq!(head.parts.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["b", "c"]);
        for bad in ["HTTQ/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\na b: c\r\n\r\n", "SSH-2.0-x\r\n\r\n"] {
            assert!(read_as(&Method::GET, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_request_is_written_as_it_stands() {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("engine"));
        headers.append("x-a", HeaderValue::from_static("1"));
        headers.append("x-a", HeaderValue::from_static("2"));
        let mut out = Vec::new();
        let uri = http::Uri::from_static("/v1/x?y=1");
        let own = vec![(CONNECTION, HeaderValue::from_static("te"))];
        let wanted = Wanted { method: &Method::POST, uri: &uri, headers: &headers, own, body: Upload::Empty };
        write(&mut out, &wanted, true);
        let text = "POST /v1/x?y=1 HTTP/1.1\r\nhost: engine\r\nx-a: 1\r\nx-a: 2\r\nconnection: te\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn trailers_are_header_lines() {
        let trailers = read_trailers(b"grpc-status: 0\r\nx-b: c\r\n\r\n").unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert!(read_trailers(b"no colon\r\n\r\n").is_err());
    }
}
