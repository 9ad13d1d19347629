//! Reads what `cargo test` prints: one line per test program, the corpora's own counts, and every failure whole.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Runs the command and prints a digest of its output while it comes.
pub fn follow(command: &mut Command) -> Result<Counts> {
    // Both streams in one: cargo names each test program on stderr, the program reports on stdout.
    let (reader, writer) = std::io::pipe()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .context("start cargo test")?;
    // The command holds the pipe's other end open; replaced, it lets go.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut digest = Digest::default();
    for line in BufReader::new(reader).lines() {
        for line in digest.line(&line?) {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    if !status.success() && digest.total.failed == 0 {
        // It stopped before any test could fail.
        digest.total.failed += 1;
        println!("   cargo test: {status}");
    }
    Ok(digest.total)
}

/// What has been read so far.
#[derive(Default)]
struct Digest {
    total: Counts,
    program: String,
    part: Part,
}

/// libtest prints the tests, then the output of the passing ones, then that of the failing ones.
#[derive(Default, PartialEq, Eq)]
enum Part {
    #[default]
    Tests,
    Successes,
    Failures,
}

impl Digest {
    /// Takes a line and returns what is to be shown for it.
    fn line(&mut self, line: &str) -> Vec<String> {
        let text = line.trim();
        if let Some(program) = program(text) {
            self.program = program;
            self.part = Part::Tests;
            return Vec::new();
        }
        if let Some(counts) = result(text) {
            self.part = Part::Tests;
            return self.finish(counts);
        }
        if let Some((set, corpus)) = corpus(text) {
            // A failing set fails its test; only what was left out needs counting here.
            self.total.skipped += corpus.skipped;
            return vec![format!(
                "   corpus {set}: {} passed, {} failed, {} skipped",
                corpus.passed, corpus.failed, corpus.skipped
            )];
        }
        if text.starts_with("skipped: no corpus") {
            self.total.skipped += 1;
            return vec![format!("   {}: {text}", self.program)];
        }
        match text {
            "successes:" => self.part = Part::Successes,
            "failures:" => self.part = Part::Failures,
            _ => {}
        }
        let compiler = text.starts_with("error") || text.starts_with("warning");
        if self.part == Part::Failures || compiler {
            return vec![line.to_owned()];
        }
        Vec::new()
    }

    fn finish(&mut self, counts: Counts) -> Vec<String> {
        self.total.add(counts);
        if counts == Counts::default() {
            return Vec::new();
        }
        let Counts { passed, failed, skipped } = counts;
        let mut line = format!("   {}: {passed} passed", self.program);
        if failed > 0 {
            line.push_str(&format!(", {failed} FAILED"));
        }
        if skipped > 0 {
            line.push_str(&format!(", {skipped} skipped"));
        }
        vec![line]
    }
}

/// Reads `Running tests/corpus.rs (…/deps/corpus-0123)` and `Doc-tests yaml`.
fn program(text: &str) -> Option<String> {
    if let Some(package) = text.strip_prefix("Doc-tests ") {
        return Some(format!("{package} (documentation)"));
    }
    let (source, binary) = text.strip_prefix("Running ")?.split_once(" (")?;
    let binary = binary.trim_end_matches(')').rsplit('/').next()?;
    let name = binary.rsplit_once('-').map_or(binary, |(name, _)| name);
    Some(if source.starts_with("unittests") {
        format!("{name} (unit)")
    } else {
        format!("{name} ({source})")
    })
}

/// Reads `test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
fn result(text: &str) -> Option<Counts> {
    let rest = text.strip_prefix("test result: ")?.split_once(". ")?.1;
    Some(Counts {
        passed: number_before(rest, " passed")?,
        failed: number_before(rest, " failed")?,
        skipped: number_before(rest, " ignored")?,
    })
}

/// Reads `corpus kustomize: 900 passed, 3 failed, 0 skipped`, with or without the last part.
pub fn corpus(text: &str) -> Option<(&str, Counts)> {
    let text = text.strip_prefix("corpus ").unwrap_or(text);
    let (set, numbers) = text.split_once(": ")?;
    let counts = Counts {
        passed: number_before(numbers, " passed")?,
        failed: number_before(numbers, " failed")?,
        skipped: number_before(numbers, " skipped").unwrap_or(0),
    };
    numbers.starts_with(|first: char| first.is_ascii_digit()).then_some((set, counts))
}

fn number_before(text: &str, word: &str) -> Option<usize> {
    let before = &text[..text.find(word)?];
    let start = before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |i| i + 1);
    before[start..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Counts, String) {
        let mut digest = Digest::default();
        let shown: Vec<String> = text.lines().flat_map(|line| digest.line(line)).collect();
        (digest.total, shown.join("\n"))
    }

    #[test]
    fn programs_are_counted_and_quiet_when_they_pass() {
        let (counts, shown) = read(
            "     Running unittests src/lib.rs (target/debug/deps/yaml-0f)\n\nrunning 2 tests\ntest a ... ok\n\
             \nsuccesses:\n\n---- a stdout ----\nchatter\n\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n",
        );
        let expected = Counts { passed: 2, failed: 0, skipped: 1 };
        assert_eq!(counts, expected);
        assert_eq!(shown, "   yaml (unit): 2 passed, 1 skipped");
    }

    #[test]
    fn failures_are_shown_whole() {
        let (counts, shown) = read(
            "     Running tests/cases.rs (target/debug/deps/cases-0f)\ntest a ... FAILED\nfailures:\n---- a stdout ----\nleft: 1\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n",
        );
        assert_eq!(counts.failed, 1);
        assert!(shown.contains("left: 1"), "{shown}");
        assert!(shown.contains("cases (tests/cases.rs): 0 passed, 1 FAILED"), "{shown}");
    }

    #[test]
    fn a_corpus_line_is_read_with_and_without_its_optional_parts() {
        let all = corpus("corpus kustomize/errors: 900 passed, 3 failed, 2 skipped");
        let expected = Counts { passed: 900, failed: 3, skipped: 2 };
        assert_eq!(all, Some(("kustomize/errors", expected)));
        let (set, counts) = corpus("constraints: 2139 passed, 0 failed").unwrap();
        assert_eq!((set, counts.passed), ("constraints", 2139));
        assert_eq!(corpus("test result: ok"), None);
        assert_eq!(corpus("note: it was 3 passed, 4 failed"), None);
    }

    #[test]
    fn a_missing_corpus_counts_as_skipped() {
        let (counts, _) = read("skipped: no corpus at ../shared/corpus/semver");
        assert_eq!(counts.skipped, 1);
    }

    #[test]
    fn both_streams_of_a_command_are_followed_to_their_end() {
        let script = "echo '     Running tests/a.rs (target/debug/deps/a-0f)' >&2
            echo 'test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured'";
        let counts = follow(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(counts.passed, 3);
        assert_eq!(counts.failed, 0);
    }

    #[test]
    fn a_command_that_ends_before_any_test_is_a_failure() {
        let counts = follow(Command::new("sh").args(["-c", "echo error: no >&2; exit 101"])).unwrap();
        assert_eq!(counts.failed, 1);
    }
}
