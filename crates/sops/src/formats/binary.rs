//! Binary files: the content is the string under `data`.

use super::{Format, output};
use crate::Error;
use crate::tree::{Branch, Item, Value};

pub(super) fn write(branches: &[Branch]) -> Result<Vec<u8>, Error> {
    let refuse = |problem: &str| Err(output(Format::Binary, problem));
    let [branch] = branches else { return refuse("there must be exactly one document") };
    for item in branch {
        match item {
            Item::Entry(key, Value::Str(text)) if key == b"data" => return Ok(text.clone()),
            Item::Entry(key, _) if key == b"data" => return refuse("`data` is no string"),
            Item::Entry(..) | Item::Comment(_) => {}
        }
    }
    refuse("there is no `data`: the file was not encrypted as binary, choose another output type")
}
