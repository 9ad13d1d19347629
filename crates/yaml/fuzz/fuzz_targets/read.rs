//! Any bytes: parsing, decoding and printing end in a result. `cargo +nightly fuzz run read`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use yaml::{Options, Schema};

fuzz_target!(|bytes: &[u8]| {
    for options in [Options::new(Schema::V2), Options::new(Schema::V3).with_comments()] {
        for document in yaml::parse_stream(bytes, &options).unwrap_or_default() {
            let _ = yaml::kustomize_yaml(&document.root);
            let _ = yaml::format_document(&document);
        }
    }
    let _ = yaml::to_json(bytes);
    let _ = yaml::to_json_strict(bytes);
});
