//! Sockets that are bound before the process starts, as systemd does it.
#![allow(clippy::unwrap_used, reason = "helpers of a test, which is there to fail")]

mod lifecycle;

use lifecycle::{Folder, ask};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `tidegate serve` with `socket` as its third descriptor, which is the first that systemd gives.
fn activated(socket: TcpListener, config: &Path) -> Child {
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve -c \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_tidegate")]).arg(config);
    command.stdin(Stdio::from(OwnedFd::from(socket))).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn text(port: u16) -> String {
    format!(
        "listeners: [{{ address: '127.0.0.1:{port}' }}]\nadmin: off\nthreads: 2\npools: {{ p: {{ endpoints: [{{ url: 'http://127.0.0.1:1' }}] }} }}\n"
    )
}

#[test]
fn a_socket_of_systemd_is_served_by_all_threads() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let folder = Folder::new("activated");
    let mut child = activated(socket, &folder.write("gw.yaml", &text(address.port())));
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, format!("listening on http://{address}\n"), "bound twice would have been an error");
    for _ in 0..20 {
        assert_eq!(ask(address, "GET / HTTP/1.1\r\nhost: t\r\n").0, 502);
    }
    lifecycle::signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_socket_that_no_listener_has_is_named() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let folder = Folder::new("not-ours");
    let mut child = activated(socket, &folder.write("gw.yaml", &text(2)));
    let mut said = String::new();
    child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(said.contains(&address.to_string()) && said.contains("no address of `listeners`"), "{said}");
}
