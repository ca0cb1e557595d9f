//! The mean of the last twenty samples.

/// A ring of the last 20 samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recent {
    ring: [f32; 20],
    len: u8,
    next: u8,
    /// Kept, as policies read it for every endpoint and decision.
    mean: f64,
}

impl Recent {
    /// Takes a sample.
    pub fn on_sample(&mut self, sample: f64) {
        self.ring[usize::from(self.next)] = sample as f32;
        self.next = (self.next + 1) % 20;
        self.len = (self.len + 1).min(20);
        let held = &self.ring[..usize::from(self.len)];
        self.mean = held.iter().map(|&v| f64::from(v)).sum::<f64>() / f64::from(self.len);
    }

    /// The samples held, the oldest first.
    pub fn samples(&self) -> impl Iterator<Item = f32> {
        let (len, next) = (usize::from(self.len), usize::from(self.next));
        (0..len).map(move |k| self.ring[(next + 20 - len + k) % 20])
    }

    /// Mean of the samples held.
    pub fn mean(&self) -> Option<f64> {
        (self.len > 0).then_some(self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_twenty_first() {
        let mut r = Recent::default();
        assert_eq!(r.mean(), None);
        r.on_sample(1000.0);
        (0..20).for_each(|_| r.on_sample(2.0));
        assert_eq!(r.mean(), Some(2.0));
    }
}
