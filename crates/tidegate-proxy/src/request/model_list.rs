//! `GET /v1/models` and `GET /v1/models/ID`, answered here: one engine knows its own models only, and who asks wants to know all that it can ask for.
//!
//! The list is made of every route that could take requests of who asks, with these headers, under the same base: of each, what its pool serves, as far
//! as the route takes it, the tenant may ask for it, and no route before takes it away. It is answered here where the route that takes the list
//! itself leads to a pool of which something is known, or where all routes look at models, so that none takes a request without one. Else the
//! request goes on to an engine.

use crate::request::error::ProxyError;
use crate::request::shown::shown;
use crate::state::catalogue::Listing;
use crate::state::snapshot::{Routed, Snapshot};
use crate::state::tenant::Tenant;
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_config::{ListedModel, ModelList, closest};
use tidegate_core::pool::Shed;

/// Where OpenAI's API has its list, and what is below the same base.
const PATH: &str = "/v1/models";
const BASE: &str = "/v1/";
/// Names in a refusal.
const MOST_NAMED: usize = 5;
/// Names that are looked through for those in a refusal.
const MOST_COMPARED: usize = 1000;
/// Whose a model is of which only the name is known.
const OWNER: &str = "tidegate";

/// What of the list is asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum Wanted {
    All,
    One(String),
}

/// What of the list of models a request asks for; `None`: something else.
pub(crate) fn wanted(method: &Method, path: &str) -> Option<Wanted> {
    if *method != Method::GET {
        return None;
    }
    let rest = path.strip_prefix(PATH)?;
    match rest.strip_prefix('/') {
        None => rest.is_empty().then_some(Wanted::All),
        Some(id) => percent_decoded(id).filter(|id| !id.is_empty()).map(Wanted::One),
    }
}

/// Names of models have slashes, which clients may write as `%2F`. `None` if the text is broken.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&b, more)) = rest.split_first() {
        rest = more;
        if b != b'%' {
            bytes.push(b);
            continue;
        }
        let digit = |at: usize| char::from(*more.get(at)?).to_digit(16);
        bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
        rest = &more[2..];
    }
    String::from_utf8(bytes).ok()
}

/// Who asks, and under which config.
pub(crate) struct Asker<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) tenant: &'a Tenant,
    pub(crate) headers: &'a HeaderMap,
}

/// A route that could take requests of who asks, and what its pool serves now.
struct Open<'a> {
    routed: &'a Routed,
    listing: Arc<Listing>,
}

impl Open<'_> {
    /// The shortest path below the base that it takes.
    fn path(&self) -> &str {
        self.routed.path().filter(|p| p.len() > BASE.len()).unwrap_or(BASE)
    }
}

/// An answer of the gateway's own.
#[derive(Debug)]
pub(crate) struct OwnAnswer {
    pub(crate) body: Bytes,
    /// The route whose limits count it.
    pub(crate) route: Arc<str>,
}

impl Asker<'_> {
    /// The answer to `wanted`, a request that `routed` takes; `None`: an engine has to answer, or nobody.
    ///
    /// # Errors
    /// If one model is asked for that nobody serves.
    pub(crate) fn answer(&self, wanted: &Wanted, routed: Option<&Routed>) -> Result<Option<OwnAnswer>, ProxyError> {
        if routed.is_some_and(|r| !self.is_listed(r) || r.pool.listing_of_usable().known == 0) {
            return Ok(None);
        }
        let open = self.open_routes();
        let Some(first) = open.iter().find(|o| o.listing.known > 0) else { return Ok(None) };
        let route = Arc::clone(routed.map_or(&first.routed.name, |r| &r.name));
        let models = self.models(&open);
        let body = match wanted {
            Wanted::All => written(&List { object: "list", data: models.iter().map(Listed::card).collect() }),
            Wanted::One(id) => match models.iter().find(|m| m.model.id == *id) {
                Some(listed) => written(&listed.card()),
                None if open.iter().any(|o| o.listing.unknown > 0) && routed.is_some() => return Ok(None),
                None => return Err(not_found(id, None, models.iter().map(|m| m.model.id.as_str()))),
            },
        };
        Ok(Some(OwnAnswer { body, route }))
    }

    /// `error` of a request for `model`, which `routed` took: if nobody in its pool serves that, the refusal says what is served there. Only what
    /// this tenant may ask for by this route is named.
    pub(crate) fn explained(&self, error: ProxyError, model: &str, routed: &Routed) -> ProxyError {
        if !matches!(error, ProxyError::Shed { why: Shed::ModelNotServed, .. }) {
            return error;
        }
        let listing = routed.pool.listing_of_all();
        let may_ask = |name: &&str| routed.takes(name) && self.tenant.may_use(&routed.pool.name, Some(name)).is_ok();
        not_found(model, Some(&routed.pool.name), listing.models.iter().map(|m| m.id.as_str()).filter(may_ask))
    }

    fn is_listed(&self, routed: &Routed) -> bool {
        routed.pool.settings().model_list == ModelList::Merged && self.tenant.may_use_pool(&routed.pool.name)
    }

    fn open_routes(&self) -> Vec<Open<'_>> {
        let header = |name: &str| self.headers.get(name).and_then(|v| v.to_str().ok());
        let open = self.snapshot.routes().filter(|r| r.is_open_to(BASE, &self.tenant.name, header));
        open.map(|routed| Open {
            routed,
            listing: if self.is_listed(routed) { routed.pool.listing_of_usable() } else { Arc::default() },
        })
        .collect()
    }

    /// What can be asked for, each once.
    fn models<'o>(&self, open: &'o [Open<'_>]) -> Vec<Listed<'o>> {
        let mut models: Vec<Listed<'o>> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (at, here) in open.iter().enumerate() {
            let since_unix_s = here.routed.pool.live.since_unix_s();
            let goes_elsewhere = |name: &str| {
                let takes_away = |o: &Open<'_>| here.path().starts_with(o.routed.path().unwrap_or_default());
                open[..at].iter().any(|o| o.routed.takes(name) && takes_away(o))
            };
            for model in &here.listing.models {
                let name = model.id.as_str();
                let may_ask =
                    here.routed.takes(name) && self.tenant.may_use(&here.routed.pool.name, Some(name)).is_ok();
                if !may_ask || goes_elsewhere(name) {
                    continue;
                }
                match places.get(name) {
                    Some(place) => models[*place].model.to_mut().merge(model.clone()),
                    None => {
                        places.insert(name, models.len());
                        models.push(Listed { model: Cow::Borrowed(model), since_unix_s });
                    }
                }
            }
        }
        models
    }
}

