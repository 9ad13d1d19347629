//! `cargo xtask checklist`: every line of `docs/compatibility/*.md` is proven by a test that runs.
//!
//! A line of a checklist is a list item:
//!
//! ```text
//! - `git-repository-007` A tag that moved is fetched again. — `a_moved_tag_is_fetched_again`, `kustomize/patches/on-list`
//! ```
//!
//! The id never changes once given; `--write` gives the next free number to lines that have none. After the last
//! dash stand test functions by name, or case folders as `<crate>/<folder below tests/cases>`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail};

use crate::cargo;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    Check,
    Assign,
}

pub fn run(ids: Ids) -> Result<()> {
    let tests = Tests::find()?;
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    let mut count = 0;
    for file in cargo::files("docs/compatibility")? {
        if !file.ends_with(".md") {
            continue;
        }
        let path = cargo::root().join(&file);
        let mut text = std::fs::read_to_string(&path)?;
        if ids == Ids::Assign {
            text = assign(&text, &prefix(&file));
            std::fs::write(&path, &text)?;
        }
        for (number, item) in items(&text) {
            count += 1;
            for problem in judge(&item, &tests, &mut seen) {
                problems.push(format!("{file}:{number}: {problem}"));
            }
        }
    }
    if !problems.is_empty() {
        bail!("{} problems:\n  {}", problems.len(), problems.join("\n  "));
    }
    println!("   {count} lines, each proven by a test");
    Ok(())
}

/// The list items of a text with the number of the line each begins on; indented lines belong to the item above.
fn items(text: &str) -> Vec<(usize, String)> {
    let mut items: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(item) = line.strip_prefix("- ") {
            items.push((index + 1, item.to_owned()));
            open = true;
        } else if open && line.starts_with("  ") {
            if let Some((_, item)) = items.last_mut() {
                item.push(' ');
                item.push_str(line.trim());
            }
        } else {
            open = false;
        }
    }
    items
}

/// What is wrong with one line.
fn judge(item: &str, tests: &Tests, seen: &mut BTreeSet<String>) -> Vec<String> {
    let Some((id, rest)) = split_id(item) else {
        return vec!["no id: run `cargo xtask checklist --write`".to_owned()];
    };
    let mut problems = Vec::new();
    if !seen.insert(id.to_owned()) {
        problems.push(format!("{id} stands twice"));
    }
    let named = proofs(rest);
    if named.is_empty() {
        problems.push(format!("{id} names no test"));
    }
    for name in named {
        if let Some(problem) = tests.problem_with(name) {
            problems.push(format!("{id}: {problem}"));
        }
    }
    problems
}

/// Splits `` `some-id-001` text `` into id and text.
fn split_id(item: &str) -> Option<(&str, &str)> {
    let (id, rest) = item.strip_prefix('`')?.split_once('`')?;
    let number = id.rsplit_once('-')?.1;
    let is_id = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_id.then_some((id, rest))
}

/// The names in backticks after the last dash.
fn proofs(text: &str) -> Vec<&str> {
    let Some((_, tail)) = text.rsplit_once(" — ") else {
        return Vec::new();
    };
    tail.split('`').skip(1).step_by(2).collect()
}

fn prefix(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.trim_end_matches(".md").to_owned()
}

