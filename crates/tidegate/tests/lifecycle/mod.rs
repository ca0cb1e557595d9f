//! Gateway processes as an operator has them: started, reloaded, replaced, stopped.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: a failed expectation is a failed test")]

pub(crate) mod show;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use tidegate_testkit::{PATIENCE, wait_until};

/// A folder of its own for one test, removed with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Replaces a file as a whole.
    pub(crate) fn write(&self, file: &str, text: &str) -> PathBuf {
        let (new, path) = (self.path(&format!("{file}.new")), self.path(file));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `tidegate serve`, ended with the test.
pub(crate) struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    pub(crate) gateway: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts it on `config` and waits until it listens.
    pub(crate) fn start(config: &Path, arguments: &[&str]) -> Self {
        Self::try_start(config, arguments).unwrap_or_else(|said| panic!("it ended: {said}"))
    }

    /// [`Process::start`]; what it said, if it ended instead.
    pub(crate) fn try_start(config: &Path, arguments: &[&str]) -> Result<Self, String> {
        // A show may want another build of it than the one of the tests.
        let binary = std::env::var("TIDEGATE_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_tidegate").to_owned());
        let mut command = Command::new(binary);
        command.args(["serve", "-c"]).arg(config).args(arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (said, lines) = mpsc::channel();
        let err = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        let (mut gateway, mut all) = (None, String::new());
        loop {
            let Ok(line) = lines.recv_timeout(PATIENCE) else {
                let _ = child.kill();
                let _ = child.wait();
                return Err(all);
            };
            all += &line;
            all.push('\n');
            if let Some(at) = line.strip_prefix("listening on http://") {
                gateway = at.parse().ok();
            }
            if let Some(at) = line.strip_prefix("admin, metrics and live page on http://") {
                let admin = at.parse().unwrap();
                return Ok(Self { child, lines, gateway: gateway.unwrap(), admin });
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it says a line with `words`, and returns it.
    pub(crate) fn says(&self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it does not say {words:?}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits until it has ended, for as long as `patience`; its exit code.
    pub(crate) fn ends(&mut self, patience: Duration) -> Option<i32> {
        let mut code = None;
        wait_until("the process has ended", patience, || {
            let status = self.child.try_wait().unwrap();
            code = status.and_then(|s| s.code());
            status.is_some()
        });
        code
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        serde_json::from_str(&ask(self.admin, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n")).1).unwrap()
    }

    /// Status and body.
    pub(crate) fn post(&self, path: &str) -> (u16, Value) {
        let head = "host: localhost\r\ncontent-type: application/json\r\ncontent-length: 0\r\n";
        let (status, body) = ask(self.admin, &format!("POST {path} HTTP/1.1\r\n{head}"));
        (status, serde_json::from_str(&body).unwrap())
    }

    /// The value of a series of `/metrics`, by the beginning of its line.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let page = ask(self.admin, "GET /metrics HTTP/1.1\r\nhost: localhost\r\n").1;
        let line = page.lines().find(|l| l.starts_with(series))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.get("/api/config")["generation"].as_u64().unwrap()
    }

    /// Waits until the generation is at least `wanted`.
    pub(crate) fn reaches(&self, wanted: u64) {
        wait_until("the generation comes", Duration::ZERO, || self.generation() >= wanted);
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// Asks once; status and body.
pub(crate) fn ask(address: SocketAddr, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{head}connection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let body =
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") { unchunk(body) } else { body.to_owned() };
    (status, body)
}

fn unchunk(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let n = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(data) = after.get(..n).filter(|_| n > 0) else { break };
        body += data;
        rest = after.get(n + 2..).unwrap_or_default();
    }
    body
}
