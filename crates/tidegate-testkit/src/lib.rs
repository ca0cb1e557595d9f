//! Test helpers: scripted engines and raw clients.
