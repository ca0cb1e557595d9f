//! Who asks: the tenant of a request, known by key, header or token.
//!
//! The ways are tried in the order of the config, and the first that finds a credential of its kind decides: a wrong key is refused, not
//! looked up some other way. API keys are compared by their digests, so neither the config nor the process holds one.

use crate::downstream::peer::Peer;
use crate::request::error::ProxyError;
use crate::state::jwt::Verifier;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ipnet::IpNet;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tidegate_config::{CertificateField, Glob, Goals, Identify, KeyDigest, Tenants, Unknown};
use tidegate_core::hash::hash_bytes;
use tidegate_tls::Names;

/// The name of whoever is not known.
pub const ANONYMOUS: &str = "anonymous";
/// Longest name that is taken from a header or token.
const MAX_NAME: usize = 64;

/// A tenant as the data plane knows it.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) name: Arc<str>,
    /// Hash of the name; 0 where nobody is told apart.
    pub(crate) hash: u64,
    pub(crate) weight: f64,
    pub(crate) priority: Option<Arc<str>>,
    /// What its answers should take.
    pub(crate) slo: Goals,
    models: Vec<Glob>,
    pools: Vec<Glob>,
}

impl Tenant {
    fn unlisted(name: &str) -> Self {
        let (name, hash) = (name.into(), hash_bytes(name.as_bytes()).max(1));
        Self { name, hash, weight: 1.0, priority: None, slo: Goals::default(), models: Vec::new(), pools: Vec::new() }
    }

    /// Whoever it is, where nobody is told apart.
    fn nobody() -> Self {
        Self { hash: 0, ..Self::unlisted("") }
    }

    /// Whether it may ask `pool` for anything.
    pub(crate) fn may_use_pool(&self, pool: &str) -> bool {
        self.pools.is_empty() || self.pools.iter().any(|g| g.matches(pool))
    }

    /// Whether it may ask for `model` in `pool`.
    pub(crate) fn may_use(&self, pool: &str, model: Option<&str>) -> Result<(), ProxyError> {
        if !self.may_use_pool(pool) {
            return Err(ProxyError::Forbidden {
                code: "pool_not_allowed",
                message: "this tenant may not use this pool",
            });
        }
        if !self.models.is_empty() && !model.is_some_and(|m| self.models.iter().any(|g| g.matches(m))) {
            return Err(ProxyError::Forbidden {
                code: "model_not_allowed",
                message: "this tenant may not ask for this model",
            });
        }
        Ok(())
    }
}

enum Way {
    ApiKey { header: Option<String> },
    Header { name: String, trust: Vec<IpNet> },
    Jwt(Arc<Verifier>),
    Certificate(CertificateField),
}

/// How tenants are known.
pub(crate) struct Directory {
    ways: Vec<Way>,
    unknown: Unknown,
    named: HashMap<Arc<str>, Arc<Tenant>>,
    keys: HashMap<KeyDigest, Arc<Tenant>>,
    anonymous: Arc<Tenant>,
}

impl Directory {
    /// The directory of a config; without `tenants` everybody is the same nobody.
    pub(crate) fn new(cfg: Option<&Tenants>) -> Self {
        Self::after(cfg, None)
    }

    /// The directory that follows `old`: token verifiers whose settings did not change keep their keys.
    pub(crate) fn after(cfg: Option<&Tenants>, old: Option<&Self>) -> Self {
        let Some(cfg) = cfg else {
            let anonymous = Arc::new(Tenant::nobody());
            let (named, keys) = (HashMap::new(), HashMap::new());
            return Self { ways: Vec::new(), unknown: Unknown::Anonymous, named, keys, anonymous };
        };
        let (mut named, mut keys) = (HashMap::new(), HashMap::new());
        for t in &cfg.named {
            let tenant = Arc::new(Tenant {
                weight: t.weight,
                priority: t.priority.as_deref().map(Arc::from),
                slo: t.slo,
                models: t.models.clone(),
                pools: t.pools.clone(),
                ..Tenant::unlisted(&t.name)
            });
            keys.extend(t.keys.iter().map(|k| (*k, Arc::clone(&tenant))));
            named.insert(Arc::clone(&tenant.name), tenant);
        }
        let way = |i: &Identify| match i {
            Identify::ApiKey { header } => Way::ApiKey { header: header.clone() },
            Identify::Header { name, trust } => Way::Header { name: name.clone(), trust: trust.clone() },
            Identify::Jwt(jwt) => {
                let known = old.and_then(|old| old.verifiers().find(|v| v.settings() == jwt));
                known.inspect(|verifier| verifier.reread());
                Way::Jwt(known.map_or_else(|| Arc::new(Verifier::new(jwt)), Arc::clone))
            }
            Identify::ClientCertificate(field) => Way::Certificate(*field),
        };
        let anonymous = named.get(ANONYMOUS).map_or_else(|| Arc::new(Tenant::unlisted(ANONYMOUS)), Arc::clone);
        Self { ways: cfg.identify.iter().map(way).collect(), unknown: cfg.unknown, named, keys, anonymous }
    }

