//! How well a rule explains what it predicts, as it goes along: the part of the variance it leaves unexplained.

/// Answers before a figure is given.
const ENOUGH: u32 = 50;
/// Part that is kept per answer.
const KEPT: f64 = 0.99;

/// Decayed sums of squared errors of the rule, and of the mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fit {
    answers: u32,
    mean: f64,
    error: f64,
    spread: f64,
}

impl Fit {
    /// An answer took `took`, and the rule expected `expected` before it saw it.
    pub(super) fn on_answer(&mut self, took: f64, expected: f64) {
        if self.answers == 0 {
            self.mean = took;
        }
        self.answers = self.answers.saturating_add(1);
        let (off, apart) = (took - expected, took - self.mean);
        self.error = self.error * KEPT + off * off;
        self.spread = self.spread * KEPT + apart * apart;
        self.mean += (1.0 - KEPT) * apart;
    }

    /// Error over variance: 0 explains all, 1 nothing, more misleads. `None` before enough answers.
    pub(super) fn unexplained(&self) -> Option<f64> {
        (self.answers >= ENOUGH).then(|| if self.spread > 0.0 { self.error / self.spread } else { 1.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_rule_leaves_little_and_a_bad_one_all() {
        let (mut good, mut bad) = (Fit::default(), Fit::default());
        assert_eq!(good.unexplained(), None);
        for k in 0..500 {
            let took = f64::from(k % 10);
            good.on_answer(took, took + 0.1);
            bad.on_answer(took, 9.0 - took);
        }
        assert!(good.unexplained().unwrap() < 0.01 && bad.unexplained().unwrap() > 1.0);
    }
}
