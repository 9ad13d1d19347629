//! How much a text may ask for. Every limit ends in an [`crate::Error`] of kind `Limit`.

/// Limits of one parse. The defaults are far above any manifest and far below any harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of the input in bytes.
    pub bytes: usize,
    /// How deep collections may nest. go-yaml allows 10,000; here trees are walked by recursion, also on the small
    /// stack of a thread.
    pub depth: usize,
    /// Nodes of the whole stream.
    pub nodes: usize,
    /// Nodes of the whole stream that are copies made by expanding aliases.
    pub expanded_nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 20, depth: 256, nodes: 20_000_000, expanded_nodes: 250_000 }
    }
}
