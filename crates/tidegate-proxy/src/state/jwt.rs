//! Signed tokens: checked against a set of public keys that is read again now and then.
//!
//! A token that was checked is remembered by its digest until it expires, since a signature costs as much as a whole proxied request.

use crate::state::tenant::digest;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate_config::{EndpointTls, Jwt, KeyDigest, KeySet, Protocol};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;

/// Checked tokens that are remembered; the memory is emptied when it is full.
const MAX_CHECKED: usize = 10_000;
/// Largest key set that is read, in bytes, and the time it may take.
const MAX_KEYS: u64 = 1 << 20;
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks tokens.
pub(crate) struct Verifier {
    settings: Jwt,
    source: KeySet,
    claim: String,
    validation: Validation,
    keys: RwLock<Vec<(Option<String>, DecodingKey)>>,
    /// Digest of a checked token: its tenant, and when it expires, in seconds since 1970.
    checked: Mutex<HashMap<KeyDigest, (String, u64)>>,
}

impl Verifier {
    /// A verifier as configured. A key file is read at once, so that a gateway whose keys cannot be read says so when it starts.
    pub(crate) fn new(cfg: &Jwt) -> Self {
        let algorithms: Vec<Algorithm> = cfg.algorithms.iter().filter_map(|a| a.parse().ok()).collect();
        let mut validation = Validation::new(algorithms.first().copied().unwrap_or(Algorithm::RS256));
        validation.algorithms = algorithms;
        validation.validate_nbf = true;
        validation.validate_aud = cfg.audience.is_some();
        if let Some(audience) = &cfg.audience {
            validation.set_audience(&[audience]);
        }
        if let Some(issuer) = &cfg.issuer {
            validation.set_issuer(&[issuer]);
        }
        let verifier = Self {
            settings: cfg.clone(),
            source: cfg.keys.clone(),
            claim: cfg.claim.clone(),
            validation,
            keys: RwLock::new(Vec::new()),
            checked: Mutex::new(HashMap::new()),
        };
        if let KeySet::File(path) = &verifier.source {
            verifier.read_file(path);
        }
        verifier
    }

    /// What it was made from.
    pub(crate) fn settings(&self) -> &Jwt {
        &self.settings
    }

    /// The tenant that a token names; `Err` says why it is not taken.
    pub(crate) fn tenant_of(&self, token: &str) -> Result<String, &'static str> {
        let (key, now) = (digest(token), unix_now());
        if let Some((tenant, until)) = self.checked.lock().get(&key)
            && now < *until
        {
            return Ok(tenant.clone());
        }
        let kid = decode_header(token).map_err(|_| "the token cannot be read")?.kid;
        let keys = self.keys.read();
        if keys.is_empty() {
            return Err("the gateway has no keys to check tokens with");
        }
        let fits = |name: &Option<String>| kid.is_none() || *name == kid;
        let claims = keys.iter().filter(|(name, _)| fits(name)).find_map(|(_, key)| {
            decode::<Map<String, Value>>(token, key, &self.validation).ok().map(|data| data.claims)
        });
        let claims = claims.ok_or("the token is expired, or signed or meant otherwise than this gateway expects")?;
        let tenant = claims.get(&self.claim).and_then(Value::as_str).ok_or("the token does not name its tenant")?;
        let until = claims.get("exp").and_then(Value::as_u64).unwrap_or(0);
        let mut checked = self.checked.lock();
        if checked.len() >= MAX_CHECKED {
            checked.clear();
        }
        checked.insert(key, (tenant.to_owned(), until));
        Ok(tenant.to_owned())
    }

    /// How often [`Verifier::refresh`] wants to be called.
    pub(crate) fn every(&self) -> Duration {
        match &self.source {
            KeySet::File(_) => Duration::from_secs(30),
            KeySet::Url { refresh, .. } => *refresh,
        }
    }

    /// Reads the keys again. Keys that cannot be read leave the old ones in use.
    pub(crate) async fn refresh(&self) {
        match &self.source {
            KeySet::File(path) => self.read_file(path),
            KeySet::Url { url, ca, .. } => match tokio::time::timeout(FETCH_TIMEOUT, fetch(url, ca.clone())).await {
                Ok(Ok(body)) => self.take(&body, url),
                Ok(Err(error)) => tracing::error!(url, %error, "cannot read the keys for tokens"),
                Err(_) => tracing::error!(url, "cannot read the keys for tokens: no answer in time"),
            },
        }
    }

    /// Reads a key file again at once: a reload may be for its sake.
    pub(crate) fn reread(&self) {
        if let KeySet::File(path) = &self.source {
            self.read_file(path);
        }
    }

    fn read_file(&self, path: &Path) {
        match std::fs::read(path) {
            Ok(bytes) => self.take(&bytes, &path.display().to_string()),
            Err(error) => tracing::error!(path = %path.display(), %error, "cannot read the keys for tokens"),
        }
    }

    fn take(&self, bytes: &[u8], source: &str) {
        let set: JwkSet = match serde_json::from_slice(bytes) {
            Ok(set) => set,
            Err(error) => return tracing::error!(source, %error, "not a key set (JWKS)"),
        };
        let key = |jwk: &jsonwebtoken::jwk::Jwk| Some((jwk.common.key_id.clone(), DecodingKey::from_jwk(jwk).ok()?));
        let keys: Vec<_> = set.keys.iter().filter_map(key).collect();
        if keys.is_empty() {
            return tracing::error!(source, "a key set without a key that can be used");
        }
        *self.keys.write() = keys;
        // A key that was taken out of the set must not live on in tokens that were checked with it.
        self.checked.lock().clear();
    }
}

