//! Where the body of an answer ends, and what it carries on the way.

use super::head::{Framing, Malformed, read_trailers};
use crate::downstream::framing::{Carried, Chunks};
use http::HeaderMap;

/// Bytes of trailers that are taken.
const MAX_TRAILERS: usize = 16 * 1024;

/// What is left of a body.
#[derive(Debug)]
pub(crate) enum Decoder {
    Length(u64),
    Chunked { chunks: Chunks, trailers: Vec<u8> },
    Close,
    Ended(Option<HeaderMap>),
}

impl Decoder {
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(0) | Framing::Upgraded => Self::Ended(None),
            Framing::Length(n) => Self::Length(n),
            Framing::Chunked => Self::Chunked { chunks: Chunks::lenient(), trailers: Vec::new() },
            Framing::Close => Self::Close,
        }
    }

    /// Takes from `input`, appending what it carries to `out`; how many bytes belonged to the body.
    pub(crate) fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Malformed> {
        match self {
            Self::Ended(_) => Ok(0),
            Self::Close => {
                out.extend_from_slice(input);
                Ok(input.len())
            }
            Self::Length(left) => {
                let n = (*left).min(input.len() as u64);
                out.extend_from_slice(&input[..n as usize]);
                *left -= n;
                if *left == 0 {
                    *self = Self::Ended(None);
                }
                Ok(n as usize)
            }
            Self::Chunked { chunks, trailers } => {
                let (n, ended) = chunks
                    .read(input, |carried| match carried {
                        Carried::Data(data) => out.extend_from_slice(data),
                        Carried::Trailer(b'\r') => trailers.extend_from_slice(b"\r\n"),
                        Carried::Trailer(byte) => trailers.push(byte),
                    })
                    .map_err(|_| Malformed)?;
                if trailers.len() > MAX_TRAILERS {
                    return Err(Malformed);
                }
                if ended {
                    let lines = std::mem::take(trailers);
                    *self = Self::Ended(if lines.is_empty() {
                        None
                    } else {
                        Some(read_trailers(&[&lines[..], b"\r\n"].concat())?)
                    });
                }
                Ok(n)
            }
        }
    }

    /// The connection has ended; an error if the body had not.
    pub(crate) fn on_closed(&mut self) -> Result<(), Malformed> {
        match self {
            Self::Close => {
                *self = Self::Ended(None);
                Ok(())
            }
            Self::Ended(_) => Ok(()),
            Self::Length(_) | Self::Chunked { .. } => Err(Malformed),
        }
    }

    /// Bytes still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            Self::Length(n) => Some(*n),
            Self::Ended(_) => Some(0),
            Self::Chunked { .. } | Self::Close => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(framing: Framing, input: &[u8], split: usize) -> (Vec<u8>, usize, Decoder) {
        let (mut decoder, mut out) = (Decoder::new(framing), Vec::new());
        let mut used = decoder.decode(&input[..split], &mut out).unwrap();
        if used == split {
            used += decoder.decode(&input[split..], &mut out).unwrap();
        }
        (out, used, decoder)
    }

    #[test]
    fn chunks_are_put_together_wherever_they_are_split() {
        let input = b"5 \r\nhello\r\n6;x=1\r\n world\r\n0\r\ngrpc-status: 0\r\nx-b: c\r\n\r\nHTTP/1.1";
        for split in 0..input.len() {
            let (out, used, decoder) = decode(Framing::Chunked, input, split);
            assert_eq!((&out[..], used), (&b"hello world"[..], input.len() - 8), "split at {split}");
            let Decoder::Ended(Some(trailers)) = decoder else { panic!("{decoder:?}") };
            assert_eq!((trailers.len(), &trailers["grpc-status"]), (2, &"0".parse().unwrap()));
        }
    }

    #[test]
    fn a_length_ends_by_count_and_a_close_by_closing() {
        let (out, used, mut decoder) = decode(Framing::Length(3), b"abcd", 2);
        assert_eq!((&out[..], used, matches!(decoder, Decoder::Ended(_))), (&b"abc"[..], 3, true));
        assert!(decoder.on_closed().is_ok());
        let (out, used, mut decoder) = decode(Framing::Close, b"abcd", 1);
        assert_eq!((&out[..], used, matches!(decoder, Decoder::Ended(_))), (&b"abcd"[..], 4, false));
        assert!(decoder.on_closed().is_ok() && matches!(decoder, Decoder::Ended(_)));
    }

    #[test]
    fn what_breaks_off_or_is_framed_badly_is_an_error() {
        assert!(decode(Framing::Length(3), b"ab", 1).2.on_closed().is_err());
        assert!(decode(Framing::Chunked, b"5\r\nhel", 1).2.on_closed().is_err());
        for bad in [&b"x\r\n"[..], b"5\r\nhelloX", b"5\nhello", b"ffffffffffffffffff\r\n"] {
            assert!(Decoder::new(Framing::Chunked).decode(bad, &mut Vec::new()).is_err(), "{bad:?}");
        }
    }
}
