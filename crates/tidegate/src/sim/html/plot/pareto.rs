//! What is bought with what: a time against a share.

use plotters::prelude::*;

use super::{LEGEND_AT, beside, color, draw, legend, wrong};

/// A time against a share, a named point per policy, and a line through those that nobody beats in both. The names of the axes come as
/// (time, share).
pub(in super::super) fn pareto(points: &[(&str, f64, f64)], (time, share): (&str, &str)) -> anyhow::Result<String> {
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
        mesh.x_desc(time).y_desc(share).y_label_formatter(&label);
        mesh.light_line_style(TRANSPARENT).draw().map_err(wrong)?;
        chart.draw_series(LineSeries::new(front(points), BLACK.mix(0.35).stroke_width(1))).map_err(wrong)?;
        let dots = points.iter().enumerate().map(|(k, &(_, x, y))| Circle::new((x, y), 6, color(k).filled()));
        chart.draw_series(dots).map_err(wrong)?;
        Ok(())
    })
}

/// The points that no other beats in time and share at once, by time.
fn front(points: &[(&str, f64, f64)]) -> Vec<(f64, f64)> {
    let mut by_time: Vec<(f64, f64)> = points.iter().map(|p| (p.1, p.2)).collect();
    by_time.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut best = f64::NEG_INFINITY;
    by_time.retain(|(_, share)| {
        let better = *share > best;
        best = best.max(*share);
        better
    });
    by_time
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The labels of the axis of success.
    fn labels(points: &[(&str, f64, f64)]) -> Vec<String> {
        let svg = pareto(points, ("mean latency, seconds", "success")).unwrap();
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
    fn the_front_is_what_nobody_beats_in_both() {
        let points = [("a", 1.0, 0.8), ("b", 2.0, 0.9), ("slow", 3.0, 0.85), ("c", 4.0, 0.99), ("twin", 1.0, 0.7)];
        assert_eq!(front(&points), [(1.0, 0.8), (2.0, 0.9), (4.0, 0.99)]);
    }
}
