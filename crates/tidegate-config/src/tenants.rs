//! Who asks, how that is known, and what each may have.

use crate::glob::Glob;
use crate::key::{Absent, Key, Kind, Table};
use crate::listener::Listener;
use crate::node::Span;
use crate::reader::{Reader, Section};
use crate::route::globs;
use crate::scalar::{self, Bad};
use crate::slo::Goals;
use crate::walk::{Complaint, Mark, Place};
use ipnet::IpNet;
use std::path::PathBuf;
use std::time::Duration;

/// Digest of an API key.
pub type KeyDigest = [u8; 32];

/// The `tenants` table.
#[derive(Clone, Debug)]
pub struct Tenants {
    /// How a tenant is known, in order; the first that finds one decides.
    pub identify: Vec<Identify>,
    /// What becomes of a request nobody of whom is known.
    pub unknown: Unknown,
    /// The tenants, in the file's order.
    pub named: Vec<Tenant>,
}

/// What becomes of a request whose tenant is not in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It is refused with 401.
    Refuse,
    /// It is the tenant `anonymous`, with the limits of that name.
    Anonymous,
    /// A name that a trusted source gives is taken as it is; without one it is `anonymous`.
    Accept,
}

/// One way to know a tenant.
#[derive(Clone, Debug)]
pub enum Identify {
    /// The digest of an API key: `authorization: Bearer KEY`, or the header given.
    ApiKey {
        /// The header that carries the key by itself; else `authorization` with `Bearer`.
        header: Option<String>,
    },
    /// A header, believed only from these addresses.
    Header {
        /// Its name, in lower case.
        name: String,
        /// Who may set it.
        trust: Vec<IpNet>,
    },
    /// A claim of a signed token.
    Jwt(Jwt),
    /// A name in the certificate that the client showed.
    ClientCertificate(CertificateField),
}

/// Where a certificate names its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateField {
    /// The common name of its subject.
    CommonName,
    /// Its alternative names: DNS, URI and mail.
    San,
}

/// How signed tokens are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwt {
    /// Where the public keys are.
    pub keys: KeySet,
    /// Algorithms that are taken; a token that names another is refused whatever it says.
    pub algorithms: Vec<String>,
    /// The claim that names the tenant.
    pub claim: String,
    /// Whom the token must be from.
    pub issuer: Option<String>,
    /// Whom it must be for.
    pub audience: Option<String>,
}

/// A set of public keys (JWKS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySet {
    /// In a file, read at the start and when it changes.
    File(PathBuf),
    /// At an URL, read at the start and every `refresh`.
    Url {
        /// `http://host:port/path`, or the same with https.
        url: String,
        /// How often.
        refresh: Duration,
        /// The authorities that sign the certificate of an https URL, in a PEM file; `None` trusts those of the system.
        ca: Option<PathBuf>,
    },
}

/// One tenant.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Digests of its API keys.
    pub keys: Vec<KeyDigest>,
    /// Its share of a queue against other tenants (above 0).
    pub weight: f64,
    /// The priority class of its requests in queues; `None`: the last.
    pub priority: Option<String>,
    /// What its answers should take; before the pool's goals.
    pub slo: Goals,
    /// Models it may ask for; empty: any.
    pub models: Vec<Glob>,
    /// Pools it may use; empty: any.
    pub pools: Vec<Glob>,
}

/// Algorithms with public keys. Shared secrets are left out: whoever can check a token could make one.
const ALGORITHMS: &[&str] = &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

/// Reads `sha256:` and 64 hexadecimal digits.
fn digest(_: &Kind, text: &str) -> Result<KeyDigest, Bad> {
    let hint = "keys are stored hashed: `tidegate key` prints what to write here".to_owned();
    let hex = text.strip_prefix("sha256:").filter(|h| h.len() == 64).ok_or_else(|| Bad::Type(hint.clone()))?;
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| Bad::Type(hint.clone()))?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| Bad::Type(hint.clone()))?;
    }
    Ok(digest)
}

