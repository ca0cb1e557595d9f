//! Active health checks of one endpoint.

use crate::client::Client;
use crate::dial::Dial;
use crate::miss::Miss;
use crate::pace::Pace;
use crate::watch::Tell;
use std::sync::Arc;
use tidegate_config::{Check, Health};
use tidegate_core::event::Event;
use tidegate_core::health;
use tidegate_core::id::EndpointId;
use tidegate_core::rng::Rng;
use tokio::time::{Instant, timeout_at};

/// Bytes of an answer read so that its connection can be used again; the status alone decides.
const LIMIT_BYTES: usize = 64 << 10;

/// The loop of one endpoint.
pub(crate) struct Checker<D> {
    pub(crate) pool: Arc<str>,
    pub(crate) id: EndpointId,
    pub(crate) client: Client<D>,
    pub(crate) health: Health,
    pub(crate) tell: Tell,
    pub(crate) rng: Rng,
}

impl<D: Dial> Checker<D> {
    pub(crate) async fn run(mut self) {
        let mut pace = Pace::new(self.rng.clone(), self.health.jitter);
        // The same thresholds over the same checks as in the pool: only to know which interval holds.
        let mut verdict = health::Health::default();
        let mut failing = false;
        loop {
            pace.on_ask();
            let result = self.check().await;
            let passed = result.is_ok();
            if let (Err(miss), false) = (&result, failing) {
                tracing::info!(pool = &*self.pool, endpoint = %self.client.url(), reason = %miss, "health check failed");
            }
            failing = !passed;
            (self.tell)(Event::Checked { endpoint: self.id, passed });
            verdict.on_check(passed, self.health.unhealthy_after, self.health.healthy_after);
            let healthy = verdict.verdict() == Some(true);
            pace.wait(if healthy { self.health.interval } else { self.health.unhealthy_interval }).await;
        }
    }

    async fn check(&mut self) -> Result<(), Miss> {
        let client = &mut self.client;
        let deadline = Instant::now() + self.health.timeout;
        let Check::Http { path, expect } = &self.health.check else {
            return timeout_at(deadline, client.knock()).await.unwrap_or(Err(Miss::Timeout));
        };
        let response = timeout_at(deadline, client.head(path)).await.unwrap_or(Err(Miss::Timeout))?;
        let status = response.status().as_u16();
        // An answer that trails off costs the connection, not the verdict.
        if timeout_at(deadline, client.body(response.into_body(), LIMIT_BYTES)).await.is_err() {
            client.close();
        }
        if (expect.0..=expect.1).contains(&status) { Ok(()) } else { Err(Miss::Status(status)) }
    }
}
