//! What one phase of one proxy measured.

use serde::{Deserialize, Serialize};

/// Median and 99th percentile, microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

impl Quantiles {
    /// Of a histogram of microseconds.
    pub fn of(histogram: &hdrhistogram::Histogram<u64>) -> Self {
        Self { p50_us: histogram.value_at_quantile(0.5) as f64, p99_us: histogram.value_at_quantile(0.99) as f64 }
    }
}

/// One phase.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Figures {
    /// Requests or events per second.
    pub per_s: f64,
    /// CPU of the proxy per request or event, microseconds.
    pub cpu_us: f64,
    /// Share of one core the proxy used, 1 is all of it.
    pub busy: f64,
    /// Share of the proxy's core that others used.
    pub others: f64,
    /// Time of whole requests, or from an event's sending to its reading.
    pub delay: Quantiles,
    /// Time between an open stream's reads.
    pub gap: Quantiles,
    /// Events that a read found, on average.
    pub events_per_read: f64,
    /// Streams that were open at the end.
    pub open: u64,
    /// Requests that ended without a whole answer of status 200.
    pub failed: u64,
    /// Resident memory of the proxy's processes at the end, KiB.
    pub resident_kib: u64,
}
