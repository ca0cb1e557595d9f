//! What a certificate says of its owner.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The names in a certificate, and until when it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The common name of its subject.
    pub common_name: Option<String>,
    /// Its alternative names, in its order: DNS, URI and mail.
    pub alternative: Vec<String>,
    /// Those of the alternative names that are hosts, in lower case.
    pub hosts: Vec<String>,
    /// Time since 1970 until which it holds.
    pub expires: Duration,
}

impl Names {
    /// Reads them from a certificate in DER; `None` if it cannot be read.
    pub fn of(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?;
        let tbs = certificate.tbs_certificate();
        let common_name = tbs.subject().common_name().ok()?.map(|name| name.value().into_owned());
        let mut names = Self { common_name, expires: tbs.validity().not_after.to_unix_duration(), ..Self::default() };
        if let Some((_, SubjectAltName(list))) = tbs.get_extension::<SubjectAltName>().ok()? {
            for name in &list {
                match name {
                    GeneralName::DnsName(host) => {
                        names.hosts.push(host.as_str().to_ascii_lowercase());
                        names.alternative.push(host.as_str().to_owned());
                    }
                    GeneralName::Rfc822Name(name) | GeneralName::UniformResourceIdentifier(name) => {
                        names.alternative.push(name.as_str().to_owned());
                    }
                    _ => {}
                }
            }
        }
        Some(names)
    }

    /// Whether it is for `host`, in lower case; a `*` stands for one label.
    pub(crate) fn covers(&self, host: &str) -> bool {
        let parent = host.split_once('.').map(|(_, parent)| parent);
        self.hosts.iter().any(|h| h == host || (parent.is_some() && h.strip_prefix("*.") == parent))
    }

    /// Time until it expires; `None` if it has.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.expires.checked_sub(since_1970())
    }
}

#[allow(clippy::disallowed_methods, reason = "a certificate's expiry is a wall time")]
fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label() {
        let names = Names { hosts: vec!["*.example.org".into(), "example.com".into()], ..Names::default() };
        for (host, covered) in [
            ("a.example.org", true),
            ("a.b.example.org", false),
            ("example.org", false),
            ("example.com", true),
            ("a.example.com", false),
        ] {
            assert_eq!(names.covers(host), covered, "{host}");
        }
    }

    #[test]
    fn names_are_read_as_they_stand() {
        let mut params = rcgen::CertificateParams::new(vec!["Engine.example.org".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "acme");
        params.subject_alt_names.push(rcgen::SanType::URI("spiffe://acme/batch".try_into().unwrap()));
        let key = rcgen::KeyPair::generate().unwrap();
        let names = Names::of(params.self_signed(&key).unwrap().der()).unwrap();
        assert_eq!(names.common_name.as_deref(), Some("acme"));
        assert_eq!(names.alternative, ["Engine.example.org", "spiffe://acme/batch"]);
        assert_eq!(names.hosts, ["engine.example.org"]);
        assert!(names.left().is_some());
    }
}
