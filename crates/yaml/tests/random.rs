//! A short run of the fuzz target `read` with a fixed seed: texts of the cases, changed at random places.
#![allow(clippy::disallowed_methods)]

use std::path::Path;

use yaml::{Options, Schema};

/// Small and predictable: the same texts in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap_or(0)
    }
}

const PIECES: [&str; 30] = [
    " ", "\t", "\n", "\r\n", ":", ": ", "#", " #", "-", "- ", "?", ",", "[", "]", "{", "}", "&a ", "*a", "!",
    "!!int ", "|", ">", "'", "\"", "\\", "%", "---\n", "...\n", "\u{85}", "\u{2028}",
];

#[test]
fn changed_texts_end_in_a_result() {
    let mut texts = Vec::new();
    collect(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases")), &mut texts);
    let mut random = Random(0x5eed);
    let mut read = 0;
    for _ in 0..5_000 {
        let mut text = texts[random.below(texts.len())].clone();
        for _ in 0..=random.below(4) {
            let mut at = random.below(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            if random.below(3) == 0 {
                text.truncate(at);
            } else {
                text.insert_str(at, PIECES[random.below(PIECES.len())]);
            }
        }
        for options in [Options::new(Schema::V2), Options::new(Schema::V3).with_comments()] {
            for document in yaml::parse_stream(text.as_bytes(), &options).unwrap_or_default() {
                read += 1;
                let _ = yaml::kustomize_yaml(&document.root);
                let _ = yaml::format_document(&document);
            }
        }
        let _ = yaml::to_json(text.as_bytes());
    }
    assert!(read > 1_000, "only {read} documents were readable");
}

fn collect(folder: &Path, texts: &mut Vec<String>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .expect("the cases can be listed")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            texts.push(std::fs::read_to_string(path).expect("a case is text"));
        }
    }
}
