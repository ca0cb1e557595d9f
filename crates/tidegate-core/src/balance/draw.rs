//! Which endpoints are priced at all: everybody in a small pool; in a large one a few at random, and those that have the prompt's beginning.

use super::{Cx, Usable};
use crate::id::EndpointId;
use crate::request::Request;
use alloc::vec::Vec;

/// Endpoints up to which all are priced.
const PRICE_ALL: usize = 64;
/// Endpoints drawn at random beyond that (notes: adaptive, section 1: 32 of 64 cost 2 to 7 % of mean time to first token).
const DRAWN: usize = 32;
/// Endpoints priced beside those because they are expected to hold most of the prompt, and as many because its adapter is loaded there.
const LONGEST: usize = 4;

/// Fills `into` with the endpoints to price. O(min(n, 64)).
pub(super) fn draw(cx: &mut Cx<'_>, req: &Request<'_>, usable: &Usable<'_>, into: &mut Vec<EndpointId>) {
    into.clear();
    if usable.len() <= PRICE_ALL {
        into.extend_from_slice(usable.ids());
    } else {
        into.extend((0..DRAWN).map(|_| usable.random(cx.rng)));
        into.extend(longest(req.matched).filter(|&id| usable.contains(id)));
        let ready = req.starts.iter().filter(|s| s.1 <= 0.0).map(|s| s.0);
        into.extend(ready.filter(|&id| usable.contains(id)).take(LONGEST));
    }
}

/// The endpoints that are expected to hold most of a prompt, a few.
fn longest(matched: &[(EndpointId, f64)]) -> impl Iterator<Item = EndpointId> {
    let most = matched.iter().map(|m| m.1).fold(0.0, f64::max);
    matched.iter().filter(move |m| m.1 >= most).map(|m| m.0).take(LONGEST)
}
