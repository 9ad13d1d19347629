//! The archive loader: any bytes are a chart or an error.
#![no_main]

use helm::{Chart, Dialect, Limits};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let limits = Limits { unpacked: 1 << 20, depth: 4 };
    let _ = Chart::from_archive(data, limits, Dialect::Helm4);
});
