//! The breakers of a pool: one circuit per endpoint and route class, told of everything and asked for probes.
//!
//! This is where a circuit meets the others: what they say ([`PeerEvidence`]), whether enough would be left, who hears of a change.

use super::in_flight::Traced;
use super::{Dispatch, Pool};
use crate::breaker::Level;
use crate::breaker::adaptive::Seen;
use crate::breaker::circuit::{Circuit, Found, Look, Sent, is_progress};
use crate::breaker::peers::PeerEvidence;
use crate::endpoint::Gate;
use crate::event::{Effect, EndpointEvent};
use crate::id::{EndpointId, ProbeId, RequestKey};
use crate::outcome::{Failure, Verdict};
use crate::ramp::Ramp;
use crate::request::Request;
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// Route classes that have breakers of their own; requests of any further one share those of class 0.
const MOST_CLASSES: usize = 16;
/// Requests that one opening sends elsewhere.
const MOST_REDISPATCHED: usize = 512;
/// After the last sign that all fail alike, this long.
const FAILING_FOR: Duration = Duration::from_secs(5);
/// Endpoints that are tried as control of a probe.
const CONTROLS_TRIED: usize = 8;

/// The circuits of one route class, by endpoint.
#[derive(Debug)]
pub(super) struct Class {
    class: u8,
    pub(super) circuits: Vec<Circuit>,
    peers: PeerEvidence,
    /// No endpoint may open before: asked anew for each failure of thousands, the answer would cost more than the decision.
    denied_until: Instant,
}

impl Class {
    pub(super) fn new(class: u8) -> Self {
        Self { class, circuits: Vec::new(), peers: PeerEvidence::default(), denied_until: Instant::ORIGIN }
    }

    /// The class, as routes name it.
    pub(super) fn number(&self) -> u8 {
        self.class
    }

    fn refresh_peers(&mut self, now: Instant) {
        if self.peers.is_stale(now, self.circuits.len()) {
            let all = self.circuits.iter().enumerate();
            let told = all.filter_map(|(i, c)| Some((EndpointId(i as u32), c.contribution(now)?)));
            self.peers.take(now, self.circuits.len(), told);
        }
    }
}

impl Pool {
    /// The place of a route class. A class seen for the first time gets breakers of its own.
    pub(super) fn class_of(&mut self, now: Instant, class: u8) -> usize {
        if class == 0 {
            return 0;
        }
        match self.classes.iter().position(|c| c.class == class) {
            Some(place) => place,
            None if self.classes.len() >= MOST_CLASSES => 0,
            None => {
                let mut new = Class::new(class);
                new.circuits = self.members.iter().map(|_| Circuit::new(&self.breaker)).collect();
                self.classes.push(new);
                for index in 0..self.members.len() as u32 {
                    // Who is open for the others is not for this one.
                    self.watch_breakers(now, EndpointId(index));
                    self.refresh(now, EndpointId(index));
                }
                self.classes.len() - 1
            }
        }
    }