    /// Token verifiers, whose keys are read again now and then.
    pub(crate) fn verifiers(&self) -> impl Iterator<Item = &Arc<Verifier>> {
        self.ways.iter().filter_map(|w| if let Way::Jwt(v) = w { Some(v) } else { None })
    }

    /// The tenant of a request from `peer`. Takes the credential it used out of the headers: it is ours, not the engine's.
    pub(crate) fn identify(&self, headers: &mut HeaderMap, peer: &Peer) -> Result<Arc<Tenant>, ProxyError> {
        self.remove_untrusted(headers, peer.address);
        for way in &self.ways {
            match way {
                Way::ApiKey { header } => {
                    let Some(digest) = key_digest(headers, header.as_deref()) else { continue };
                    if let Some(tenant) = self.keys.get(&digest) {
                        remove(headers, header.as_deref());
                        return Ok(Arc::clone(tenant));
                    }
                    // Not one of ours: a token that a later way reads, or a wrong key.
                    if header.is_some() || !self.reads_tokens() {
                        return self.unknown("invalid_api_key", "this API key is not known here");
                    }
                }
                Way::Header { name, .. } => {
                    let value = headers.get(name.as_str()).and_then(|v| v.to_str().ok());
                    let Some(text) = value.filter(|t| !t.is_empty() && t.len() <= MAX_NAME) else { continue };
                    return self.named(text);
                }
                Way::Jwt(verifier) => {
                    let Some(token) = bearer(headers) else { continue };
                    let name = verifier.tenant_of(token).map_err(|message| unauthorized("invalid_token", message))?;
                    remove(headers, None);
                    return self.named(&name);
                }
                Way::Certificate(field) => {
                    let Some(names) = &peer.names else { continue };
                    return self.certified(names, *field);
                }
            }
        }
        self.unknown("missing_credentials", "this gateway wants to know who asks: no credential it reads was sent")
    }

    /// Who showed a certificate with these names.
    fn certified(&self, names: &Names, field: CertificateField) -> Result<Arc<Tenant>, ProxyError> {
        let name = match field {
            CertificateField::CommonName => names.common_name.as_ref(),
            // One that is a tenant's, or else the first.
            CertificateField::San => {
                let known = names.alternative.iter().find(|n| self.named.contains_key(n.as_str()));
                known.or(names.alternative.first())
            }
        };
        match name {
            Some(name) => self.named(name),
            None => self.unknown("unknown_tenant", "the client's certificate names nobody"),
        }
    }

    /// A name that `peer` may not give goes no further: an engine that reads the header, too, would believe it.
    fn remove_untrusted(&self, headers: &mut HeaderMap, peer: IpAddr) {
        for way in &self.ways {
            if let Way::Header { name, trust } = way
                && !trust.iter().any(|net| net.contains(&peer))
            {
                headers.remove(name.as_str());
            }
        }
    }

    fn reads_tokens(&self) -> bool {
        self.ways.iter().any(|w| matches!(w, Way::Jwt(_)))
    }

    fn named(&self, name: &str) -> Result<Arc<Tenant>, ProxyError> {
        match self.named.get(name) {
            Some(tenant) => Ok(Arc::clone(tenant)),
            None if self.unknown == Unknown::Accept && name.len() <= MAX_NAME => Ok(Arc::new(Tenant::unlisted(name))),
            None => self.unknown("unknown_tenant", "this tenant is not known here"),
        }
    }

    fn unknown(&self, code: &'static str, message: &'static str) -> Result<Arc<Tenant>, ProxyError> {
        match self.unknown {
            _ if self.ways.is_empty() => Ok(Arc::clone(&self.anonymous)),
            Unknown::Refuse => Err(unauthorized(code, message)),
            Unknown::Anonymous | Unknown::Accept => Ok(Arc::clone(&self.anonymous)),
        }
    }
}

