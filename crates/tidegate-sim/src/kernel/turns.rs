//! What a pool says after it was told something: whose turn it is, and when it wants to be asked again.

use tidegate_core::event::Effect;

use super::Kernel;
use super::queue::Due;

impl Kernel<'_> {
    /// Carries out what the pool of `gateway` wants done.
    pub(super) fn after_pool(&mut self, gateway: u32) {
        let now = self.now;
        loop {
            let mut effects = std::mem::take(&mut self.effects);
            self.gateways[gateway as usize].pool.drain_effects(&mut effects);
            if effects.is_empty() {
                self.effects = effects;
                break;
            }
            for effect in effects.drain(..) {
                self.carry_out(gateway, effect);
            }
            self.effects = effects;
        }
        let g = &mut self.gateways[gateway as usize];
        let next = g.pool.next_deadline();
        // A later one is found when the earlier has come.
        if next.is_some_and(|at| g.deadline.is_none_or(|then| at < then)) {
            g.deadline = next;
            self.queue.push(next.unwrap_or(now).max(now), Due::Deadline(gateway));
        }
    }

    fn carry_out(&mut self, gateway: u32, effect: Effect) {
        match effect {
            Effect::Probe { endpoint, probe, timeout } => return self.probe(gateway, endpoint, probe, timeout),
            Effect::Redispatch(key) => return self.redispatch(gateway, key),
            _ => {}
        }
        let g = &mut self.gateways[gateway as usize];
        if let Effect::Turn(id) = effect
            && let Some(slot) = g.waiting.remove(&id)
            && let Some(waiter) = self.active[slot as usize].waiter.take()
        {
            let decision = g.pool.claim(self.now, waiter);
            self.decided(slot, decision);
        }
    }

    /// A pool changes by time alone.
    pub(super) fn on_pool_deadline(&mut self, gateway: u32) {
        let g = &mut self.gateways[gateway as usize];
        // One that was replaced by an earlier deadline is void.
        if g.deadline.is_some_and(|at| at <= self.now) {
            g.deadline = None;
            g.pool.on_deadline(self.now);
            self.after_pool(gateway);
        }
    }
}
