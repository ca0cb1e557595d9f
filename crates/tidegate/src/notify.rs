//! Telling systemd how far the process is (`Type=notify`): one datagram per word, nothing where nobody asked.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says `words`, such as `READY=1`, to whoever started the process.
pub(crate) fn tell(words: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(path.as_encoded_bytes(), words) {
        tracing::warn!(%error, words, "cannot tell systemd");
    }
}

fn send(path: &[u8], words: &str) -> std::io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::path::Path::new(&*String::from_utf8_lossy(path)))?,
    };
    socket.send_to_addr(words.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_under_both_kinds_of_names() {
        let name = format!("tidegate-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let path = std::env::temp_dir().join(&name);
        for (socket, at) in [
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}")),
            (UnixDatagram::bind(&path).unwrap(), path.display().to_string()),
        ] {
            send(at.as_bytes(), "READY=1").unwrap();
            let mut got = [0; 16];
            let n = socket.recv(&mut got).unwrap();
            assert_eq!(&got[..n], b"READY=1");
        }
        std::fs::remove_file(path).unwrap();
    }
}
