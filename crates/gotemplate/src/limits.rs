//! What a render may cost.

/// Budgets of a [`Session`](crate::Session). The defaults suit charts: far above what public ones need, low enough
/// that a hostile one fails within about a second.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Nodes executed and loop turns made.
    pub steps: u64,
    /// Templates within templates, counted across `template`, `include` and `tpl`.
    pub depth: u32,
    /// Bytes of one value or of one template's output.
    pub value_bytes: usize,
    /// Bytes of all values and outputs ever made in the session, freed ones included.
    pub total_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 20_000_000, depth: 10_000, value_bytes: 64 << 20, total_bytes: 2 << 30 }
    }
}
