//! One request: who asks and for what, which endpoint it goes to and again, and its answer on the way down.

pub(crate) mod asked;
pub(crate) mod attempt;
pub(crate) mod budget;
pub(crate) mod client_key;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod exchange;
pub(crate) mod explained;
pub(crate) mod goal;
pub(crate) mod grpc;
pub(crate) mod hang;
pub(crate) mod headers;
pub(crate) mod lease;
pub(crate) mod model_list;
pub(crate) mod orca;
pub(crate) mod own_header;
pub(crate) mod prompt_blocks;
pub(crate) mod relay;
pub(crate) mod service;
pub(crate) mod shown;
pub(crate) mod sniff;
pub(crate) mod turn;
pub(crate) mod usage;
