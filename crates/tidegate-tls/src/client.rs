//! TLS to endpoints.

use crate::fault::Fault;
use crate::pem;
use crate::reloaded::Reloaded;
use crate::server::{alpn, certified};
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_config::{EndpointTls, Protocol};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The settings for a pool's endpoints, made again when their files change. `protocol` says what ALPN offers.
///
/// # Errors
/// If a file is missing or is not what it should be, a key does not fit its certificate, or the system has no authorities.
pub fn client(tls: &EndpointTls, protocol: Protocol) -> Result<Reloaded<ClientConfig>, Fault> {
    let tls = tls.clone();
    let own = tls.certificate.iter().flat_map(|c| [c.cert.clone(), c.key.clone()]);
    let files: Vec<PathBuf> = own.chain(tls.ca.clone()).collect();
    Reloaded::new(files, move || settings(&tls, protocol))
}

/// The name an endpoint's certificate must have: `tls.server_name`, or else the host of its URL.
///
/// # Errors
/// If it is neither a host name nor an address.
pub fn server_name(tls: &EndpointTls, host: &str) -> Result<ServerName<'static>, Fault> {
    let name = tls.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned())
        .map_err(|_| Fault { file: PathBuf::new(), what: format!("`{name}` is neither a host name nor an address") })
}

fn settings(tls: &EndpointTls, protocol: Protocol) -> Result<ClientConfig, Fault> {
    let provider = Arc::new(ring::default_provider());
    let unusable =
        |e: &dyn std::fmt::Display| Fault { file: PathBuf::new(), what: format!("TLS cannot be set up: {e}") };
    let versions = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(&e))?;
    let verifier: Arc<dyn ServerCertVerifier> = if tls.verify {
        let roots = Arc::new(roots(tls)?);
        WebPkiServerVerifier::builder_with_provider(roots, provider).build().map_err(|e| unusable(&e))?
    } else {
        Arc::new(Unverified(provider))
    };
    // The one way to set a verifier; ours is the library's unless the config says `verify: false`.
    let verified = versions.dangerous().with_custom_certificate_verifier(verifier);
    let mut settings = match &tls.certificate {
        None => verified.with_no_client_auth(),
        Some(files) => verified.with_client_cert_resolver(Arc::new(Own(certified(files)?.1))),
    };
    settings.alpn_protocols = match protocol {
        Protocol::Auto => alpn(true),
        Protocol::Http1 => alpn(false),
        Protocol::H2 => vec![b"h2".to_vec()],
    };
    Ok(settings)
}

/// The authorities of `ca`, or else those of the system.
fn roots(tls: &EndpointTls) -> Result<RootCertStore, Fault> {
    if let Some(file) = &tls.ca {
        return pem::roots(file);
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let _ = roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let what = "the system has no certificates of authorities: install them (Debian: ca-certificates), or name a file with `tls.ca`";
        return Err(Fault { file: PathBuf::new(), what: what.to_owned() });
    }
    Ok(roots)
}

/// The one certificate we show, whatever an endpoint asks for.
#[derive(Debug)]
struct Own(Arc<CertifiedKey>);

impl ResolvesClientCert for Own {
    fn resolve(&self, _authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Takes any certificate, as `verify: false` asks. The handshake's own signatures are still checked.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
