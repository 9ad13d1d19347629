//! The value paths: any text sets something or is an error.
#![no_main]

use helm::{Dialect, SetMode, Values};

libfuzzer_sys::fuzz_target!(|data: &str| {
    for mode in [SetMode::Typed, SetMode::Text, SetMode::Json, SetMode::Literal] {
        let mut values = Values::new();
        let _ = values.set(data, mode);
        let _ = values.set(data, SetMode::Typed);
    }
    let _ = Values::from_yaml(data.as_bytes(), Dialect::Helm4);
});
