//! The tables of a run, in Markdown.

use crate::figures::Figures;
use crate::side_by_side::Row;
use std::fmt::Write;

/// A core less busy than this had time to spare.
const SATURATED: f64 = 0.93;
/// What stands where a proxy could not carry the load of a phase.
const NOT_MEASURED: &str = "-";
/// Events a second of each stream.
const EVENTS_PER_S: f64 = 50.0;
/// Share of what was asked for that a proxy must do to count as not overloaded.
const KEPT_UP: f64 = 0.95;
/// Events that a read may find on average, where events are passed on as they come.
const STREAMS: f64 = 1.5;

/// All tables.
pub fn markdown(machine: &str, rows: &[Row], left_out: &[String]) -> String {
    let mut text = format!("{machine}.\n\n");
    json(&mut text, rows);
    events(&mut text, rows);
    memory(&mut text, rows);
    let versions: Vec<String> = rows.iter().map(|r| format!("{} {}", r.name, r.version)).collect();
    let _ = writeln!(text, "Versions: {}.", versions.join("; "));
    if !left_out.is_empty() {
        let _ = writeln!(text, "\nLeft out: {}.", left_out.join("; "));
    }
    text
}

fn json(text: &mut String, rows: &[Row]) {
    text.push_str("**JSON requests**, 64 connections\n\n");
    text.push_str("| proxy | CPU per request, us | requests/s on one core | requests per second of CPU | core used by it / by others | added at half load: p50, us | p99, us | failed |\n|---|---|---|---|---|---|---|---|\n");
    for row in rows {
        let (p50, p99) = in_words(added_to_requests(row));
        let _ = writeln!(
            text,
            "| {} | {} | {}{} | {} | {:.0} % / {:.0} % | {p50} | {p99} | {} |",
            bold(&row.name),
            each(&row.unary),
            thousands(row.unary.per_s),
            limit(&row.unary),
            thousands(1e6 / row.unary.cpu_us.max(f64::MIN_POSITIVE)),
            row.unary.busy * 100.0,
            row.unary.others * 100.0,
            row.unary.failed + row.half.failed,
        );
    }
    text.push('\n');
}

fn events(text: &mut String, rows: &[Row]) {
    text.push_str("**Streamed events**, 50 a second and stream\n\n");
    text.push_str("| proxy | CPU per event at 500 streams, us | at 1,300 | events/s at 1,300 | core used by it / by others | added at half load: p50, us | p99, us | streams then | events per read | between reads: p50, ms | p99, ms | passes each on |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for row in rows {
        let (few, many, half) = (&row.streams[0], &row.streams[1], &row.streaming);
        let (p50, p99) = in_words(added_to_events(row));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {}{} | {:.0} % / {:.0} % | {p50} | {p99} | {} | {:.1} | {:.1} | {:.1} | {} |",
            bold(&row.name),
            each(few),
            each(many),
            thousands(many.per_s),
            limit(many),
            many.busy * 100.0,
            many.others * 100.0,
            row.half_streams,
            half.events_per_read,
            half.gap.p50_us / 1000.0,
            half.gap.p99_us / 1000.0,
            passes_on(row).map_or("not known", |passes| if passes { "yes" } else { "**no**" }),
        );
    }
    if let Some(direct) = rows.last().map(|r| &r.streaming_direct) {
        let _ = writeln!(
            text,
            "\nWithout a proxy a read finds {:.1} events, and {:.1} ms (p50) and {:.1} ms (p99) lie between reads.\n",
            direct.events_per_read,
            direct.gap.p50_us / 1000.0,
            direct.gap.p99_us / 1000.0
        );
    }
}

fn memory(text: &mut String, rows: &[Row]) {
    text.push_str("**Resident memory**, MiB, all processes of the proxy\n\n");
    text.push_str("| proxy | 500 streams | 1,300 | 5,000 | KiB per further stream | streams that failed |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let [few, many, most] = &row.streams;
        let further = (many.resident_kib as f64 - few.resident_kib as f64) / 800.0;
        let further = if many.open == 0 { NOT_MEASURED.to_owned() } else { format!("{further:.1}") };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {further} | {} |",
            bold(&row.name),
            held(few, 500),
            held(many, 1300),
            held(most, 5000),
            few.failed + many.failed + most.failed + row.streaming.failed,
        );
    }
    text.push('\n');
}

/// CPU per request or event, where there were any to speak of.
fn each(figures: &Figures) -> String {
    if figures.per_s < 1.0 { NOT_MEASURED.to_owned() } else { format!("{:.1}", figures.cpu_us) }
}

/// Memory, and how many streams were open where it were fewer than asked for.
fn held(figures: &Figures, asked: u64) -> String {
    let mib = figures.resident_kib as f64 / 1024.0;
    if figures.resident_kib == 0 {
        return NOT_MEASURED.to_owned();
    }
    if figures.open * 100 < asked * 95 { format!("{mib:.0} with {} open", figures.open) } else { format!("{mib:.0}") }
}

/// What a proxy adds to the time of JSON requests: median and 99th percentile, microseconds.
pub fn added_to_requests(row: &Row) -> Option<(f64, f64)> {
    added(&row.half, &row.half_direct, row.unary.per_s / 2.0)
}

/// What a proxy adds to the time of an event: median and 99th percentile, microseconds.
pub fn added_to_events(row: &Row) -> Option<(f64, f64)> {
    added(&row.streaming, &row.streaming_direct, row.half_streams as f64 * EVENTS_PER_S)
}

/// None where a proxy could not keep up with half of what it did before, on a machine that others use.
fn added(with: &Figures, without: &Figures, asked_per_s: f64) -> Option<(f64, f64)> {
    let added = (with.delay.p50_us - without.delay.p50_us, with.delay.p99_us - without.delay.p99_us);
    (with.per_s >= asked_per_s * KEPT_UP).then_some(added)
}

fn in_words(added: Option<(f64, f64)>) -> (String, String) {
    let word = || "overloaded".to_owned();
    added.map_or_else(|| (word(), word()), |(p50, p99)| (format!("{p50:.0}"), format!("{p99:.0}")))
}

/// What kept a rate from being higher, where it was not the proxy alone.
fn limit(figures: &Figures) -> &'static str {
    match (figures.busy >= SATURATED, figures.busy + figures.others >= SATURATED) {
        (true, _) => "",
        (false, true) => " (core shared)",
        (false, false) => " (load's limit)",
    }
}

/// Whether events arrive one by one at half load; not known of a proxy that could not keep up, because what is late comes together.
pub fn passes_on(row: &Row) -> Option<bool> {
    added_to_events(row).map(|_| row.streaming.events_per_read < STREAMS)
}

fn bold(name: &str) -> String {
    if name == "tidegate" { format!("**{name}**") } else { name.to_owned() }
}

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
