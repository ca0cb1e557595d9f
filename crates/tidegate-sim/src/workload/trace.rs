//! Recorded requests: when they came and how long they were.
//!
//! Read from CSV by the names in its header, in any order:
//!
//! | column | meaning |
//! |---|---|
//! | `t_ms` or `t_s` | when it came, milliseconds or seconds; never decreasing. The first may be any, such as the time since 1970: it is 0 |
//! | `input_tokens`, `output_tokens` | lengths; the output is what happened, never shown to a policy |
//! | `client` | optional: who asked, a number |
//! | `key` | optional: what it is hashed by, such as the normalised query; any text without commas |
//! | `block512_ids` | optional: ids of the prompt's blocks of 512 tokens, `7` or `0-13`, separated by blanks |
//!
//! That covers the Azure, Mooncake and ServeGen files. A file of lengths only has neither time column ([`read_lengths`]); a rate
//! profile has `t_s` and columns ending in `_rps` ([`read_rates`]). Errors name the line.

use std::fmt;

use tidegate_core::hash::hash_bytes;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Duration, duration_from_secs};

use super::{journal, request_log};

/// Longest trace that is read, requests.
pub const MAX_REQUESTS: usize = 5_000_000;

/// Longest prompt and longest answer that are read, tokens.
const MAX_TOKENS: u32 = 10_000_000;

/// One recorded request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceRequest {
    /// Arrival after the trace's start.
    pub at: Duration,
    /// Length of the prompt.
    pub prompt_tokens: u32,
    /// Length of the answer.
    pub output_tokens: u32,
    /// Who asked; 0 where the trace does not say.
    pub client: u32,
    /// Hash of the key that `consistent_hash` goes by and a cache of answers finds again; `None` where the trace does not say.
    pub key: Option<u64>,
    /// The prompt's blocks of 512 tokens as inclusive ranges of ids; empty where the trace does not say.
    pub blocks: Vec<(u32, u32)>,
}

/// Requests in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The requests.
    pub requests: Vec<TraceRequest>,
    /// Tokens of a block of a prompt; 0 stands for 512.
    pub block_tokens: u32,
    /// What has to be said of it beside any result.
    pub notes: Vec<String>,
}

/// What is wrong with a trace, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Line of the file, from 1.
    pub line: usize,
    /// What was found and what is allowed.
    pub message: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for TraceError {}

impl Trace {
    /// Tokens of a block of a prompt.
    pub fn tokens_of_block(&self) -> u32 {
        if self.block_tokens == 0 { 512 } else { self.block_tokens }
    }

