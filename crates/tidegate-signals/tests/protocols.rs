//! Health checks of engines that are spoken to by TLS, or by HTTP/2: with the settings of their pool.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_config::Config;
use tidegate_core::event::Event;
use tidegate_core::id::EndpointId;
use tidegate_core::time::Instant;
use tidegate_signals::{Clock, Tell};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Answers 200 to everything, over one protocol.
async fn serve<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(socket: T, http2: bool) {
    let service = service_fn(|_| async { Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default())) });
    let io = TokioIo::new(socket);
    if http2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    }
}

/// Whether the first check of an engine passes; `scheme` and `pool` say how the pool speaks to it.
async fn passes(tls: Option<Arc<ServerConfig>>, http2: bool, scheme: &str, pool: &str) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let engine = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            match &tls {
                None => serve(socket, http2).await,
                Some(tls) => {
                    if let Ok(stream) = TlsAcceptor::from(Arc::clone(tls)).accept(socket).await {
                        serve(stream, http2).await;
                    }
                }
            }
        }
    });
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  p:\n    endpoints: [{{ url: '{scheme}://localhost:{port}' }}]\n    health: {{ http: {{ path: /health }} }}\n    {pool}\n"
    );
    let config = Config::parse(&text, "t.yaml", &|_| None).expect("a good config").0;
    let (sender, mut told) = mpsc::unbounded_channel();
    let tell: Tell = Arc::new(move |event| {
        let _ = sender.send(event);
    });
    let clock: Clock = Arc::new(|| Instant::from_nanos(0));
    let mut watch = tidegate_signals::Watch::default();
    let ears = tidegate_signals::Told {
        events: tell,
        facts: Arc::new(|_, _| {}),
        serves: Arc::new(|_, _| {}),
        models: Arc::new(|_, _| {}),
        clock,
    };
    watch.start(&config.pools[0], &[EndpointId(0)], &ears, 1);
    let Some(Event::Checked { passed, .. }) = told.recv().await else { return false };
    watch.stop().await;
    engine.abort();
    passed
}

/// A certificate for `localhost` and what trusts it, in a file that goes with the test.
struct Signed {
    file: PathBuf,
    server: Arc<ServerConfig>,
}

impl Signed {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let own = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("signals-{}.pem", std::process::id()));
        std::fs::write(&file, own.pem()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key)
            .unwrap();
        Self { file, server: Arc::new(server) }
    }
}

impl Drop for Signed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

#[tokio::test]
async fn checks_speak_what_the_pool_speaks() {
    assert!(passes(None, false, "http", "").await);
    assert!(passes(None, true, "http", "protocol: h2").await);
    assert!(!passes(None, true, "http", "").await, "an engine that speaks HTTP/2 only");
}

#[tokio::test]
async fn checks_by_tls_trust_whom_the_pool_trusts() {
    let signed = Signed::new();
    let tls = || Some(Arc::clone(&signed.server));
    let trusting = format!("tls: {{ ca: '{}' }}", signed.file.display());
    assert!(passes(tls(), false, "https", &trusting).await);
    assert!(passes(tls(), true, "https", &format!("protocol: h2\n    {trusting}")).await);
    assert!(!passes(tls(), false, "https", "").await, "the system's authorities have not signed it");
    assert!(!passes(None, false, "https", &trusting).await, "an engine that speaks in clear");
    let other = format!("tls: {{ ca: '{}', server_name: elsewhere }}", signed.file.display());
    assert!(!passes(tls(), false, "https", &other).await, "it is for another name");
}
