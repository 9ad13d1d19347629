//! How much processor time a file takes to read and to write: `cargo run --release -p yaml --example bench -- FILE`.
#![allow(clippy::disallowed_methods)]

use std::time::Duration;

use yaml::{Options, Schema};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: bench FILE")?;
    let bytes = std::fs::read(path)?;
    let start = cpu_time();
    let documents = yaml::parse_stream(&bytes, &Options::new(Schema::V3))?;
    println!("parse             {:>8.1?}  {} documents", (cpu_time() - start), documents.len());
    let start = cpu_time();
    let mut out = String::new();
    for document in &documents {
        yaml::kustomize_yaml_into(&document.root, &mut out)?;
    }
    println!("kustomize output  {:>8.1?}  {} bytes", (cpu_time() - start), out.len());
    println!("peak so far       {}", peak_memory());
    drop(out);
    let start = cpu_time();
    let mut length = 0;
    for document in &documents {
        length += yaml::format_document(document)?.len();
    }
    println!("kyaml output      {:>8.1?}  {length} bytes", (cpu_time() - start));
    let start = cpu_time();
    drop(documents);
    println!("drop              {:>8.1?}", (cpu_time() - start));
    let start = cpu_time();
    let documents = yaml::parse_stream(&bytes, &Options::new(Schema::V3).with_comments())?;
    println!("with comments     {:>8.1?}  {} documents", (cpu_time() - start), documents.len());
    drop(documents);
    let start = cpu_time();
    let text = String::from_utf8_lossy(&bytes);
    let mut length = 0;
    for document in text.split("\n---\n") {
        length += yaml::json_text(&yaml::to_json(document.as_bytes())?).len();
    }
    println!("to json           {:>8.1?}  {length} bytes", (cpu_time() - start));
    Ok(())
}

/// The time this thread has been running, which a busy machine does not change.
fn cpu_time() -> Duration {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = spent.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned()
}
