//! What is polled: health checks and status pages.
