//! TLS of clients: certificates by host, read again when they change, and clients known by theirs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use common::h2_client::{Answer, H2};
use common::tls::{Authority, Folder};
use common::{Running, curl};
use http::Request;
use std::io;
use std::sync::Arc;
use tidegate_testkit::{PATIENCE, Scripted, eventually};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

async fn open(t: &Running, config: Arc<ClientConfig>, host: &str) -> io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(t.address()).await?;
    let name = ServerName::try_from(host.to_owned()).expect("a host");
    TlsConnector::from(config).connect(name, socket).await
}

/// Whether the gateway serves a client that opens a connection so; with TLS 1.3 a refusal comes after the client's handshake.
async fn is_served(t: &Running, config: Arc<ClientConfig>) -> bool {
    let Ok(stream) = open(t, config, "localhost").await else { return false };
    let Ok((client, connection)) = h2::client::handshake(stream).await else { return false };
    tokio::spawn(async move { drop(connection.await) });
    let Ok(mut client) = client.ready().await else { return false };
    let request = Request::get("https://localhost/").body(()).expect("a request");
    match client.send_request(request, true) {
        Ok((response, _)) => response.await.is_ok(),
        Err(_) => false,
    }
}

fn listener(certificates: &[&(String, String)], more: &str) -> String {
    let certificates: Vec<String> =
        certificates.iter().map(|(cert, key)| format!("{{ cert: \"{cert}\", key: \"{key}\" }}")).collect();
    format!("{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{}], {more} }} }}", certificates.join(", "))
}

fn pool(endpoint: &Scripted, top: &str) -> String {
    format!("{top}\npools:\n  p: {{ endpoints: [{{ url: \"{}\" }}] }}", endpoint.url())
}

#[tokio::test]
async fn curl_speaks_both_protocols_over_tls() {
    let folder = Folder::new();
    let authority = Authority::new(&folder, "own");
    let files = authority.issue("gateway", "gateway", &["localhost"]);
    let endpoint = Scripted::start(|mut c| async move {
        while let Some(asked) = c.request().await {
            let proto = asked.header("x-forwarded-proto").unwrap_or_default().to_owned();
            c.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{proto}", proto.len())).await;
        }
    })
    .await;
    let t = Running::listening(&listener(&[&files], ""), &pool(&endpoint, ""));
    let url = format!("https://localhost:{}/", t.address().port());
    for (flag, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let args = [flag, "--cacert", &authority.file, "-w", " %{http_version} %{http_code}", &url];
        let (told, ok) = curl(&args).await;
        assert!(ok && told == format!("https {version} 200"), "{flag}: {told}");
    }
    let (told, ok) = curl(&["--http1.1", &format!("http://localhost:{}/", t.address().port())]).await;
    assert!(!ok, "in clear on a listener of TLS: {told}");
}

#[tokio::test]
async fn http2_is_offered_only_where_it_is_spoken() {
    let folder = Folder::new();
    let authority = Authority::new(&folder, "own");
    let files = authority.issue("gateway", "gateway", &["localhost"]);
    let endpoint = Scripted::answering("a", "ok").await;
    for (limits, agreed) in [("", "h2"), ("limits: { http2: off }", "http/1.1")] {
        let t = Running::listening(&listener(&[&files], ""), &pool(&endpoint, limits));
        let stream = open(&t, authority.client(&["h2", "http/1.1"], None), "localhost").await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(agreed.as_bytes()));
    }
}

#[tokio::test]
async fn the_host_chooses_the_certificate_and_the_first_is_for_all_others() {
    let folder = Folder::new();
    let (own, other) = (Authority::new(&folder, "own"), Authority::new(&folder, "other"));
    let first = own.issue("first", "first", &["first.example.org"]);
    let second = other.issue("second", "second", &["*.second.example.org", "127.0.0.1"]);
    let endpoint = Scripted::answering("a", "ok").await;
    let t = Running::listening(&listener(&[&first, &second], ""), &pool(&endpoint, ""));
    // Each client trusts one authority: it gets on only if it is shown the certificate it should be.
    assert!(open(&t, own.client(&[], None), "first.example.org").await.is_ok());
    assert!(open(&t, other.client(&[], None), "A.second.example.org").await.is_ok());
    assert!(open(&t, own.client(&[], None), "a.second.example.org").await.is_err());
    assert!(open(&t, own.client(&[], None), "unknown.example.org").await.is_err(), "not its name");
    let told = open(&t, other.client(&[], None), "unknown.example.org").await.unwrap_err().to_string();
    assert!(told.contains("UnknownIssuer"), "the first is shown: {told}");
}

