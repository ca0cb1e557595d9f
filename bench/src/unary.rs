//! JSON requests as fast as they are answered: every connection asks again at once. Says what the proxy can do on its core.

use crate::client::{Meter, Target};
use crate::figures::{Figures, Quantiles};
use crate::message;
use hdrhistogram::Histogram;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

struct Counted {
    times: Histogram<u64>,
    failed: u64,
}

/// Runs the phase.
///
/// # Errors
/// If the histogram cannot be made.
pub async fn run(target: Target) -> anyhow::Result<Figures> {
    let counted = Rc::new(RefCell::new(Counted { times: Histogram::new(3)?, failed: 0 }));
    let all = LocalSet::new();
    for connection in 0..target.connections {
        let (counted, request, port) = (Rc::clone(&counted), target.request(connection, None), target.port);
        all.spawn_local(async move {
            loop {
                let _ = ask(port, &request, &counted).await;
                counted.borrow_mut().failed += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }
    all.run_until(async {
        tokio::time::sleep(Duration::from_secs_f64(target.warm_s)).await;
        let meter = Meter::start(target.pid);
        counted.borrow_mut().times.reset();
        counted.borrow_mut().failed = 0;
        tokio::time::sleep(Duration::from_secs_f64(target.seconds)).await;
        let counted = counted.borrow();
        let figures = meter.stop(counted.times.len());
        Ok(Figures { delay: Quantiles::of(&counted.times), failed: counted.failed, ..figures })
    })
    .await
}

/// Asks over one connection until it fails or closes.
async fn ask(port: u16, request: &[u8], counted: &RefCell<Counted>) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let mut read = Vec::with_capacity(4096);
    loop {
        let began = Instant::now();
        stream.write_all(request).await?;
        read.clear();
        let status = loop {
            anyhow::ensure!(stream.read_buf(&mut read).await? > 0, "closed");
            if let Some(status) = message::whole_answer(&read)? {
                break status;
            }
        };
        anyhow::ensure!(status == 200, "status {status}");
        let _ = counted.borrow_mut().times.record(began.elapsed().as_micros() as u64);
    }
}
