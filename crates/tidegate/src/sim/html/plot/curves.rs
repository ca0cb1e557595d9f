//! A time against the load that was offered, a line per policy.

use plotters::prelude::*;
use tidegate_sim::report::Line;

use super::{LEGEND_AT, beside, color, draw, legend, significant, wrong};
use crate::sim::pages::LoadCurves;

/// Both axes begin at what was seen; times are logarithmic, as an overloaded policy would press all others flat.
pub(in super::super) fn against_load(
    curves: &LoadCurves,
    axis: &str,
    of: fn(&Line) -> Option<f64>,
) -> anyhow::Result<String> {
    let points = |line: &[(f64, Line)]| -> Vec<(f64, f64)> {
        line.iter().filter_map(|(rps, l)| of(l).map(|s| (*rps, s.max(1e-4)))).collect()
    };
    let lines: Vec<(&str, Vec<(f64, f64)>)> = curves.lines.iter().map(|(n, l)| (n.as_str(), points(l))).collect();
    let all = || lines.iter().flat_map(|(_, l)| l.iter());
    let (low, high) = all().fold((f64::INFINITY, 1e-3f64), |(l, h), p| (l.min(p.1), h.max(p.1)));
    let (from, to) = all().fold((f64::INFINITY, 0.0f64), |(l, h), p| (l.min(p.0), h.max(p.0)));
    let (low, from) = (low.min(high / 2.0).max(1e-4), from.min(to));
    let room = (to - from).max(to * 0.01) * 0.05;
    let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
    draw(beside(&names), |area| {
        let (area, side) = area.split_horizontally(LEGEND_AT);
        legend(&side, &names)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(72)
            .build_cartesian_2d(from - room..to + room, (low / 1.2..high * 1.2).log_scale())
            .map_err(wrong)?;
        let mesh = &mut chart.configure_mesh();
        mesh.x_desc("offered load, requests per second")
            .y_desc(axis)
            .y_labels(6)
            .y_label_formatter(&|y| significant(*y));
        mesh.light_line_style(TRANSPARENT).draw().map_err(wrong)?;
        for (k, (_, line)) in lines.iter().enumerate() {
            let dots = line.iter().map(|p| Circle::new(*p, 4, color(k).filled()));
            chart.draw_series(LineSeries::new(line.iter().copied(), color(k).stroke_width(2))).map_err(wrong)?;
            chart.draw_series(dots).map_err(wrong)?;
        }
        Ok(())
    })
}
