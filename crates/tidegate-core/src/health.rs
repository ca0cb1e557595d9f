//! Active health checks as evidence: thresholds, and a first check that decides at once.

/// What the checks of one endpoint say. The checks themselves are the shell's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Health {
    verdict: Option<bool>,
    against: u32,
}

impl Health {
    /// A check ended. Returns the new verdict if it changed: the first check decides at once, later ones after `unhealthy_after` fails
    /// or `healthy_after` passes in a row.
    pub fn on_check(&mut self, passed: bool, unhealthy_after: u32, healthy_after: u32) -> Option<bool> {
        if self.verdict == Some(passed) {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if passed { healthy_after } else { unhealthy_after };
        if self.verdict.is_some() && self.against < needed {
            return None;
        }
        (self.verdict, self.against) = (Some(passed), 0);
        Some(passed)
    }

    /// Counts as healthy until checks say otherwise: it served before there were any.
    pub fn assume_healthy(&mut self) {
        (self.verdict, self.against) = (Some(true), 0);
    }

    /// Goes on from a verdict that another process came to.
    pub fn assume(&mut self, verdict: Option<bool>) {
        (self.verdict, self.against) = (verdict, 0);
    }

    /// The verdict, `None` before the first check.
    pub fn verdict(&self) -> Option<bool> {
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_check_decides_at_once_and_later_ones_by_thresholds() {
        let mut h = Health::default();
        assert_eq!(h.on_check(false, 3, 2), Some(false));
        assert_eq!(h.on_check(true, 3, 2), None);
        assert_eq!(h.on_check(false, 3, 2), None, "a fail in between starts the count again");
        assert_eq!(h.on_check(true, 3, 2), None);
        assert_eq!(h.on_check(true, 3, 2), Some(true));
        assert_eq!((h.on_check(false, 3, 2), h.on_check(false, 3, 2)), (None, None));
        assert_eq!(h.on_check(false, 3, 2), Some(false));
    }
}
