//! How long a file takes to read and to write: `cargo run --release -p yaml --example bench -- FILE`.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use yaml::{Options, Schema};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: bench FILE")?;
    let bytes = std::fs::read(path)?;
    let start = Instant::now();
    let documents = yaml::parse_stream(&bytes, &Options::new(Schema::V3))?;
    println!("parse             {:>8.1?}  {} documents", start.elapsed(), documents.len());
    let start = Instant::now();
    let mut out = String::new();
    for document in &documents {
        yaml::kustomize_yaml_into(&document.root, &mut out)?;
    }
    println!("kustomize output  {:>8.1?}  {} bytes", start.elapsed(), out.len());
    println!("peak so far       {}", peak_memory());
    drop(out);
    let start = Instant::now();
    let mut length = 0;
    for document in &documents {
        length += yaml::format_document(document)?.len();
    }
    println!("kyaml output      {:>8.1?}  {length} bytes", start.elapsed());
    let start = Instant::now();
    drop(documents);
    println!("drop              {:>8.1?}", start.elapsed());
    let start = Instant::now();
    let documents = yaml::parse_stream(&bytes, &Options::new(Schema::V3).with_comments())?;
    println!("with comments     {:>8.1?}  {} documents", start.elapsed(), documents.len());
    drop(documents);
    let start = Instant::now();
    let text = String::from_utf8_lossy(&bytes);
    let mut length = 0;
    for document in text.split("\n---\n") {
        length += yaml::json_text(&yaml::to_json(document.as_bytes())?).len();
    }
    println!("to json           {:>8.1?}  {length} bytes", start.elapsed());
    Ok(())
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned()
}
