//! Who may ask, decided from the head of a request alone.

use crate::answer::Refusal;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, StatusCode};
use std::net::{IpAddr, SocketAddr};
use tidegate_config::Secret;

/// On loopback, `Host` must name loopback: a web page that points its own name at 127.0.0.1 (DNS rebinding) sends that name. The port
/// may be any, as tunnels change it. Elsewhere the token protects, and names are the operator's.
pub(crate) fn check_host(address: SocketAddr, headers: &HeaderMap) -> Result<(), Refusal> {
    if !address.ip().is_loopback() {
        return Ok(());
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|h| h.to_str().ok()).filter(|_| hosts.next().is_none());
    if host.is_some_and(is_loopback) {
        return Ok(());
    }
    let message = "the Host header must be localhost or a loopback address, as the admin API listens on one";
    Err(Refusal::new(StatusCode::FORBIDDEN, "host_not_allowed", message))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|h| h.split_once(']')) {
        Some((v6, _)) => v6,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Where there is a token, it must be presented.
pub(crate) fn check_token(token: Option<&Secret>, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(token) = token else { return Ok(()) };
    let value = headers.get(AUTHORIZATION).map_or(&b""[..], |v| v.as_bytes());
    let scheme = value.get(..7).is_some_and(|s| s.eq_ignore_ascii_case(b"bearer "));
    let presented = if scheme { value[7..].trim_ascii() } else { b"" };
    if is_same(presented, token.expose().as_bytes()) {
        return Ok(());
    }
    let message = "present the admin token: `authorization: Bearer TOKEN`";
    Err(Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", message))
}

/// Compares in a time that depends on the length of `presented` alone, so that no prefix of the secret can be found by timing.
fn is_same(presented: &[u8], secret: &[u8]) -> bool {
    let mut different = u8::from(presented.len() != secret.len()) | u8::from(secret.is_empty());
    for (i, &byte) in presented.iter().enumerate() {
        let own = secret.get(i % secret.len().max(1)).copied().unwrap_or(0);
        different = std::hint::black_box(different | (byte ^ own));
    }
    different == 0
}

/// A request that changes something must be JSON, which a form on a foreign page cannot send, and must come from no foreign page.
pub(crate) fn check_change(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok());
    if headers.contains_key(ORIGIN) {
        let origin = text(ORIGIN).and_then(|o| o.strip_prefix("http://").or_else(|| o.strip_prefix("https://")));
        if origin.is_none() || origin != text(HOST) {
            let message = "changes are only taken from this server's own page or from programs that send no Origin";
            return Err(Refusal::new(StatusCode::FORBIDDEN, "foreign_origin", message));
        }
    }
    let media = text(CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "send JSON with `content-type: application/json`";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn loopback_answers_only_to_its_own_names() {
        let (loopback, open) = ("127.0.0.1:9090".parse().unwrap(), "10.0.0.1:9090".parse().unwrap());
        for (host, allowed) in [
            ("localhost:9090", true),
            ("LOCALHOST", true),
            ("127.0.0.1:18080", true),
            ("127.0.0.53", true),
            ("[::1]:9090", true),
            ("evil.example:9090", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example:9090", false),
            ("10.0.0.1:9090", false),
            ("", false),
        ] {
            let headers = headers(&[(HOST, host)]);
            assert_eq!(check_host(loopback, &headers).is_ok(), allowed, "{host}");
            assert!(check_host(open, &headers).is_ok());
        }
        assert!(check_host(loopback, &HeaderMap::new()).is_err());
        let mut both = headers(&[(HOST, "localhost")]);
        both.append(HOST, "evil.example".parse().unwrap());
        assert!(check_host(loopback, &both).is_err());
    }

    #[test]
    fn only_the_whole_token_passes() {
        let token = Secret::new("s3cret");
        for (value, allowed) in [
            ("Bearer s3cret", true),
            ("bearer s3cret", true),
            ("Bearer s3cre", false),
            ("Bearer s3crets", false),
            ("Bearer s3crets3cret", false),
            ("Bearer ", false),
            ("Basic s3cret", false),
            ("s3cret", false),
        ] {
            assert_eq!(check_token(Some(&token), &headers(&[(AUTHORIZATION, value)])).is_ok(), allowed, "{value}");
        }
        assert!(check_token(Some(&token), &HeaderMap::new()).is_err());
        assert!(check_token(Some(&Secret::new("")), &headers(&[(AUTHORIZATION, "Bearer ")])).is_err());
        assert!(check_token(None, &HeaderMap::new()).is_ok());
    }

    #[test]
    fn changes_come_as_json_from_no_foreign_page() {
        let json = (CONTENT_TYPE, "application/json; charset=utf-8");
        let host = (HOST, "localhost:9090");
        let check = |pairs: &[(HeaderName, &str)]| check_change(&headers(pairs)).is_ok();
        assert!(check(&[json.clone(), host.clone()]));
        assert!(check(&[json.clone(), host.clone(), (ORIGIN, "http://localhost:9090")]));
        assert!(!check(&[json.clone(), host.clone(), (ORIGIN, "http://localhost:1234")]));
        assert!(!check(&[json.clone(), host.clone(), (ORIGIN, "https://evil.example")]));
        assert!(!check(&[json, host.clone(), (ORIGIN, "null")]));
        assert!(!check(&[host.clone(), (CONTENT_TYPE, "text/plain")]));
        assert!(!check(&[host]));
    }
}