fn network(_: &Kind, text: &str) -> Result<IpNet, Bad> {
    let alone = || text.parse::<std::net::IpAddr>().map(IpNet::from);
    text.parse().or_else(|_| alone()).map_err(|_| Bad::Type("an address or a network, such as `10.0.0.0/8`".to_owned()))
}

fn algorithm(_: &Kind, text: &str) -> Result<String, Bad> {
    if ALGORITHMS.contains(&text) {
        return Ok(text.to_owned());
    }
    let near = crate::nearest::nearest(text, ALGORITHMS.iter().copied()).map(|w| format!("did you mean `{w}`?"));
    Err(Bad::Range(near.unwrap_or_else(|| format!("one of {}", ALGORITHMS.join(", ")))))
}

struct ApiKey(Option<String>);

impl Section for ApiKey {
    const TABLE: &'static Table = &Table {
        place: "tenants.identify[].api_key",
        summary: "The API key of a request, looked up by its digest.",
        keys: &[Key {
            name: "header",
            kind: Kind::Text,
            absent: Absent::Means("`authorization: Bearer KEY`"),
            summary: "A header that carries the key by itself.",
            example: "x-api-key",
        }],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self(r.value("header", |_, text| scalar::header_name(text)))
    }
}

struct Header {
    name: String,
    trust: Vec<IpNet>,
}

