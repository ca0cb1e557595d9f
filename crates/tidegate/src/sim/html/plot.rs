//! The plots, drawn as SVG by plotters.

use plotters::coord::Shift;
use plotters::prelude::*;
use tidegate_sim::batch::Runs;
use tidegate_sim::kernel::Timeline;
use tidegate_sim::workload::Latency;

/// Where the legend begins, from the left.
const LEGEND_AT: i32 = 770;
/// Steps of a distribution.
const STEPS: usize = 200;
/// Endpoints drawn in one plot of loads.
const MOST_LINES: usize = 12;

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
pub(super) fn distribution(lines: &[(&str, &Runs)], of: impl Fn(&Runs) -> &Latency) -> anyhow::Result<String> {
    let quantiles = |l: &Latency| -> Vec<(f64, f64)> {
        let q = (0..=STEPS).map(|k| (k as f64 / STEPS as f64).min(0.999));
        q.filter_map(|q| Some((l.quantile_s(q)?.max(1e-4), q))).collect()
    };
    let curves: Vec<(&str, Vec<(f64, f64)>)> = lines.iter().map(|(name, r)| (*name, quantiles(of(r)))).collect();
    let times = curves.iter().flat_map(|(_, c)| c.iter().map(|p| p.0));
    let (low, high) = times.fold((f64::INFINITY, 1e-3f64), |(l, h), t| (l.min(t), h.max(t)));
    let low = low.min(high / 10.0).max(1e-4);
    let names: Vec<&str> = curves.iter().map(|(name, _)| *name).collect();
    draw((1000, 420), |area| {
        let (area, side) = area.split_horizontally(LEGEND_AT);
        legend(&side, &names)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(52)
            .build_cartesian_2d((low..high * 1.05).log_scale(), 0.0..1.0f64)
            .map_err(wrong)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("seconds").x_label_formatter(&|x| significant(*x)).light_line_style(TRANSPARENT);
        mesh.draw().map_err(wrong)?;
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

/// Names beside their colours, where they cover nothing.
fn legend(side: &Area<'_>, names: &[&str]) -> anyhow::Result<()> {
    for (k, name) in names.iter().enumerate() {
        let y = 24 + 22 * k as i32;
        side.draw(&Circle::new((12, y), 5, color(k).filled())).map_err(wrong)?;
        side.draw(&Text::new(*name, (24, y - 7), ("sans-serif", 14))).map_err(wrong)?;
    }
    Ok(())
}

/// Mean latency against success, a named point per policy.
pub(super) fn pareto(points: &[(&str, f64, f64)]) -> anyhow::Result<String> {
    let most_s = points.iter().map(|p| p.1).fold(1e-3, f64::max) * 1.25;
    let least = points.iter().map(|p| p.2).fold(1.0, f64::min);
    let floor = (least - (1.0 - least) * 0.15 - 0.002).max(0.0);
    let names: Vec<&str> = points.iter().map(|p| p.0).collect();
    draw((1000, 420), |area| {
        let (area, side) = area.split_horizontally(LEGEND_AT);
        legend(&side, &names)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..most_s, floor..1.0 + (1.0 - floor) * 0.08)
            .map_err(wrong)?;
        let mesh = &mut chart.configure_mesh();
        mesh.x_desc("mean latency, seconds").y_desc("success").y_label_formatter(&|y| format!("{:.1} %", y * 100.0));
        mesh.light_line_style(TRANSPARENT).draw().map_err(wrong)?;
        let dots = points.iter().enumerate().map(|(k, &(_, x, y))| Circle::new((x, y), 6, color(k).filled()));
        chart.draw_series(dots).map_err(wrong)?;
        Ok(())
    })
}

/// Load of each endpoint over time.
pub(super) fn loads(endpoints: &[String], timeline: &Timeline) -> anyhow::Result<String> {
    let until = timeline.samples.last().map_or(1.0, |s| s.0.max(1.0));
    let highest = timeline.samples.iter().flat_map(|s| s.1.iter().copied()).fold(1.0, f64::max);
    draw((640, 260), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(40)
            .build_cartesian_2d(0.0..until, 0.0..highest * 1.02)
            .map_err(wrong)?;
        chart.configure_mesh().x_desc("seconds").light_line_style(TRANSPARENT).draw().map_err(wrong)?;
        for (k, name) in endpoints.iter().enumerate().take(MOST_LINES) {
            let curve = timeline.samples.iter().map(|(t, loads)| (*t, loads[k]));
            let style = color(k).stroke_width(1);
            let drawn = chart.draw_series(LineSeries::new(curve, style)).map_err(wrong)?;
            drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
        }
        let mut legend = chart.configure_series_labels();
        legend
            .position(SeriesLabelPosition::UpperRight)
            .label_font(("sans-serif", 11))
            .background_style(WHITE.mix(0.7))
            .draw()
            .map_err(wrong)
    })
}
