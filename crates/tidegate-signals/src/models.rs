//! What an engine says it serves: its models page, and the adapters its metrics tell of.
//!
//! The page is OpenAI's list of models. Beyond its ids, vLLM and SGLang tell the longest context (`max_model_len`) and, of a LoRA adapter, the
//! model it belongs to (`parent`). Decisions go by hashes of names; the entries themselves are told for lists that people read. An answer that cannot be read changes nothing: what an engine serves does not end because it is busy.

use crate::client::Client;
use crate::dial::Dial;
use crate::metric::samples;
use crate::miss::Miss;
use crate::pace::Pace;
use crate::poll::{JITTER, backoff, rest};
use crate::watch::{Clock, TellFacts, TellModels, TellServes};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_config::{ListedModel, Polled};
use tidegate_core::hash::hash_bytes;
use tidegate_core::id::EndpointId;
use tidegate_core::placement::Serves;
use tidegate_core::rng::Rng;
use tidegate_telemetry::SignalFacts;
use tokio::time::timeout;

/// Bound on the length of a page, in bytes.
const LIMIT_BYTES: usize = 4 << 20;
/// Models and adapters of one endpoint that are taken in.
const MAX_MODELS: usize = 10_000;
/// Longest wait for the next question to an endpoint that was never read: it gets next to nothing until then.
const UNREAD_EVERY: Duration = Duration::from_secs(1);
/// Names that are logged and shown.
const MAX_SHOWN: usize = 50;
/// The name under which what was found is shown.
const SOURCE: &str = "models";

/// What one endpoint has said so far, from every source, and who is told when that changes.
pub(crate) struct Serving {
    id: EndpointId,
    said: Mutex<Serves>,
    tell: TellServes,
}

impl Serving {
    /// `asks`: it is asked for its list.
    pub(crate) fn new(id: EndpointId, asks: bool, tell: TellServes) -> Self {
        Self { id, said: Mutex::new(Serves { is_unread: asks, ..Serves::default() }), tell }
    }

    fn change(&self, change: impl FnOnce(&mut Serves)) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let was = said.clone();
        change(&mut said);
        if *said != was {
            (self.tell)(self.id, &said);
        }
    }

    fn on_models(&self, listed: &Listed) {
        self.change(|s| {
            let hashes = |are_adapters| listed.names(are_adapters).map(hash).collect();
            (s.models, s.adapters) = (Some(hashes(false)), hashes(true));
            s.max_context = listed.max_context();
            s.is_unread = false;
        });
    }

    /// It will not say what it serves.
    fn on_no_list(&self) {
        self.change(|s| s.is_unread = false);
    }

    /// Takes in what the metrics page of a vLLM says of adapters, if it does.
    pub(crate) fn on_metrics(&self, page: &str) {
        if let Some((max, in_use)) = adapters_in_use(page) {
            self.change(|s| (s.max_adapters, s.adapters_in_use) = (max, Some(in_use)));
        }
    }
}

/// Adapters held at most and those in use, of `vllm:lora_requests_info`: a series for each set that was ever seen, whose value is the time
/// it was seen last.
fn adapters_in_use(page: &str) -> Option<(Option<u32>, Vec<u64>)> {
    let newest = samples(page, "vllm:lora_requests_info").max_by(|a, b| a.value.total_cmp(&b.value))?;
    let names = ["running_lora_adapters", "waiting_lora_adapters"].into_iter().filter_map(|l| newest.label(l));
    let mut in_use: Vec<u64> =
        names.flat_map(|l| l.split(',')).map(str::trim).filter(|n| !n.is_empty()).map(hash).take(MAX_MODELS).collect();
    in_use.sort_unstable();
    in_use.dedup();
    Some((newest.label("max_lora").and_then(|n| n.trim().parse().ok()).filter(|n| *n > 0), in_use))
}

fn hash(name: &str) -> u64 {
    hash_bytes(name.as_bytes())
}

/// What a models page says.
#[derive(Debug, Default, PartialEq)]
struct Listed {
    entries: Vec<ListedModel>,
    /// There were more than are taken in.
    is_cut: bool,
}

