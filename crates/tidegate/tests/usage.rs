//! The commands as users run them: what is refused, what is said, and how they end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first thing that is not as it should be")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};

fn tidegate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output().unwrap()
}

#[test]
fn a_closed_pipe_ends_a_listing_quietly() {
    for args in [&["policies"][..], &["policies", "--json"], &["schema"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
    }
}

#[test]
fn what_has_no_meaning_is_refused_as_wrong_usage() {
    let url = "http://127.0.0.1:1";
    for (args, part) in [
        (&["engine", "--model", "llm", "--delay", "1"][..], "--delay has a meaning for --model fixed only"),
        (&["engine", "--slots", "2"], "--slots has a meaning for --model fixed only"),
        (&["engine", "--model", "load", "--slots", "2"], "--slots has a meaning for --model fixed only"),
        (&["engine", "--model", "fixed", "--slots", "0"], "--slots 0 is out of range"),
        (&["engine", "--output-tokens", "0"], "--output-tokens 0 is out of range"),
        (&["load", url, "--cv", "3"], "--cv has a meaning for --arrivals bursty only"),
        (&["load", url, "--max-in-flight", "0"], "--max-in-flight 0 is out of range"),
        (&["load", "http://127.0.0.1:65536"], "the port is a number from 1 to 65535"),
        (&["load", "http://[::1]:0"], "the port is a number from 1 to 65535"),
        (&["demo", "--rate", "1001"], "at most 1000"),
        (&["demo", "--seconds", "3601"], "at most 3600"),
    ] {
        let out = tidegate(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && said.contains(part), "{args:?}: {:?} {said}", out.status);
    }
}

#[test]
fn the_help_of_engine_names_every_fault() {
    let help = String::from_utf8(tidegate(&["engine", "--help"]).stdout).unwrap();
    for word in ["none", "refuse", "reset", "hang", "slow", "status", "cut", "no_progress", "retry_after_s", "curl "] {
        assert!(help.contains(word), "{word}\n{help}");
    }
}

#[test]
fn the_demo_says_why_it_cannot_listen() {
    // TEST-NET-1: no machine has this address.
    let out = tidegate(&["demo", "--print-config", "--address", "192.0.2.1:8080"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1));
    assert!(said.contains("cannot listen on 192.0.2.1:8080: ") && said.contains("os error"), "{said}");
}

#[test]
fn the_demo_tells_each_policy_and_that_it_was_stopped() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "demo",
            "--once",
            "--rate",
            "5",
            "--seconds",
            "60",
            "--address",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("round_robin: 60 s of load") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "the demo ended");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("stopped\n", Some(1)));
}
