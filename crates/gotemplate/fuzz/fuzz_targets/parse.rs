//! Any text is a template or an error of parsing.
#![no_main]

use gotemplate::{Functions, Set};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Set::new(Functions::sprig().shared()).parse("t", text);
});
