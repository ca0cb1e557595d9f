//! What is wrong with the certificates of a config, found before they meet a handshake.

use crate::client;
use crate::fault::Fault;
use crate::pem;
use crate::server;
use std::path::Path;
use std::time::Duration;
use tidegate_config::{Certificate, Config, Problem, ProblemKind, Severity};

/// A certificate with less left than this is told.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// Files of `config`, read from `source`, that cannot be used (errors), and certificates that have expired or soon will (warnings).
pub fn problems(config: &Config, source: &Path) -> Vec<Problem> {
    let mut found = Found { source, problems: Vec::new() };
    for (place, listener) in config.listeners.iter().enumerate() {
        let Some(tls) = &listener.tls else { continue };
        let path = format!("listeners[{place}].tls");
        let before = found.problems.len();
        for (k, certificate) in tls.certificates.iter().enumerate() {
            found.certificate(&format!("{path}.certificates[{k}]"), certificate);
        }
        if let Some(auth) = &tls.client_auth {
            found.faulty(&format!("{path}.client_ca"), pem::roots(&auth.ca));
        }
        if found.problems.len() == before {
            found.faulty(&path, server::server(tls, false));
        }
    }
    for pool in config.pools.iter().filter(|p| p.endpoints.iter().any(|e| e.url.is_tls())) {
        let path = format!("pools.{}.tls", pool.name);
        let before = found.problems.len();
        if let Some(certificate) = &pool.tls.certificate {
            found.certificate(&path, certificate);
        }
        if let Some(ca) = &pool.tls.ca {
            found.faulty(&format!("{path}.ca"), pem::roots(ca));
        }
        for (place, endpoint) in pool.endpoints.iter().enumerate().filter(|(_, e)| e.url.is_tls()) {
            let name = client::server_name(&pool.tls, endpoint.url.host());
            found.faulty(&format!("pools.{}.endpoints[{place}].url", pool.name), name);
        }
        if found.problems.len() == before {
            found.faulty(&path, client::client(&pool.tls, pool.protocol));
        }
    }
    found.problems
}

struct Found<'s> {
    source: &'s Path,
    problems: Vec<Problem>,
}

impl Found<'_> {
    /// A certificate and its key; and how long it still holds.
    fn certificate(&mut self, path: &str, files: &Certificate) {
        match server::certified(files) {
            Err(fault) => {
                let at = if fault.file == files.key { "key" } else { "cert" };
                self.faulty::<()>(&format!("{path}.{at}"), Err(fault));
            }
            Ok((names, _)) => {
                let what = match names.left() {
                    None => "has expired: nobody who checks it will go on".to_owned(),
                    Some(left) if left < SOON => format!("expires in {} hours", left.as_secs() / 3600),
                    Some(_) => return,
                };
                let what = format!("{} {what}", files.cert.display());
                let (allowed, hint) = (
                    "a certificate that holds for a week at least",
                    "renew it; a running gateway reads it again by itself",
                );
                self.tell(Severity::Warning, &format!("{path}.cert"), what, allowed, hint);
            }
        }
    }

    fn faulty<T>(&mut self, path: &str, result: Result<T, Fault>) {
        if let Err(fault) = result {
            let allowed = "files in PEM that can be read and fit each other";
            let hint = "`openssl x509 -in FILE -noout -text` shows what a certificate says";
            self.tell(Severity::Error, path, fault.to_string(), allowed, hint);
        }
    }

    fn tell(&mut self, severity: Severity, path: &str, found: String, allowed: &str, hint: &str) {
        self.problems.push(Problem {
            severity,
            kind: ProblemKind::Unreadable,
            source: self.source.display().to_string(),
            line: 0,
            column: 0,
            width: 1,
            path: path.to_owned(),
            found,
            allowed: allowed.to_owned(),
            hint: hint.to_owned(),
            excerpt: String::new(),
            caret: 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_cannot_be_used_is_told_and_what_soon_cannot() {
        let folder = std::env::temp_dir().join(format!("tidegate-check-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str| folder.join(name).display().to_string();
        let write = |name: &str, year: i32| {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            let key = rcgen::KeyPair::generate().unwrap();
            std::fs::write(file(&format!("{name}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
            std::fs::write(file(&format!("{name}.key")), key.serialize_pem()).unwrap();
        };
        write("good", 4000);
        write("old", 2001);
        let pair = |cert: &str, key: &str| format!("{{ cert: \"{}\", key: \"{}\" }}", file(cert), file(key));
        let text = format!(
            "listeners:\n- address: 127.0.0.1:0\n  tls: {{ certificates: [{}, {}, {}, {}], client_ca: \"{}\" }}\npools: {{ p: {{ endpoints: [{{ url: https://a_b }}], tls: {{ ca: \"{}\" }} }} }}\n",
            pair("good.pem", "good.key"),
            pair("good.pem", "old.key"),
            pair("none.pem", "good.key"),
            pair("old.pem", "old.key"),
            file("good.key"),
            file("nowhere.pem"),
        );
        let (config, _) = Config::parse(&text, "t.yaml", &|_| None).unwrap();
        let found = problems(&config, Path::new("t.yaml"));
        let _ = std::fs::remove_dir_all(&folder);
        let found: Vec<(bool, String, String)> = found
            .iter()
            .map(|p| (p.is_error(), p.path.clone(), p.found.replace(&format!("{}/", folder.display()), "")))
            .collect();
        let wanted = [
            (true, "listeners[0].tls.certificates[1].key", "old.key: is not the key of the certificate in good.pem"),
            (true, "listeners[0].tls.certificates[2].cert", "none.pem: does not exist"),
            (false, "listeners[0].tls.certificates[3].cert", "old.pem has expired: nobody who checks it will go on"),
            (
                true,
                "listeners[0].tls.client_ca",
                "good.key: has no certificate (a block that begins with -----BEGIN CERTIFICATE-----)",
            ),
            (true, "pools.p.tls.ca", "nowhere.pem: does not exist"),
        ];
        assert_eq!(found, wanted.map(|(error, path, what)| (error, path.to_owned(), what.to_owned())));
    }
}
