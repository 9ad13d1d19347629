//! Work on this repository: `cargo xtask <task>`.

fn main() {}
