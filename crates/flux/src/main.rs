//! The `flux` command.

fn main() {}
