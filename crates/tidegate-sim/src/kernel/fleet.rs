//! Engines that come and go: started and stopped by plan or by an autoscaler, known to the pools by the calls that a reload makes.
//!
//! An engine that starts refuses connections until its cold start is over, then serves with an empty cache. With active checks its endpoint
//! joins the pools at once and its checks fail until then, as where discovery tells of engines before they are ready; without any it joins
//! when it serves. One that leaves is taken out of the pools first and stops when its last request has ended, or when its time is up, which
//! cuts what is left. An endpoint that comes back has the name it had, as those of a stateful set have.

use tidegate_core::id::EndpointId;
use tidegate_core::outcome::Failure;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Instant, duration_from_secs};

use super::autoscaler::{Autoscaler, Seen};
use super::elastic::Step;
use super::endpoint::Endpoint;
use super::queue::Due;
use super::setup::Setup;
use super::{Kernel, detail};
use crate::engine::EngineModel as _;

/// Stream of the seed from which cold starts are drawn.
const START_STREAM: u64 = 7;

/// What an endpoint's engine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    Gone,
    /// It starts and serves from then on.
    Starting(Instant),
    /// It serves.
    Serving,
    /// It ends what it has.
    Leaving,
}

/// An endpoint's place in the fleet.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) stage: Stage,
    /// When its engine was started, and how often it was.
    since: Instant,
    starts: u64,
    /// When its engine is stopped at the latest, once it leaves.
    cut_at: Instant,
    /// Requests sent to it that have not ended.
    pub(super) outstanding: u32,
    /// Requests that ended at it since its group's autoscaler looked, and those of them within the goal.
    ended: u64,
    good: u64,
}

/// Who is there.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) places: Vec<Place>,
    autoscalers: Vec<Autoscaler>,
    seed: u64,
    /// Endpoints that start or leave just now.
    changing: u32,
    /// Requests that no engine ever saw, since each autoscaler looked.
    shed: Vec<u64>,
}

impl Fleet {
    pub(super) fn new(setup: &Setup, seed: u64) -> Self {
        let place = |site| Place {
            stage: if setup.elastic.begins_with(site) { Stage::Serving } else { Stage::Gone },
            since: Instant::ORIGIN,
            starts: 0,
            cut_at: Instant::FAR_FUTURE,
            outstanding: 0,
            ended: 0,
            good: 0,
        };
        Self {
            places: (0..setup.sites.len() as u32).map(place).collect(),
            autoscalers: setup.elastic.groups.iter().map(|g| Autoscaler::new(g.autoscale)).collect(),
            seed,
            changing: 0,
            shed: vec![0; setup.elastic.groups.len()],
        }
    }

    /// Whether an engine listens at `site`.
    pub(super) fn listens(&self, site: u32) -> bool {
        matches!(self.places[site as usize].stage, Stage::Serving | Stage::Leaving)
    }

    /// Endpoints that serve, and those that start.
    pub(super) fn count(&self) -> (u32, u32) {
        let of = |is: fn(Stage) -> bool| self.places.iter().filter(|p| is(p.stage)).count() as u32;
        (of(|s| s == Stage::Serving), of(|s| matches!(s, Stage::Starting(_))))
    }

    /// A request ended without a whole answer or goal, or with both; `site` is where it was last, if anywhere.
    pub(super) fn on_end(&mut self, site: Option<u32>, good: bool) {
        match site {
            Some(site) => {
                let place = &mut self.places[site as usize];
                place.ended += 1;
                place.good += u64::from(good);
            }
            None => self.shed.iter_mut().for_each(|n| *n += 1),
        }
    }

    /// Whether an endpoint starts or leaves just now.
    pub(super) fn is_changing(&self) -> bool {
        self.changing > 0
    }
}

