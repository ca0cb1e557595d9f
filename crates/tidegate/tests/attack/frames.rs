//! HTTP/2 by hand.

/// How a client begins, with empty SETTINGS.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
/// `:method: GET`, `:scheme: http`, `:path: /` of HPACK's static table, and `:authority: t`.
pub(crate) const REQUEST: &[u8] = &[0x82, 0x86, 0x84, 0x01, 0x01, b't'];

/// [`REQUEST`] for another path, of less than 127 bytes.
pub(crate) fn request(path: &str) -> Vec<u8> {
    [&[0x82, 0x86, 0x04, path.len() as u8][..], path.as_bytes(), &[0x01, 0x01, b't']].concat()
}

/// A frame of RFC 9113, 4.1.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
