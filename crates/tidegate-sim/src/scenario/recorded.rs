//! Recorded requests of a file, or of the stand-in that takes its place, at the speed that is asked for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::prefix::chain;

use super::{ReadFile, Unread};
use crate::kernel::setup::{Recorded, Shot};
use crate::workload::synthetic::Synthetic;
use crate::workload::{Trace, TraceRequest};

/// Longest time a trace is played for: a gateway that idles costs little, but not nothing, and a time in the wrong unit lasts for centuries.
const MAX_SPAN: Duration = Duration::from_secs(31 * 86_400);

/// Recorded requests, and what has to be said of them.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// The file, and that it is a stand-in if it is one.
    pub(crate) name: String,
    pub(crate) recorded: Recorded,
    /// What stands at the head of every result that rests on them.
    pub(crate) notes: Vec<String>,
}

/// Reads `file`; where it is absent, `stand_in` takes its place if there is one.
///
/// # Errors
/// There is neither, it cannot be read, or there is no request in it.
pub(crate) fn load(
    file: &str,
    stand_in: Option<Synthetic>,
    read: &ReadFile<'_>,
    shape: impl FnOnce(Trace) -> Trace,
) -> Result<Loaded, String> {
    let (trace, name) = match (read(file), stand_in) {
        (Ok(text), _) => (Trace::of_text(&text).map_err(|e| format!("{file}: {e}"))?, file.to_owned()),
        (Err(Unread::Unusable(why)), _) | (Err(Unread::Absent(why)), None) => return Err(format!("{file}: {why}")),
        (Err(_), Some(synthetic)) => {
            let notes = vec![format!(
                "SYNTHETIC: {file} is not here; its place is taken by requests made up to be like it, and what follows is about those"
            )];
            let trace = Trace { notes, ..synthetic.trace(1) };
            (trace, format!("{file} (synthetic stand-in)"))
        }
    };
    let trace = shape(trace);
    if trace.requests.is_empty() {
        return Err(format!("{file}: no request in it"));
    }
    Ok(Loaded { name, recorded: Recorded::of(&trace), notes: trace.notes })
}

impl Loaded {
    /// The same requests `factor` times as fast.
    ///
    /// # Errors
    /// They last longer than any trace is played for.
    pub(crate) fn at_speed(&self, factor: f64) -> Result<Recorded, String> {
        let scaled = scaled(&self.recorded, factor);
        let span = scaled.shots.last().map_or(Duration::ZERO, |s| s.at);
        if span <= MAX_SPAN {
            return Ok(scaled);
        }
        let days = |d: Duration| format!("{:.1} days", d.as_secs_f64() / 86_400.0);
        let gaps = scaled.shots.windows(2).map(|pair| pair[1].at - pair[0].at).zip(2..);
        let (gap, request) = gaps.max_by_key(|(gap, _)| *gap).unwrap_or((Duration::ZERO, 1));
        Err(format!(
            "{}: it lasts {} at this speed, and at most {} are played; the longest gap, before request {request}, is {}. Are its times in \
             the unit that their column says? Else `length` or `speed` makes it shorter",
            self.name,
            days(span),
            days(MAX_SPAN),
            days(gap)
        ))
    }

    /// The same requests at `share` of a rate of `saturation_rps`.
    ///
    /// # Errors
    /// There are too few of them to have a rate.
    pub(crate) fn at_load(&self, share: f64, saturation_rps: f64) -> Result<Recorded, String> {
        let count = self.recorded.shots.len();
        let span_s = self.recorded.shots.last().map_or(0.0, |s| s.at.as_secs_f64());
        if span_s <= 0.0 || saturation_rps <= 0.0 {
            let at_once = if span_s <= 0.0 { ", all at one instant" } else { "" };
            let many = if count == 1 { "is 1 request" } else { &format!("are {count} requests{at_once}") };
            return Err(format!(
                "{}: a load is a share of the rate at which the fleet saturates, and there {many}, too few for a rate; leave the load out, \
                 and they come as recorded",
                self.name
            ));
        }
        self.at_speed(share * saturation_rps / (count as f64 / span_s))
    }
}

impl Recorded {
    /// The requests of a trace.
    pub fn of(trace: &Trace) -> Self {
        let mut blocks: Vec<u64> = Vec::new();
        // Numbered anew in the order in which they first asked, as files number them as they like.
        let mut clients: HashMap<u32, u32> = HashMap::new();
        let shot = |r: &TraceRequest| {
            let from = blocks.len();
            let ids = r.blocks.iter().flat_map(|&(a, b)| a..=b).map(u64::from);
            blocks.extend(chain(ids));
            let prompt = (from as u32, (blocks.len() - from) as u32);
            let next = clients.len() as u32;
            let (at, client) = (r.at, *clients.entry(r.client).or_insert(next));
            Shot { at, prompt_tokens: r.prompt_tokens, output_tokens: r.output_tokens, client, key: r.key, prompt }
        };
        let shots: Arc<[Shot]> = trace.requests.iter().map(shot).collect();
        Self { blocks: blocks.into(), block_tokens: trace.tokens_of_block(), ..Self::from(shots) }
    }
}

fn scaled(recorded: &Recorded, factor: f64) -> Recorded {
    if factor == 1.0 {
        return recorded.clone();
    }
    let shots = recorded.shots.iter().map(|s| Shot { at: s.at.div_f64(factor.max(1e-9)), ..*s }).collect();
    Recorded { shots, ..recorded.clone() }
}