#[tokio::test]
async fn certificates_are_read_again_when_they_change() {
    let folder = Folder::new();
    let (old, new) = (Authority::new(&folder, "old"), Authority::new(&folder, "new"));
    let files = old.issue("gateway", "gateway", &["localhost"]);
    let endpoint = Scripted::answering("a", "ok").await;
    let t = Running::listening(&listener(&[&files], ""), &pool(&endpoint, ""));
    let kept = open(&t, old.client(&["h2"], None), "localhost").await.unwrap();
    let mut kept = H2::over(kept).await;
    new.issue("gateway", "gateway", &["localhost"]);
    let renewed = async { while open(&t, new.client(&["h2"], None), "localhost").await.is_err() {} };
    timeout(PATIENCE, renewed).await.expect("the new ones are used");
    assert!(open(&t, old.client(&["h2"], None), "localhost").await.is_err());
    assert_eq!(kept.get("https://localhost/").await.status, 200, "open connections go on");
}

#[tokio::test]
async fn a_tenant_is_known_by_its_certificate() {
    let folder = Folder::new();
    let (own, clients, strangers) =
        (Authority::new(&folder, "own"), Authority::new(&folder, "clients"), Authority::new(&folder, "strangers"));
    let files = own.issue("gateway", "gateway", &["localhost"]);
    let endpoint = Scripted::answering("a", "ok").await;
    let tenants = "tenants: { identify: [{ client_certificate: {} }], named: { acme: {}, umbrella: {} } }";
    let with = |auth: &str| {
        let more = format!("client_ca: \"{}\", client_auth: {auth}", clients.file);
        Running::listening(&listener(&[&files], &more), &pool(&endpoint, tenants))
    };
    let acme = clients.issue("acme", "acme", &[]);
    let (unknown, forged) = (clients.issue("unknown", "other", &[]), strangers.issue("forged", "acme", &[]));
    let t = with("required");
    for (shown, status) in [(&acme, 200), (&unknown, 401)] {
        let mut client = H2::over(open(&t, own.client(&["h2"], Some(shown)), "localhost").await.unwrap()).await;
        assert_eq!(client.get("https://localhost/").await.status, status);
    }
    assert!(!is_served(&t, own.client(&["h2"], Some(&forged))).await, "an authority that nobody named");
    assert!(!is_served(&t, own.client(&["h2"], None)).await, "no certificate");
    assert_eq!(t.records()[0].tenant.as_ref(), "acme");
    let t = with("optional");
    let mut client = H2::over(open(&t, own.client(&["h2"], None), "localhost").await.unwrap()).await;
    let answer: Answer = client.get("https://localhost/").await;
    assert!(answer.status == 401 && answer.text().contains("missing_credentials"), "{}", answer.text());
    assert!(!is_served(&t, own.client(&["h2"], Some(&forged))).await);
    // HTTP/1.1 over the same listener knows it as well.
    let (cert, key) = (acme.0.as_str(), acme.1.as_str());
    let url = format!("https://localhost:{}/", t.address().port());
    let (told, ok) = curl(&["--http1.1", "--cacert", &own.file, "--cert", cert, "--key", key, &url]).await;
    assert!(ok && told == "ok", "{told}");
}

#[tokio::test]
async fn a_handshake_has_its_time() {
    let folder = Folder::new();
    let files = Authority::new(&folder, "own").issue("gateway", "gateway", &["localhost"]);
    let endpoint = Scripted::answering("a", "ok").await;
    let limits = "limits: { handshake_timeout: 100ms, max_connections: 1 }";
    let t = Running::listening(&listener(&[&files], ""), &pool(&endpoint, limits));
    let mut silent = TcpStream::connect(t.address()).await.unwrap();
    let mut sink = [0; 64];
    let closed = timeout(PATIENCE, silent.read(&mut sink)).await.expect("it is closed in time");
    assert_eq!(closed.unwrap_or(0), 0);
    // Its place is free again.
    eventually("it is counted no more", || t.in_flight() == 0).await;
    let (told, ok) = curl(&["-k", &format!("https://localhost:{}/", t.address().port())]).await;
    assert!(ok && told == "ok", "{told}");
}
