//! Authorities and certificates of a test's own, in a folder of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tls-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a folder for certificates");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).expect("a file for a certificate");
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An authority; its certificate is in `NAME-ca.pem`.
pub(crate) struct Authority<'f> {
    folder: &'f Folder,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pub(crate) file: String,
}

impl<'f> Authority<'f> {
    pub(crate) fn new(folder: &'f Folder, name: &str) -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no hosts");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        let file = folder.write(&format!("{name}-ca.pem"), &params.self_signed(&key).expect("signed").pem());
        Self { folder, issuer: rcgen::Issuer::new(params, key), file }
    }

    /// Signs a certificate of `common_name` for `hosts`, into `NAME.pem` and `NAME.key`.
    pub(crate) fn issue(&self, name: &str, common_name: &str, hosts: &[&str]) -> (String, String) {
        let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(hosts).expect("hosts");
        params.distinguished_name.push(rcgen::DnType::CommonName, common_name);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let cert = self.folder.write(&format!("{name}.pem"), &certificate.pem());
        (cert, self.folder.write(&format!("{name}.key"), &key.serialize_pem()))
    }

    /// A client that trusts this authority, and shows the certificate of `own`.
    pub(crate) fn client(&self, alpn: &[&str], own: Option<&(String, String)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let file = CertificateDer::pem_file_iter(&self.file).expect("a file");
        file.for_each(|c| roots.add(c.expect("a certificate")).expect("a root"));
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let (chain, key) = read(files);
                builder.with_client_auth_cert(chain, key).expect("a certificate of its own")
            }
        };
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// An engine's side of TLS.
pub(crate) fn server(files: &(String, String), alpn: &[&str]) -> Arc<ServerConfig> {
    let (chain, key) = read(files);
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate and its key");
    config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    Arc::new(config)
}

fn read((cert, key): &(String, String)) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_file_iter(cert).expect("a file").map(|c| c.expect("a certificate"));
    (chain.collect(), PrivateKeyDer::from_pem_file(key).expect("a key"))
}
