//! Whose answers they were: a bar per row, cut by tenants.

use plotters::prelude::*;
use tidegate_sim::report::TenantLine;

use super::{LEGEND_AT, NAME_HIGH, beside, color, draw, legend, wrong};

/// Height of a bar with the room above it, and what axis and margins need.
const BAR_HIGH: u32 = 46;
const AROUND: u32 = 62;

/// Per row of the comparison, the share of its whole answers that each tenant got; the line below says what share of the requests were theirs.
pub(in super::super) fn tenants(lines: &[TenantLine]) -> anyhow::Result<String> {
    let mut rows: Vec<&str> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for line in lines {
        rows.extend((!rows.contains(&line.row.as_str())).then_some(line.row.as_str()));
        names.extend((!names.contains(&line.tenant.as_str())).then_some(line.tenant.as_str()));
    }
    let (wide, _) = beside(&names);
    let high = (AROUND + BAR_HIGH * rows.len() as u32).max(24 + NAME_HIGH * names.len() as u32);
    draw((wide, high), |area| {
        let (area, side) = area.split_horizontally(LEGEND_AT);
        legend(&side, &names)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(38)
            .build_cartesian_2d(0.0..100.0f64, 0.0..rows.len() as f64)
            .map_err(wrong)?;
        let mesh = &mut chart.configure_mesh();
        mesh.disable_y_mesh().disable_y_axis().light_line_style(TRANSPARENT);
        mesh.x_desc("share, %: wide bar of whole answers, thin bar of requests").draw().map_err(wrong)?;
        for (k, row) in rows.iter().enumerate() {
            let top = (rows.len() - k) as f64;
            let of_row = || lines.iter().filter(|l| l.row == *row);
            let served = of_row().map(|l| l.success * l.requests as f64).collect::<Vec<_>>();
            let asked = of_row().map(|l| l.requests as f64).collect::<Vec<_>>();
            for (shares, from, to) in [(served, 0.62, 0.22), (asked, 0.18, 0.1)] {
                let bars = stacked(&shares).into_iter().enumerate().map(|(tenant, (left, right))| {
                    Rectangle::new([(left, top - 1.0 + from), (right, top - 1.0 + to)], color(tenant).filled())
                });
                chart.draw_series(bars).map_err(wrong)?;
            }
            let label = Text::new((*row).to_owned(), (0.3, top - 0.06), ("sans-serif", 14));
            chart.draw_series(std::iter::once(label)).map_err(wrong)?;
        }
        Ok(())
    })
}

/// Where each part begins and ends, per cent; nothing where there is nothing.
fn stacked(parts: &[f64]) -> Vec<(f64, f64)> {
    let all: f64 = parts.iter().sum();
    let mut at = 0.0;
    let mut place = |part: &f64| {
        let begin = at;
        at += if all > 0.0 { part / all * 100.0 } else { 0.0 };
        (begin, at)
    };
    parts.iter().map(&mut place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_bar_and_nothing_fills_none() {
        assert_eq!(stacked(&[1.0, 2.0, 1.0]), [(0.0, 25.0), (25.0, 75.0), (75.0, 100.0)]);
        assert_eq!(stacked(&[0.0, 0.0]), [(0.0, 0.0), (0.0, 0.0)]);
    }
}
