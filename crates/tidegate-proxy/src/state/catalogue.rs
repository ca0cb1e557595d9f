//! What the endpoints of a pool call what they serve. Decisions go by hashes of names, which core has; the names are for people who ask, in lists and
//! in refusals.

use crate::state::pool::PoolHandle;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_config::ListedModel;
use tidegate_core::endpoint::Gate;
use tidegate_core::id::EndpointId;
use tidegate_core::pool::Pool;

/// Models of one pool that are listed.
const MAX_LISTED: usize = 10_000;

/// The lists that endpoints gave, by the place of the endpoint.
#[derive(Debug, Default)]
pub(crate) struct Catalogue(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    lists: Vec<Arc<[ListedModel]>>,
    /// How often one of them changed.
    version: u64,
}

impl Catalogue {
    /// The endpoint `id` gave this list. Engines that say of every model that it was made just now are not believed: the first time stays.
    pub(crate) fn on_models(&self, id: EndpointId, models: &[ListedModel]) {
        let mut told = self.0.lock();
        if told.lists.len() <= id.index() {
            told.lists.resize(id.index() + 1, Arc::default());
        }
        let mut models = models.to_vec();
        let known = told.lists[id.index()].iter();
        for (model, old) in models.iter_mut().zip(known).filter(|(new, old)| new.id == old.id) {
            model.created = old.created.or(model.created);
        }
        if *told.lists[id.index()] != *models {
            told.lists[id.index()] = models.into();
            told.version += 1;
        }
    }

    /// Another endpoint takes the place `id`.
    pub(crate) fn forget(&self, id: EndpointId) {
        let mut told = self.0.lock();
        if let Some(place) = told.lists.get_mut(id.index()) {
            *place = Arc::default();
            told.version += 1;
        }
    }

    fn version(&self) -> u64 {
        self.0.lock().version
    }

    fn of(&self, id: EndpointId) -> Arc<[ListedModel]> {
        self.0.lock().lists.get(id.index()).map(Arc::clone).unwrap_or_default()
    }
}

/// What some endpoints of a pool serve together.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Each model once, in the order of the endpoints.
    pub(crate) models: Vec<ListedModel>,
    /// Endpoints of which it is known what they serve, and others.
    pub(crate) known: usize,
    pub(crate) unknown: usize,
}

/// A listing that was made, if any.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Option<Made>>);

/// A listing, and what it was made of.
#[derive(Debug)]
struct Made {
    version: u64,
    /// Which endpoints are in it.
    there: Vec<bool>,
    listing: Arc<Listing>,
}

/// Whether a model stays in lists while its endpoint is behind `gate`: a list that follows every moment's load would make clients believe that
/// models come and go.
fn is_there(gate: Gate) -> bool {
    matches!(gate, Gate::Usable | Gate::CoolingDown | Gate::Full | Gate::Overloaded | Gate::Unfit)
}

impl PoolHandle {
    /// The endpoint `id` gave this list of what it serves.
    pub fn on_models(&self, id: EndpointId, models: &[ListedModel]) {
        self.live.catalogue.on_models(id, models);
    }

    /// What its endpoints serve, as configured or as they say themselves. Made anew when that changes.
    pub(crate) fn listing_of_all(&self) -> Arc<Listing> {
        self.listing(&self.everything, vec![true; self.ids().len()])
    }

    /// [`PoolHandle::listing_of_all`] without endpoints that get no requests now.
    pub(crate) fn listing_of_usable(&self) -> Arc<Listing> {
        let gate = |pool: &Pool, id: &EndpointId| pool.endpoints().hot[id.index()].gate;
        let there = self.with(|pool, _| self.ids().iter().map(|id| is_there(gate(pool, id))).collect());
        self.listing(&self.usable, there)
    }

    fn listing(&self, kept: &Kept, there: Vec<bool>) -> Arc<Listing> {
        let version = self.live.catalogue.version();
        let mut kept = kept.0.lock();
        if let Some(made) = kept.as_ref().filter(|made| made.version == version && made.there == there) {
            return Arc::clone(&made.listing);
        }
        let listing = Arc::new(self.merged(&there));
        *kept = Some(Made { version, there, listing: Arc::clone(&listing) });
        listing
    }

    fn merged(&self, there: &[bool]) -> Listing {
        let asks = self.settings().models.is_some();
        let mut listing = Listing::default();
        let mut places: HashMap<String, usize> = HashMap::new();
        let endpoints = self.settings().endpoints.iter().zip(self.ids()).zip(there);
        for ((endpoint, id), _) in endpoints.filter(|(_, is_there)| **is_there) {
            let told = if asks { self.live.catalogue.of(*id) } else { Arc::default() };
            let Some(models) = endpoint.listed(&told) else {
                listing.unknown += 1;
                continue;
            };
            listing.known += 1;
            for model in models {
                match places.get(&model.id) {
                    Some(place) => listing.models[*place].merge(model),
                    None if listing.models.len() == MAX_LISTED => {}
                    None => {
                        places.insert(model.id.clone(), listing.models.len());
                        listing.models.push(model);
                    }
                }
            }
        }
        listing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_does_not_become_younger() {
        let catalogue = Catalogue::default();
        let at = |created| ListedModel { created: Some(created), ..ListedModel::named("a", false) };
        catalogue.on_models(EndpointId(2), &[at(100)]);
        catalogue.on_models(EndpointId(2), &[at(200), ListedModel::named("b", true)]);
        catalogue.on_models(EndpointId(2), &[at(300), ListedModel::named("b", true)]);
        assert_eq!(catalogue.version(), 2, "nothing new the third time");
        let of = catalogue.of(EndpointId(2));
        assert_eq!((of.len(), of[0].created), (2, Some(100)));
        catalogue.forget(EndpointId(2));
        assert!(catalogue.of(EndpointId(2)).is_empty() && catalogue.of(EndpointId(7)).is_empty());
    }
}