fn unauthorized(code: &'static str, message: &'static str) -> ProxyError {
    ProxyError::Unauthorized { code, message }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn key_digest(headers: &HeaderMap, header: Option<&str>) -> Option<KeyDigest> {
    let key = match header {
        Some(name) => headers.get(name)?.to_str().ok()?.trim(),
        None => bearer(headers)?,
    };
    Some(digest(key))
}

/// The digest of an API key, as the config holds it.
pub fn digest(key: &str) -> KeyDigest {
    Sha256::digest(key.as_bytes()).into()
}

fn remove(headers: &mut HeaderMap, header: Option<&str>) {
    match header {
        Some(name) => headers.remove(name),
        None => headers.remove(AUTHORIZATION),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn here() -> Peer {
        Peer::clear(std::net::Ipv4Addr::LOCALHOST.into())
    }

    fn acme() -> tidegate_config::Tenant {
        tidegate_config::Tenant {
            name: "acme".to_owned(),
            keys: vec![digest("secret")],
            weight: 3.0,
            priority: None,
            slo: Goals::default(),
            models: vec![Glob::new("llama-*".to_owned())],
            pools: Vec::new(),
        }
    }

    fn directory(unknown: Unknown) -> Directory {
        let identify = vec![
            Identify::ApiKey { header: None },
            Identify::Header { name: "x-tenant".to_owned(), trust: vec!["127.0.0.0/8".parse().unwrap()] },
        ];
        Directory::new(Some(&Tenants { identify, unknown, named: vec![acme()] }))
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (n.parse().unwrap(), HeaderValue::from_static(v))).collect()
    }

    fn name(result: Result<Arc<Tenant>, ProxyError>) -> String {
        result.map_or_else(|e| e.code().to_owned(), |t| t.name.to_string())
    }

    #[test]
    fn a_key_is_known_by_its_digest_and_goes_no_further() {
        let d = directory(Unknown::Refuse);
        let mut h = headers(&[("authorization", "Bearer secret")]);
        assert_eq!(name(d.identify(&mut h, &here())), "acme");
        assert!(h.is_empty(), "the engine does not see it");
        assert_eq!(name(d.identify(&mut headers(&[("authorization", "Bearer Secret")]), &here())), "invalid_api_key");
        assert_eq!(name(d.identify(&mut HeaderMap::new(), &here())), "missing_credentials");
    }

    #[test]
    fn a_header_is_believed_only_from_where_it_is_trusted() {
        let d = directory(Unknown::Refuse);
        let far = Peer::clear("192.0.2.7".parse().unwrap());
        assert_eq!(name(d.identify(&mut headers(&[("x-tenant", "acme")]), &here())), "acme");
        assert_eq!(name(d.identify(&mut headers(&[("x-tenant", "acme")]), &far)), "missing_credentials");
        assert_eq!(name(d.identify(&mut headers(&[("x-tenant", "other")]), &here())), "unknown_tenant");
        let d = directory(Unknown::Accept);
        assert_eq!(name(d.identify(&mut headers(&[("x-tenant", "other")]), &here())), "other");
        let d = directory(Unknown::Anonymous);
        let mut spoofed = headers(&[("x-tenant", "other")]);
        assert_eq!(name(d.identify(&mut spoofed, &far)), ANONYMOUS);
        assert!(spoofed.is_empty(), "an engine that reads it, too, would believe it");
        // Also where a key decides before.
        let mut both = headers(&[("authorization", "Bearer secret"), ("x-tenant", "other")]);
        assert_eq!((name(d.identify(&mut both, &far)).as_str(), both.len()), ("acme", 0));
    }

    #[test]
    fn a_certificate_names_its_tenant() {
        let of = |field, unknown| {
            let named = vec![tidegate_config::Tenant { name: "spiffe://acme/batch".to_owned(), ..acme() }, acme()];
            Directory::new(Some(&Tenants { identify: vec![Identify::ClientCertificate(field)], unknown, named }))
        };
        let shows = |common_name: Option<&str>, alternative: &[&str]| {
            let alternative = alternative.iter().map(|n| (*n).to_owned()).collect();
            let names = Names { common_name: common_name.map(str::to_owned), alternative, ..Names::default() };
            Peer { tls: true, names: Some(names), ..here() }
        };
        let asks = |d: &Directory, peer: &Peer| name(d.identify(&mut HeaderMap::new(), peer));
        let by_name = of(CertificateField::CommonName, Unknown::Refuse);
        assert_eq!(asks(&by_name, &shows(Some("acme"), &[])), "acme");
        assert_eq!(asks(&by_name, &shows(Some("other"), &["acme"])), "unknown_tenant");
        assert_eq!(asks(&by_name, &shows(None, &[])), "unknown_tenant");
        assert_eq!(asks(&by_name, &here()), "missing_credentials");
        let by_san = of(CertificateField::San, Unknown::Refuse);
        assert_eq!(asks(&by_san, &shows(None, &["a.example.org", "spiffe://acme/batch"])), "spiffe://acme/batch");
        assert_eq!(asks(&by_san, &shows(Some("acme"), &["a.example.org"])), "unknown_tenant");
        assert_eq!(asks(&of(CertificateField::San, Unknown::Accept), &shows(None, &["new"])), "new");
    }

    #[test]
    fn a_tenant_stays_within_its_models() {
        let acme = directory(Unknown::Refuse).named("acme").unwrap();
        assert!(acme.may_use("chat", Some("llama-3")).is_ok());
        assert_eq!(acme.may_use("chat", Some("gpt")).unwrap_err().code(), "model_not_allowed");
        assert_eq!(acme.may_use("chat", None).unwrap_err().code(), "model_not_allowed");
    }
}