fn assign(text: &str, prefix: &str) -> String {
    let taken = text.lines().filter_map(|line| {
        let (id, _) = split_id(line.strip_prefix("- ")?)?;
        id.strip_prefix(prefix)?.strip_prefix('-')?.parse().ok()
    });
    let mut last: u32 = taken.max().unwrap_or(0);
    let mut lines = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("- ") {
            Some(item) if split_id(item).is_none() => {
                last += 1;
                lines.push(format!("- `{prefix}-{last:03}` {item}"));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

/// Every test function of the workspace, and whether it is ignored.
struct Tests {
    functions: BTreeMap<String, bool>,
}

impl Tests {
    fn find() -> Result<Self> {
        let mut functions = BTreeMap::new();
        for file in cargo::files("crates")? {
            if file.ends_with(".rs") {
                let text = std::fs::read_to_string(cargo::root().join(&file))?;
                functions.extend(test_functions(&text));
                functions.extend(stories(&text).into_iter().map(|name| (name, false)));
            }
        }
        Ok(Self { functions })
    }

    fn problem_with(&self, name: &str) -> Option<String> {
        if let Some((package, folder)) = name.split_once('/') {
            let cases = Path::new("crates").join(package).join("tests/cases");
            let found = cargo::root().join(cases).join(folder).exists();
            return (!found).then(|| format!("there is no case {name}"));
        }
        // A path names its last part: `process::tests::a_dropped_child_is_gone`.
        match self.functions.get(name.rsplit("::").next().unwrap_or(name)) {
            None => Some(format!("there is no test {name}")),
            Some(true) => Some(format!("the test {name} is ignored")),
            Some(false) => None,
        }
    }
}

/// The names in `stories! { a, b }`, each of which the macro runs as a test on both kinds of cluster.
fn stories(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (start, word) in text.match_indices("stories!") {
        let inside = text[start + word.len()..].trim_start().strip_prefix(['{', '[', '(']);
        let list = inside.and_then(|rest| rest.split(['}', ']', ')']).next());
        let list = list.unwrap_or_default().lines().map(|line| line.split("//").next().unwrap_or_default());
        let found = list.flat_map(|line| line.split(',')).map(str::trim).filter(|name| !name.is_empty());
        names.extend(found.map(str::to_owned));
    }
    names
}

/// The test functions of a source text with whether each is ignored.
fn test_functions(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let (mut is_test, mut ignored) = (false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.contains("::test]") || line.contains("::test(");
            ignored |= line.starts_with("#[ignore");
            continue;
        }
        if line.starts_with("//") {
            continue;
        }
        let name = line
            .trim_start_matches("pub ")
            .trim_start_matches("async ")
            .strip_prefix("fn ")
            .and_then(|rest| rest.split(['(', '<']).next());
        if let (Some(name), true) = (name, is_test) {
            found.push((name.to_owned(), ignored));
        }
        (is_test, ignored) = (false, false);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests() -> Tests {
        let text =
            "#[test]\nfn runs() {}\n#[tokio::test]\n#[ignore = \"slow\"]\nasync fn waits() {}\nfn plain() {}";
        Tests { functions: test_functions(text).into_iter().collect() }
    }

    fn problems(item: &str) -> Vec<String> {
        judge(item, &tests(), &mut BTreeSet::new())
    }

    #[test]
    fn a_line_with_an_id_and_a_running_test_is_fine() {
        assert!(problems("`git-001` It works. — `runs`").is_empty());
        assert!(problems("`git-001` It works. — `mod::tests::runs`").is_empty());
    }

    #[test]
    fn missing_ids_missing_ignored_and_unnamed_tests_are_problems() {
        assert!(problems("It works. — `runs`")[0].contains("no id"));
        assert!(problems("`git-001` It works.")[0].contains("names no test"));
        assert!(problems("`git-001` It works. — `waits`")[0].contains("ignored"));
        assert!(problems("`git-001` It works. — `plain`")[0].contains("no test plain"));
        assert!(problems("`git-001` It works. — `yaml/no/such/case`")[0].contains("no case"));
    }

    #[test]
    fn stories_are_tests() {
        let text = "testbed::stories! {\n    one, // why\n    two,\n}\n";
        assert_eq!(stories(text), ["one", "two"]);
    }

    #[test]
    fn an_item_may_be_wrapped() {
        let text = "# A\n- `a-001` long\n  line — `runs`\n\ntext\n- `a-002` x\n";
        let expected = [(2, "`a-001` long line — `runs`"), (6, "`a-002` x")];
        assert_eq!(items(text), expected.map(|(line, item)| (line, item.to_owned())));
    }

    #[test]
    fn new_lines_get_the_next_number_and_old_ones_keep_theirs() {
        let text = "# Git\n- `git-004` old\n- new\n  more\n- newer\n";
        let expected = "# Git\n- `git-004` old\n- `git-005` new\n  more\n- `git-006` newer\n";
        assert_eq!(assign(text, "git"), expected);
    }
}
