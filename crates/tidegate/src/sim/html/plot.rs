//! The plots, drawn as SVG by plotters.

use plotters::coord::Shift;
use plotters::prelude::*;
use tidegate_sim::batch::Runs;
use tidegate_sim::kernel::Timeline;
use tidegate_sim::workload::Latency;

/// Where the legend begins, from the left.
const LEGEND_AT: i32 = 770;
/// Least width of the legend.
const LEGEND_WIDE: u32 = 230;
/// Least height of a plot with a legend beside it, and the height of a name there.
const HIGH: u32 = 420;
const NAME_HIGH: u32 = 22;
/// Size of a plot of loads without its legend, and the height of a row of names there.
const LOADS: (u32, u32) = (460, 210);
const ROW_HIGH: u32 = 18;
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
    draw(beside(&names), |area| {
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

/// Mean latency against success, a named point per policy.
pub(super) fn pareto(points: &[(&str, f64, f64)]) -> anyhow::Result<String> {
    let most_s = points.iter().map(|p| p.1).fold(1e-3, f64::max) * 1.25;
    let (floor, top) = success_axis(points.iter().map(|p| p.2));
    let digits = percent_digits(top - floor);
    let names: Vec<&str> = points.iter().map(|p| p.0).collect();
    draw(beside(&names), |area| {
        let (area, side) = area.split_horizontally(LEGEND_AT);
        legend(&side, &names)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..most_s, floor..top)
            .map_err(wrong)?;
        // Above 100 % is room for a dot, not a success.
        let label = |y: &f64| if *y > 1.0 + 1e-9 { String::new() } else { format!("{:.digits$} %", y * 100.0) };
        let mesh = &mut chart.configure_mesh();
        mesh.x_desc("mean latency, seconds").y_desc("success").y_label_formatter(&label);
        mesh.light_line_style(TRANSPARENT).draw().map_err(wrong)?;
        let dots = points.iter().enumerate().map(|(k, &(_, x, y))| Circle::new((x, y), 6, color(k).filled()));
        chart.draw_series(dots).map_err(wrong)?;
        Ok(())
    })
}

/// The axis of success: around what was found, at least two points wide, and no less than 0.
fn success_axis(found: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = found.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), s| (l.min(s), h.max(s)));
    if low > high {
        return (0.0, 1.0);
    }
    let span = (high - low).max(0.02);
    ((high - span * 1.12).max(0.0), (high + span * 0.12).max(span))
}

/// Digits that tell the labels of an axis of this span apart: there are about ten.
fn percent_digits(span: f64) -> usize {
    let mut digits = 0;
    let mut step = span * 100.0 / 10.0;
    while step < 1.0 - 1e-9 && digits < 6 {
        step *= 10.0;
        digits += 1;
    }
    digits
}

/// Load of each endpoint over time, the names below.
pub(super) fn loads(endpoints: &[String], timeline: &Timeline) -> anyhow::Result<String> {
    let until = timeline.samples.last().map_or(1.0, |s| s.0.max(1.0));
    let highest = timeline.samples.iter().flat_map(|s| s.1.iter().copied()).fold(1.0, f64::max);
    let mut names: Vec<String> = endpoints.iter().take(MOST_LINES).cloned().collect();
    if endpoints.len() > MOST_LINES {
        names.push(format!("{} more are not drawn", endpoints.len() - MOST_LINES));
    }
    let longest = names.iter().map(|n| n.chars().count() as u32).max().unwrap_or(0);
    let column = 36 + longest * 12 * 6 / 10;
    let wide = LOADS.0.max(column + 16);
    let columns = (wide - 16) / column;
    let rows = (names.len() as u32).div_ceil(columns);
    draw((wide, LOADS.1 + rows * ROW_HIGH + 8), |area| {
        let (area, below) = area.split_vertically(LOADS.1 as i32);
        for (k, name) in names.iter().enumerate() {
            let (x, y) = (16 + (k as u32 % columns * column) as i32, 8 + (k as u32 / columns * ROW_HIGH) as i32);
            if k < MOST_LINES {
                below.draw(&PathElement::new([(x, y), (x + 16, y)], color(k).stroke_width(3))).map_err(wrong)?;
            }
            below.draw(&Text::new(name.as_str(), (x + 22, y - 6), ("sans-serif", 12))).map_err(wrong)?;
        }
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(40)
            .build_cartesian_2d(0.0..until, 0.0..highest * 1.02)
            .map_err(wrong)?;
        chart.configure_mesh().x_desc("seconds").light_line_style(TRANSPARENT).draw().map_err(wrong)?;
        for k in 0..endpoints.len().min(MOST_LINES) {
            let curve = timeline.samples.iter().map(|(t, loads)| (*t, loads[k]));
            chart.draw_series(LineSeries::new(curve, color(k).stroke_width(1))).map_err(wrong)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The labels of the axis of success.
    fn labels(points: &[(&str, f64, f64)]) -> Vec<String> {
        let svg = pareto(points).unwrap();
        svg.lines().map(str::trim).filter(|l| l.ends_with(" %")).map(str::to_owned).collect()
    }

    #[test]
    fn no_label_of_success_stands_twice() {
        for successes in [[1.0, 1.0], [0.0, 0.0], [0.5, 0.5], [0.9999, 1.0], [0.975, 0.9755], [0.2, 0.9], [0.0, 1.0]] {
            let points = [("a", 1.0, successes[0]), ("b", 2.0, successes[1])];
            let found = labels(&points);
            let mut once = found.clone();
            once.sort();
            once.dedup();
            assert!(found.len() >= 3 && once.len() == found.len(), "{successes:?}: {found:?}");
            let (floor, top) = success_axis(successes.into_iter());
            assert!(successes.iter().all(|s| *s >= floor && *s < top), "{successes:?}: {floor} to {top}");
        }
    }

    #[test]
    fn names_stand_beside_or_below_the_curves() {
        let long = "least_response_time.reported-with-a-very-long-label-of-the-user";
        let (wide, high) = beside(&[long; 30]);
        assert!(wide >= 770 + 24 + 8 * long.len() as u32 && high >= 24 + 30 * 22, "{wide} {high}");
        let endpoints: Vec<String> = (1..=20).map(|k| format!("engine-{k}")).collect();
        let mut timeline = Timeline::default();
        timeline.samples = vec![(0.0, vec![0.5; 20]), (9.0, vec![0.7; 20])];
        let svg = loads(&endpoints, &timeline).unwrap();
        assert!(svg.contains("engine-12") && !svg.contains("engine-13") && svg.contains("8 more are not drawn"));
        let at = svg.find("engine-1\n").unwrap();
        let text = &svg[svg[..at].rfind("<text").unwrap()..at];
        let y: u32 = text.split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
        assert!(y > LOADS.1, "{text}");
    }
}
