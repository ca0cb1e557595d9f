//! So much of a quantity per time: `10_000 tokens/min`.

use crate::key::Kind;
use crate::scalar::Bad;
use crate::units;
use std::time::Duration;
use tidegate_core::limit::Quantity;

/// What is allowed, in words.
pub(crate) const ALLOWED: &str =
    "AMOUNT QUANTITY/TIME with requests, tokens, prompt_tokens, output_tokens or cost, and s, min, h, d or a duration";

/// The largest amount, and the largest per second: sums of them stay exact.
const MOST: f64 = 1e15;

/// Words for quantities; `tokens` are prompt and answer together.
const QUANTITIES: &[(&str, Quantity)] = &[
    ("requests", Quantity::Requests),
    ("request", Quantity::Requests),
    ("tokens", Quantity::TotalTokens),
    ("total_tokens", Quantity::TotalTokens),
    ("prompt_tokens", Quantity::PromptTokens),
    ("output_tokens", Quantity::OutputTokens),
    ("cost", Quantity::Cost),
];

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How much (above 0).
    pub amount: f64,
    /// Of what.
    pub quantity: Quantity,
    /// Per how long (above 0).
    pub period: Duration,
}

impl Rate {
    /// Units per second.
    pub fn per_second(&self) -> f64 {
        self.amount / self.period.as_secs_f64()
    }
}

/// Reads `10_000 tokens/min`, `50 requests/s`, `2 cost/h`, `500 requests/10s`.
pub(crate) fn rate(_: &Kind, text: &str) -> Result<Rate, Bad> {
    let hinted = |hint: String| Bad::Type(hint);
    let Some((left, period)) = text.split_once('/') else {
        return Err(hinted(match text.split_once(" per ") {
            Some((left, period)) => format!("write it `{}/{}`", left.trim(), period.trim()),
            None => format!("per how long? for example `{text}/min`"),
        }));
    };
    let left = left.trim();
    let digits = left.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_'))).unwrap_or(left.len());
    let (amount, word) = (left.get(..digits).unwrap_or_default(), left.get(digits..).unwrap_or_default().trim());
    if word.is_empty() {
        return Err(hinted(format!("of what? for example `{left} requests/{}`", period.trim())));
    }
    let Some((_, quantity)) = QUANTITIES.iter().find(|(w, _)| *w == word) else {
        let (times, rest) = word.split_once(' ').unwrap_or((word, ""));
        if let Some(factor) = factor(times) {
            let in_full = units::number(amount)? * factor;
            return Err(hinted(format!("write it in full, `{in_full} {}/{}`", rest.trim(), period.trim())));
        }
        let near = crate::nearest::nearest(word, QUANTITIES.iter().map(|(w, _)| *w));
        return Err(hinted(near.map_or_else(String::new, |w| format!("did you mean `{w}`?"))));
    };
    let amount = units::number(amount)?;
    let period = match period.trim() {
        "s" | "sec" | "second" => Duration::from_secs(1),
        "min" | "m" | "minute" => Duration::from_secs(60),
        "h" | "hour" => Duration::from_secs(3600),
        "d" | "day" => Duration::from_secs(86_400),
        other => units::duration(other)?,
    };
    if amount <= 0.0 || period.is_zero() {
        return Err(Bad::Range("more than nothing".to_owned()));
    }
    let rate = Rate { amount, quantity: *quantity, period };
    if amount.max(rate.per_second()) > MOST {
        return Err(Bad::Range(format!("at most {MOST:e}, also per second")));
    }
    Ok(rate)
}

/// What a letter after a number stands for.
fn factor(letter: &str) -> Option<f64> {
    match letter {
        "k" | "K" => Some(1e3),
        "m" | "M" => Some(1e6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_as_people_write_them() {
        let read = |text| rate(&Kind::Rate, text);
        let of = |amount, quantity, s| Ok(Rate { amount, quantity, period: Duration::from_secs(s) });
        assert_eq!(read("10_000 tokens/min"), of(10_000.0, Quantity::TotalTokens, 60));
        assert_eq!(read("50 requests/s"), of(50.0, Quantity::Requests, 1));
        assert_eq!(read("2.5cost / h"), of(2.5, Quantity::Cost, 3600));
        assert_eq!(read("500 output_tokens/10s"), of(500.0, Quantity::OutputTokens, 10));
        for (text, hint) in [
            ("50", "per how long? for example `50/min`"),
            ("50/s", "of what? for example `50 requests/s`"),
            ("50 reqests/s", "did you mean `requests`?"),
            ("10 tokens per min", "write it `10 tokens/min`"),
            ("10k tokens/min", "write it in full, `10000 tokens/min`"),
            ("1.5 M tokens/h", "write it in full, `1500000 tokens/h`"),
        ] {
            assert_eq!(read(text), Err(Bad::Type(hint.to_owned())), "{text}");
        }
        assert!(matches!(read("0 requests/s"), Err(Bad::Range(_))));
        assert!(read("5 requests/fortnight").is_err() && read("1e9 requests/1ns").is_err());
        assert!(matches!(read("10000000000 requests/1us"), Err(Bad::Range(_))));
    }
}
