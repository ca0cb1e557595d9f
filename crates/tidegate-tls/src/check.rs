//! What is wrong with the certificates of a config, found before they meet a handshake.

use crate::client;
use crate::fault::Fault;
use crate::names::Names;
use crate::pem;
use crate::server;
use std::path::Path;
use std::time::Duration;
use tidegate_config::{Certificate, Config, Problem, ProblemKind, Severity};

/// A certificate with less left than this is told.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// Files of `config`, read from `source`, that cannot be used (errors), and certificates that have expired or soon will (warnings).
pub fn problems(config: &Config, source: &Path) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut tell = |severity, path: String, what: String, allowed: &str, hint: String| {
        found.push(Problem {
            severity,
            kind: ProblemKind::Unreadable,
            source: source.display().to_string(),
            line: 0,
            column: 0,
            width: 1,
            path,
            found: what,
            allowed: allowed.to_owned(),
            hint,
            excerpt: String::new(),
            caret: 0,
        });
    };
    let mut faulty = |path: String, fault: &Fault| {
        let hint = "`openssl x509 -in FILE -noout -text` shows what a certificate says".to_owned();
        tell(Severity::Error, path, fault.to_string(), "files in PEM that can be read and fit each other", hint);
    };
    let mut own: Vec<(String, &Certificate)> = Vec::new();
    for (place, listener) in config.listeners.iter().enumerate() {
        let Some(tls) = &listener.tls else { continue };
        let path = format!("listeners[{place}].tls");
        if let Err(fault) = server::server(tls, false) {
            faulty(path.clone(), &fault);
        }
        own.extend(tls.certificates.iter().enumerate().map(|(k, c)| (format!("{path}.certificates[{k}].cert"), c)));
    }
    for pool in &config.pools {
        if !pool.endpoints.iter().any(|e| e.url.is_tls()) {
            continue;
        }
        let path = format!("pools.{}.tls", pool.name);
        if let Err(fault) = client::client(&pool.tls, pool.protocol) {
            faulty(path.clone(), &fault);
        }
        for (place, endpoint) in pool.endpoints.iter().enumerate().filter(|(_, e)| e.url.is_tls()) {
            if let Err(fault) = client::server_name(&pool.tls, endpoint.url.host()) {
                faulty(format!("pools.{}.endpoints[{place}].url", pool.name), &fault);
            }
        }
        own.extend(pool.tls.certificate.iter().map(|c| (format!("{path}.cert"), c)));
    }
    for (path, certificate) in own {
        let Some(first) = pem::certificates(&certificate.cert).ok().and_then(|c| Names::of(c.first()?)) else {
            continue;
        };
        let what = match first.left() {
            None => "has expired: nobody who checks it will go on".to_owned(),
            Some(left) if left < SOON => format!("expires in {} hours", left.as_secs() / 3600),
            Some(_) => continue,
        };
        let hint = "renew it; a running gateway reads it again by itself".to_owned();
        let what = format!("{} {what}", certificate.cert.display());
        tell(Severity::Warning, path, what, "a certificate that holds for a week at least", hint);
    }
    found
}
