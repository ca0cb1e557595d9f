//! A status page made for load balancers.

use super::polled::{self, Polled};
use crate::key::Table;
use crate::reader::{Reader, Section};

/// The `status` table.
pub(super) struct Status(pub(super) Polled);

impl Section for Status {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.load.status",
        summary: "A page that answers `{\"response_time\": seconds, \"current_load\": 0..1}`; it may carry `cpu`, `gpu` and `memory` (0..1) too, \
                  which `weights: auto` of weighted_round_robin goes by. Each of them may be absent.",
        keys: &[polled::path("/status"), polled::INTERVAL, polled::TIMEOUT],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self(Polled::read(r))
    }
}
