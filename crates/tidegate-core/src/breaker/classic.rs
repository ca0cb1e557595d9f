//! `classic`: the thresholds everybody knows, one endpoint at a time.
//!
//! Errors in a row (Envoy, Istio), share of errors or of slow answers in a sliding window (resilience4j, Hystrix). Neutral outcomes count
//! for nothing, except that a client's fault shows the endpoint alive and ends a row. Where the window holds fewer than `min_requests`,
//! no rate is judged; the window need not fill (mcp-proxy, issue 220). O(1) per outcome.

mod window;

use super::circuit::Found;
use super::params::{AFTER_RECOVERY, MAX_EJECTED};
use super::settings::Settings;
use crate::descriptor::{Descriptor, Param, ParamKind, Value};
use crate::time::Instant;
use window::Window;

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "classic",
    summary: "fixed thresholds: errors in a row, rate of errors, rate of slow answers; a pause, then trial requests",
    source: "Envoy outlier detection, resilience4j; generations as in gobreaker",
    example: "breaker: { name: classic, consecutive_errors: 5, cool_down: 1s }",
    warms_up: false,
    chases_load: false,
    params: &[
        Param {
            name: "consecutive_errors",
            summary: "errors in a row that open; 0 switches it off",
            unit: "errors",
            kind: ParamKind::Integer { min: 0, max: 10_000 },
            default: Value::Integer(5),
            example: "5",
        },
        Param {
            name: "error_rate",
            summary: "share of failed requests in the window that opens; 0 switches it off",
            unit: "fraction",
            kind: ParamKind::Float { min: 0.0, max: 1.0 },
            default: Value::Float(0.0),
            example: "50%",
        },
        Param {
            name: "slow_rate",
            summary: "share of requests slower than slow_after in the window that opens; 0 switches it off",
            unit: "fraction",
            kind: ParamKind::Float { min: 0.0, max: 1.0 },
            default: Value::Float(0.0),
            example: "80%",
        },
        Param {
            name: "slow_after",
            summary: "time to the first byte from which a request is slow",
            unit: "s",
            kind: ParamKind::Duration { min: 0.001, max: 3600.0, can_be_off: false },
            default: Value::Duration(10.0),
            example: "2s",
        },
        Param {
            name: "min_requests",
            summary: "requests in the window below which no rate is judged",
            unit: "requests",
            kind: ParamKind::Integer { min: 1, max: 1_000_000 },
            default: Value::Integer(20),
            example: "20",
        },
        Param {
            name: "window",
            summary: "length of the sliding window, in ten buckets",
            unit: "s",
            kind: ParamKind::Duration { min: 0.1, max: 3600.0, can_be_off: false },
            default: Value::Duration(10.0),
            example: "10s",
        },
        Param {
            name: "success_threshold",
            summary: "trial requests in a row that must succeed, one at a time",
            unit: "requests",
            kind: ParamKind::Integer { min: 1, max: 100 },
            default: Value::Integer(1),
            example: "3",
        },
        Param {
            name: "cool_down",
            summary: "time until the first trial; it doubles with every failed one",
            unit: "s",
            kind: ParamKind::Duration { min: 0.001, max: 3600.0, can_be_off: false },
            default: Value::Duration(1.0),
            example: "1s",
        },
        Param {
            name: "max_cool_down",
            summary: "longest time until a trial; at least cool_down",
            unit: "s",
            kind: ParamKind::Duration { min: 0.001, max: 86_400.0, can_be_off: false },
            default: Value::Duration(30.0),
            example: "30s",
        },
        Param {
            name: "forgive_after",
            summary: "time in use after which one doubling of cool_down is forgotten",
            unit: "s",
            kind: ParamKind::Duration { min: 0.001, max: 86_400.0, can_be_off: false },
            default: Value::Duration(10.0),
            example: "10s",
        },
        MAX_EJECTED,
        AFTER_RECOVERY,
    ],
};

/// The tests of one endpoint for one route class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Classic {
    /// Consecutive errors before the first byte; an answer that begins ends the row.
    errors: u32,
    /// Consecutive answers that broke off; only a whole one ends the row, else an engine that cuts every stream stays in.
    cuts: u32,
    window: Window,
}

impl Classic {
    /// An answer began `took_s` seconds after it was sent.
    pub(super) fn on_first_byte(&mut self, cfg: &Settings, now: Instant, took_s: f64) -> Found {
        self.errors = 0;
        self.window.on_outcome(now, cfg.window, false, took_s > cfg.slow_after_s);
        self.judge(cfg)
    }

    /// A request failed; `began`: after its first byte.
    pub(super) fn on_failure(&mut self, cfg: &Settings, now: Instant, began: bool) -> Found {
        let row = if began { &mut self.cuts } else { &mut self.errors };
        *row = row.saturating_add(1);
        self.window.on_outcome(now, cfg.window, true, false);
        self.judge(cfg)
    }

    /// A whole answer, or one that shows the endpoint alive.
    pub(super) fn on_alive(&mut self) {
        (self.errors, self.cuts) = (0, 0);
    }

    /// Forgets: the endpoint opened, or closed again.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn judge(&self, cfg: &Settings) -> Found {
        let sum = self.window.sum();
        let over = |part: u32, rate: f64| {
            rate > 0.0 && sum.requests >= cfg.min_requests && f64::from(part) >= rate * f64::from(sum.requests)
        };
        if cfg.consecutive_errors > 0 && self.errors.max(self.cuts) >= cfg.consecutive_errors {
            Found::Open("errors_in_a_row")
        } else if over(sum.failed, cfg.error_rate) {
            Found::Open("error_rate")
        } else if over(sum.slow, cfg.slow_rate) {
            Found::Open("slow_rate")
        } else {
            Found::Nothing
        }
    }
}