#[allow(clippy::disallowed_methods, reason = "a token's expiry is a wall time")]
fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The body at an `http` or `https` URL, as the answer to one plain request. A certificate is checked by
/// the authorities in `ca`, or those of the system.
async fn fetch(url: &str, ca: Option<PathBuf>) -> io::Result<Vec<u8>> {
    let invalid = |message: &str| io::Error::new(io::ErrorKind::InvalidInput, message.to_owned());
    let uri: http::Uri = url.parse().map_err(|_| invalid("not an URL"))?;
    let host = uri.host().ok_or_else(|| invalid("an URL without a host"))?;
    let is_tls = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let ask = format!("GET {path} HTTP/1.0\r\nhost: {host}\r\naccept: application/json\r\n\r\n");
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let socket = tokio::net::TcpStream::connect((bare, port)).await?;
    let mut answer = if is_tls {
        let tls = EndpointTls { ca, ..EndpointTls::default() };
        let settings = tidegate_tls::client(&tls, Protocol::Http1).map_err(io::Error::other)?.current();
        let name = tidegate_tls::server_name(&tls, bare).map_err(io::Error::other)?;
        exchange(Box::pin(TlsConnector::from(settings).connect(name, socket)).await?, &ask).await?
    } else {
        exchange(socket, &ask).await?
    };
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(|| invalid("not an answer of HTTP"))?;
    if !answer.starts_with(b"HTTP/1.1 200") && !answer.starts_with(b"HTTP/1.0 200") {
        return Err(invalid("another status than 200"));
    }
    Ok(answer.split_off(end + 4))
}