impl Listed {
    /// What can be understood of a list: an entry without a name is left out, a length that is none is not known.
    ///
    /// # Errors
    /// If it is no list of models, or an empty one: an engine that is still loading must not look like one that serves nothing.
    fn read(body: &[u8]) -> Result<Self, Miss> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let page: Value = serde_json::from_slice(body).map_err(Miss::NotJson)?;
        let entries = page.get("data").and_then(Value::as_array).ok_or(Miss::NoModel)?;
        let mut listed = Self::default();
        let named = entries.iter().filter_map(|e| Some((e.get("id")?.as_str().filter(|id| !id.is_empty())?, e)));
        for (id, entry) in named {
            if listed.entries.len() == MAX_MODELS {
                listed.is_cut = true;
                break;
            }
            let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            let length = entry
                .get("max_model_len")
                .and_then(Value::as_f64)
                .filter(|n| (1.0..=MOST_CONTEXT).contains(n))
                .map(|n| n as u32);
            listed.entries.push(ListedModel {
                id: id.to_owned(),
                is_adapter: entry.get("parent").is_some_and(|p| !p.is_null()),
                parent: text("parent"),
                root: text("root"),
                owned_by: text("owned_by"),
                created: entry.get("created").and_then(Value::as_u64),
                max_model_len: length,
            });
        }
        if listed.entries.is_empty() { Err(Miss::NoModel) } else { Ok(listed) }
    }

    /// Names of adapters, or of models.
    fn names(&self, are_adapters: bool) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(move |e| e.is_adapter == are_adapters).map(|e| e.id.as_str())
    }

    /// The longest context that any of them takes: whoever has a shorter one is told so by the engine itself, and nobody is kept from one that fits.
    fn max_context(&self) -> Option<u32> {
        self.entries.iter().filter_map(|e| e.max_model_len).max()
    }
}

/// Tokens beyond which a context is nobody's.
const MOST_CONTEXT: f64 = 1e9;

/// Whether an endpoint that was never read will not be: it has no such page, or none for us. It then serves anything, as one that is not
/// asked. What starts, is busy or cannot be reached may yet answer.
fn is_final(miss: &Miss) -> bool {
    match miss {
        Miss::Status(status) => (400..500).contains(status) && !matches!(status, 408 | 425 | 429),
        Miss::NotJson(_) | Miss::TooLarge(_) | Miss::Encoded(_) => true,
        _ => false,
    }
}

/// The loop that asks one endpoint.
pub(crate) struct ModelsPoller<D> {
    pub(crate) pool: Arc<str>,
    pub(crate) endpoint: Arc<str>,
    pub(crate) client: Client<D>,
    pub(crate) polled: Polled,
    pub(crate) serving: Arc<Serving>,
    pub(crate) id: EndpointId,
    pub(crate) tell_models: TellModels,
    pub(crate) tell_facts: TellFacts,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
}

impl<D: Dial> ModelsPoller<D> {
    pub(crate) async fn run(mut self) {
        let mut pace = Pace::new(self.rng.clone(), JITTER);
        let (mut missed, mut last, mut is_read) = (0, None, false);
        loop {
            pace.on_ask();
            let asked_at = (self.clock)();
            let answer = timeout(self.polled.timeout, self.client.get(&self.polled.path, LIMIT_BYTES)).await;
            let listed = answer.unwrap_or(Err(Miss::Timeout)).and_then(|body| Listed::read(&body));
            let took = (self.clock)().since(asked_at);
            match &listed {
                Ok(listed) => {
                    (missed, is_read) = (0, true);
                    // First, so that whoever is refused by what follows can be told what there is.
                    (self.tell_models)(self.id, &listed.entries);
                    self.serving.on_models(listed);
                }
                Err(miss) => {
                    self.client.close();
                    missed += 1;
                    if !is_read && is_final(miss) {
                        self.serving.on_no_list();
                    }
                }
            }
            self.say(&listed, &mut last);
            let wait = rest(self.polled.interval, took) * backoff(missed);
            pace.wait(if is_read { wait } else { wait.min(rest(UNREAD_EVERY, took)) }).await;
        }
    }

