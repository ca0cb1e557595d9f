//! Checks of the workspace's own rules.

fn main() {}
