//! The record that answers "why did this request go there?".

use crate::endpoint::Gate;
use crate::id::EndpointId;
use crate::load::Unfit;
use alloc::vec::Vec;

/// What a decision looked at. Filled only when somebody asked, since it allocates.
#[derive(Clone, Debug, Default)]
pub struct Explain {
    /// Candidates and the number the policy compared, lowest best unless the policy says otherwise.
    pub candidates: Vec<(EndpointId, f64)>,
    /// Endpoints that could not be used, and why.
    pub excluded: Vec<(EndpointId, Gate)>,
    /// Why those among them that are unfit are so.
    pub unfit: Vec<(EndpointId, Unfit)>,
    /// Endpoints left out of this decision only: already attempted, or held back by their ramp.
    pub held_back: Vec<EndpointId>,
}
