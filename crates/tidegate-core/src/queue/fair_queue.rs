//! A bounded queue that is fair by tokens.
//!
//! Between tenants: deficit round robin (Shreedhar and Varghese, 1996) over the cost of requests, so that a tenant with long prompts gets
//! as many tokens served as one with short ones, not as many requests. A round of the textbook adds one quantum to each; here the rounds
//! that would serve nobody are taken in one step, which makes a quantum of any size work: everyone advances by the fewest rounds after
//! which somebody's first request is covered. Cost per choice: O(tenants that wait).
//!
//! Between classes: what a class has reserved is owed to it while it waits (its share of every cost served), whatever stands above it;
//! the rest goes to the highest class that waits.
//!
//! Waiting costs nothing but memory: there is no thread, timer or poll per waiter, and one that leaves is gone at once.

use super::tenant_queue::{InLine, TenantQueue};
use super::{QueueConfig, WaiterId, Waiting};
use crate::time::{Duration, Instant, duration_from_secs};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Time over which the speed of serving is averaged, in seconds.
const SPEED_TAU_S: f64 = 5.0;
/// Requests that must have been served before a wait is predicted from their speed.
const SPEED_SAMPLES: u32 = 20;

/// One class.
#[derive(Clone, Debug)]
struct Class {
    share: f64,
    /// Cost that is owed to the class from its reserved share.
    owed: f64,
    tenants: Vec<TenantQueue>,
    waiting: usize,
}

/// Who is next: class, place of its tenant, slot, cost, and the rounds until its cost is covered.
#[derive(Clone, Copy, Debug)]
struct Next {
    number: usize,
    place: usize,
    slot: u32,
    cost: f64,
    turns: f64,
}

/// Why a request cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFull {
    /// `max_waiting` requests wait.
    Queue,
    /// The tenant has `max_per_tenant` requests waiting.
    Tenant,
    /// At the speed of late the turn would come after the deadline.
    TooLong,
}

/// Whether a waiting request may be served now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// It may.
    Go,
    /// It may not, but those behind it might: it may not go where a place is free, as a retry that was there, or as its model is not.
    Stay,
    /// It may not, and where it may not go, those behind it may not either.
    StayAndAllBehind,
}

/// Who waits, and who is next.
#[derive(Clone, Debug)]
pub struct FairQueue {
    cfg: QueueConfig,
    classes: Vec<Class>,
    slots: Vec<(u32, Option<Waiting>)>,
    free: Vec<u32>,
    deadlines: BinaryHeap<Reverse<(Instant, u32, u32)>>,
    waiting_cost: f64,
    served: u32,
    served_at: Instant,
    /// Cost served, and the seconds somebody waited for it, both fading with [`SPEED_TAU_S`].
    served_cost: f64,
    served_s: f64,
}

impl FairQueue {
    /// An empty queue.
    pub fn new(cfg: QueueConfig) -> Self {
        let class = |c: &super::ClassConfig| Class { share: c.share, owed: 0.0, tenants: Vec::new(), waiting: 0 };
        Self {
            classes: cfg.classes.iter().map(class).collect(),
            cfg,
            slots: Vec::new(),
            free: Vec::new(),
            deadlines: BinaryHeap::new(),
            waiting_cost: 0.0,
            served: 0,
            served_at: Instant::ORIGIN,
            served_cost: 0.0,
            served_s: 0.0,
        }
    }

    /// Takes new settings. Whoever waits goes on waiting, until the deadline it has: in the class of the same name, else in the last.
    pub fn set(&mut self, cfg: QueueConfig) {
        let fresh = Self::new(cfg);
        let name = |k: usize| self.cfg.classes.get(k).map(|c| &c.name);
        let last = fresh.classes.len() - 1;
        let places: Vec<usize> = (0..self.classes.len())
            .map(|k| fresh.cfg.classes.iter().position(|c| Some(&c.name) == name(k)).unwrap_or(last))
            .collect();
        let old = core::mem::replace(&mut self.classes, fresh.classes);
        self.cfg = fresh.cfg;
        for (class, place) in old.into_iter().zip(places) {
            let into = &mut self.classes[place];
            into.owed += class.owed;
            into.waiting += class.waiting;
            for tenant in class.tenants {
                for InLine { slot, .. } in &tenant.waiting {
                    if let Some((_, Some(waiting))) = self.slots.get_mut(*slot as usize) {
                        waiting.priority = place as u8;
                    }
                }
                match into.tenants.iter_mut().find(|t| t.tenant == tenant.tenant) {
                    Some(same) => tenant.waiting.into_iter().for_each(|w| same.push(w)),
                    None => into.tenants.push(tenant),
                }
            }
        }
    }

    /// The settings.
    pub fn config(&self) -> &QueueConfig {
        &self.cfg
    }

    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests of each class that wait, the highest first.
    pub fn by_class(&self) -> impl Iterator<Item = usize> {
        self.classes.iter().map(|c| c.waiting)
    }

