//! `--slo`: an objective, read with the words and messages of a config file.

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table, parse_as};

use crate::kernel::setup::Goal;

/// An objective: a share of the requests is to be answered within times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// The times; infinite where one is not asked for.
    pub goal: Goal,
    /// The share, above 0 and up to 1.
    pub target: f64,
}

const TIME: Kind = Kind::Duration { min: 0.000_001, max: 3600.0, word: None };

impl Section for Slo {
    const TABLE: &'static Table = &Table {
        place: "",
        summary: "An objective: at least one of `ttft` and `tpot`.",
        keys: &[
            Key {
                name: "ttft",
                kind: TIME,
                absent: Absent::Means("any time"),
                summary: "Longest time to the first token.",
                example: "2s",
            },
            Key {
                name: "tpot",
                kind: TIME,
                absent: Absent::Means("any time"),
                summary: "Longest mean time per output token after the first.",
                example: "100ms",
            },
            Key {
                name: "target",
                kind: Kind::Fraction { min: 0.01, max: 1.0, word: None },
                absent: Absent::Default("0.99"),
                summary: "Share of the requests that are to be within both.",
                example: "0.99",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let (ttft, tpot) = (r.duration_or_none("ttft"), r.duration_or_none("tpot"));
        if ttft.is_none() && tpot.is_none() && r.all_good(&["ttft", "tpot"]) {
            r.missing("ttft");
        }
        let seconds = |d: Option<std::time::Duration>| d.map_or(f64::INFINITY, |d| d.as_secs_f64());
        Self { goal: Goal { ttft_s: seconds(ttft), interval_s: seconds(tpot) }, target: r.number("target") }
    }
}

impl Slo {
    /// Reads `ttft=2s,tpot=100ms,target=99%`, in any order.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let keys: Vec<String> = text.split(',').map(|part| part.replacen('=', ": ", 1)).collect();
        let section = parse_as::<Self>(&format!("{{ {} }}", keys.join(", ")), "--slo", &|_| None);
        section.map(|(slo, _)| slo).map_err(|problems| problems.iter().map(|p| format!("{p}\n")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_a_share_in_any_order() {
        let slo = Slo::parse("target=95%,ttft=2s,tpot=100ms").unwrap();
        assert_eq!((slo.goal, slo.target), (Goal { ttft_s: 2.0, interval_s: 0.1 }, 0.95));
        let slo = Slo::parse("tpot=50ms").unwrap();
        assert!(slo.goal.ttft_s.is_infinite() && slo.target == 0.99);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("ttft=2", "unit"),
            ("tftt=2s", "ttft"),
            ("target=0.9", "ttft"),
            ("ttft=2s,target=2", "target"),
            ("", "ttft"),
            ("ttft", "ttft"),
        ] {
            let why = Slo::parse(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
