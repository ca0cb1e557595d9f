//! TLS of a listener.

use crate::fault::Fault;
use crate::names::Names;
use crate::pem;
use crate::reloaded::Reloaded;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_config::{Certificate, Tls};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;

/// The settings of a listener, made again when its files change. `http2` offers HTTP/2 before HTTP/1.1.
///
/// # Errors
/// If a file is missing or is not what it should be, or a key does not fit its certificate.
pub fn server(tls: &Tls, http2: bool) -> Result<Reloaded<ServerConfig>, Fault> {
    let tls = tls.clone();
    Reloaded::new(files(&tls), move || settings(&tls, http2))
}

fn files(tls: &Tls) -> Vec<PathBuf> {
    let own = tls.certificates.iter().flat_map(|c| [c.cert.clone(), c.key.clone()]);
    own.chain(tls.client_auth.iter().map(|c| c.ca.clone())).collect()
}

fn settings(tls: &Tls, http2: bool) -> Result<ServerConfig, Fault> {
    let provider = Arc::new(ring::default_provider());
    let unusable =
        |e: &dyn std::fmt::Display| Fault { file: PathBuf::new(), what: format!("TLS cannot be set up: {e}") };
    let versions = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(&e))?;
    let verified = match &tls.client_auth {
        None => versions.with_no_client_auth(),
        Some(auth) => {
            let roots = Arc::new(pem::roots(&auth.ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = if auth.required { verifier } else { verifier.allow_unauthenticated() };
            versions.with_client_cert_verifier(verifier.build().map_err(|e| Fault::of(&auth.ca, e.to_string()))?)
        }
    };
    let certificates = tls.certificates.iter().map(certified).collect::<Result<_, _>>()?;
    let mut settings = verified.with_cert_resolver(Arc::new(ByHost { certificates }));
    settings.alpn_protocols = alpn(http2);
    // Tickets of this version of the files only: what was allowed by authorities that have gone must not be taken up again.
    settings.ticketer = ring::Ticketer::new().map_err(|e| unusable(&e))?;
    Ok(settings)
}

/// What is offered by ALPN, the dearest first.
pub(crate) fn alpn(http2: bool) -> Vec<Vec<u8>> {
    let h2 = http2.then(|| b"h2".to_vec());
    h2.into_iter().chain([b"http/1.1".to_vec()]).collect()
}

/// A certificate with its key, which must fit it.
pub(crate) fn certified(files: &Certificate) -> Result<(Names, Arc<CertifiedKey>), Fault> {
    let chain = pem::certificates(&files.cert)?;
    let names = chain.first().and_then(|c| Names::of(c)).ok_or_else(|| Fault::of(&files.cert, "is no certificate"))?;
    let key = pem::key(&files.key)?;
    let signing = ring::sign::any_supported_type(&key).map_err(|_| {
        Fault::of(&files.key, "is a key of a kind that is not supported (RSA, ECDSA P-256/P-384 and Ed25519 are)")
    })?;
    let certified = CertifiedKey::new(chain, signing);
    certified
        .keys_match()
        .map_err(|_| Fault::of(&files.key, format!("is not the key of the certificate in {}", files.cert.display())))?;
    Ok((names, Arc::new(certified)))
}

/// Certificates by the host that a client names.
#[derive(Debug)]
struct ByHost {
    certificates: Vec<(Names, Arc<CertifiedKey>)>,
}

impl ResolvesServerCert for ByHost {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let host = hello.server_name().map(str::to_ascii_lowercase);
        let fits = host.and_then(|host| self.certificates.iter().find(|(names, _)| names.covers(&host)));
        fits.or(self.certificates.first()).map(|(_, key)| Arc::clone(key))
    }
}