impl Kernel<'_> {
    /// Plans what is planned, and the first look of every autoscaler.
    pub(super) fn plan_fleet(&mut self) {
        let elastic = &self.setup.elastic;
        for (i, change) in elastic.changes.iter().enumerate() {
            self.queue.push(Instant::ORIGIN + change.at, Due::Change(i as u32));
        }
        for (i, group) in elastic.groups.iter().enumerate() {
            self.queue.push(Instant::ORIGIN + group.autoscale.interval, Due::Scale(i as u32));
        }
        self.note_most();
    }

    /// A planned change is due.
    pub(super) fn on_change(&mut self, index: u32) {
        let change = self.setup.elastic.changes[index as usize];
        match change.step {
            Step::Join => self.start_engine(change.site),
            Step::Leave => self.stop_engine(change.site),
        }
    }

    /// An autoscaler looks at its group.
    pub(super) fn on_scale(&mut self, index: u32) {
        let group = &self.setup.elastic.groups[index as usize];
        let seen = self.see(index);
        let wanted = self.fleet.autoscalers[index as usize].look(self.now, &seen);
        self.queue.push(self.now + group.autoscale.interval, Due::Scale(index));
        let stage = |k: &Self, site: u32| k.fleet.places[site as usize].stage;
        for _ in seen.engines..wanted {
            // All that may be there are, or have not left yet: nothing is free to start on.
            let Some(site) = group.sites.clone().find(|s| stage(self, *s) == Stage::Gone) else { break };
            self.start_engine(site);
        }
        for _ in wanted..seen.engines {
            // The youngest goes first, before all those that do not serve yet.
            let age = |site: &u32| {
                let place = &self.fleet.places[*site as usize];
                (place.stage == Stage::Serving, std::cmp::Reverse(place.since), std::cmp::Reverse(*site))
            };
            let present =
                |site: &u32| matches!(self.fleet.places[*site as usize].stage, Stage::Serving | Stage::Starting(_));
            let Some(site) = group.sites.clone().filter(present).min_by_key(age) else { break };
            self.stop_engine(site);
        }
    }

    /// What an autoscaler finds of its group.
    fn see(&mut self, index: u32) -> Seen {
        let sites = self.setup.elastic.groups[index as usize].sites.clone();
        let queued: usize = self.gateways.iter().map(|g| g.waiting.len()).sum();
        let shed = std::mem::take(&mut self.fleet.shed[index as usize]);
        let mut seen = Seen { waiting: queued as u32, ended: shed, ..Seen::default() };
        for site in sites {
            self.advance(site);
            self.wake(site);
            let place = &mut self.fleet.places[site as usize];
            seen.ended += std::mem::take(&mut place.ended);
            seen.good += std::mem::take(&mut place.good);
            seen.in_flight += place.outstanding;
            seen.engines += u32::from(matches!(place.stage, Stage::Serving | Stage::Starting(_)));
            if place.stage == Stage::Serving {
                let status = self.endpoints[site as usize].engine.status_at(self.now);
                seen.waiting += status.waiting;
                seen.kv_usage += status.kv_usage.min(1.0);
            }
        }
        seen
    }

    fn start_engine(&mut self, site: u32) {
        let place = &mut self.fleet.places[site as usize];
        if place.stage != Stage::Gone {
            return;
        }
        place.starts += 1;
        // A seed of its own for every start, whatever else started before it.
        let own = self.fleet.seed.wrapping_mul(0x1_0000).wrapping_add(u64::from(site)) ^ place.starts << 48;
        let cold = self.setup.sites[site as usize].cold_start;
        let takes_s = Rng::stream(own, START_STREAM).uniform(cold.min.as_secs_f64(), cold.max.as_secs_f64());
        let ready = self.now + duration_from_secs(takes_s);
        (place.stage, place.since) = (Stage::Starting(ready), self.now);
        self.fleet.changing += 1;
        self.tally.fleet.starts += 1;
        self.count_queries(site as usize);
        let old = &self.endpoints[site as usize];
        let fault = old.fault;
        let mut engine = Endpoint::new(&self.setup.sites[site as usize], own, detail(self.setup), self.gateways.len());
        engine.engine.set_slowdown(self.now, fault.slowdown());
        engine.fault = fault;
        self.endpoints[site as usize] = engine;
        if self.setup.check_every.is_some() {
            self.join(site);
        }
        self.note_most();
        if ready > self.now { self.queue.push(ready, Due::Ready(site)) } else { self.on_ready(site) }
    }

    /// A cold start is over.
    pub(super) fn on_ready(&mut self, site: u32) {
        let place = &mut self.fleet.places[site as usize];
        // One that was stopped in the meantime, or stopped and started anew, is not this one.
        if place.stage != Stage::Starting(self.now) {
            return;
        }
        place.stage = Stage::Serving;
        self.fleet.changing -= 1;
        if self.setup.check_every.is_none() {
            self.join(site);
        }
    }

    fn stop_engine(&mut self, site: u32) {
        match self.fleet.places[site as usize].stage {
            Stage::Gone | Stage::Leaving => return,
            Stage::Serving => self.fleet.changing += 1,
            Stage::Starting(_) => {}
        }
        self.fleet.places[site as usize].stage = Stage::Leaving;
        self.part(site);
        if let Some(grace) = self.setup.sites[site as usize].grace {
            self.fleet.places[site as usize].cut_at = self.now + grace;
            self.queue.push(self.now + grace, Due::Grace(site));
        }
        self.on_outstanding(site);
    }

    /// The time of an engine that leaves is up.
    pub(super) fn on_grace(&mut self, site: u32) {
        let place = &self.fleet.places[site as usize];
        if place.stage != Stage::Leaving || place.cut_at != self.now {
            return;
        }
        self.advance(site);
        let inside: Vec<_> = self.endpoints[site as usize].inside().collect();
        for (id, slot) in inside {
            let begun = self.active[slot as usize].first_at.is_some();
            self.break_off(site, id, slot, if begun { Failure::Truncated } else { Failure::Reset });
        }
        self.wake(site);
    }

    /// A request at `site` ended: an engine that leaves is gone after its last one.
    pub(super) fn on_outstanding(&mut self, site: u32) {
        let place = &mut self.fleet.places[site as usize];
        if place.stage != Stage::Leaving || place.outstanding > 0 {
            return;
        }
        place.stage = Stage::Gone;
        self.tally.fleet.endpoint_s += self.now.secs_since(place.since);
        self.fleet.changing -= 1;
    }

    /// Takes the endpoint of `site` into every pool.
    pub(super) fn join(&mut self, site: u32) {
        let cfg = self.setup.sites[site as usize].settings();
        for g in 0..self.gateways.len() as u32 {
            let gateway = &mut self.gateways[g as usize];
            let id = gateway.pool.add(self.now, cfg.clone());
            gateway.ids[site as usize] = Some(id);
            if gateway.sites.len() <= id.index() {
                gateway.sites.resize(id.index() + 1, site);
            }
            gateway.sites[id.index()] = site;
            self.after_pool(g);
        }
    }

    /// Takes the endpoint of `site` out of every pool; what it has there ends by itself.
    fn part(&mut self, site: u32) {
        for g in 0..self.gateways.len() as u32 {
            let gateway = &mut self.gateways[g as usize];
            if let Some(id) = gateway.ids[site as usize].take() {
                gateway.pool.remove(self.now, id);
                self.after_pool(g);
            }
        }
    }

    /// Adds what the cache of an engine that is over found.
    pub(super) fn count_queries(&mut self, site: usize) {
        let status = self.endpoints[site].engine.status_at(self.now);
        self.tally.queries += status.queries;
        self.tally.query_hits += status.query_hits;
    }

    /// Keeps the most endpoints that were there at a time.
    fn note_most(&mut self) {
        let (serving, starting) = self.fleet.count();
        let leaving = self.fleet.places.iter().filter(|p| p.stage == Stage::Leaving).count() as u32;
        let all = serving + starting + leaving;
        self.tally.fleet.most = self.tally.fleet.most.max(all);
    }

    /// The run is over at `end`: what is still there counts until then.
    pub(super) fn close_fleet(&mut self, end: Instant) {
        let there = self.fleet.places.iter().filter(|p| p.stage != Stage::Gone);
        self.tally.fleet.endpoint_s += there.map(|p| end.secs_since(p.since)).sum::<f64>();
        let begins = |site: usize| self.setup.elastic.begins_with(site as u32);
        let never = self.fleet.places.iter().enumerate().filter(|(site, p)| p.starts == 0 && !begins(*site)).count();
        self.tally.fleet.never = never as u32;
    }
}

impl super::Gateway {
    /// The site of endpoint `id` of its pool.
    pub(super) fn site(&self, id: EndpointId) -> u32 {
        self.sites.get(id.index()).copied().unwrap_or_default()
    }
}