/// A model, and when the pool began to be that serves it.
struct Listed<'o> {
    model: Cow<'o, ListedModel>,
    since_unix_s: u64,
}

impl Listed<'_> {
    fn card(&self) -> Card<'_> {
        let model = &*self.model;
        Card {
            id: &model.id,
            object: "model",
            created: model.created.unwrap_or(self.since_unix_s),
            owned_by: model.owned_by.as_deref().unwrap_or(OWNER),
            root: model.root.as_deref(),
            parent: model.parent.as_deref(),
            max_model_len: model.max_model_len,
        }
    }
}

#[derive(Serialize)]
struct List<'o> {
    object: &'static str,
    data: Vec<Card<'o>>,
}

/// One entry, in the words of OpenAI and vLLM. What is not known is left out, but for what OpenAI's clients insist on.
#[derive(Serialize)]
struct Card<'o> {
    id: &'o str,
    object: &'static str,
    created: u64,
    owned_by: &'o str,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<&'o str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'o str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<u32>,
}

/// As JSON; texts and numbers always can be.
fn written(value: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}

/// The refusal that names `model`, and a few of `served`, those that are spelt most like it first.
fn not_found<'a>(model: &str, pool: Option<&str>, served: impl Iterator<Item = &'a str>) -> ProxyError {
    let served: Vec<&str> = served.take(MOST_COMPARED).collect();
    let nearest = closest(model, served.iter().copied(), MOST_NAMED);
    let names: Vec<String> = nearest.iter().map(|name| format!("`{}`", shown(name))).collect();
    let more = match served.len().saturating_sub(nearest.len()) {
        0 => String::new(),
        _ if served.len() == MOST_COMPARED => " and many more".to_owned(),
        n => format!(" and {n} more"),
    };
    let model = shown(model);
    let whose = pool.map_or_else(String::new, |pool| format!(" by the pool {pool}"));
    ProxyError::ModelNotFound {
        message: match names.as_slice() {
            [] => format!("The model `{model}` does not exist: it is not served{whose}"),
            names => format!("The model `{model}` does not exist; served{whose}: {}{more}", names.join(", ")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_list_are_known_and_others_are_not() {
        let of = |path: &str| wanted(&Method::GET, path);
        assert_eq!(of("/v1/models"), Some(Wanted::All));
        for path in
            ["/v1/models/meta-llama/Llama-3", "/v1/models/meta-llama%2fLlama-3", "/v1/models/%6deta-llama%2FLlama-3"]
        {
            assert_eq!(of(path), Some(Wanted::One("meta-llama/Llama-3".to_owned())), "{path}");
        }
        for path in [
            "/v1/models/",
            "/v1/modelsx",
            "/v1/model",
            "/models",
            "/v2/models",
            "/v1/models/%",
            "/v1/models/%f",
            "/v1/models/%ff",
            "/v1/models/%+1",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
        assert_eq!(wanted(&Method::POST, "/v1/models"), None);
        assert_eq!(wanted(&Method::HEAD, "/v1/models"), None);
    }

    #[test]
    fn a_refusal_names_the_nearest_first_and_says_how_many_there_are() {
        let of = |model: &str, names: &[&str]| not_found(model, Some("chat"), names.iter().copied()).message();
        assert_eq!(of("gpt-4", &[]), "The model `gpt-4` does not exist: it is not served by the pool chat");
        assert_eq!(
            of("lama", &["qwen", "llama"]),
            "The model `lama` does not exist; served by the pool chat: `llama`, `qwen`"
        );
        let many: Vec<String> = (0..12).map(|k| format!("m{k}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let message = of("m11", &many);
        assert!(message.contains("chat: `m11`, ") && message.ends_with(" and 7 more"), "{message}");
        let message = of("x", &["m"; MOST_COMPARED + 5]);
        assert!(message.ends_with(" and many more"), "{message}");
    }
}
