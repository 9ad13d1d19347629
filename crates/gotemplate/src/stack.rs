//! Deep recursion without a deep stack: more of it is taken from the heap when this one is nearly used up.

/// Runs `work` with at least 128 KiB of stack.
pub fn grow<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(128 << 10, 2 << 20, work)
}
