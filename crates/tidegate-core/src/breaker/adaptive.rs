//! `adaptive`: sequential tests against the endpoint's own past and its peers.

use super::params::{AFTER_RECOVERY, MAX_EJECTED};
use crate::descriptor::{Descriptor, Param, ParamKind, Value};

/// The description users see.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "adaptive",
    summary: "sequential tests against the endpoint's own past and its peers; cuts its weight first, then opens; sees hung requests",
    source: "CUSUM (Page 1954) with de-duplication by cause; notes: breaker",
    example: "breaker: { name: adaptive, stall_after: 2s, probe_cap: 250ms }",
    warms_up: false,
    chases_load: false,
    params: &[
        Param {
            name: "stall_after",
            summary: "time without any progress, with requests waiting, that opens; set it above the engines' longest prefill pause",
            unit: "s",
            kind: ParamKind::Duration { min: 0.1, max: 3600.0, can_be_off: false },
            default: Value::Duration(2.0),
            example: "2s",
        },
        MAX_EJECTED,
        Param {
            name: "probe_cap",
            summary: "longest time between two out-of-band probes of an open endpoint; recovery takes about this long",
            unit: "s",
            kind: ParamKind::Duration { min: 0.05, max: 60.0, can_be_off: false },
            default: Value::Duration(0.25),
            example: "250ms",
        },
        Param {
            name: "probe_timeout",
            summary: "a probe that takes longer has failed",
            unit: "s",
            kind: ParamKind::Duration { min: 0.01, max: 60.0, can_be_off: false },
            default: Value::Duration(1.0),
            example: "1s",
        },
        Param {
            name: "health_path",
            summary: "what a probe asks for after it connected; the path of the pool's HTTP checks where not set, connect only without one",
            unit: "",
            kind: ParamKind::Path,
            default: Value::Off,
            example: "/health",
        },
        AFTER_RECOVERY,
    ],
};
