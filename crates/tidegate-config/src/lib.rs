//! Configuration: one YAML file to typed, validated values.
//!
//! The text becomes a tree that knows its places ([`node`]), a reader walks the tree against one definition per key ([`key`], [`reader`]),
//! and every problem is collected with its place, what was found and what is allowed ([`problem`]). The same definitions make the JSON
//! Schema ([`schema`]) and `docs/config.md` ([`docs`]).
//!
//! This crate does not open sockets, resolve names or look at a clock: what it accepts depends on the text and the environment it is given.

mod affinity;
mod breaker;
mod concurrency_limits;
mod config;
mod docs;
mod endpoint;
mod endpoint_tls;
mod glob;
mod health;
mod http2;
mod journal;
mod key;
mod lifecycle;
mod limits;
mod listed_model;
mod listener;
mod load;
mod log;
mod models;
mod nearest;
mod node;
mod policy;
mod pool;
mod prefix_cache;
mod problem;
mod queue;
mod rate;
mod rate_limits;
mod reader;
mod recovery;
mod route;
mod rules;
mod scalar;
mod schema;
mod secret;
mod served;
mod slo;
mod stream_end;
mod template;
mod tenants;
mod timeouts;
mod tls;
mod units;
mod unknown;
mod walk;

pub use affinity::{Affinity, KeySource};
pub use breaker::Breaker;
pub use concurrency_limits::{Adaptive, ConcurrencyLimit};
pub use config::{Config, parse_as};
pub use docs::{docs, docs_of};
pub use endpoint::{Endpoint, EndpointUrl};
pub use endpoint_tls::{EndpointTls, Protocol};
pub use glob::Glob;
pub use health::{Check, Health};
pub use http2::Http2;
pub use journal::Journal;
pub use key::{Absent, Key, Kind, Table};
pub use lifecycle::{Reload, Shutdown, Takeover};
pub use limits::Limits;
pub use listed_model::ListedModel;
pub use listener::{Admin, Listener};
pub use load::{AcceleratorSource, Beside, Engine, Load, MetricsSource, NodeSource, Polled};
pub use log::{Log, LogFormat, LogLevel};
pub use models::{ModelList, Models};
pub use nearest::{closest, nearest};
pub use policy::Policy;
pub use pool::Pool;
pub use prefix_cache::{CacheEvents, PrefixCache, PublisherUrl};
pub use problem::{Problem, ProblemKind, Severity};
pub use queue::Queue;
pub use rate::Rate;
pub use rate_limits::RateLimit;
pub use reader::{Reader, Section, Switch};
pub use recovery::WarmUp;
pub use route::{Match, Route};
pub use rules::{Asked, Expression, Function, PageUrl, Rule, Source, Target, When};
pub use schema::schema;
pub use secret::Secret;
pub use slo::{Goals, Slo};
pub use stream_end::StreamEnd;
pub use template::{TEMPLATES, Template};
pub use tenants::{CertificateField, Identify, Jwt, KeyDigest, KeySet, Tenant, Tenants, Unknown};
pub use timeouts::{Connections, Retry, Timeouts};
pub use tls::{Certificate, ClientAuth, Tls};
