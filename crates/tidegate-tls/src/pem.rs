//! Certificates and keys in PEM files.

use crate::fault::Fault;
use std::path::Path;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificates of a file, at least one.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|e| Fault::of(file, said(&e)))?;
    if found.is_empty() {
        return Err(Fault::of(file, "has no certificate (a block that begins with -----BEGIN CERTIFICATE-----)"));
    }
    Ok(found)
}

/// The private key of a file.
pub(crate) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, Fault> {
    PrivateKeyDer::from_pem_file(file).map_err(|e| match e {
        pem::Error::NoItemsFound => {
            Fault::of(file, "has no private key (a block that begins with -----BEGIN PRIVATE KEY-----)")
        }
        e => Fault::of(file, said(&e)),
    })
}

/// The authorities of a file, at least one.
pub(crate) fn roots(file: &Path) -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|e| Fault::of(file, format!("has a certificate that cannot be read: {e}")))?;
    }
    Ok(roots)
}

/// An error in words; the library's own says nothing of a file that is missing.
fn said(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(e) if e.kind() == std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        pem::Error::Io(e) => format!("cannot be read: {e}"),
        e => format!("is not PEM: {e}"),
    }
}
