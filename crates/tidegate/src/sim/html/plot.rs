//! The plots, drawn as SVG by plotters.

mod bars;
mod curves;
mod over_time;
mod pareto;

pub(super) use bars::tenants;
pub(super) use curves::against_load;
pub(super) use over_time::{IN_FLIGHT, LOAD, WAITING, endpoints, highest, of_fleet};
pub(super) use pareto::pareto;

use plotters::coord::Shift;
use plotters::prelude::*;
use tidegate_sim::batch::Runs;
use tidegate_sim::workload::Latency;

/// Where the legend begins, from the left.
const LEGEND_AT: i32 = 770;
/// Least width of the legend.
const LEGEND_WIDE: u32 = 230;
/// Least height of a plot with a legend beside it, and the height of a name there.
const HIGH: u32 = 420;
const NAME_HIGH: u32 = 22;
/// Steps of a distribution.
const STEPS: usize = 200;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Colours that stay apart, also for most people who see fewer of them (Okabe and Ito), then the same again, lighter.
fn color(k: usize) -> RGBAColor {
    const BASE: [(u8, u8, u8); 8] = [
        (0, 114, 178),
        (213, 94, 0),
        (0, 158, 115),
        (204, 121, 167),
        (230, 159, 0),
        (86, 180, 233),
        (90, 90, 90),
        (180, 160, 0),
    ];
    let (r, g, b) = BASE[k % BASE.len()];
    RGBColor(r, g, b).mix(if k < BASE.len() { 1.0 } else { 0.5 })
}

fn draw(size: (u32, u32), paint: impl FnOnce(&Area<'_>) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        paint(&area)?;
        area.present().map_err(wrong)?;
    }
    // Fixed sizes would overflow a narrow page; the view box scales.
    let fixed = format!("<svg width=\"{}\" height=\"{}\"", size.0, size.1);
    Ok(svg.replacen(&fixed, "<svg", 1))
}

fn wrong(e: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("cannot draw: {e}")
}

/// Share of answers within a time, a line per policy; time is logarithmic.
pub(super) fn distribution(
    lines: &[(&str, &Runs)],
    axis: &str,
    of: impl Fn(&Runs) -> &Latency,
) -> anyhow::Result<String> {
    let quantiles = |l: &Latency| -> Vec<(f64, f64)> {
        let q = (0..=STEPS).map(|k| (k as f64 / STEPS as f64).min(0.999));
        q.filter_map(|q| Some((l.quantile_s(q)?.max(1e-4), q))).collect()
    };
    let curves: Vec<(&str, Vec<(f64, f64)>)> = lines.iter().map(|(name, r)| (*name, quantiles(of(r)))).collect();
    let times = curves.iter().flat_map(|(_, c)| c.iter().map(|p| p.0));
    let (low, high) = times.fold((f64::INFINITY, 1e-3f64), |(l, h), t| (l.min(t), h.max(t)));
    let low = low.min(high / 10.0).max(1e-4);
    let names: Vec<&str> = curves.iter().map(|(name, _)| *name).collect();
    draw(beside(&names), |area| {
        let (area, side) = area.split_horizontally(LEGEND_AT);
        legend(&side, &names)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(64)
            .build_cartesian_2d((low..high * 1.05).log_scale(), 0.0..1.0f64)
            .map_err(wrong)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(axis).x_label_formatter(&|x| significant(*x)).light_line_style(TRANSPARENT);
        mesh.y_desc("share of answers").y_label_formatter(&|y| format!("{:.0} %", y * 100.0)).draw().map_err(wrong)?;
        for (k, (_, curve)) in curves.into_iter().enumerate() {
            chart.draw_series(LineSeries::new(curve, color(k).stroke_width(2))).map_err(wrong)?;
        }
        Ok(())
    })
}

/// Two digits that mean something.
fn significant(x: f64) -> String {
    let digits = if x >= 10.0 {
        0
    } else if x >= 1.0 {
        1
    } else if x >= 0.1 {
        2
    } else if x >= 0.01 {
        3
    } else {
        4
    };
    format!("{x:.digits$}")
}

/// Size of a plot with these names beside it: none is cut, however long or many they are.
fn beside(names: &[&str]) -> (u32, u32) {
    let longest = names.iter().map(|n| n.chars().count() as u32).max().unwrap_or(0);
    // No font is asked; few letters are wider than 0.6 of their height.
    let wide = (36 + longest * 14 * 6 / 10).max(LEGEND_WIDE);
    (LEGEND_AT as u32 + wide, HIGH.max(24 + NAME_HIGH * names.len() as u32))
}

/// Names beside their colours, where they cover nothing.
fn legend(side: &Area<'_>, names: &[&str]) -> anyhow::Result<()> {
    for (k, name) in names.iter().enumerate() {
        let y = 24 + NAME_HIGH as i32 * k as i32;
        side.draw(&Circle::new((12, y), 5, color(k).filled())).map_err(wrong)?;
        side.draw(&Text::new(*name, (24, y - 7), ("sans-serif", 14))).map_err(wrong)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_beside_the_curves() {
        let long = "least_response_time.reported-with-a-very-long-label-of-the-user";
        let (wide, high) = beside(&[long; 30]);
        assert!(wide >= 770 + 24 + 8 * long.len() as u32 && high >= 24 + 30 * 22, "{wide} {high}");
    }
}
