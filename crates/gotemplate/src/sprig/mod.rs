//! sprig
use crate::function::Function;
pub const FUNCTIONS: &[&[Function]] = &[];
