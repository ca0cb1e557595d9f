//! So much of a quantity per time: `10_000 tokens/min`.

use crate::key::Kind;
use crate::scalar::Bad;
use crate::units;
use std::time::Duration;
use tidegate_core::limit::Quantity;

/// What is allowed, in words.
pub(crate) const ALLOWED: &str =
    "AMOUNT QUANTITY/TIME with requests, tokens, prompt_tokens, output_tokens or cost, and s, min, h, d or a duration";

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
    let (left, period) =
        text.split_once('/').ok_or_else(|| hinted(format!("per how long? for example `{text}/min`")))?;
    let left = left.trim();
    let digits = left.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_'))).unwrap_or(left.len());
    let (amount, word) = (left.get(..digits).unwrap_or_default(), left.get(digits..).unwrap_or_default().trim());
    if word.is_empty() {
        return Err(hinted(format!("of what? for example `{left} requests/{}`", period.trim())));
    }
    let Some((_, quantity)) = QUANTITIES.iter().find(|(w, _)| *w == word) else {
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
    if amount <= 0.0 || amount > 1e15 || period.is_zero() {
        return Err(Bad::Range("more than nothing".to_owned()));
    }
    Ok(Rate { amount, quantity: *quantity, period })
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
        ] {
            assert_eq!(read(text), Err(Bad::Type(hint.to_owned())), "{text}");
        }
        assert!(matches!(read("0 requests/s"), Err(Bad::Range(_))));
        assert!(read("5 requests/fortnight").is_err());
    }
}
