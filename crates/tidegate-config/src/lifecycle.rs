//! How a running gateway changes: reloads of the config, the end, and handing over to the next process.

use crate::config::Config;
use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use std::path::PathBuf;
use std::time::Duration;

/// When the file is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reload {
    /// How often the file, and files it names, are looked at; `None`: they are read again only when asked for.
    pub watch: Option<Duration>,
}

impl Section for Reload {
    const TABLE: &'static Table = &Table {
        place: "reload",
        summary: "When the file is read again. SIGHUP and `POST /api/config/reload` do it at once, whatever is set here.",
        keys: &[Key {
            name: "watch",
            kind: Kind::Duration { min: 0.1, max: 3600.0, word: Some("off") },
            absent: Absent::Default("1s"),
            summary: "Time between two looks at the file and at files it names; a change is taken once two looks see the same.",
            example: "5s",
        }],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { watch: r.duration_or_none("watch") }
    }
}

/// How the gateway ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// How long it still accepts after `/readyz` says no.
    pub delay: Duration,
    /// Longest time that open requests get to end, from when it no longer accepts.
    pub drain_timeout: Duration,
    /// How long a connection without a request is kept for one last request.
    pub keep_alive: Duration,
}

impl Section for Shutdown {
    const TABLE: &'static Table = &Table {
        place: "shutdown",
        summary: "How the gateway ends after SIGTERM, and the old process of a hand-over.",
        keys: &[
            Key {
                name: "delay",
                kind: Kind::Duration { min: 0.0, max: 600.0, word: None },
                absent: Absent::Default("0s"),
                summary: "Time for which it still accepts after `/readyz` says no, so that load balancers notice first.",
                example: "5s",
            },
            Key {
                name: "drain_timeout",
                kind: Kind::Duration { min: 0.0, max: 86400.0, word: None },
                absent: Absent::Default("30s"),
                summary: "Longest time that open requests get to end; then streams are ended with an error event.",
                example: "10m",
            },
            Key {
                name: "keep_alive",
                kind: Kind::Duration { min: 0.0, max: 600.0, word: None },
                absent: Absent::Default("5s"),
                summary: "Time for which a connection without a request is kept for one last request, which is told to close it.",
                example: "2s",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self {
            delay: r.duration("delay"),
            drain_timeout: r.duration("drain_timeout"),
            keep_alive: r.duration("keep_alive"),
        }
    }
}

/// Where the next process takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// The unix socket; who may write to it may take the listeners.
    pub socket: PathBuf,
}

impl Section for Takeover {
    const TABLE: &'static Table = &Table {
        place: "takeover",
        summary: "Where the next process of this gateway takes over its sockets and its state, with `tidegate serve --takeover`.",
        keys: &[Key {
            name: "socket",
            kind: Kind::Text,
            absent: Absent::Required,
            summary: "Path of a unix socket, made for its user alone (mode 0600); who may write to it may take the listeners.",
            example: "/run/tidegate/takeover.sock",
        }],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self { socket: r.text("socket").map(PathBuf::from).unwrap_or_default() }
    }
}

impl Config {
    /// Keys in which `self` differs from `running` and which a process cannot take while it runs; it takes the rest.
    pub fn needs_restart(&self, running: &Self) -> Vec<&'static str> {
        let address = |c: &Self| c.admin.as_ref().map(|a| a.address);
        let per_address = |c: &Self| c.limits.max_connections_per_address;
        let differs = [
            ("listeners", self.listeners != running.listeners),
            ("threads", self.thread_count() != running.thread_count()),
            ("admin.address", address(self) != address(running)),
            ("log", self.log != running.log),
            ("journal", self.journal != running.journal),
            ("takeover", self.takeover != running.takeover),
            ("limits.max_connections_per_address", per_address(self) != per_address(running)),
            // Whether it is offered in a TLS handshake is settled when the listener is made.
            ("limits.http2", self.limits.http2.is_some() != running.limits.http2.is_some()),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_cannot_take_while_it_runs_is_named() {
        let base = "listeners: [{ address: 127.0.0.1:1 }]\npools: { p: { endpoints: [{ url: http://a:1 }] } }\n";
        let config = |text: &str| Config::parse(text, "t", &|_| None).unwrap().0;
        let running = config(&format!("{base}threads: 2"));
        let needs = |text: &str| config(text).needs_restart(&running);
        assert!(
            needs(&format!("{base}threads: 2\nreload: {{ watch: off }}\nlimits: {{ idle_timeout: 1s }}")).is_empty()
        );
        for (more, key) in [
            ("threads: 3", "threads"),
            ("threads: 2\nadmin: { address: 127.0.0.1:2 }", "admin.address"),
            ("threads: 2\nadmin: off", "admin.address"),
            ("threads: 2\nlog: { level: debug }", "log"),
            ("threads: 2\njournal: { folder: /x }", "journal"),
            ("threads: 2\ntakeover: { socket: /x }", "takeover"),
            ("threads: 2\nlimits: { max_connections_per_address: 7 }", "limits.max_connections_per_address"),
            ("threads: 2\nlimits: { http2: off }", "limits.http2"),
        ] {
            assert_eq!(needs(&format!("{base}{more}")), [key]);
        }
        assert_eq!(needs(&format!("{base}threads: 2").replace(":1 }]\npools", ":3 }]\npools")), ["listeners"]);
    }

    #[test]
    fn defaults_and_words_are_as_documented() {
        let text = |more: &str| {
            format!(
                "listeners: [{{ address: 127.0.0.1:1 }}]\npools: {{ p: {{ endpoints: [{{ url: http://a:1 }}] }} }}\n{more}"
            )
        };
        let config = |more: &str| Config::parse(&text(more), "t", &|_| None).unwrap().0;
        let seconds = Duration::from_secs;
        let c = config("");
        assert_eq!((c.reload.watch, c.takeover), (Some(seconds(1)), None));
        let defaults = Shutdown { delay: seconds(0), drain_timeout: seconds(30), keep_alive: seconds(5) };
        assert_eq!(c.shutdown, defaults);
        let c = config(
            "reload: { watch: off }\nshutdown: { delay: 3s, drain_timeout: 2m, keep_alive: 0s }\ntakeover: { socket: /s }",
        );
        assert_eq!((c.reload.watch, c.shutdown.delay, c.shutdown.drain_timeout), (None, seconds(3), seconds(120)));
        assert_eq!(c.takeover.map(|t| t.socket), Some(PathBuf::from("/s")));
        let problems = Config::parse(&text("takover: { socket: /s }"), "t", &|_| None).unwrap_err();
        assert!(problems[0].hint.contains("takeover"), "{}", problems[0]);
    }
}
