//! `random`: uniform, the baseline every other policy has to beat. O(1).

use super::{Cx, Pick, Picker, Usable};
use crate::descriptor::Descriptor;
use crate::request::Request;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "random",
    summary: "uniformly at random; the baseline",
    source: "-",
    example: "policy: random",
    warms_up: false,
    chases_load: false,
    params: &[],
};

/// The picker.
#[derive(Debug, Default)]
pub struct Random;

impl Picker for Random {
    fn pick(&mut self, cx: &mut Cx<'_>, _req: &Request<'_>, usable: &Usable<'_>) -> Option<Pick> {
        Some(Pick::of(usable.random(cx.rng), ""))
    }
}
