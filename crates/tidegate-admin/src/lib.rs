//! Admin API, explain, live page.
