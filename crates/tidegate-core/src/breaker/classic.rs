//! `classic`: the thresholds everybody knows, one endpoint at a time.

use super::params::{AFTER_RECOVERY, MAX_EJECTED};
use crate::descriptor::{Descriptor, Param, ParamKind, Value};

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
