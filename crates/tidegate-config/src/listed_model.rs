//! One model as a list of models names it: said by the config of an endpoint, or by its engine.

use crate::endpoint::Endpoint;

/// One entry of a list of models, as OpenAI's API has it and engines add to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedModel {
    /// The name that requests have; never empty.
    pub id: String,
    /// Whether it is a LoRA adapter.
    pub is_adapter: bool,
    /// The model that an adapter belongs to.
    pub parent: Option<String>,
    /// Where the engine has it from.
    pub root: Option<String>,
    /// Whose it is said to be.
    pub owned_by: Option<String>,
    /// When it came to be, in seconds since 1970.
    pub created: Option<u64>,
    /// Longest context, tokens of prompt and answer together.
    pub max_model_len: Option<u32>,
}

impl ListedModel {
    /// One of which only the name is known.
    pub fn named(id: &str, is_adapter: bool) -> Self {
        Self { id: id.to_owned(), is_adapter, ..Self::default() }
    }

    /// Takes in what another endpoint says of the same model: the first word counts, but for the longest context and the earliest time.
    pub fn merge(&mut self, other: Self) {
        self.parent = self.parent.take().or(other.parent);
        self.root = self.root.take().or(other.root);
        self.owned_by = self.owned_by.take().or(other.owned_by);
        self.created = [self.created, other.created].into_iter().flatten().min();
        self.max_model_len = self.max_model_len.max(other.max_model_len);
    }
}

impl Endpoint {
    /// What the endpoint serves, where its engine told `told`: what the config says goes before, as it does for requests; of a model that both
    /// name, what the engine tells of it stays. Adapters of an endpoint with one model are of that model. `None` where no model is known, so that
    /// it serves any.
    pub fn listed(&self, told: &[ListedModel]) -> Option<Vec<ListedModel>> {
        let own = |names: &[String], is_adapter: bool| -> Vec<ListedModel> {
            let known = |id: &String| told.iter().find(|t| t.id == *id).cloned();
            let entry =
                |id| known(id).map_or_else(|| ListedModel::named(id, is_adapter), |t| ListedModel { is_adapter, ..t });
            names.iter().map(entry).collect()
        };
        let from_told = |is_adapter: bool| told.iter().filter(move |t| t.is_adapter == is_adapter).cloned().collect();
        let mut listed = match &self.models {
            Some(names) => own(names, false),
            None if told.is_empty() => return None,
            None => from_told(false),
        };
        listed.extend(if self.adapters.is_empty() { from_told(true) } else { own(&self.adapters, true) });
        // Of one model alone there can be no doubt.
        let mut bases = listed.iter().filter(|m| !m.is_adapter).map(|m| m.id.clone());
        if let (Some(only), None) = (bases.next(), bases.next()) {
            let orphans = listed.iter_mut().filter(|m| m.is_adapter && m.parent.is_none());
            orphans.for_each(|m| m.parent = Some(only.clone()));
        }
        if self.max_context.is_some() {
            listed.iter_mut().for_each(|m| m.max_model_len = self.max_context);
        }
        Some(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn endpoint(keys: &str) -> Endpoint {
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\npools: {{ p: {{ endpoints: [{{ url: http://a:1, {keys} }}] }} }}"
        );
        Config::parse(&text, "t", &|_| None).unwrap().0.pools.remove(0).endpoints.remove(0)
    }

    fn ids(listed: Option<Vec<ListedModel>>) -> Option<String> {
        listed.map(|l| l.iter().map(|m| m.id.as_str()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn what_the_config_says_goes_before_what_the_engine_tells() {
        let told = [
            ListedModel {
                root: Some("meta/a".to_owned()),
                max_model_len: Some(8192),
                ..ListedModel::named("a", false)
            },
            ListedModel { parent: Some("a".to_owned()), ..ListedModel::named("a-de", true) },
        ];
        assert_eq!(ids(endpoint("weight: 1").listed(&[])), None, "serves any");
        assert_eq!(ids(endpoint("adapters: [x]").listed(&[])), None, "and an adapter does not change that");
        assert_eq!(ids(endpoint("weight: 1").listed(&told)), Some("a a-de".to_owned()));
        assert_eq!(ids(endpoint("models: [b], adapters: [c]").listed(&told)), Some("b c".to_owned()));
        assert_eq!(ids(endpoint("models: [b]").listed(&told)), Some("b a-de".to_owned()));
        let listed = endpoint("models: [a], max_context: 4096").listed(&told).unwrap();
        assert_eq!((listed[0].root.as_deref(), listed[0].max_model_len), (Some("meta/a"), Some(4096)));
        assert_eq!(listed[1].parent.as_deref(), Some("a"));
        let of_one = endpoint("models: [b], adapters: [c]").listed(&[]).unwrap();
        assert_eq!((of_one[0].parent.as_deref(), of_one[1].parent.as_deref()), (None, Some("b")));
        let of_two = endpoint("models: [a, b], adapters: [c]").listed(&[]).unwrap();
        assert_eq!(of_two[2].parent, None, "whose it is nobody said");
    }
}
