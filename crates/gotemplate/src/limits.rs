//! What a render may cost.

/// Budgets of a [`Session`](crate::Session). The defaults suit charts: far above what public ones need, low enough
/// that a hostile one fails within about a second and 200 MB.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Nodes executed and loop turns made.
    pub steps: u64,
    /// Templates within templates, counted across `template`, `include` and `tpl`.
    pub depth: u32,
    /// Bytes of one value or of one template's output.
    pub value_bytes: usize,
    /// Bytes of all values and outputs that are held at one time.
    pub live_bytes: u64,
    /// Bytes of all small strings that were made and not seen to be dropped: they are too many to follow one by one.
    pub small_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 10_000_000,
            depth: 10_000,
            value_bytes: 32 << 20,
            live_bytes: 80 << 20,
            small_bytes: 64 << 20,
        }
    }
}