/// All that is answered to `ask`. One that is cut short is no key set, and found to be none.
async fn exchange<T: AsyncRead + AsyncWrite + Unpin>(mut socket: T, ask: &str) -> io::Result<Vec<u8>> {
    socket.write_all(ask.as_bytes()).await?;
    let mut answer = Vec::new();
    match socket.take(MAX_KEYS).read_to_end(&mut answer).await {
        // Many close a TLS connection without the word for it.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    /// A key made for this test, in DER, and its public half as a JWK says it.
    const PRIVATE: &str =
        "302e020100300506032b6570042204201eacaf5d028590590b225850024350fa83dc77e1a54d4eba83e6066c31b52af3";
    const PUBLIC: &str = "Xk_QtJprgGzfcNworq4fJUAIMxtNuUj-r4QvA_1G6cg";

    fn signing() -> EncodingKey {
        let bytes: Vec<u8> =
            (0..PRIVATE.len() / 2).map(|k| u8::from_str_radix(&PRIVATE[2 * k..2 * k + 2], 16).unwrap()).collect();
        EncodingKey::from_ed_der(&bytes)
    }

    fn verifier(algorithms: &[&str]) -> Verifier {
        let cfg = Jwt {
            keys: KeySet::Url { url: String::new(), refresh: Duration::from_secs(60), ca: None },
            algorithms: algorithms.iter().map(|a| (*a).to_owned()).collect(),
            claim: "tenant".to_owned(),
            issuer: Some("us".to_owned()),
            audience: None,
        };
        let verifier = Verifier::new(&cfg);
        let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": PUBLIC, "alg": "EdDSA" }] });
        verifier.take(set.to_string().as_bytes(), "test");
        verifier
    }

    fn token(kid: &str, claims: &Value) -> String {
        let header = Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::EdDSA) };
        encode(&header, claims, &signing()).unwrap()
    }

    fn claims(expires_in_s: i64) -> Value {
        json!({ "tenant": "acme", "iss": "us", "exp": unix_now() as i64 + expires_in_s })
    }

    #[test]
    fn a_token_names_its_tenant_while_it_is_valid() {
        let v = verifier(&["EdDSA"]);
        let good = token("k1", &claims(3600));
        assert_eq!(v.tenant_of(&good).as_deref(), Ok("acme"));
        assert_eq!(v.tenant_of(&good).as_deref(), Ok("acme"), "from memory");
        assert!(v.tenant_of(&token("k1", &claims(-3600))).is_err(), "expired");
        assert!(v.tenant_of(&token("k2", &claims(3600))).is_err(), "signed with a key that is not in the set");
        let elsewhere = json!({ "tenant": "acme", "iss": "them", "exp": unix_now() + 3600 });
        assert!(v.tenant_of(&token("k1", &elsewhere)).is_err(), "from another issuer");
        let mut forged = good.clone();
        forged.truncate(good.len() - 6);
        assert!(v.tenant_of(&format!("{forged}AAAAAA")).is_err(), "another signature");
    }

    #[test]
    fn a_token_cannot_choose_its_algorithm() {
        let v = verifier(&["RS256"]);
        assert!(v.tenant_of(&token("k1", &claims(3600))).is_err());
        let none = "eyJhbGciOiJub25lIn0.eyJ0ZW5hbnQiOiJhY21lIn0.";
        assert!(v.tenant_of(none).is_err() && v.tenant_of("not a token").is_err());
    }

    #[test]
    fn keys_that_are_taken_out_of_the_set_end_the_tokens_they_signed() {
        let v = verifier(&["EdDSA"]);
        let good = token("k1", &claims(3600));
        assert!(v.tenant_of(&good).is_ok());
        let other = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "k9", "x": PUBLIC, "alg": "EdDSA" }] });
        v.take(other.to_string().as_bytes(), "test");
        assert!(v.tenant_of(&good).is_err());
        v.take(b"{}", "test");
        v.take(b"not json", "test");
        assert!(
            v.tenant_of(&token("k9", &claims(3600))).is_ok(),
            "a set that cannot be read leaves the old one in use"
        );
    }

    /// Serves `body` once, by TLS with a certificate that is written to `file`; its port.
    async fn serve_once(file: &Path, body: String) -> u16 {
        use tokio_rustls::rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
        let key = rcgen::KeyPair::generate().unwrap();
        let own = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(file, own.pem()).unwrap();
        let config = ServerConfig::builder_with_provider(std::sync::Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
            if let Ok(mut stream) = acceptor.accept(socket).await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{body}").as_bytes()).await;
                let _ = stream.flush().await;
                // Closed without the word for it, as many do.
            }
        });
        port
    }

    #[tokio::test]
    async fn keys_come_by_tls_from_whom_the_config_trusts() {
        let file = std::env::temp_dir().join(format!("tidegate-jwks-{}.pem", std::process::id()));
        let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": PUBLIC, "alg": "EdDSA" }] });
        for trusts in [true, false] {
            let port = serve_once(&file, set.to_string()).await;
            let mut v = verifier(&["EdDSA"]);
            v.keys.write().clear();
            let (url, ca) = (format!("https://localhost:{port}/keys.json"), trusts.then(|| file.clone()));
            v.source = KeySet::Url { url, refresh: Duration::from_secs(60), ca };
            v.refresh().await;
            assert_eq!(v.tenant_of(&token("k1", &claims(3600))).is_ok(), trusts);
        }
        let _ = std::fs::remove_file(file);
    }
}