impl Section for Header {
    const TABLE: &'static Table = &Table {
        place: "tenants.identify[].header",
        summary: "A header that a proxy in front sets; from anybody else it is not believed.",
        keys: &[
            Key {
                name: "name",
                kind: Kind::Text,
                absent: Absent::Required,
                summary: "The header.",
                example: "x-tenant",
            },
            Key {
                name: "trust",
                kind: Kind::Texts,
                absent: Absent::Required,
                summary: "Addresses or networks whose word is taken.",
                example: "[10.0.0.0/8, 127.0.0.1]",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let name = r.value("name", |_, text| scalar::header_name(text)).unwrap_or_default();
        Self { name, trust: r.texts("trust", network) }
    }
}

impl Section for Jwt {
    const TABLE: &'static Table = &Table {
        place: "tenants.identify[].jwt",
        summary: "A claim of the signed token in `authorization: Bearer TOKEN`.",
        keys: &[
            Key {
                name: "jwks_file",
                kind: Kind::Text,
                absent: Absent::Means("jwks_url says where the keys are"),
                summary: "A file with the public keys (JWKS), read at the start and when it changes.",
                example: "/etc/tidegate/keys.json",
            },
            Key {
                name: "jwks_url",
                kind: Kind::Text,
                absent: Absent::Means("jwks_file says where the keys are"),
                summary: "An http or https URL with the public keys (JWKS).",
                example: "https://login.example.com/keys.json",
            },
            Key {
                name: "jwks_ca",
                kind: Kind::Text,
                absent: Absent::Means("the authorities of the system"),
                summary: "A PEM file with the authorities that sign the certificate of an https jwks_url.",
                example: "/etc/tidegate/login-ca.pem",
            },
            Key {
                name: "refresh",
                kind: Kind::Duration { min: 1.0, max: 604_800.0, word: None },
                absent: Absent::Default("5m"),
                summary: "How often the keys are read again.",
                example: "5m",
            },
            Key {
                name: "algorithms",
                kind: Kind::Texts,
                absent: Absent::Required,
                summary: "Algorithms that are taken, whatever a token says of itself.",
                example: "[RS256]",
            },
            Key {
                name: "claim",
                kind: Kind::Text,
                absent: Absent::Default("sub"),
                summary: "The claim that names the tenant.",
                example: "tenant",
            },
            Key {
                name: "issuer",
                kind: Kind::Text,
                absent: Absent::Means("any issuer"),
                summary: "Whom a token must be from (`iss`).",
                example: "https://login.example.com",
            },
            Key {
                name: "audience",
                kind: Kind::Text,
                absent: Absent::Means("any audience"),
                summary: "Whom a token must be for (`aud`).",
                example: "inference",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let (file, url, refresh) = (r.text("jwks_file"), r.value("jwks_url", http_url), r.duration("refresh"));
        if r.is_set("jwks_file") == r.is_set("jwks_url") {
            let found = if file.is_some() { "two places for keys" } else { "no keys to check tokens with" };
            let hint = "for example: `jwks_file: /etc/tidegate/keys.json`".to_owned();
            let at = if r.is_set("jwks_url") { "jwks_url" } else { "jwks_file" };
            r.contradiction(at, found.to_owned(), "one of jwks_file and jwks_url", hint);
        }
        let ca = r.text("jwks_ca").map(PathBuf::from);
        if ca.is_some() && !url.as_ref().is_some_and(|u| u.starts_with("https://")) && r.all_good(&["jwks_url"]) {
            let found = "authorities for a certificate that nobody shows".to_owned();
            let hint = "for example: `jwks_url: https://login.example.com/keys.json`".to_owned();
            r.contradiction("jwks_ca", found, "jwks_ca together with an https jwks_url", hint);
        }
        let keys = match (file, url) {
            (_, Some(url)) => KeySet::Url { url, refresh, ca },
            (file, None) => KeySet::File(file.unwrap_or_default().into()),
        };
        Self {
            keys,
            algorithms: r.texts("algorithms", algorithm),
            claim: r.text("claim").unwrap_or_default(),
            issuer: r.text("issuer"),
            audience: r.text("audience"),
        }
    }
}

impl Section for CertificateField {
    const TABLE: &'static Table = &Table {
        place: "tenants.identify[].client_certificate",
        summary: "A name in the certificate that the client showed (`listeners[].tls.client_ca`).",
        keys: &[Key {
            name: "field",
            kind: Kind::Choice(&["common_name", "san"]),
            absent: Absent::Default("common_name"),
            summary: "The subject's common name, or the first alternative name (DNS, URI, mail) that is a tenant's.",
            example: "san",
        }],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        match r.choice("field") {
            "san" => Self::San,
            _ => Self::CommonName,
        }
    }
}

fn http_url(_: &Kind, text: &str) -> Result<String, Bad> {
    if text.starts_with("http://") || text.starts_with("https://") {
        Ok(text.to_owned())
    } else {
        Err(Bad::Type("an URL that starts with http:// or https://".to_owned()))
    }
}

/// The keys of a way.
const WAYS: [&str; 4] = ["api_key", "header", "jwt", "client_certificate"];

/// One way, as written.
struct Way(Option<Identify>);

impl Section for Way {
    const TABLE: &'static Table = &Table {
        place: "tenants.identify[]",
        summary: "One way to know a tenant: exactly one of these keys.",
        keys: &[
            Key {
                name: "api_key",
                kind: Kind::Table(ApiKey::TABLE),
                absent: Absent::Means("another way"),
                summary: "By API key.",
                example: "{}",
            },
            Key {
                name: "header",
                kind: Kind::Table(Header::TABLE),
                absent: Absent::Means("another way"),
                summary: "By a header that a trusted proxy sets.",
                example: "{ name: x-tenant, trust: [127.0.0.1] }",
            },
            Key {
                name: "jwt",
                kind: Kind::Table(Jwt::TABLE),
                absent: Absent::Means("another way"),
                summary: "By a claim of a signed token.",
                example: "{ jwks_file: keys.json, algorithms: [RS256] }",
            },
            Key {
                name: "client_certificate",
                kind: Kind::Table(CertificateField::TABLE),
                absent: Absent::Means("another way"),
                summary: "By the certificate that the client showed.",
                example: "{ field: common_name }",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let set = WAYS.iter().filter(|k| r.is_set(k)).count();
        let key = r.table::<ApiKey>("api_key").map(|ApiKey(header)| Identify::ApiKey { header });
        let header = r.table::<Header>("header").map(|Header { name, trust }| Identify::Header { name, trust });
        let jwt = r.table::<Jwt>("jwt").map(Identify::Jwt);
        let certificate = r.table("client_certificate").map(Identify::ClientCertificate);
        if certificate.is_some() {
            r.mark("client certificate", "client_certificate", String::new());
        }
        if set != 1 {
            let complaint = Complaint {
                found: format!("{set} ways in one entry"),
                allowed: format!("exactly one of {}", WAYS.join(", ")),
                hint: "write one list entry per way".to_owned(),
            };
            let place = r.place();
            r.walk.error(crate::problem::ProblemKind::Contradiction, &place, complaint);
        }
        Self(key.or(header).or(jwt).or(certificate))
    }
}

impl Section for Tenant {
    const TABLE: &'static Table = &Table {
        place: "tenants.named.NAME",
        summary: "One tenant. Its limits are in `rate_limits` and `concurrency_limits`, under its name.",
        keys: &[
            Key {
                name: "keys",
                kind: Kind::Digests,
                absent: Absent::Means("no API key"),
                summary: "Digests of its API keys, as `tidegate key` prints them.",
                example: "[sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08]",
            },
            Key {
                name: "weight",
                kind: Kind::Number { min: 0.001, max: 1e6 },
                absent: Absent::Default("1"),
                summary: "Its share of a queue against other tenants that wait.",
                example: "3",
            },
            Key {
                name: "slo",
                kind: Kind::Table(Goals::TABLE),
                absent: Absent::Means("the pool's goals"),
                summary: "What its answers should take, in pools that have `slo`.",
                example: "{ ttft: 1s }",
            },
            Key {
                name: "priority",
                kind: Kind::Name,
                absent: Absent::Means("the last class of a queue"),
                summary: "The priority class of its requests in queues.",
                example: "interactive",
            },
            Key {
                name: "models",
                kind: Kind::Globs,
                absent: Absent::Means("any model"),
                summary: "Models it may ask for; others are refused with 403.",
                example: "[\"llama-*\"]",
            },
            Key {
                name: "pools",
                kind: Kind::Globs,
                absent: Absent::Means("any pool"),
                summary: "Pools it may use; others are refused with 403.",
                example: "[chat]",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let place = r.place_of("keys");
        let keys = r.texts("keys", digest);
        for key in &keys {
            let text = key.iter().map(|b| format!("{b:02x}")).collect();
            r.walk.marks.push(Mark { what: "tenant key", place: place.clone(), text });
        }
        let priority = r.value("priority", scalar::name);
        if let Some(class) = &priority {
            r.mark("priority", "priority", class.clone());
        }
        let (models, pools) = (globs(r, "models"), globs(r, "pools"));
        for glob in &pools {
            r.mark("tenant pool", "pools", glob.as_str().to_owned());
        }
        let problems = r.walk.problems.len();
        let slo: Goals = r.table("slo").unwrap_or_default();
        // What could not be read may be the goal.
        if r.is_set("slo") && r.walk.problems.len() == problems {
            r.mark(
                crate::slo::OF_TENANT,
                "slo",
                if slo == Goals::default() { String::new() } else { "goals".to_owned() },
            );
        }
        Self { name: String::new(), keys, weight: r.number("weight"), priority, slo, models, pools }
    }
}

impl Section for Tenants {
    const TABLE: &'static Table = &Table {
        place: "tenants",
        summary: "Who asks, and how that is known.",
        keys: &[
            Key {
                name: "identify",
                kind: Kind::List(Way::TABLE),
                absent: Absent::Required,
                summary: "How a tenant is known; the first way that finds one decides.",
                example: "[{ api_key: {} }]",
            },
            Key {
                name: "unknown",
                kind: Kind::Choice(&["refuse", "anonymous", "accept"]),
                absent: Absent::Default("refuse"),
                summary: "Without a known tenant: 401, or the tenant `anonymous`; accept takes names from headers, tokens and certificates as they are.",
                example: "anonymous",
            },
            Key {
                name: "named",
                kind: Kind::Named(Tenant::TABLE),
                absent: Absent::Means("nobody is known by name"),
                summary: "The tenants.",
                example: "{ acme: { weight: 3 } }",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let identify: Vec<Identify> = r.list::<Way>("identify").into_iter().filter_map(|w| w.0).collect();
        let before = r.walk.marks.iter().filter(|m| m.what == "tenant key").count();
        let named: Vec<Tenant> = r.named::<Tenant>("named").into_iter().map(|(name, t)| Tenant { name, ..t }).collect();
        let keys: Vec<Mark> = r.walk.marks.iter().filter(|m| m.what == "tenant key").skip(before).cloned().collect();
        for (i, mark) in keys.iter().enumerate() {
            if keys.iter().take(i).any(|m| m.text == mark.text) {
                let complaint = Complaint {
                    found: "an API key that another tenant has too".to_owned(),
                    allowed: "each key once".to_owned(),
                    hint: "make a new key with `tidegate key --new`".to_owned(),
                };
                r.walk.error(crate::problem::ProblemKind::Contradiction, &mark.place, complaint);
            }
        }
        let unknown = match r.choice("unknown") {
            "anonymous" => Unknown::Anonymous,
            "accept" => Unknown::Accept,
            _ => Unknown::Refuse,
        };
        Self { identify, unknown, named }
    }
}

/// Patterns of tenants that no pool matches, and limits per tenant where nobody is one.
pub(crate) fn check_uses(r: &mut Reader<'_, '_>, tenants: Option<&Tenants>, pools: &[&str]) {
    let marks =
        |r: &Reader<'_, '_>, what| r.walk.marks.iter().filter(|m| m.what == what).cloned().collect::<Vec<Mark>>();
    for mark in marks(r, "tenant pool") {
        if pools.iter().any(|name| Glob::new(mark.text.clone()).matches(name)) {
            continue;
        }
        let near = crate::nearest::nearest(&mark.text, pools.iter().copied());
        let complaint = Complaint {
            found: format!("`{}`, which no pool matches", mark.text),
            allowed: format!("patterns for {}", pools.join(", ")),
            hint: near.map_or_else(String::new, |w| format!("did you mean `{w}`?")),
        };
        r.walk.error(crate::problem::ProblemKind::Contradiction, &mark.place, complaint);
    }
    if tenants.is_some() {
        return;
    }
    for mark in marks(r, "per tenant") {
        let complaint = Complaint {
            found: "a limit per tenant, where everybody is the same tenant".to_owned(),
            allowed: "limits per tenant together with `tenants`".to_owned(),
            hint: "for example: `tenants: { identify: [{ api_key: {} }] }`".to_owned(),
        };
        let (severity, kind) = (crate::problem::Severity::Warning, crate::problem::ProblemKind::Contradiction);
        r.walk.problem(severity, kind, &mark.place, complaint);
    }
}

/// Tenants known by certificates that no listener asks for.
pub(crate) fn check_certificates(r: &mut Reader<'_, '_>, listeners: &[Listener]) {
    let asks = |l: &Listener| l.tls.as_ref().is_some_and(|t| t.client_auth.is_some());
    let marks: Vec<Mark> = r.walk.marks.iter().filter(|m| m.what == "client certificate").cloned().collect();
    for mark in marks.iter().filter(|_| !listeners.iter().any(asks)) {
        let complaint = Complaint {
            found: "tenants known by their certificates, which no listener asks for".to_owned(),
            allowed: "client_certificate together with `client_ca` of a listener".to_owned(),
            hint: "for example: `tls: { certificates: [...], client_ca: /etc/tidegate/clients-ca.pem }`".to_owned(),
        };
        r.walk.error(crate::problem::ProblemKind::Contradiction, &mark.place, complaint);
    }
}

/// Names of priority classes that no queue has.
pub(crate) fn check_priorities(r: &mut Reader<'_, '_>, classes: &[String]) {
    let marks: Vec<Mark> = r.walk.marks.iter().filter(|m| m.what == "priority").cloned().collect();
    for mark in marks.iter().filter(|m| !classes.contains(&m.text)) {
        let near = crate::nearest::nearest(&mark.text, classes.iter().map(String::as_str));
        let complaint = Complaint {
            found: format!("`{}`, a priority class that no queue has", mark.text),
            allowed: if classes.is_empty() {
                "a class of a pool's `queue.classes`".to_owned()
            } else {
                format!("one of {}", classes.join(", "))
            },
            hint: near
                .map_or_else(|| "add it to `queue.classes` of a pool".to_owned(), |w| format!("did you mean `{w}`?")),
        };
        let place = Place { span: Span { ..mark.place.span }, path: mark.place.path.clone() };
        r.walk.error(crate::problem::ProblemKind::Contradiction, &place, complaint);
    }
}
