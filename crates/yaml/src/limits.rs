//! How much a text may ask for. Every limit ends in an [`crate::Error`] of kind `Limit`.

/// Limits of one parse. The defaults are far above any manifest and far below any harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of the input in bytes.
    pub bytes: usize,
    /// How deep collections may nest. go-yaml allows 10,000; the trees here are walked recursively.
    pub depth: usize,
    /// Nodes of the whole stream, those made by expanding aliases included.
    pub nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 20, depth: 1_000, nodes: 20_000_000 }
    }
}
