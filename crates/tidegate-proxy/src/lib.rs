//! The data plane: listeners, sniffing, upstream connections, relay, lease.
