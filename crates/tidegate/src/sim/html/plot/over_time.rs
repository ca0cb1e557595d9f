//! Endpoints over time, a line each, and how many of them there are, a line per policy.

use plotters::prelude::*;
use tidegate_sim::kernel::{Point, Timeline};

use super::{LEGEND_AT, beside, color, draw, legend, wrong};

/// Size of a plot of endpoints without its legend, and the height of a row of names there.
const SIZE: (u32, u32) = (460, 210);
const ROW_HIGH: u32 = 18;
/// Endpoints drawn in one plot.
const MOST_LINES: usize = 12;

/// What is drawn of an endpoint: heading, name of the axis, and the number.
#[derive(Clone, Copy)]
pub(in super::super) struct Quantity {
    pub(in super::super) heading: &'static str,
    axis: &'static str,
    of: fn(&Point) -> f64,
    /// The axis goes this far at least.
    least: f64,
}

/// Load of the engines.
pub(in super::super) const LOAD: Quantity =
    Quantity { heading: "Load of each endpoint", axis: "load, 1 is full", of: |p| p.load, least: 0.05 };
/// Requests at the engines.
pub(in super::super) const IN_FLIGHT: Quantity = Quantity {
    heading: "Requests in flight at each endpoint",
    axis: "requests in flight",
    of: |p| f64::from(p.in_flight),
    least: 1.0,
};
/// Requests that wait in the engines.
pub(in super::super) const WAITING: Quantity = Quantity {
    heading: "Requests waiting in each endpoint",
    axis: "requests waiting",
    of: |p| f64::from(p.waiting),
    least: 1.0,
};

impl Quantity {
    /// Whether it is ever more than nothing.
    pub(in super::super) fn is_there(&self, timelines: &[Timeline]) -> bool {
        timelines.iter().flat_map(|t| &t.samples).flat_map(|s| &s.endpoints).any(|p| (self.of)(p) > 0.0)
    }
}

/// The highest of all these, so that their plots have one axis.
pub(in super::super) fn highest(timelines: &[Timeline], quantity: Quantity) -> f64 {
    let points = timelines.iter().flat_map(|t| &t.samples).flat_map(|s| &s.endpoints);
    points.map(quantity.of).fold(quantity.least, f64::max)
}

/// Each endpoint over time, up to `highest`, the names below.
pub(in super::super) fn endpoints(
    endpoints: &[String],
    timeline: &Timeline,
    quantity: Quantity,
    highest: f64,
) -> anyhow::Result<String> {
    let until = timeline.samples.last().map_or(1.0, |s| s.at_s.max(1.0));
    let mut names: Vec<String> = endpoints.iter().take(MOST_LINES).cloned().collect();
    if endpoints.len() > MOST_LINES {
        names.push(format!("{} more are not drawn", endpoints.len() - MOST_LINES));
    }
    let longest = names.iter().map(|n| n.chars().count() as u32).max().unwrap_or(0);
    let column = 36 + longest * 12 * 6 / 10;
    let wide = SIZE.0.max(column + 16);
    let columns = (wide - 16) / column;
    let rows = (names.len() as u32).div_ceil(columns);
    draw((wide, SIZE.1 + rows * ROW_HIGH + 8), |area| {
        let (area, below) = area.split_vertically(SIZE.1 as i32);
        for (k, name) in names.iter().enumerate() {
            let (x, y) = (16 + (k as u32 % columns * column) as i32, 8 + (k as u32 / columns * ROW_HIGH) as i32);
            if k < MOST_LINES {
                below.draw(&PathElement::new([(x, y), (x + 16, y)], color(k).stroke_width(3))).map_err(wrong)?;
            }
            below.draw(&Text::new(name.as_str(), (x + 22, y - 6), ("sans-serif", 12))).map_err(wrong)?;
        }
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(18)
            .x_label_area_size(34)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..until, 0.0..highest * 1.05)
            .map_err(wrong)?;
        let at = |x: &f64| short(*x, until, 20.0);
        let height = |y: &f64| short(*y, highest, 5.0);
        let mesh = &mut chart.configure_mesh();
        mesh.x_label_formatter(&at).y_label_formatter(&height);
        mesh.x_desc("time, seconds").y_desc(quantity.axis).light_line_style(TRANSPARENT).draw().map_err(wrong)?;
        for k in 0..endpoints.len().min(MOST_LINES) {
            let curve = timeline.samples.iter().map(|s| (s.at_s, s.endpoints.get(k).map_or(0.0, quantity.of)));
            chart.draw_series(LineSeries::new(curve, color(k).stroke_width(1))).map_err(wrong)?;
        }
        Ok(())
    })
}

