//! The run as a picture: bars per proxy, six panels, plain SVG.
//!
//! A plotting library would bring more than these few rectangles need. Bars are cut at three times the median, and say so, because one slow router would
//! otherwise flatten all others.

use crate::figures::Figures;
use crate::report;
use crate::side_by_side::Row;
use std::fmt::Write;

const PANEL_WIDTH: usize = 470;
const BAR: usize = 15;
const PITCH: usize = 22;
const NAME_WIDTH: usize = 132;
const LONGEST_BAR: f64 = 230.0;
/// Longest bar, in medians.
const CUT: f64 = 3.0;

/// What a panel shows of a row; none where the proxy could not carry that load.
type Value = fn(&Row) -> Option<f64>;

/// Draws a run.
pub fn svg(machine: &str, rows: &[Row]) -> String {
    let panels: [(&str, Value); 6] = [
        ("CPU per JSON request, us (less is better)", |r| measured(&r.unary, r.unary.cpu_us)),
        ("CPU per streamed event at 500 streams, us (less is better)", |r| {
            measured(&r.streams[0], r.streams[0].cpu_us)
        }),
        ("JSON requests per second on one core (more is better)", |r| measured(&r.unary, r.unary.per_s)),
        ("Added p99 of JSON requests at half load, us (less is better)", |r| Some(report::added_to_requests(r)?.1)),
        ("Added p99 of events at half load, us (less is better)", |r| Some(report::added_to_events(r)?.1)),
        ("Memory with 500 streams, MiB (less is better)", |r| {
            measured(&r.streams[0], r.streams[0].resident_kib as f64 / 1024.0)
        }),
    ];
    let panel_height = 34 + PITCH * rows.len().max(1);
    let (width, height) = (2 * PANEL_WIDTH + 20, 3 * panel_height + 70);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"12\" y=\"22\" font-size=\"15\" font-weight=\"bold\">Proxies side by side, one core each</text>\n<text x=\"12\" y=\"40\" fill=\"#555555\" font-size=\"11\">{}</text>\n",
        escaped(machine)
    );
    for (place, (title, value)) in panels.into_iter().enumerate() {
        let (x, y) = (12 + place % 2 * PANEL_WIDTH, 62 + place / 2 * panel_height);
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\" font-weight=\"bold\">{}</text>", escaped(title));
        panel(&mut text, rows, value, x, y + 8);
    }
    text.push_str("</svg>\n");
    text
}

fn panel(text: &mut String, rows: &[Row], of: Value, x: usize, y: usize) {
    let values: Vec<f64> = rows.iter().map(|r| of(r).unwrap_or(0.0).max(0.0)).collect();
    let mut ranked = values.clone();
    ranked.sort_by(f64::total_cmp);
    let (median, most) = (ranked.get(ranked.len() / 2), ranked.last());
    let longest = most.copied().unwrap_or(0.0).min(median.map_or(0.0, |m| m * CUT)).max(f64::MIN_POSITIVE);
    for (place, (row, value)) in rows.iter().zip(values).enumerate() {
        let top = y + place * PITCH;
        let (bar, is_cut) = ((value / longest).min(1.0) * LONGEST_BAR, value > longest);
        let colour = if row.name == "tidegate" { "#0b7285" } else { "#adb5bd" };
        let number = match of(row) {
            None => "could not carry it".to_owned(),
            Some(exact) if exact >= 100.0 => format!("{exact:.0}"),
            Some(exact) => format!("{exact:.1}"),
        };
        let note = [
            if is_cut { ", bar cut" } else { "" },
            if report::passes_on(row) == Some(false) { ", gathers events" } else { "" },
        ];
        let (base, left) = (top + 12, x + NAME_WIDTH);
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{}</text><rect x=\"{left}\" y=\"{top}\" width=\"{bar:.1}\" height=\"{BAR}\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{base}\" font-size=\"11\">{number}{}</text>",
            left - 6,
            escaped(&row.name),
            left as f64 + bar + 5.0,
            note.concat(),
        );
    }
}

fn measured(of: &Figures, value: f64) -> Option<f64> {
    (of.per_s >= 1.0).then_some(value)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
