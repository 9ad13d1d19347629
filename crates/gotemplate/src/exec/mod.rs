//! Executing trees.
use crate::{
    context::Session,
    error::Error,
    set::{Set, Template},
    value::Value,
};
use std::sync::Arc;
pub fn execute(
    set: &Arc<Set>,
    session: &Session<'_>,
    template: &Arc<Template>,
    _data: &Value,
) -> Result<Vec<u8>, Error> {
    let _ = (set.functions(), set.missing(), session.step(), session.depth.get(), &template.tree);
    Err(Error::execute(template.name(), String::new(), None))
}