/// Endpoints that serve over time, a line per policy, by steps.
pub(in super::super) fn of_fleet(names: &[&str], timelines: &[Timeline]) -> anyhow::Result<String> {
    let samples = || timelines.iter().flat_map(|t| &t.samples);
    let until = samples().map(|s| s.at_s).fold(1.0, f64::max);
    let highest = samples().map(|s| f64::from(s.serving)).fold(1.0, f64::max);
    draw(beside(names), |area| {
        let (area, side) = area.split_horizontally(LEGEND_AT);
        legend(&side, names)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .margin_right(24)
            .x_label_area_size(38)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..until, 0.0..highest * 1.05)
            .map_err(wrong)?;
        let at = |x: &f64| short(*x, until, 20.0);
        let mesh = &mut chart.configure_mesh();
        mesh.x_desc("time, seconds").y_desc("endpoints that serve").light_line_style(TRANSPARENT);
        mesh.x_label_formatter(&at);
        mesh.y_label_formatter(&|y| format!("{y:.0}")).draw().map_err(wrong)?;
        for (k, timeline) in timelines.iter().enumerate() {
            let mut steps: Vec<(f64, f64)> = Vec::new();
            for s in &timeline.samples {
                let (at_s, serving) = (s.at_s, f64::from(s.serving));
                match steps.last() {
                    Some((_, before)) if *before == serving => continue,
                    Some((_, before)) => steps.push((at_s, *before)),
                    None => {}
                }
                steps.push((at_s, serving));
            }
            let end = timeline.samples.last().map(|s| (s.at_s, f64::from(s.serving)));
            steps.extend(end);
            chart.draw_series(LineSeries::new(steps, color(k).stroke_width(2))).map_err(wrong)?;
        }
        Ok(())
    })
}

/// A number on an axis that ends at `end`, with a decimal where that is below `whole`.
fn short(x: f64, end: f64, whole: f64) -> String {
    let digits = usize::from(end < whole);
    format!("{x:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::kernel::Sample;

    #[test]
    fn names_stand_below_the_curves() {
        let names: Vec<String> = (1..=20).map(|k| format!("engine-{k}")).collect();
        let sample = |at_s, load| {
            let endpoints = vec![Point { load, in_flight: 3, waiting: 0 }; 20];
            Sample { at_s, endpoints, serving: 20, starting: 0 }
        };
        let mut timeline = Timeline::default();
        timeline.samples = vec![sample(0.0, 0.5), sample(9.0, 0.7)];
        let all = std::slice::from_ref(&timeline);
        assert!(LOAD.is_there(all) && !WAITING.is_there(all) && highest(all, IN_FLIGHT) == 3.0);
        let svg = endpoints(&names, &timeline, LOAD, highest(all, LOAD)).unwrap();
        assert!(svg.contains("engine-12") && !svg.contains("engine-13") && svg.contains("8 more are not drawn"));
        let at = svg.find("engine-1\n").unwrap();
        let text = &svg[svg[..at].rfind("<text").unwrap()..at];
        let y: u32 = text.split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
        assert!(y > SIZE.1, "{text}");
    }
}
