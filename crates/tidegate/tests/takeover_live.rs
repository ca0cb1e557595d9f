//! One process takes over from another, or fails to.
#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

mod lifecycle;

use lifecycle::{Folder, Process, ask, signal};
use tidegate_testkit::{PATIENCE, wait_until};

fn text(folder: &Folder) -> String {
    format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\nadmin: {{ address: '127.0.0.1:0' }}\nthreads: 1\nshutdown: {{ keep_alive: 0s }}\ntakeover: {{ socket: '{}' }}\npools: {{ p: {{ endpoints: [{{ url: 'http://127.0.0.1:1' }}] }} }}\n",
        folder.path("door.sock").display()
    )
}

#[test]
fn who_fails_before_it_is_ready_leaves_the_running_one_as_it_was() {
    let folder = Folder::new("fails");
    let file = folder.write("gw.yaml", &text(&folder));
    let mut process = Process::start(&file, &[]);
    // Its journal cannot be written, which it finds out when it has the sockets.
    let bad = format!("{}journal: {{ folder: /proc/none }}\n", text(&folder));
    let said = Process::try_start(&folder.write("bad.yaml", &bad), &["--takeover"]).err().unwrap();
    assert!(said.contains("taking over from process") && said.contains("cannot write the journal"), "{said}");
    process.says("nothing was handed over");
    assert_eq!(ask(process.gateway, "GET / HTTP/1.1\r\nhost: t\r\n").0, 502, "it serves on");
    // And it can be asked again.
    let next = Process::start(&file, &["--takeover"]);
    assert_eq!((next.gateway, next.admin), (process.gateway, process.admin), "the very same sockets");
    assert_eq!(process.ends(PATIENCE), Some(0));
    // Only now: as long as the old one is there it may be the one that answers on the socket both have.
    assert_eq!(next.get("/api/config")["loaded_by"], "takeover");
}

#[test]
fn without_a_running_process_it_starts_from_nothing() {
    let folder = Folder::new("alone");
    let process = Process::start(&folder.write("gw.yaml", &text(&folder)), &["--takeover"]);
    assert_eq!(process.get("/api/config")["loaded_by"], "start");
}

#[test]
fn sigusr2_starts_the_next_process() {
    let folder = Folder::new("usr2");
    let mut process = Process::start(&folder.write("gw.yaml", &text(&folder)), &[]);
    process.signal("USR2");
    let said = process.says("has taken over");
    let next: u32 = said.split(' ').nth(1).unwrap().parse().unwrap();
    assert_ne!(next, process.pid());
    assert_eq!(process.ends(PATIENCE), Some(0));
    assert_eq!(ask(process.gateway, "GET / HTTP/1.1\r\nhost: t\r\n").0, 502, "the next one serves");
    signal(next, "TERM");
    wait_until("it is gone", PATIENCE, || std::net::TcpStream::connect(process.gateway).is_err());
}
