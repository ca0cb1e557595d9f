//! Waiting for a place in a pool.

use crate::key::{Absent, Key, Kind, Table};
use crate::reader::{Reader, Section};
use tidegate_core::queue::{ClassConfig, QueueConfig};

/// The `queue` table.
#[derive(Clone, Debug)]
pub struct Queue(pub(crate) QueueConfig);

impl Queue {
    /// What core is told.
    pub fn core(&self) -> &QueueConfig {
        &self.0
    }

    /// The place of the class called `name`: 0 is the highest. `None` if there is none of that name.
    pub fn class(&self, name: &str) -> Option<u8> {
        u8::try_from(self.0.classes.iter().position(|c| c.name == name)?).ok()
    }
}

struct Class(ClassConfig);

impl Section for Class {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.queue.classes[]",
        summary: "A priority class; those above it come first, but for what it has reserved.",
        keys: &[
            Key {
                name: "name",
                kind: Kind::Name,
                absent: Absent::Required,
                summary: "Its name, by which tenants and requests choose it.",
                example: "batch",
            },
            Key {
                name: "share",
                kind: Kind::Fraction { min: 0.0, max: 1.0, word: None },
                absent: Absent::Default("0"),
                summary: "Share of what is served that is this class's while it waits, whatever stands above it.",
                example: "0.1",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let name = r.text("name").unwrap_or_default();
        r.mark("queue class", "name", name.clone());
        Self(ClassConfig { name, share: r.number("share") })
    }
}

impl Section for Queue {
    const TABLE: &'static Table = &Table {
        place: "pools.NAME.queue",
        summary: "Where requests wait that find no place, instead of being refused at once.",
        keys: &[
            Key {
                name: "max_waiting",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
                absent: Absent::Default("1000"),
                summary: "Most requests that wait; one more is refused with 503 `queue_full`.",
                example: "1000",
            },
            Key {
                name: "max_per_tenant",
                kind: Kind::Integer { min: 1, max: 1_000_000, word: None },
                absent: Absent::Default("250"),
                summary: "Most requests of one tenant that wait; one more is refused with 429 `tenant_queue_full`.",
                example: "250",
            },
            Key {
                name: "max_wait",
                kind: Kind::Duration { min: 0.001, max: 86_400.0, word: None },
                absent: Absent::Default("10s"),
                summary: "Longest wait, then 503 `queue_timeout`; a request whose turn would come later is refused at once.",
                example: "10s",
            },
            Key {
                name: "classes",
                kind: Kind::List(Class::TABLE),
                absent: Absent::Means("one class"),
                summary: "Priority classes, the highest first.",
                example: "[{ name: interactive }, { name: batch, share: 0.1 }]",
            },
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        let before = r.walk.marks.len();
        let mut classes: Vec<ClassConfig> = r.list::<Class>("classes").into_iter().map(|c| c.0).collect();
        let names: Vec<_> = r.walk.marks.drain(before..).map(|m| m.text).collect();
        let shares: f64 = classes.iter().map(|c| c.share).sum();
        if shares > 1.0 && r.all_good(&["classes"]) {
            let found = format!("shares that sum to {shares}");
            r.contradiction("classes", found, "shares that sum to at most 1", "lower one of them".to_owned());
        }
        if let Some(twice) = names.iter().enumerate().find(|(i, n)| names[..*i].contains(n)) {
            let found = format!("the class `{}` twice", twice.1);
            r.contradiction("classes", found, "each class once", "rename or remove one of the two".to_owned());
        }
        if classes.is_empty() {
            classes = QueueConfig::default().classes;
        }
        let (max_waiting, max_per_tenant) = (r.count("max_waiting"), r.count("max_per_tenant"));
        Self(QueueConfig { max_waiting, max_per_tenant, max_wait: r.duration("max_wait"), classes })
    }
}
