//! Where an endpoint stands with its breaker.

/// The level of one endpoint for one route class (notes: breaker, section 1). To users full and reduced are both *closed*: traffic
/// flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// Its whole weight.
    #[default]
    Full,
    /// A quarter of its weight: slow, or failing in part. Evidence keeps flowing, so no probe is needed.
    Reduced,
    /// Nobody goes there; probes out of band, or a pause, decide on the way back.
    Open,
    /// One leased trial request, then a ramp of its share.
    HalfOpen,
}

impl Level {
    /// Every level, `self as usize` being its place.
    pub const ALL: [Self; 4] = [Self::Full, Self::Reduced, Self::Open, Self::HalfOpen];

    /// A short stable word for explain, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Reduced => "reduced",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }

    /// The breaker's state in the words of every other breaker: `closed`, `open` or `half_open`.
    pub const fn state(self) -> &'static str {
        match self {
            Self::Full | Self::Reduced => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}
