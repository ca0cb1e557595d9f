//! `off`: outcomes never keep an endpoint from traffic; active checks, drains and weights still do.

use crate::descriptor::Descriptor;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "off",
    summary: "outcomes never keep an endpoint from traffic",
    source: "-",
    example: "breaker: off",
    warms_up: false,
    chases_load: false,
    params: &[],
};
