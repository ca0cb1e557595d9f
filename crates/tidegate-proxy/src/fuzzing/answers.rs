//! An endpoint's answer, whole and in pieces.

use super::pieces;
use crate::upstream::http1::fuzzed::{Decoder, Head, Malformed, read};
use http::{HeaderMap, Method};

/// An answer as it was read.
#[derive(Debug, Default, PartialEq)]
struct Read {
    status: u16,
    headers: HeaderMap,
    keep_alive: bool,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// Bytes of head and body.
    used: usize,
    has_ended: bool,
}

/// Where an answer ends and what it carries does not depend on where its bytes are split, and what is malformed is so either way.
pub fn answers(input: &[u8]) {
    let Some((&seed, bytes)) = input.split_first() else { return };
    let method = if seed % 8 == 0 { Method::HEAD } else { Method::GET };
    let whole = take(&mut std::iter::once(bytes), &method);
    assert_eq!(take(&mut pieces(bytes, seed), &method), whole, "in pieces");
    assert_eq!(take(&mut bytes.chunks(1), &method), whole, "byte by byte");
    if let Ok(Some(read)) = &whole {
        assert!(read.used <= bytes.len() && read.body.len() <= read.used, "more was read than came: {read:?}");
    }
}

/// `None` if the head is not complete.
fn take(pieces: &mut dyn Iterator<Item = &[u8]>, method: &Method) -> Result<Option<Read>, Malformed> {
    let mut come = Vec::new();
    let Head { parts, framing, keep_alive, size } = loop {
        let Some(piece) = pieces.next() else { return Ok(None) };
        come.extend_from_slice(piece);
        if let Some(head) = read(&come, method)? {
            break head;
        }
    };
    let (mut decoder, mut body) = (Decoder::new(framing), Vec::new());
    let mut used = size + decoder.decode(&come[size..], &mut body)?;
    // Bytes behind the end are nobody's.
    let mut is_behind = used < come.len();
    for piece in pieces {
        if !is_behind {
            let n = decoder.decode(piece, &mut body)?;
            used += n;
            is_behind = n < piece.len();
        }
    }
    let has_ended = decoder.on_closed().is_ok();
    let trailers = if let Decoder::Ended(trailers) = decoder { trailers } else { None };
    Ok(Some(Read {
        status: parts.status.as_u16(),
        headers: parts.headers,
        keep_alive,
        body,
        trailers,
        used,
        has_ended,
    }))
}
