//! `round_robin`: in turn, whatever the endpoints are worth. Amortised O(1).
//!
//! The turn goes by slot, skipping what may not be used. It starts at a random place, so that many replicas restarted together do not
//! all begin with the first endpoint of the file.

use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::Descriptor;
use crate::id::EndpointId;
use crate::request::Request;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "round_robin",
    summary: "in turn, from a random start; ignores weights and load",
    source: "-",
    example: "policy: round_robin",
    warms_up: false,
    chases_load: false,
    params: &[],
};

/// The picker.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: Option<u32>,
}

impl Picker for RoundRobin {
    fn pick(&mut self, cx: &mut Cx<'_>, _req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        let slots = usable.endpoints.hot.len() as u32;
        let start = self.next.unwrap_or_else(|| cx.rng.below(slots as usize) as u32);
        let id = (0..slots).map(|k| EndpointId((start + k) % slots)).find(|&id| usable.contains(id))?;
        self.next = Some(id.0 + 1);
        Some(Pick::of(id, ""))
    }
}
