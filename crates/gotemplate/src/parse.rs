//! From text to trees.
use crate::{error::Error, function::Functions, node::Tree};
pub fn parse(name: &str, _text: &str, functions: &Functions) -> Result<Vec<Tree>, Error> {
    let _ = (functions.find("x"), functions.at(0));
    Err(Error::parse(name, String::new()))
}