    /// Reads a trace of any kind, told by its content: a journal, Tidegate's request log, or a CSV.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn of_text(text: &str) -> Result<Self, TraceError> {
        if journal::is_journal(text) {
            return journal::read(text);
        }
        if request_log::is_log(text) { request_log::read(text) } else { Self::read(text) }
    }

    /// Reads a CSV.
    pub fn read(text: &str) -> Result<Self, TraceError> {
        let table = Table::new(text)?;
        let (ms, s) = (table.column("t_ms"), table.column("t_s"));
        let (time, scale) = match (ms, s) {
            (Some(c), _) => (c, 1e-3),
            (None, Some(c)) => (c, 1.0),
            (None, None) => return Err(table.missing("t_ms or t_s")),
        };
        let input = table.required("input_tokens")?;
        let output = table.required("output_tokens")?;
        let (client, blocks) = (table.column("client"), table.column("block512_ids"));
        let key = table.column("key");
        let mut requests: Vec<TraceRequest> = Vec::new();
        let (mut first, mut last) = (None, 0.0);
        for row in table.rows() {
            let number = row.number(time)?;
            if number < last {
                return Err(
                    row.error(format!("time {} is before the line above; sort the trace by time", row.text(time)))
                );
            }
            if requests.len() >= MAX_REQUESTS {
                return Err(row.error(format!("more than {MAX_REQUESTS} requests")));
            }
            last = number;
            let blocks = blocks.map_or(Ok(Vec::new()), |c| row.ranges(c))?;
            let (prompt_tokens, output_tokens) = (row.count(input)?, row.count(output)?);
            if prompt_tokens.max(output_tokens) > MAX_TOKENS {
                return Err(row.error(format!("more than {MAX_TOKENS} tokens: {}", prompt_tokens.max(output_tokens))));
            }
            let held: u64 = blocks.iter().map(|&(a, b)| u64::from(b - a) + 1).sum();
            if held > u64::from(prompt_tokens.max(1)) {
                return Err(row.error(format!("{held} blocks of 512 tokens, in a prompt of {prompt_tokens} tokens")));
            }
            requests.push(TraceRequest {
                at: duration_from_secs((number - *first.get_or_insert(number)) * scale),
                prompt_tokens,
                output_tokens,
                client: client.map_or(Ok(0), |c| row.count(c))?,
                key: key.map(|c| row.text(c)).filter(|k| !k.is_empty()).map(|k| hash_bytes(k.as_bytes())),
                blocks,
            });
        }
        Ok(Self { requests, ..Self::default() })
    }

    /// The requests of `start .. start + length`, with times relative to `start`; `None`: to the end.
    pub fn window(&self, start: Duration, length: Option<Duration>) -> Self {
        let end = length.map_or(Duration::MAX, |l| start.saturating_add(l));
        let inside = self.requests.iter().filter(|r| r.at >= start && r.at < end);
        let requests = inside.map(|r| TraceRequest { at: r.at - start, ..r.clone() }).collect();
        Self { requests, block_tokens: self.block_tokens, notes: self.notes.clone() }
    }

    /// The same requests `factor` times as fast, `factor > 0`.
    pub fn speed_up(mut self, factor: f64) -> Self {
        for r in &mut self.requests {
            r.at = duration_from_secs(r.at.as_secs_f64() / factor);
        }
        self
    }

    /// Spreads requests evenly at random over `grain`, for traces whose times were rounded down to it (Mooncake: 3 s).
    pub fn spread(mut self, grain: Duration, rng: &mut Rng) -> Self {
        for r in &mut self.requests {
            r.at += duration_from_secs(rng.uniform(0.0, grain.as_secs_f64()));
        }
        self.requests.sort_by_key(|r| r.at);
        self
    }

    /// The first `length` of it, after its requests were spread over `grain` (zero: they stay); always the same ones.
    pub(crate) fn cut(self, grain: Duration, length: Option<Duration>) -> Self {
        let spread = if grain.is_zero() { self } else { self.spread(grain, &mut Rng::new(1)) };
        if length.is_some() { spread.window(Duration::ZERO, length) } else { spread }
    }

    /// Time of the last arrival.
    pub fn span(&self) -> Duration {
        self.requests.last().map_or(Duration::ZERO, |r| r.at)
    }
}

/// Reads a CSV of `input_tokens,output_tokens`.
pub fn read_lengths(text: &str) -> Result<Vec<(u32, u32)>, TraceError> {
    let table = Table::new(text)?;
    let (input, output) = (table.required("input_tokens")?, table.required("output_tokens")?);
    table.rows().map(|row| Ok((row.count(input)?, row.count(output)?))).collect()
}

/// Reads a rate profile: `(seconds after the first line, requests per second)` of the column `name`, leaving out rows where it is empty.
pub fn read_rates(text: &str, name: &str) -> Result<Vec<(f64, f64)>, TraceError> {
    let table = Table::new(text)?;
    let (time, rate) = (table.required("t_s")?, table.required(name)?);
    let first = table.rows().next().map_or(Ok(0.0), |row| row.number(time))?;
    let filled = table.rows().filter(|row| !row.text(rate).is_empty());
    filled.map(|row| Ok((row.number(time)? - first, row.number(rate)?))).collect()
}

/// A CSV without quotes: none of the traces has any.
struct Table<'a> {
    header: Vec<&'a str>,
    body: &'a str,
}

struct Row<'a> {
    line: usize,
    cells: Vec<&'a str>,
}

impl<'a> Table<'a> {
    fn new(text: &'a str) -> Result<Self, TraceError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (first, body) = text.split_once('\n').unwrap_or((text, ""));
        if first.trim().is_empty() {
            return Err(TraceError {
                line: 1,
                message: "empty; expected a header such as t_ms,input_tokens,output_tokens".into(),
            });
        }
        Ok(Self { header: first.trim_end().split(',').map(str::trim).collect(), body })
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|h| *h == name)
    }

    fn required(&self, name: &str) -> Result<usize, TraceError> {
        self.column(name).ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> TraceError {
        TraceError { line: 1, message: format!("no column {name}; the header has {}", self.header.join(", ")) }
    }

    fn rows(&self) -> impl Iterator<Item = Row<'a>> {
        let lines = self.body.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
        lines.map(|(i, l)| Row { line: i + 2, cells: l.split(',').map(str::trim).collect() })
    }
}

