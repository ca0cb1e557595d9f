//! Header hygiene between two connections.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

static HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
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

/// Appends `address` to `x-forwarded-for`.
pub(crate) fn forwarded_for(headers: &mut HeaderMap, address: std::net::IpAddr) {
    let name = HeaderName::from_static("x-forwarded-for");
    let text = match headers.get(&name).and_then(|v| v.to_str().ok()) {
        Some(before) => format!("{before}, {address}"),
        None => address.to_string(),
    };
    if let Ok(value) = HeaderValue::try_from(text) {
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
}
