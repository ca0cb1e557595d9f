//! Header hygiene between two connections.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

static HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes what belongs to one connection only: the fixed list of RFC 9110 section 7.6.1, and whatever `Connection` names.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(','))
            .filter_map(|token| HeaderName::try_from(token.trim()).ok())
            .collect();
        for name in named {
            // Naming these would let a client take away what frames or routes the message.
            if name != header::CONTENT_LENGTH && name != header::HOST {
                headers.remove(name);
            }
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Fields that frame, route or authenticate a message: behind its body they are too late, and could only deceive (RFC 9110, 6.5.1).
static NOT_BEHIND: [HeaderName; 7] = [
    header::CONTENT_LENGTH,
    header::HOST,
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::TRAILER,
    header::SET_COOKIE,
];

/// Removes from trailers what belongs to one connection, and what may not stand behind a body.
pub(crate) fn strip_trailers<D>(frame: &mut Frame<D>) {
    let Some(trailers) = frame.trailers_mut() else { return };
    strip_hop_by_hop(trailers);
    for name in &NOT_BEHIND {
        trailers.remove(name);
    }
}

/// Whether the sender of these headers wants trailers.
pub(crate) fn wants_trailers(headers: &HeaderMap) -> bool {
    has_token(headers, &header::TE, "trailers")
}

/// The protocol a request wants to go on with. `None` for one that names HTTP/2 in clear: that may be passed over (RFC 9113, 3.1), and must
/// be, as requests in a tunnel would pass every limit unseen.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<&HeaderValue> {
    let wanted = headers.get(header::UPGRADE)?;
    let asks = has_token(headers, &header::CONNECTION, "upgrade");
    (asks && !has_token(headers, &header::UPGRADE, "h2c")).then_some(wanted)
}

/// Whether the answer to a request that wanted `wanted` goes on with one of the protocols in it.
pub(crate) fn is_wanted(headers: &HeaderMap, wanted: &HeaderValue) -> bool {
    let (Some(Ok(chosen)), Ok(wanted)) = (headers.get(header::UPGRADE).map(HeaderValue::to_str), wanted.to_str())
    else {
        return false;
    };
    wanted.split(',').any(|token| token.trim().eq_ignore_ascii_case(chosen.trim()))
}

/// Whether a list of tokens, parameters left out, has `token`.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let lists = headers.get_all(name).iter().filter_map(|v| v.to_str().ok());
    lists.flat_map(|v| v.split(',')).any(|t| t.split(';').next().unwrap_or(t).trim().eq_ignore_ascii_case(token))
}

/// Appends `address` to `x-forwarded-for`.
pub(crate) fn forwarded_for(headers: &mut HeaderMap, address: &HeaderValue) {
    let name = HeaderName::from_static("x-forwarded-for");
    let value = match headers.get(&name) {
        Some(before) => HeaderValue::from_bytes(&[before.as_bytes(), b", ", address.as_bytes()].concat()),
        None => Ok(address.clone()),
    };
    if let Ok(value) = value {
        headers.insert(name, value);
    }
}

/// Whether an answer is a stream of server-sent events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(http::header::CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connection_names_goes_but_not_the_framing() {
        let mut h = HeaderMap::new();
        for (k, v) in [
            ("connection", "x-secret, Content-Length"),
            ("x-secret", "1"),
            ("keep-alive", "5"),
            ("content-length", "3"),
        ] {
            h.insert(k, HeaderValue::from_static(v));
        }
        strip_hop_by_hop(&mut h);
        assert_eq!(h.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["content-length"]);
    }

    #[test]
    fn an_upgrade_is_taken_up_but_for_one_that_hides_requests() {
        let of = |connection: &'static str, protocol: &'static str| {
            let mut h = HeaderMap::new();
            h.insert(header::CONNECTION, HeaderValue::from_static(connection));
            h.insert(header::UPGRADE, HeaderValue::from_static(protocol));
            upgrade(&h).is_some()
        };
        assert!(of("keep-alive, Upgrade", "websocket"));
        assert!(!of("keep-alive", "websocket"));
        for hidden in ["h2c", "H2C", "websocket, h2c", "h2c, websocket"] {
            assert!(!of("upgrade", hidden), "{hidden}");
        }
        let mut answer = HeaderMap::new();
        answer.insert(header::UPGRADE, HeaderValue::from_static("WebSocket"));
        let wanted = HeaderValue::from_static;
        assert!(is_wanted(&answer, &wanted("websocket")) && is_wanted(&answer, &wanted("x, websocket")));
        assert!(!is_wanted(&answer, &wanted("x")) && !is_wanted(&HeaderMap::new(), &wanted("x")));
    }
}
