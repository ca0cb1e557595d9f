//! Parameters that every breaker takes, written once.

use crate::descriptor::{Param, ParamKind, Value};

/// The share of a pool that may be open at once.
pub(super) const MAX_EJECTED: Param = Param {
    name: "max_ejected",
    summary: "share of the endpoints, by weight, that may be open at once; the last one never is",
    unit: "fraction",
    kind: ParamKind::Float { min: 0.0, max: 1.0 },
    default: Value::Float(0.5),
    example: "50%",
};

/// How a returned endpoint gets its share back.
pub(super) const AFTER_RECOVERY: Param = Param {
    name: "after_recovery",
    summary: "ramp: from 1/16, doubled every first-byte time; steps: the pool's warm-up steps again",
    unit: "",
    kind: ParamKind::Choice(&["ramp", "steps"]),
    default: Value::Choice("ramp"),
    example: "steps",
};
