//! What holds for any input: no panic, the same answer twice, and an output that builds to itself.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test that reads its cases")]

use std::fs;
use std::path::Path;

use file_tree::{MemoryTree, TreePath};
use kustomize::Options;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

fn build(files: &MemoryTree) -> Result<String, String> {
    let built = kustomize::build(files, &TreePath::root(), &Options::FLUX);
    built.and_then(|manifests| manifests.to_yaml()).map_err(|error| error.to_string())
}

/// The inputs of our own cases, as seeds.
fn seeds() -> Vec<Vec<(String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    collect(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases")), &mut seeds);
    seeds.sort();
    assert!(seeds.len() > 150);
    seeds
}

fn collect(folder: &Path, seeds: &mut Vec<Vec<(String, Vec<u8>)>>) {
    let input = folder.join("input");
    if input.is_dir() {
        let mut files = Vec::new();
        read_all(&input, &input, &mut files);
        files.sort();
        seeds.push(files);
        return;
    }
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, seeds);
        }
    }
}

fn read_all(root: &Path, folder: &Path, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            files.push((name, fs::read(&path).unwrap()));
        }
    }
}

/// One change of one file: a byte, a piece cut out or doubled, or a piece of another seed.
#[derive(Clone, Debug)]
enum Change {
    Byte(usize, u8),
    Cut(usize, usize),
    Double(usize, usize),
    Splice(usize, usize, usize),
    Word(usize, &'static str),
}

const WORDS: [&str; 24] = [
    "null",
    "~",
    "{}",
    "[]",
    "$patch: delete",
    "- ",
    ": ",
    "\n",
    "\n---\n",
    "&a ",
    "*a",
    "<<: *a",
    "!!int x",
    "name",
    "namePrefix: x-\n",
    "namespace: y\n",
    "..",
    "$(A)",
    "0",
    "-1",
    "*",
    "[name=a]",
    "\t",
    "\u{feff}",
];

fn change() -> impl Strategy<Value = Change> {
    let at = any::<usize>();
    prop_oneof![
        (at, any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (at, 1..40_usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (at, 1..40_usize).prop_map(|(at, length)| Change::Double(at, length)),
        (at, any::<usize>(), 1..200_usize).prop_map(|(at, from, length)| Change::Splice(at, from, length)),
        (at, prop::sample::select(&WORDS[..])).prop_map(|(at, word)| Change::Word(at, word)),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change, others: &[u8]) {
    let place = |at: usize, length: usize| if length == 0 { 0 } else { at % length };
    match change {
        Change::Byte(at, byte) if !bytes.is_empty() => {
            let at = place(*at, bytes.len());
            bytes[at] = *byte;
        }
        Change::Byte(..) => {}
        Change::Cut(at, length) => {
            let start = place(*at, bytes.len());
            bytes.drain(start..bytes.len().min(start + length));
        }
        Change::Double(at, length) => {
            let start = place(*at, bytes.len());
            let piece = bytes[start..bytes.len().min(start + length)].to_vec();
            bytes.splice(start..start, piece);
        }
        Change::Splice(at, from, length) => {
            let from = place(*from, others.len());
            let start = place(*at, bytes.len());
            bytes.splice(start..start, others[from..others.len().min(from + length)].to_vec());
        }
        Change::Word(at, word) => {
            let start = place(*at, bytes.len());
            bytes.splice(start..start, word.bytes());
        }
    }
}

#[test]
fn mutated_cases_end_in_a_result_and_twice_in_the_same() {
    let seeds = seeds();
    let others: Vec<u8> = seeds.iter().flatten().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    // A longer run: KUSTOMIZE_CASES=100000 KUSTOMIZE_SEED=9 cargo test --release -p kustomize --test properties
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let seed = u8::try_from(number("KUSTOMIZE_SEED", 7) % 256).unwrap();
    let config =
        Config { cases: number("KUSTOMIZE_CASES", 600), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let input = (0..seeds.len(), prop::collection::vec((any::<usize>(), change()), 1..6));
    runner
        .run(&input, |(seed, changes)| {
            let mut files = seeds[seed].clone();
            for (file, change) in &changes {
                let at = file % files.len();
                apply(&mut files[at].1, change, &others);
            }
            let mut tree = MemoryTree::new();
            for (name, bytes) in files {
                tree.insert(TreePath::parse(&name).unwrap(), bytes);
            }
            prop_assert_eq!(build(&tree), build(&tree));
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_result_is_its_own_build() {
    let mut checked = 0;
    for files in seeds() {
        let mut tree = MemoryTree::new();
        for (name, bytes) in files {
            tree.insert(TreePath::parse(&name).unwrap(), bytes);
        }
        let Ok(output) = build(&tree) else { continue };
        // Annotations that kustomize removes from its input cannot be built again to themselves.
        if output.contains("config.kubernetes.io/") || output.is_empty() {
            continue;
        }
        let again =
            MemoryTree::from_texts([("kustomization.yaml", "resources: [a.yaml]"), ("a.yaml", &output)])
                .unwrap();
        assert_eq!(build(&again).as_ref(), Ok(&output));
        checked += 1;
    }
    assert!(checked > 60, "only {checked} results");
}
