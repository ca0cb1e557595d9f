//! As much of HTTP/1.1 as the engine and the client need: where a message ends, and what bytes of a chunked body are data.

/// Most headers of a message.
const MAX_HEADERS: usize = 64;

/// Length of the first request in `bytes`, once all of it is there.
pub fn request_length(bytes: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(bytes).ok()? else { return None };
    match framing(request.headers) {
        Framing::Length(body) => (bytes.len() >= head + body).then_some(head + body),
        Framing::Chunked => {
            let mut body = Body::new(Framing::Chunked);
            body.feed(&bytes[head..], |_| {}).map(|used| head + used)
        }
        Framing::UntilClose => Some(head),
    }
}

/// The head of an answer: its length, its status and how its body ends; none while it is incomplete.
///
/// # Errors
/// If it is no HTTP.
pub fn answer_head(bytes: &[u8]) -> Result<Option<(usize, u16, Body)>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut answer = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = answer.parse(bytes)? else { return Ok(None) };
    Ok(Some((head, answer.code.unwrap_or(0), Body::new(framing(answer.headers)))))
}

/// The status of an answer of known length, once all of it is there.
///
/// # Errors
/// If it is no HTTP.
pub fn whole_answer(bytes: &[u8]) -> Result<Option<u16>, httparse::Error> {
    let Some((head, status, mut body)) = answer_head(bytes)? else { return Ok(None) };
    Ok(body.feed(&bytes[head..], |_| {}).map(|_| status))
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Framing {
    /// After so many bytes.
    Length(usize),
    /// With an empty chunk.
    Chunked,
    /// With the connection.
    UntilClose,
}

fn framing(headers: &[httparse::Header<'_>]) -> Framing {
    let mut found = Framing::UntilClose;
    for header in headers {
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Framing::Chunked;
        }
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = std::str::from_utf8(header.value).ok().and_then(|v| v.trim().parse().ok());
            found = length.map_or(found, Framing::Length);
        }
    }
    found
}

/// Follows a body through the pieces in which it arrives.
#[derive(Debug)]
pub struct Body {
    framing: Framing,
    /// Data bytes of the body, or of the current chunk, that are still to come.
    left: usize,
    at: At,
    size: usize,
}

/// Place in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Size,
    Extension,
    Data,
    DataEnd,
    Trailer { line_is_empty: bool },
}

impl Body {
    fn new(framing: Framing) -> Self {
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        Self { framing, left, at: At::Size, size: 0 }
    }

    /// Whether the body ends only with its connection.
    pub fn ends_with_connection(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    /// Takes what has arrived, hands data bytes to `on_data`, and gives how many bytes belonged to the body, once it is over.
    pub fn feed(&mut self, bytes: &[u8], mut on_data: impl FnMut(&[u8])) -> Option<usize> {
        match self.framing {
            Framing::UntilClose => {
                on_data(bytes);
                None
            }
            Framing::Length(_) => {
                let taken = self.left.min(bytes.len());
                on_data(&bytes[..taken]);
                self.left -= taken;
                (self.left == 0).then_some(taken)
            }
            Framing::Chunked => self.feed_chunks(bytes, on_data),
        }
    }

    fn feed_chunks(&mut self, bytes: &[u8], mut on_data: impl FnMut(&[u8])) -> Option<usize> {
        let mut place = 0;
        while place < bytes.len() {
            if self.at == At::Data {
                let taken = self.left.min(bytes.len() - place);
                on_data(&bytes[place..place + taken]);
                place += taken;
                self.left -= taken;
                if self.left == 0 {
                    self.at = At::DataEnd;
                }
                continue;
            }
            let byte = bytes[place];
            place += 1;
            match (self.at, byte) {
                (At::Size | At::Extension, b'\n') => {
                    (self.left, self.size) = (self.size, 0);
                    self.at = if self.left == 0 { At::Trailer { line_is_empty: true } } else { At::Data };
                }
                (At::Size, b';') => self.at = At::Extension,
                (At::Size, _) => {
                    if let Some(digit) = (byte as char).to_digit(16) {
                        self.size = (self.size << 4) | digit as usize;
                    }
                }
                (At::DataEnd, b'\n') => self.at = At::Size,
                (At::Trailer { line_is_empty: true }, b'\n') => return Some(place),
                (At::Trailer { .. }, b'\n') => self.at = At::Trailer { line_is_empty: true },
                (At::Trailer { .. }, b'\r') => {}
                (At::Trailer { .. }, _) => self.at = At::Trailer { line_is_empty: false },
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_is_followed_through_any_cut() {
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let text = b"5\r\nhello\r\n7;x=1\r\n world!\r\n0\r\nt: 1\r\n\r\n";
        for cut in 0..text.len() {
            let (_, status, mut body) = answer_head(head).unwrap().unwrap();
            let mut data = Vec::new();
            let first = body.feed(&text[..cut], |d| data.extend_from_slice(d));
            assert_eq!((status, first), (200, None), "cut at {cut}");
            assert_eq!(body.feed(&text[cut..], |d| data.extend_from_slice(d)), Some(text.len() - cut));
            assert_eq!(data, b"hello world!");
        }
    }

    #[test]
    fn a_request_is_whole_when_its_body_is() {
        let whole = b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabcGET";
        assert_eq!(request_length(&whole[..whole.len() - 4]), None);
        assert_eq!(request_length(whole), Some(whole.len() - 3));
        let chunked = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nGET";
        assert_eq!(request_length(chunked), Some(chunked.len() - 3));
    }
}