    /// Lets `f` tell one circuit something, with what the others say.
    fn with_circuit<T>(
        &mut self,
        now: Instant,
        (id, class): (EndpointId, usize),
        f: impl FnOnce(&mut Circuit, &Look<'_>, &mut Rng) -> T,
    ) -> T {
        let class = &mut self.classes[class];
        class.refresh_peers(now);
        let look = Look {
            now,
            settings: &self.breaker,
            steps: &self.warm_up,
            peers: class.peers.of(id),
            chases_load: self.cfg.policy.descriptor().chases_load,
            full: true,
            closed: true,
            current: true,
        };
        f(&mut class.circuits[id.index()], &look, &mut self.rng)
    }

    /// What a breaker has to know of a request that goes to `id`.
    pub(super) fn traced(&mut self, id: EndpointId, req: &Request<'_>, class: usize) -> Traced {
        self.connections += 1;
        let mut last = req.attempted.iter().rev().copied();
        Traced {
            class: class as u8,
            // Of its own, until the shell says which.
            connection: (1 << 62) | self.connections,
            generation: self.classes[class].circuits[id.index()].generation(),
            turn: 0,
            failed_at: [last.next(), last.next()],
        }
    }

    /// A request was sent.
    pub(super) fn tell_dispatch(&mut self, now: Instant, key: RequestKey, dispatch: &Dispatch) {
        let (id, class) = (dispatch.endpoint, usize::from(dispatch.traced.class));
        let (tenant, trial) = (dispatch.tenant, dispatch.trial);
        let tell = |c: &mut Circuit, look: &Look<'_>, _: &mut Rng| c.on_dispatch(look, key, tenant, trial);
        let (turn, found) = self.with_circuit(now, (id, class), tell);
        if let Some(dispatch) = self.in_flight.get_mut(key) {
            dispatch.traced.turn = turn;
        }
        self.take_in(now, (id, class), found);
    }

    pub(super) fn on_connected(&mut self, key: RequestKey, connection: u64) {
        if let Some(dispatch) = self.in_flight.get_mut(key) {
            dispatch.traced.connection = connection;
        }
    }

    /// The first byte of an answer came.
    pub(super) fn tell_first_byte(&mut self, now: Instant, key: RequestKey, dispatch: &Dispatch, took_s: f64) {
        let at = (dispatch.endpoint, usize::from(dispatch.traced.class));
        if let Some(ramp) = self.ramp_of(dispatch) {
            ramp.on_first_byte(now, took_s);
        }
        self.classes[at.1].peers.on_progress(now, at.0);
        let sent = sent(key, dispatch, false);
        let found = self.with_circuit(now, at, |c, look, rng| c.on_first_byte(look, &sent, took_s, rng));
        self.take_in(now, at, found);
    }

    /// A request ended.
    pub(super) fn tell_end(
        &mut self,
        now: Instant,
        key: RequestKey,
        dispatch: &Dispatch,
        verdict: Verdict,
        took_s: f64,
    ) {
        let at = (dispatch.endpoint, usize::from(dispatch.traced.class));
        if is_progress(verdict) {
            self.classes[at.1].peers.on_progress(now, at.0);
        }
        let failed = matches!(verdict, Verdict::Failed(_));
        if let Some(ramp) = self.ramp_of(dispatch) {
            match verdict {
                // A step back; who fails at the first step is the breaker's business.
                Verdict::Failed(_) => _ = ramp.on_failure(now),
                Verdict::Throttled { .. } => _ = ramp.halve(now),
                _ => {}
            }
        }
        // A connection that is refused says nothing of the request; anything else that happens twice says little of the endpoints.
        let again = failed && verdict != Verdict::Failed(Failure::Connect) && dispatch.traced.failed_at[0].is_some();
        let verdict = if again { Verdict::Cancelled } else { verdict };
        if again {
            for id in dispatch.traced.failed_at.into_iter().flatten() {
                if let Some(circuit) = self.classes[at.1].circuits.get_mut(id.index()) {
                    circuit.take_back(now, dispatch.tenant);
                }
                self.take_in(now, (id, at.1), Found::Nothing);
            }
        }
        let sent = sent(key, dispatch, dispatch.first_byte_at.is_some());
        let found = self.with_circuit(now, at, |c, look, rng| c.on_end(look, &sent, verdict, took_s, rng));
        self.take_in(now, at, found);
    }

    /// The ramp of an endpoint after failed checks, a drain or as a new one, if the request was sent under it.
    fn ramp_of(&mut self, dispatch: &Dispatch) -> Option<&mut Ramp> {
        self.members[dispatch.endpoint.index()].ramp.as_mut().filter(|r| dispatch.at >= r.since())
    }

    /// Tokens of own streams came.
    pub(super) fn tell_tokens(&mut self, now: Instant, id: EndpointId) {
        for class in 0..self.classes.len() {
            self.classes[class].peers.on_progress(now, id);
            self.classes[class].circuits[id.index()].on_tokens(now);
            self.take_in(now, (id, class), Found::Nothing);
        }
    }

    /// The active checks pass again.
    pub(super) fn tell_healthy(&mut self, now: Instant, id: EndpointId) {
        for class in 0..self.classes.len() {
            self.classes[class].circuits[id.index()].on_healthy(now);
            self.take_in(now, (id, class), Found::Nothing);
        }
    }

    /// A probe was answered.
    pub(super) fn on_probed(&mut self, now: Instant, endpoint: EndpointId, probe: ProbeId, passed: bool) {
        let (suspect, class, number) = parts(probe);
        let stays = self.members.get(suspect.index()).is_some_and(|m| !m.removed);
        if !stays || class >= self.classes.len() {
            return;
        }
        let control = endpoint != suspect;
        let at = (suspect, class);
        let found = self.with_circuit(now, at, |c, look, _| c.on_probe(look, number, control, passed));
        self.take_in(now, at, found);
        self.refresh(now, suspect);
    }

    /// Acts on what the tests of a circuit say: opens it if enough are left, asks for probes, tells of a change.
    fn take_in(&mut self, now: Instant, at: (EndpointId, usize), found: Found) {
        let (id, class) = at;
        match found {
            Found::Nothing => {}
            Found::PoolFails => self.on_pool_fails(now),
            Found::TrialHung(key) => self.push_effect(Effect::Redispatch(key)),
            Found::Open(why) => {
                let (may_open, alone) = self.may_open(now, id, class);
                if may_open {
                    self.redispatch(id, class, why);
                    self.classes[class].circuits[id.index()].open(now, &self.breaker, why, &mut self.rng);
                } else {
                    self.classes[class].circuits[id.index()].on_guarded(alone);
                    if alone {
                        self.on_pool_fails(now);
                    }
                }
            }
        }
        self.send_probes(now, id, class);
        let circuit = &mut self.classes[class].circuits[id.index()];
        let change = circuit.take_change();
        if let Some((from, to, why)) = change {
            let class = self.classes[class].class;
            self.push_effect(Effect::Breaker { endpoint: id, class, from, to, why });
        }
        if change.is_some() || self.members[id.index()].out != self.is_out(id) {
            self.watch_breakers(now, id);
            self.refresh(now, id);
        }
    }

    /// Whether `id` may open: by weight, at least `1 - max_ejected` of what is in rotation or open stay, and at least one endpoint. And
    /// whether nobody else is there.
    fn may_open(&mut self, now: Instant, id: EndpointId, class: usize) -> (bool, bool) {
        if now < self.classes[class].denied_until {
            return (false, false);
        }
        let in_rotation = [Gate::Usable, Gate::Full, Gate::Overloaded, Gate::CoolingDown, Gate::Open];
        let (mut all, mut staying, mut others) = (0.0, 0.0, 0);
        for hot in self.endpoints.hot.iter().filter(|e| in_rotation.contains(&e.gate)) {
            all += hot.weight;
            if hot.id != id {
                others += 1;
                staying += if self.classes[class].circuits[hot.id.index()].is_closed() { hot.weight } else { 0.0 };
            }
        }
        let may_open = staying > 0.0 && staying >= (1.0 - self.breaker.max_ejected) * all * (1.0 - 1e-9);
        if !may_open && self.members.len() > 64 {
            self.classes[class].denied_until = now + Duration::from_millis(50);
        }
        (may_open, others == 0)
    }

    /// An endpoint opens because it hangs: what waits there should go elsewhere.
    fn redispatch(&mut self, id: EndpointId, class: usize, why: &'static str) {
        if why != "stall" {
            return;
        }
        let mut waiting = Vec::new();
        self.classes[class].circuits[id.index()].waiting(&mut waiting);
        waiting.truncate(MOST_REDISPATCHED);
        waiting.into_iter().for_each(|key| self.push_effect(Effect::Redispatch(key)));
    }

    fn send_probes(&mut self, now: Instant, id: EndpointId, class: usize) {
        while let Some(wanted) = self.due_probe(now, id, class) {
            let probe = probe_id(id, class, wanted.number);
            let timeout = self.breaker.probe_timeout;
            self.push_effect(Effect::Probe { endpoint: id, probe, timeout });
            if let Some(endpoint) = self.control.filter(|_| wanted.suspicion) {
                self.push_effect(Effect::Probe { endpoint, probe, timeout });
            }
        }
    }

    fn due_probe(&mut self, now: Instant, id: EndpointId, class: usize) -> Option<crate::breaker::circuit::Wanted> {
        let circuit = &self.classes[class].circuits[id.index()];
        circuit.probe_at().filter(|&at| at <= now)?;
        self.control = self.next_control(id, class);
        let alone = self.control.is_none();
        self.classes[class].circuits[id.index()].due_probe(now, &self.breaker, alone, &mut self.rng)
    }

    /// Another endpoint that should be well, a different one each time.
    fn next_control(&mut self, suspect: EndpointId, class: usize) -> Option<EndpointId> {
        let n = self.usable.len();
        for _ in 0..n.min(CONTROLS_TRIED) {
            self.control_turn = self.control_turn.wrapping_add(1);
            let id = self.usable[self.control_turn % n];
            if id != suspect && self.classes[class].circuits[id.index()].is_closed() {
                return Some(id);
            }
        }
        None
    }

    fn on_pool_fails(&mut self, now: Instant) {
        if self.failing_until.replace(now + FAILING_FOR).is_none() {
            self.push_effect(Effect::PoolFailing(true));
        }
    }

    /// Says when the endpoints no longer fail alike.
    pub(super) fn watch_failing(&mut self, now: Instant) {
        if self.failing_until.is_some_and(|until| until <= now) {
            self.failing_until = None;
            self.push_effect(Effect::PoolFailing(false));
        }
    }

    /// Lets time pass for the ramp and the circuits of one endpoint.
    pub(super) fn pass_time(&mut self, now: Instant, id: EndpointId) {
        let chases = self.cfg.policy.descriptor().chases_load;
        let member = &mut self.members[id.index()];
        if member.removed {
            member.ramp = None;
        }
        if let Some(ramp) = &mut member.ramp
            && ramp.on_time(now, &self.warm_up, None, chases)
        {
            member.ramp = None;
        }
        for class in 0..self.classes.len() {
            let found = self.with_circuit(now, (id, class), |c, look, rng| c.on_time(look, rng));
            self.take_in(now, (id, class), found);
        }
        self.watch_breakers(now, id);
    }

    /// When time alone next changes a ramp or circuit of an endpoint.
    pub(super) fn breakers_change_at(&self, now: Instant, id: EndpointId) -> Option<Instant> {
        let member = &self.members[id.index()];
        if member.removed {
            return None;
        }
        let ramp = member.ramp.and_then(|r| r.next_change_at(now, &self.warm_up));
        let circuits =
            self.classes.iter().filter_map(|c| c.circuits[id.index()].next_at(now, &self.breaker, &self.warm_up));
        circuits.chain(ramp).min()
    }

    /// Keeps the list of those a decision may have to leave out, and tells the policy of who is back.
    pub(super) fn watch_breakers(&mut self, now: Instant, id: EndpointId) {
        let out = self.is_out(id);
        if core::mem::replace(&mut self.members[id.index()].out, out) && !out {
            self.picker.on_event(now, id, &EndpointEvent::Returned, &self.endpoints);
        }
        let holds =
            self.members[id.index()].ramp.is_some() || self.classes.iter().any(|c| c.circuits[id.index()].holds_back());
        match (self.special.iter().position(|&s| s == id), holds) {
            (None, true) => self.special.push(id),
            (Some(place), false) => _ = self.special.remove(place),
            _ => {}
        }
    }

    fn is_out(&self, id: EndpointId) -> bool {
        self.classes.iter().all(|c| c.circuits[id.index()].is_out())
    }

    /// The share of an endpoint's ramps, 0..1.
    pub(super) fn ramp_share(&self, id: EndpointId) -> f64 {
        let own = self.members[id.index()].ramp.map_or(1.0, |r| r.share());
        self.classes.iter().filter_map(|c| c.circuits[id.index()].ramp()).fold(own, |least, r| least.min(r.share()))
    }

    /// The share of its traffic an endpoint takes, 0..1: below 1 while it is ramped up or reduced, 0 while it is open.
    pub fn share_at(&self, id: EndpointId, _now: Instant) -> f64 {
        let own = self.members[id.index()].ramp.map_or(1.0, |r| r.share());
        own * self.classes[0].circuits[id.index()].share()
    }

    /// The level of an endpoint's breaker for a route class.
    pub fn level(&self, id: EndpointId, class: u8) -> Level {
        let place = self.classes.iter().position(|c| c.class == class).unwrap_or(0);
        self.classes[place].circuits[id.index()].level()
    }

    /// Whether every endpoint fails alike, as far as is known.
    pub fn is_failing(&self) -> bool {
        self.failing_until.is_some()
    }
}

fn sent(key: RequestKey, dispatch: &Dispatch, began: bool) -> Sent {
    let Traced { connection, generation, turn, .. } = dispatch.traced;
    Sent { key, seen: Seen { sent_at: dispatch.at, connection, tenant: dispatch.tenant, turn }, generation, began }
}

/// A probe's name says whose suspicion it answers, so that nobody has to remember: 28 bits of the endpoint, 4 of the class, 32 of the number.
fn probe_id(suspect: EndpointId, class: usize, number: u32) -> ProbeId {
    ProbeId(u64::from(suspect.0) << 36 | (class as u64) << 32 | u64::from(number))
}

fn parts(probe: ProbeId) -> (EndpointId, usize, u32) {
    (EndpointId((probe.0 >> 36) as u32), (probe.0 >> 32 & 15) as usize, probe.0 as u32)
}
