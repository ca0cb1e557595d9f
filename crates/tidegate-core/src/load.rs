//! Load of an endpoint: reports, their age, own credit, forecast.

mod forecast;
mod report;
mod signal;

pub use forecast::{Forecast, ForecastConfig};
pub use report::{LoadReport, Unfit, WorkReport};
pub use signal::{Degraded, LoadSignal};
