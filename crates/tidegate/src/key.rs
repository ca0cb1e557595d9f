//! `tidegate key`: the digest of an API key, which is all a config ever holds of one.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  tidegate key --new                      make a key: the key for the tenant, its digest for the config
  tidegate key < key.txt                  the digest of a key that exists
  printf %s \"$KEY\" | tidegate key

In the config: tenants: { identify: [{ api_key: {} }], named: { acme: { keys: [\"sha256:...\"] } } }";

/// Print the digest of an API key, as `tenants.named.NAME.keys` takes it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Make a new key, and print it before its digest
    #[arg(long)]
    new: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let key = if args.new {
        let key = fresh()?;
        writeln!(out, "{key}")?;
        key
    } else {
        // Never an argument: those are seen by every user of the machine.
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        line.trim().to_owned()
    };
    anyhow::ensure!(!key.is_empty(), "no key on standard input; `tidegate key --new` makes one");
    let digest = tidegate_proxy::digest(&key);
    writeln!(out, "sha256:{}", hex(&digest))?;
    Ok(ExitCode::SUCCESS)
}

/// 256 bits from the system.
fn fresh() -> anyhow::Result<String> {
    let mut bytes = [0u8; 32];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(format!("tg-{}", hex(&bytes)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