impl Row<'_> {
    fn error(&self, message: String) -> TraceError {
        TraceError { line: self.line, message }
    }

    fn text(&self, column: usize) -> &str {
        self.cells.get(column).copied().unwrap_or("")
    }

    fn number(&self, column: usize) -> Result<f64, TraceError> {
        let text = self.text(column);
        let parsed = text.parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0);
        parsed
            .ok_or_else(|| self.error(format!("column {}: found {text:?}, expected a number of 0 or more", column + 1)))
    }

    fn count(&self, column: usize) -> Result<u32, TraceError> {
        let text = self.text(column);
        // Spreadsheets and data frames write whole numbers as 100.0.
        let whole = |x: f64| (x.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&x)).then_some(x as u32);
        let count = text.parse().ok().or_else(|| text.parse().ok().and_then(whole));
        count.ok_or_else(|| {
            let most = u32::MAX;
            self.error(format!("column {}: found {text:?}, expected a whole number from 0 to {most}", column + 1))
        })
    }

    fn ranges(&self, column: usize) -> Result<Vec<(u32, u32)>, TraceError> {
        let one = |part: &str| {
            let (a, b) = part.split_once('-').unwrap_or((part, part));
            a.parse().ok().zip(b.parse().ok()).filter(|(a, b): &(u32, u32)| a <= b)
        };
        let all: Option<Vec<_>> = self.text(column).split_whitespace().map(one).collect();
        let text = self.text(column);
        all.ok_or_else(|| self.error(format!("column {}: found {text:?}, expected ids such as 0 14-27", column + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AZURE: &str = "t_ms,input_tokens,output_tokens\n0,374,44\n4315,396,109\n4542,879,55\n";

    #[test]
    fn reads_the_formats_we_have() {
        let azure = Trace::read(AZURE).unwrap();
        assert_eq!(azure.requests[1].at, Duration::from_millis(4315));
        assert_eq!((azure.requests[2].prompt_tokens, azure.requests[2].output_tokens), (879, 55));
        let mooncake = "t_ms,input_tokens,output_tokens,block512_ids\n0,6758,500,0-13\n3000,7322,490,0 14-27\n";
        assert_eq!(Trace::read(mooncake).unwrap().requests[1].blocks, [(0, 0), (14, 27)]);
        let servegen = "t_s,client,input_tokens,output_tokens\r\n0.000,23,281,661\r\n299.999,12,1180,339\r\n";
        let last = &Trace::read(servegen).unwrap().requests[1];
        assert_eq!((last.client, last.at.as_millis(), last.output_tokens), (12, 299_999, 339));
        assert_eq!(read_lengths("input_tokens,output_tokens\n3772,54\n").unwrap(), [(3772, 54)]);
        let rates = "t_s,m_small_rps,deepseek_r1_rps\n0,809.762,14.863\n600,976.795,\n";
        assert_eq!(read_rates(rates, "deepseek_r1_rps").unwrap(), [(0.0, 14.863)]);
    }

    #[test]
    fn errors_name_the_line_and_what_is_expected() {
        let error = |text| Trace::read(text).unwrap_err().to_string();
        assert!(error("").starts_with("line 1: empty"));
        assert!(error("a,b\n1,2\n").starts_with("line 1: no column t_ms or t_s; the header has a, b"));
        let e = error("t_ms,input_tokens,output_tokens\n0,1,1\n5,x,1\n");
        assert!(e.starts_with("line 3: column 2: found \"x\""), "{e}");
        assert!(error("t_ms,input_tokens,output_tokens\n5,1,1\n4,1,1\n").starts_with("line 3: time 4 is before"));
        assert!(error("t_ms,input_tokens,output_tokens\n5,1\n").starts_with("line 2: column 3: found \"\""));
        let e = error("t_ms,input_tokens,output_tokens,block512_ids\n5,1,1,9-2\n");
        assert!(e.contains("expected ids"), "{e}");
        let e = error("t_ms,input_tokens,output_tokens,block512_ids\n5,1000,1,0-4000000000\n");
        assert_eq!(e, "line 2: 4000000001 blocks of 512 tokens, in a prompt of 1000 tokens");
        assert!(error("t_ms,input_tokens,output_tokens\n5,4294967295,1\n").contains("more than 10000000 tokens"));
    }

    #[test]
    fn equal_keys_are_equal_and_none_is_none() {
        let t = Trace::read("t_ms,key,input_tokens,output_tokens\n0,a b,1,1\n1,,1,1\n2,a b,1,1\n3,c,1,1\n").unwrap();
        let keys: Vec<Option<u64>> = t.requests.iter().map(|r| r.key).collect();
        assert!(keys[0] == keys[2] && keys[0].is_some() && keys[1].is_none() && keys[3] != keys[0]);
    }

    #[test]
    fn whole_numbers_may_be_written_as_floats() {
        let read = |n: &str| Trace::read(&format!("t_ms,input_tokens,output_tokens\n0,{n},1.0\n"));
        for text in ["100.0", "1e2", "100"] {
            let r = &read(text).unwrap().requests[0];
            assert_eq!((r.prompt_tokens, r.output_tokens), (100, 1), "{text}");
        }
        for text in ["100.5", "-1.0", "1e12", "nan", "inf", ""] {
            let e = read(text).unwrap_err().to_string();
            assert!(e.contains("line 2: column 2") && e.contains("whole number from 0 to"), "{text}: {e}");
        }
    }

    #[test]
    fn times_count_from_the_first() {
        let shifted =
            "t_ms,input_tokens,output_tokens\n1700000000000,374,44\n1700000004315,396,109\n1700000004542,879,55\n";
        assert_eq!(Trace::read(shifted).unwrap(), Trace::read(AZURE).unwrap());
        let seconds = Trace::read("t_s,input_tokens,output_tokens\n1700000000.5,1,1\n1700000002.75,1,1\n").unwrap();
        assert_eq!(seconds.span(), Duration::from_millis(2250));
        let e = Trace::read("t_ms,input_tokens,output_tokens\n1700000000000,1,1\n5,1,1\n").unwrap_err();
        assert!(e.to_string().starts_with("line 3: time 5 is before"), "{e}");
        let rates = "t_s,a_rps,b_rps\n1700000000,1,\n1700000600,2,3\n";
        assert_eq!(read_rates(rates, "a_rps").unwrap(), [(0.0, 1.0), (600.0, 2.0)]);
        assert_eq!(read_rates(rates, "b_rps").unwrap(), [(600.0, 3.0)], "columns of one file stay in step");
    }

    #[test]
    fn window_and_speed() {
        let t = Trace::read(AZURE).unwrap().window(Duration::from_secs(4), Some(Duration::from_millis(500)));
        assert_eq!((t.requests.len(), t.requests[0].at), (1, Duration::from_millis(315)));
        assert_eq!(t.speed_up(3.0).span(), Duration::from_millis(105));
    }

    #[test]
    fn spreading_keeps_every_request_within_its_grain() {
        let t = Trace { requests: vec![TraceRequest::default(); 100], ..Trace::default() };
        let t = t.spread(Duration::from_secs(3), &mut Rng::new(1));
        assert!(
            t.requests.is_sorted_by_key(|r| r.at)
                && t.span() < Duration::from_secs(3)
                && t.span() > Duration::from_secs(2)
        );
    }

    #[test]
    fn the_real_files_parse_where_they_are_present() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
        let counts =
            [("azure2023_code.csv", 8819), ("azure2023_conv.csv", 19_366), ("mooncake_conversation.csv", 12_031)];
        for (file, count) in counts {
            let Ok(text) = std::fs::read_to_string(format!("{folder}/{file}")) else { continue };
            assert_eq!(Trace::read(&text).unwrap().requests.len(), count, "{file}");
        }
        if let Ok(text) = std::fs::read_to_string(format!("{folder}/servegen_deepseek-r1_5min.csv")) {
            assert!(Trace::read(&text).unwrap().requests.len() > 10_000);
        }
    }
}
