//! `cargo run -p xtask -- tidy`: the rules of this workspace that no compiler checks.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for the terminal")]

mod arrows;
mod functions;
mod sources;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() != Some("tidy") {
        eprintln!("usage: cargo run -p xtask -- tidy");
        return ExitCode::from(2);
    }
    let faults = check();
    for fault in &faults {
        println!("{fault}");
    }
    println!("tidy: {} faults", faults.len());
    ExitCode::from(u8::from(!faults.is_empty()))
}

/// Every fault, one line each with its place.
fn check() -> Vec<String> {
    let sources = sources::read();
    let mut faults = arrows::check();
    faults.extend(sources::sizes(&sources));
    faults.extend(functions::check(&sources));
    faults.extend(words::check(&sources));
    faults
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_workspace_is_tidy() {
        let faults = super::check();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