    /// Weight of the tenants that wait, each counted once.
    pub fn waiting_weight(&self) -> f64 {
        let in_class_above =
            |n: usize, t: u64| self.classes[..n].iter().flat_map(|c| &c.tenants).any(|o| o.tenant == t);
        let tenants = self.classes.iter().enumerate().flat_map(|(n, c)| c.tenants.iter().map(move |t| (n, t)));
        tenants.filter(|(n, t)| !in_class_above(*n, t.tenant)).map(|(_, t)| t.weight).sum()
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.peek().map(|Reverse((at, ..))| *at)
    }

    /// Drops the deadlines of those who left from the top of the heap.
    fn forget_past(&mut self) {
        while self.deadlines.peek().is_some_and(|r| !self.is_waiting(r.0.1, r.0.2)) {
            self.deadlines.pop();
        }
    }

    fn is_waiting(&self, slot: u32, generation: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|(g, w)| *g == generation && w.is_some())
    }

    /// Puts a request in line. Its deadline is brought to `max_wait` from `queued_at` if it lies later.
    ///
    /// # Errors
    /// If it cannot wait, or waiting makes no sense.
    pub fn push(&mut self, mut waiting: Waiting) -> Result<WaiterId, QueueFull> {
        if self.len() >= self.cfg.max_waiting {
            return Err(QueueFull::Queue);
        }
        waiting.deadline = waiting.deadline.min(waiting.queued_at + self.cfg.max_wait);
        let number = usize::from(waiting.priority).min(self.classes.len() - 1);
        let ahead = self.predicted_wait(&waiting);
        if ahead.is_some_and(|d| waiting.queued_at + d > waiting.deadline) {
            return Err(QueueFull::TooLong);
        }
        waiting.priority = number as u8;
        let class = &mut self.classes[number];
        let place = class.tenants.iter().position(|t| t.tenant == waiting.tenant).unwrap_or_else(|| {
            class.tenants.push(TenantQueue::new(waiting.tenant));
            class.tenants.len() - 1
        });
        let tenant = &mut class.tenants[place];
        if tenant.waiting.len() >= self.cfg.max_per_tenant {
            return Err(QueueFull::Tenant);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        tenant.weight = if waiting.weight > 0.0 { waiting.weight } else { 1e-6 };
        tenant.push(InLine { slot, cost: waiting.cost, by: waiting.by() });
        class.waiting += 1;
        if self.waiting_cost <= 0.0 {
            // The clock of the speed of serving begins when somebody first waits.
            self.served_at = waiting.queued_at;
        }
        self.waiting_cost += waiting.cost;
        let generation = self.slots[slot as usize].0;
        self.deadlines.push(Reverse((waiting.deadline, slot, generation)));
        self.slots[slot as usize].1 = Some(waiting);
        Ok(WaiterId { slot, generation })
    }

    /// Takes a waiter out: its client left, or its time is over.
    pub fn remove(&mut self, id: WaiterId) -> Option<Waiting> {
        if !self.is_waiting(id.slot, id.generation) {
            return None;
        }
        let entry = &mut self.slots[id.slot as usize];
        let waiting = entry.1.take()?;
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(id.slot);
        let class = &mut self.classes[usize::from(waiting.priority)];
        class.waiting -= 1;
        if let Some(place) = class.tenants.iter().position(|t| t.tenant == waiting.tenant) {
            let tenant = &mut class.tenants[place];
            if tenant.waiting.front().is_some_and(|w| w.slot == id.slot) {
                tenant.waiting.pop_front();
            } else {
                tenant.waiting.retain(|w| w.slot != id.slot);
            }
            if tenant.waiting.is_empty() {
                // A tenant that has nothing to send saves nothing up.
                class.tenants.remove(place);
            }
        }
        self.waiting_cost = if self.is_empty() { 0.0 } else { (self.waiting_cost - waiting.cost).max(0.0) };
        self.forget_past();
        self.tidy_deadlines();
        Some(waiting)
    }

    /// Keeps the heap of deadlines from outgrowing the queue when clients come and leave.
    fn tidy_deadlines(&mut self) {
        if self.deadlines.len() > 2 * self.len() + 64 {
            let kept: Vec<_> = self
                .deadlines
                .drain()
                .filter(|Reverse((_, s, g))| {
                    self.slots.get(*s as usize).is_some_and(|(now, w)| now == g && w.is_some())
                })
                .collect();
            self.deadlines = kept.into();
        }
    }

    /// A waiter whose deadline has passed at `now`, taken out.
    pub fn pop_expired(&mut self, now: Instant) -> Option<(WaiterId, Waiting)> {
        let due = self.next_deadline().filter(|&at| at <= now)?;
        let &Reverse((_, slot, generation)) = self.deadlines.peek().filter(|r| r.0.0 == due)?;
        let id = WaiterId { slot, generation };
        self.remove(id).map(|w| (id, w))
    }

    /// One that waits and `is` so.
    pub fn find(&self, is: impl Fn(&Waiting) -> bool) -> Option<WaiterId> {
        let waits = |entry: &(u32, Option<Waiting>)| entry.1.as_ref().is_some_and(&is);
        let slot = self.slots.iter().position(waits)?;
        Some(WaiterId { slot: slot as u32, generation: self.slots[slot].0 })
    }

    /// The next waiter that `may` be served, taken out. A tenant that has nobody to serve now is passed over.
    pub fn pop_next(&mut self, now: Instant, may: impl FnMut(&Waiting) -> May) -> Option<(WaiterId, Waiting)> {
        let Next { number, place, slot, cost, turns } = self.choose(now, may)?;
        let class = &mut self.classes[number];
        for tenant in &mut class.tenants {
            tenant.deficit += turns * tenant.weight;
        }
        class.tenants[place].deficit -= cost;
        // Who comes next among equals: the one that was served goes behind the others.
        let served = class.tenants.remove(place);
        class.tenants.push(served);
        self.charge(number, cost);
        let id = WaiterId { slot, generation: self.slots[slot as usize].0 };
        let waiting = self.remove(id)?;
        self.on_served(now, cost);
        Some((id, waiting))
    }

    /// The first of a tenant that may be served. Whose answer would be late already goes behind those that can still be in time: earliest
    /// first alone, under overload, makes everybody late.
    fn first_of(
        &self,
        now: Instant,
        tenant: &TenantQueue,
        may: &mut impl FnMut(&Waiting) -> May,
    ) -> Option<(u32, f64)> {
        let late = tenant.waiting.partition_point(|w| w.by < now);
        for InLine { slot, cost, .. } in tenant.waiting.iter().skip(late).chain(tenant.waiting.iter().take(late)) {
            let waiting = self.slots[*slot as usize].1.as_ref()?;
            match may(waiting) {
                May::Go => return Some((*slot, *cost)),
                May::Stay => {}
                May::StayAndAllBehind => return None,
            }
        }
        None
    }

    /// The next of one class.
    fn best_of(&self, now: Instant, number: usize, may: &mut impl FnMut(&Waiting) -> May) -> Option<Next> {
        let mut best: Option<Next> = None;
        for (place, tenant) in self.classes[number].tenants.iter().enumerate() {
            let Some((slot, cost)) = self.first_of(now, tenant, may) else { continue };
            let turns = tenant.turns_to(cost);
            if best.as_ref().is_none_or(|b| turns < b.turns) {
                best = Some(Next { number, place, slot, cost, turns });
            }
        }
        best
    }

    /// The next waiter that may be served.
    fn choose(&self, now: Instant, mut may: impl FnMut(&Waiting) -> May) -> Option<Next> {
        // What is owed first, from the lowest class up: the highest one also has all that nobody reserved.
        for (number, class) in self.classes.iter().enumerate().skip(1).rev().filter(|(_, c)| c.waiting > 0) {
            let first = class.tenants.iter().filter_map(|t| t.waiting.front()).map(|w| w.cost).fold(f64::MAX, f64::min);
            if class.owed >= first
                && let Some(next) = self.best_of(now, number, &mut may)
            {
                return Some(next);
            }
        }
        (0..self.classes.len()).find_map(|number| self.best_of(now, number, &mut may))
    }

    /// Each class that waits is owed its share of what is served, and the one that was served owes it back.
    fn charge(&mut self, number: usize, cost: f64) {
        for (k, class) in self.classes.iter_mut().enumerate() {
            class.owed = if class.waiting == 0 { 0.0 } else { class.owed + class.share * cost };
            if k == number {
                class.owed = (class.owed - cost).max(-cost);
            }
        }
    }

    fn on_served(&mut self, now: Instant, cost: f64) {
        let dt = now.secs_since(self.served_at);
        let fade = libm::exp(-dt / SPEED_TAU_S);
        self.served_at = now;
        self.served = self.served.saturating_add(1);
        self.served_cost = self.served_cost * fade + cost;
        self.served_s = self.served_s * fade + dt;
    }

    /// How long `new` would wait at the speed of late: everybody in front of it, or by its tenant's fair share if that is less. `None` while
    /// too little was served to say.
    pub fn predicted_wait(&self, new: &Waiting) -> Option<Duration> {
        let (tenant, weight) = (new.tenant, new.weight);
        let number = usize::from(new.priority).min(self.classes.len() - 1);
        let known = self.served >= SPEED_SAMPLES && self.served_s > 0.0;
        let speed = known.then(|| self.served_cost / self.served_s).filter(|s| *s > 0.0)?;
        let class = self.classes.get(number)?;
        let above: f64 = self.classes[..number].iter().flat_map(|c| &c.tenants).map(TenantQueue::cost).sum();
        let (mut all, mut own, mut weights) = (0.0, 0.0, weight.max(1e-6));
        for t in &class.tenants {
            if t.tenant == tenant {
                own = t.cost_until(new.by());
                all += own;
            } else {
                all += t.cost();
                weights += t.weight;
            }
        }
        let fair = own * weights / weight.max(1e-6);
        Some(duration_from_secs((above + all.min(fair)) / speed))
    }
}

#[cfg(test)]
mod tests;
