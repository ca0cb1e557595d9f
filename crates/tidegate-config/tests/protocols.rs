//! TLS, HTTP/2 and the limits of connections: what is read, and what is said about each contradiction.
#![allow(clippy::expect_used, reason = "a helper of tests: a failed expectation is a failed test")]

mod common;

use common::{check, in_pool, on_top};
use std::time::Duration;
use tidegate_config::{Config, Identify, KeySet, Protocol};

fn read(text: &str) -> Config {
    Config::parse(text, "t.yaml", &|_| None).expect("a good config").0
}

#[test]
fn http2_has_bounds_by_default_and_can_be_switched_off() {
    let limits = read(&on_top("")).limits;
    let http2 = limits.http2.unwrap();
    assert_eq!((http2.max_concurrent_streams, http2.max_pending_resets, http2.max_error_resets), (128, 20, 1024));
    assert_eq!((http2.stream_window, http2.connection_window, http2.send_buffer), (256 << 10, 1 << 20, 64 << 10));
    assert_eq!((http2.ping_interval, http2.ping_timeout), (Some(Duration::from_secs(30)), Duration::from_secs(10)));
    assert_eq!(read(&on_top("limits: { http2: off }")).limits.http2, None);
    let http2 = read(&on_top("limits: { http2: { ping_interval: off, stream_window: 16KiB } }")).limits.http2.unwrap();
    assert_eq!((http2.ping_interval, http2.stream_window), (None, 16 << 10));
}

#[test]
fn connections_are_bounded_per_listener_and_where_asked_per_address() {
    let limits = read(&on_top("")).limits;
    assert_eq!((limits.max_connections, limits.max_connections_per_address), (10_000, None));
    assert_eq!(limits.handshake_timeout, Duration::from_secs(10));
    assert_eq!(limits.send_timeout, Some(Duration::from_secs(60)));
    assert_eq!(read(&on_top("limits: { send_timeout: none }")).limits.send_timeout, None);
    let limits = read(&on_top("limits: { max_connections_per_address: 100, handshake_timeout: 1s }")).limits;
    assert_eq!((limits.max_connections_per_address, limits.handshake_timeout), (Some(100), Duration::from_secs(1)));
}

#[test]
fn tls_of_a_listener_needs_a_certificate_and_authorities_go_with_asking() {
    let listener = |tls: &str| {
        format!(
            "listeners:\n- address: 127.0.0.1:0\n  tls: {{ {tls} }}\npools: {{ p: {{ endpoints: [{{ url: http://a:1 }}] }} }}\n"
        )
    };
    let tls = |text: &str| read(&listener(text)).listeners[0].tls.clone().unwrap();
    let one = "certificates: [{ cert: a.pem, key: a.key }]";
    assert_eq!(tls(one).client_auth, None);
    assert!(tls(&format!("{one}, client_ca: ca.pem")).client_auth.unwrap().required);
    assert!(!tls(&format!("{one}, client_ca: ca.pem, client_auth: optional")).client_auth.unwrap().required);
    check(
        &listener("certificates: []"),
        "3:24 missing listeners[0].tls.certificates | no `certificates` | for example: `certificates: [{ cert: /etc/tidegate/gateway.pem, key: /etc/tidegate/gateway.key }]`",
    );
    check(
        &listener("certificates: [{ cert: a.pem }]"),
        "3:25 missing listeners[0].tls.certificates[0].key | no `key` | for example: `key: /etc/tidegate/gateway.key`",
    );
    check(
        &listener(&format!("{one}, client_auth: required")),
        "3:68 contradiction listeners[0].tls.client_auth | required, and no client_ca to check certificates with | for example: `client_ca: /etc/tidegate/clients-ca.pem`",
    );
    check(
        &listener(&format!("{one}, client_ca: ca.pem, client_auth: off")),
        "3:66 contradiction listeners[0].tls.client_ca | authorities for certificates that nobody is asked for | for example: `client_ca: /etc/tidegate/clients-ca.pem`",
    );
}

#[test]
fn certificates_as_tenants_need_a_listener_that_asks_for_them() {
    check(
        &on_top("tenants: { identify: [{ client_certificate: {} }], named: { acme: {} } }"),
        "3:45 contradiction tenants.identify[0].client_certificate | tenants known by their certificates, which no listener asks for | for example: `tls: { certificates: [...], client_ca: /etc/tidegate/clients-ca.pem }`",
    );
}

#[test]
fn tls_of_endpoints_needs_an_endpoint_that_speaks_it() {
    let pool = |keys: &str| {
        format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  p:\n    endpoints: [{{ url: https://a }}]\n    {keys}\n"
        )
    };
    let p = read(&pool("protocol: h2")).pools.remove(0);
    assert_eq!((p.protocol, p.tls.verify, p.endpoints[0].url.port()), (Protocol::H2, true, 443));
    assert_eq!(read(&pool("connections: { max_streams: 7 }")).pools[0].connections.max_streams, 7);
    let own = read(&pool("tls: { ca: ca.pem, server_name: b, cert: a.pem, key: a.key }")).pools.remove(0).tls;
    assert_eq!((own.server_name.as_deref(), own.certificate.is_some()), (Some("b"), true));
    check(
        &pool("tls: { cert: a.pem }"),
        "5:18 contradiction pools.p.tls.cert | a certificate without its key | for example: `key: /etc/tidegate/client.key`",
    );
    check(
        &pool("tls: { verify: false }"),
        "5:20 contradiction pools.p.tls.verify | endpoints whose certificates nobody checks | name the authority that signs them: `ca: /etc/tidegate/engines-ca.pem`",
    );
    check(
        &in_pool("    tls: { server_name: b }"),
        "5:10 contradiction pools.p.tls | settings of TLS in a pool whose endpoints are all spoken to in clear | for example: `endpoints: [{ url: https://127.0.0.1:8443 }]`",
    );
}

#[test]
fn authorities_for_keys_of_tokens_go_with_https() {
    let tenants = |keys: &str| {
        on_top(&format!(
            "tenants: {{ identify: [{{ jwt: {{ {keys}, algorithms: [RS256] }} }}], named: {{ acme: {{}} }} }}"
        ))
    };
    let identify = read(&tenants("jwks_url: https://a/keys, jwks_ca: ca.pem")).tenants.expect("tenants").identify;
    let Identify::Jwt(jwt) = &identify[0] else { unreachable!("{identify:?}") };
    assert!(matches!(&jwt.keys, KeySet::Url { url, ca: Some(_), .. } if url == "https://a/keys"), "{:?}", jwt.keys);
    check(
        &tenants("jwks_url: http://a/keys, jwks_ca: ca.pem"),
        "3:66 contradiction tenants.identify[0].jwt.jwks_ca | authorities for a certificate that nobody shows | for example: `jwks_url: https://login.example.com/keys.json`",
    );
}
