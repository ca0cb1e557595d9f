//! A large body to a slow engine: it passes at the engine's pace, and the gateway holds none of it. Alone in its process, whose memory it
//! measures. 128 MiB; `UPLOAD_MIB` sets another size.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests: a failed expectation is a failed test")]

mod common;

use common::Running;
use tidegate_testkit::Scripted;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const CHUNK: usize = 64 << 10;
/// What the process may grow by meanwhile, the test's own buffers included.
const MAX_GROWTH_KIB: usize = 24 << 10;

/// Resident memory of this process, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

#[tokio::test]
async fn a_large_body_in_chunks_passes_in_flat_memory() {
    let mebibytes: usize = std::env::var("UPLOAD_MIB").map_or(128, |n| n.parse().unwrap());
    let chunks = (mebibytes << 20) / CHUNK;
    let endpoint = Scripted::start(|mut c| async move {
        let mut heard = Vec::new();
        let (mut bytes, mut tail) = (0usize, Vec::new());
        while !tail.ends_with(b"\r\n0\r\n\r\n") && c.hear(&mut heard).await {
            bytes += heard.len();
            tail.extend_from_slice(&heard[heard.len().saturating_sub(16)..]);
            tail.drain(..tail.len().saturating_sub(16));
            heard.clear();
            // Slower than the client: others have their turn after every piece.
            tokio::task::yield_now().await;
        }
        let said = bytes.to_string();
        c.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{said}", said.len())).await;
        c.closed().await;
    })
    .await;
    let t = Running::with(&[endpoint.url()], "policy: round_robin", "limits: { max_body_bytes: 2GiB }");
    let socket = TcpStream::connect(t.address()).await.unwrap();
    let (mut reading, mut writing) = socket.into_split();
    let head = "POST /upload HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n";
    writing.write_all(head.as_bytes()).await.unwrap();
    let chunk = [format!("{CHUNK:x}\r\n").as_bytes(), &vec![b'x'; CHUNK], b"\r\n"].concat();
    let (mut before, mut most) = (0, 0);
    for n in 0..chunks {
        writing.write_all(&chunk).await.unwrap();
        if n == 256 {
            // Sixteen mebibytes are through: every buffer has the size it will have.
            before = resident();
        }
        if n % 256 == 0 {
            most = most.max(resident());
        }
    }
    writing.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|w| w == b"\r\n\r\n") {
        tokio::io::AsyncReadExt::read_buf(&mut reading, &mut answer).await.unwrap();
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    assert!(most.saturating_sub(before) < MAX_GROWTH_KIB, "grew from {before} to {most} KiB");
}