    fn say(&self, listed: &Result<Listed, Miss>, last: &mut Option<SignalFacts>) {
        let mut facts = SignalFacts {
            source: SOURCE,
            trouble: listed.as_ref().err().map(ToString::to_string),
            ..SignalFacts::default()
        };
        if let Ok(listed) = listed {
            let shown = |name: &str| name.chars().take(200).collect::<String>();
            facts.models = listed.names(false).chain(listed.names(true)).take(MAX_SHOWN).map(shown).collect();
            facts.trouble = listed.is_cut.then(|| format!("more than {MAX_MODELS} models: the rest is not known"));
            let there = [
                ("models", listed.names(false).next().is_some()),
                ("adapters", listed.names(true).next().is_some()),
                ("max_context", listed.max_context().is_some()),
            ];
            for (name, is_there) in there {
                if is_there { facts.present.push(name) } else { facts.missing.push(name) }
            }
        }
        if last.as_ref() == Some(&facts) {
            return;
        }
        let (pool, endpoint) = (&*self.pool, &*self.endpoint);
        match &facts.trouble {
            Some(reason) if last.as_ref().is_none_or(|l| l.trouble.is_none()) => {
                tracing::info!(pool, endpoint, %reason, "the list of models could not be read, or not all of it");
            }
            Some(_) => {}
            None => {
                let context = listed.as_ref().ok().and_then(Listed::max_context);
                let context = context.map_or_else(|| "none".to_owned(), |n| n.to_string());
                tracing::info!(pool, endpoint, models = ?facts.models, max_context = context, "models read");
            }
        }
        (self.tell_facts)(&self.endpoint, facts.clone());
        *last = Some(facts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vllm_s_page_tells_models_adapters_and_the_context() {
        let page = br#"{"object":"list","data":[
            {"id":"llama","object":"model","created":1700000000,"owned_by":"vllm","root":"meta/llama","parent":null,"max_model_len":8192},
            {"id":"support-de","object":"model","root":"/l/de","parent":"llama","max_model_len":null}]}"#;
        let llama = ListedModel {
            root: Some("meta/llama".to_owned()),
            owned_by: Some("vllm".to_owned()),
            created: Some(1_700_000_000),
            max_model_len: Some(8192),
            ..ListedModel::named("llama", false)
        };
        let adapter = ListedModel {
            root: Some("/l/de".to_owned()),
            parent: Some("llama".to_owned()),
            ..ListedModel::named("support-de", true)
        };
        let expected = Listed { entries: vec![llama, adapter], is_cut: false };
        assert_eq!(Listed::read(page).unwrap(), expected);
    }

    #[test]
    fn a_page_without_any_model_is_a_miss() {
        for page in [&br#"{"object":"list","data":[]}"#[..], b"{}", b"[]", b"no"] {
            assert!(Listed::read(page).is_err());
        }
        let bare = Listed::read(br#"{"data":[{"id":"m"}]}"#).unwrap();
        assert_eq!((bare.entries, bare.is_cut), (vec![ListedModel::named("m", false)], false));
    }

    #[test]
    fn odd_entries_do_not_take_the_list_with_them() {
        let page = "\u{feff}{\"data\":[{\"id\":\"a\",\"max_model_len\":1e12},{\"id\":7},{},{\"id\":\"\"},\
            {\"id\":\"b\",\"max_model_len\":\"8192\"},{\"id\":\"c\",\"max_model_len\":-5},{\"id\":\"d\",\"max_model_len\":4096.0}]}";
        let listed = Listed::read(page.as_bytes()).unwrap();
        let names: String = listed.names(false).collect();
        assert_eq!((names.as_str(), listed.max_context()), ("abcd", Some(4096)));
        let many: Vec<String> = (0..MAX_MODELS + 5).map(|k| format!("{{\"id\":\"m{k}\"}}")).collect();
        let listed = Listed::read(format!("{{\"data\":[{}]}}", many.join(",")).as_bytes()).unwrap();
        assert_eq!((listed.entries.len(), listed.is_cut), (MAX_MODELS, true));
    }

    #[test]
    fn the_newest_set_of_adapters_counts() {
        let page = "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"a,b\",waiting_lora_adapters=\"\"} 5\n\
            vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"b\",waiting_lora_adapters=\"c, b\"} 9\n";
        let mut expected = vec![hash("b"), hash("c")];
        expected.sort_unstable();
        assert_eq!(adapters_in_use(page), Some((Some(2), expected)));
        assert_eq!(adapters_in_use("vllm:lora_requests_info{max_lora=\"0\"} 1"), Some((None, Vec::new())));
        assert_eq!(adapters_in_use("up 1"), None);
    }
}
