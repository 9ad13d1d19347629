//! Chart repositories: an index of any size in little memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufWriter, Write};

use flux_remote::helm_repository::{LookupError, PickError, StoredIndex, convert};

/// An index as `helm repo index` writes it, of about `megabytes`.
fn write_index(out: &mut impl Write, megabytes: usize) -> usize {
    writeln!(out, "apiVersion: v1\nentries:").unwrap();
    let description = "x".repeat(800);
    let mut written = 0;
    let mut charts = 0;
    while written < megabytes << 20 {
        writeln!(out, "  chart-{charts:05}:").unwrap();
        for version in 0..50 {
            let entry = format!(
                "  - apiVersion: v2\n    created: \"2026-01-01T00:00:00.000000Z\"\n    description: |-\n      {description}\n      more\n    digest: 0000\n    name: chart-{charts:05}\n    urls:\n    - https://example.com/chart-{charts:05}-1.{version}.0.tgz\n    version: 1.{version}.0\n"
            );
            written += entry.len();
            out.write_all(entry.as_bytes()).unwrap();
        }
        charts += 1;
    }
    writeln!(out, "generated: \"2026-01-01T00:00:00Z\"").unwrap();
    charts
}

/// The most this process has had in memory, in kilobytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_huge_index_is_read_in_little_memory() {
    // As large as the largest in use when optimised; debug builds take a smaller one to be quick.
    let megabytes = if cfg!(debug_assertions) { 12 } else { 140 };
    let mut input = tempfile::tempfile().unwrap();
    let charts = write_index(&mut BufWriter::new(&mut input), megabytes);
    let before = peak();
    let mut stored = tempfile::NamedTempFile::new().unwrap();
    let found = convert(&mut input, &mut BufWriter::new(stored.as_file_mut())).unwrap();
    assert_eq!((found.charts, found.versions, found.dropped), (charts, charts * 50, 0));
    let index = StoredIndex::default();
    let version = index.find(stored.path(), "digest", "chart-00003", "1.7.x").unwrap();
    assert_eq!(version.urls, ["https://example.com/chart-00003-1.7.0.tgz"]);
    assert_eq!(index.find(stored.path(), "digest", "chart-00001", "*").unwrap().version, "1.49.0");
    let missing = index.find(stored.path(), "digest", "nope", "*");
    assert!(matches!(missing, Err(LookupError::Reference(PickError::NoChart))));
    let used = peak() - before;
    assert!(used < 40 << 10, "{used} kB for an index of {megabytes} MB");
}
