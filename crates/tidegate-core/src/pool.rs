//! The pool: the one place where a request meets the endpoints.

pub mod config;
