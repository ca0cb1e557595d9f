//! What an answer should take.

use crate::key::{Absent, Key, Kind, Table};
use crate::problem::{ProblemKind, Severity};
use crate::reader::{Reader, Section};
use crate::walk::{Complaint, Mark};
use std::time::Duration;

/// Goals for answers; of tenants and of pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goals {
    /// Longest time to the first byte of an answer; `None`: any.
    pub ttft: Option<Duration>,
    /// Longest mean time between two tokens of a stream; `None`: any.
    pub tpot: Option<Duration>,
}

/// A pool's goals, and what becomes of a request that cannot meet them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slo {
    /// The goals, where a tenant or a request has none of its own.
    pub goals: Goals,
    /// Whether a request is refused at once that is predicted to miss its goals.
    pub refuse_late: bool,
}

const TTFT: Key = Key {
    name: "ttft",
    kind: Kind::Duration { min: 0.001, max: 3600.0, word: None },
    absent: Absent::Means("any time will do"),
    summary: "Longest time to the first byte of an answer that is of use; `x-tidegate-ttft-ms` of a request (1 to 3,600,000) says otherwise for itself.",
    example: "2s",
};

const TPOT: Key = Key {
    name: "tpot",
    kind: Kind::Duration { min: 0.0001, max: 60.0, word: None },
    absent: Absent::Means("any pace will do"),
    summary: "Longest mean time between two tokens of a stream that is of use; `x-tidegate-tpot-ms` of a request (1 to 60,000) says otherwise for itself.",
    example: "100ms",
};

impl Goals {
    fn of(r: &mut Reader<'_, '_>) -> Self {
        Self { ttft: r.duration_or_none("ttft"), tpot: r.duration_or_none("tpot") }
    }

    /// These, and `others` where there is none here.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self { ttft: self.ttft.or(others.ttft), tpot: self.tpot.or(others.tpot) }
    }
}

impl Section for Goals {
    const TABLE: &'static Table = &Table {
        place: "tenants.named.NAME.slo",
        summary: "What answers to this tenant should take, in pools that have `slo`; before the pool's own goals.",
        keys: &[TTFT, TPOT],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self::of(r)
    }
}

/// Marks of the `slo` of pools and of tenants; the text is empty where it has no goal.
pub(crate) const OF_POOL: &str = "goals of a pool";
pub(crate) const OF_TENANT: &str = "goals of a tenant";

/// Says which goals are nobody's.
pub(crate) fn check(r: &mut Reader<'_, '_>) {
    let marks = |what| -> Vec<Mark> { r.walk.marks.iter().filter(|m| m.what == what).cloned().collect() };
    let (pools, tenants) = (marks(OF_POOL), marks(OF_TENANT));
    let mut problems = Vec::new();
    for mark in &tenants {
        if mark.text.is_empty() {
            problems.push((mark, "slo without a goal", "ttft or tpot", "for example: `slo: { ttft: 5s }`"));
        } else if pools.is_empty() {
            let found = "goals of a tenant where no pool has `slo`: nobody asks for them";
            problems.push((mark, found, "slo of a pool beside it", "for example: `slo: { ttft: 2s }` of the pool"));
        }
    }
    // With a tenant's goals it says where these count.
    for mark in pools.iter().filter(|m| m.text.is_empty() && tenants.iter().all(|t| t.text.is_empty())) {
        let found =
            "slo without a goal: only requests that bring `x-tidegate-ttft-ms` or `x-tidegate-tpot-ms` have one";
        problems.push((mark, found, "ttft or tpot", "for example: `slo: { ttft: 2s }`"));
    }
    for (mark, found, allowed, hint) in problems {
        let complaint = Complaint { found: found.to_owned(), allowed: allowed.to_owned(), hint: hint.to_owned() };
        r.walk.problem(Severity::Warning, ProblemKind::Contradiction, &mark.place, complaint);
    }
}

impl Section for Slo {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.slo",
        summary: "What answers should take. Requests that had a goal, and those that met it, are counted: `tidegate_slo_requests_total`, \
                  `tidegate_goodput_total`.",
        keys: &[
            TTFT,
            TPOT,
            Key {
                name: "refuse_late",
                kind: Kind::Bool,
                absent: Absent::Default("false"),
                summary: "Whether a request is refused at once, with 503 and Retry-After, whose first token is predicted to come later than its goal wherever it goes, or (adaptive) its tokens slower.",
                example: "true",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let slo = Self { goals: Goals::of(r), refuse_late: r.bool("refuse_late") };
        if slo.refuse_late && slo.goals == Goals::default() && r.all_good(&["ttft", "tpot"]) {
            let found =
                "refuse_late without ttft or tpot: only requests and tenants with a goal of their own are refused"
                    .to_owned();
            r.warning("refuse_late", found, "refuse_late together with a goal", "for example: `ttft: 2s`".to_owned());
        }
        slo
    }
}
