//! The parsed form of a template.
use std::sync::Arc;
pub struct Tree {
    pub name: Arc<str>,
}
impl Tree {
    pub fn is_empty(&self) -> bool {
        false
    }
}
