//! The one list of breakers.

use super::{adaptive, classic, off};
use crate::descriptor::Descriptor;

static ALL: [&Descriptor; 3] = [&adaptive::DESCRIPTOR, &classic::DESCRIPTOR, &off::DESCRIPTOR];

/// Every breaker, in the order in which docs list them.
pub fn all() -> &'static [&'static Descriptor] {
    &ALL
}

/// The breaker called `name`.
pub fn find(name: &str) -> Option<&'static Descriptor> {
    ALL.iter().copied().find(|d| d.name == name)
}

/// The breaker used where none is named.
pub fn default_breaker() -> &'static Descriptor {
    &adaptive::DESCRIPTOR
}
