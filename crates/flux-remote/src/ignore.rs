//! `.sourceignore` and `spec.ignore`: which files of a source stay out of its artifact.
//!
//! The rules are those of Flux's Git library, which are not quite Git's: a file below an excluded folder can
//! be included again, and a pattern is tried on every part of a path.

use file_tree::TreePath;

/// What Git itself leaves in a tree; always excluded.
const VERSION_CONTROL: &str = ".git/\n.gitignore\n.gitmodules\n.gitattributes\n";

/// Excluded while nobody has written a pattern of their own.
const DEFAULTS: &str = "*.jpg\n*.jpeg\n*.gif\n*.png\n*.wmv\n*.flv\n*.tar.gz\n*.zip\n\
    .github/\n.circleci/\n.travis.yml\n.gitlab-ci.yml\nappveyor.yml\n.drone.yml\ncloudbuild.yaml\n\
    codeship-services.yml\ncodeship-steps.yml\n**/.goreleaser.yml\n**/.sops.yaml\n**/.flux.yaml\n";

/// The name of the file that holds patterns for its folder and what is below.
pub const FILE_NAME: &str = ".sourceignore";

/// Patterns in order; the last one that says anything about a path decides.
#[derive(Clone, Debug, Default)]
pub struct Ignore {
    patterns: Vec<Pattern>,
}

impl Ignore {
    /// The rules of a source: `files` are its `.sourceignore` texts with their folders, parents before
    /// children; `spec` is `spec.ignore`.
    pub fn for_source<'a>(
        files: impl IntoIterator<Item = (&'a TreePath, &'a str)>,
        spec: Option<&str>,
    ) -> Self {
        let root = TreePath::root();
        let mut own: Vec<Pattern> =
            files.into_iter().flat_map(|(folder, text)| Pattern::parse_all(text, folder)).collect();
        own.extend(spec.into_iter().flat_map(|text| Pattern::parse_all(text, &root)));
        let mut patterns = Pattern::parse_all(VERSION_CONTROL, &root);
        if own.is_empty() {
            own = Pattern::parse_all(DEFAULTS, &root);
        }
        patterns.append(&mut own);
        Self { patterns }
    }

    /// Only the patterns in `text`, from the root.
    pub fn from_text(text: &str) -> Self {
        Self { patterns: Pattern::parse_all(text, &TreePath::root()) }
    }

    pub fn excludes(&self, path: &TreePath, is_folder: bool) -> bool {
        let parts: Vec<&str> = path.parts().collect();
        self.patterns
            .iter()
            .rev()
            .find(|pattern| pattern.says_something_about(&parts, is_folder))
            .is_some_and(|pattern| !pattern.includes)
    }
}

#[derive(Clone, Debug)]
struct Pattern {
    folder: Vec<String>,
    parts: Vec<Part>,
    includes: bool,
    folders_only: bool,
}

/// What stands between two slashes of a pattern. Every pattern is tried on every file, so the usual ones, which are a
/// name or an ending, are not matched letter by letter.
#[derive(Clone, Debug)]
enum Part {
    Empty,
    /// `**`
    Anything,
    /// Holds `**` among other letters: a star as any other, but never between slashes.
    Odd(Vec<char>),
    Name(String),
    /// `*.png`
    Ending(String),
    Glob(Vec<char>),
}

impl Part {
    fn parse(text: &str) -> Self {
        let plain = |text: &str| !text.contains(['*', '?', '[', '\\']);
        match text.strip_prefix('*') {
            _ if text.is_empty() => Part::Empty,
            _ if text == "**" => Part::Anything,
            _ if text.contains("**") => Part::Odd(text.chars().collect()),
            _ if plain(text) => Part::Name(text.to_owned()),
            Some(ending) if plain(ending) => Part::Ending(ending.to_owned()),
            _ => Part::Glob(text.chars().collect()),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Part::Empty => name.is_empty(),
            // Within a single name two stars are one.
            Part::Anything => true,
            Part::Name(own) => own == name,
            Part::Ending(ending) => name.ends_with(ending.as_str()),
            Part::Glob(pattern) | Part::Odd(pattern) => glob(pattern, name),
        }
    }
}

impl Pattern {
    fn parse_all(text: &str, folder: &TreePath) -> Vec<Self> {
        text.lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
            .map(|line| Self::parse(line, folder))
            .collect()
    }

    fn parse(line: &str, folder: &TreePath) -> Self {
        let (includes, line) = match line.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let line = if line.ends_with("\\ ") { line } else { line.trim_end_matches(' ') };
        let (folders_only, line) = match line.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        Self {
            folder: folder.parts().map(str::to_owned).collect(),
            parts: line.split('/').map(Part::parse).collect(),
            includes,
            folders_only,
        }
    }

    fn says_something_about(&self, path: &[&str], is_folder: bool) -> bool {
        if path.len() <= self.folder.len() || self.folder.iter().zip(path).any(|(a, b)| a != b) {
            return false;
        }
        let path = &path[self.folder.len()..];
        match self.parts.as_slice() {
            [name] => self.matches_a_part(name, path, is_folder),
            _ => self.matches_from_here(path, is_folder),
        }
    }

    /// A pattern without a slash may match any part of the path.
    fn matches_a_part(&self, name: &Part, path: &[&str], is_folder: bool) -> bool {
        let Some(index) = path.iter().position(|part| name.matches(part)) else {
            return false;
        };
        !(self.folders_only && !is_folder && index == path.len() - 1)
    }

    fn matches_from_here(&self, mut path: &[&str], is_folder: bool) -> bool {
        let mut matched = false;
        let mut anywhere = false;
        for (index, part) in self.parts.iter().enumerate() {
            match part {
                Part::Empty => {
                    anywhere = false;
                    continue;
                }
                Part::Anything if index == self.parts.len() - 1 => break,
                Part::Anything => {
                    anywhere = true;
                    continue;
                }
                Part::Odd(_) => return false,
                _ if path.is_empty() => return false,
                _ => {}
            }
            let found = if anywhere { path.iter().position(|name| part.matches(name)) } else { None };
            match found {
                Some(at) => path = &path[at + 1..],
                None if anywhere => {
                    matched = false;
                    path = &[];
                    anywhere = false;
                    continue;
                }
                None if part.matches(path[0]) => path = &path[1..],
                None => return false,
            }
            matched = true;
            anywhere = false;
        }
        matched && !(self.folders_only && !is_folder && path.is_empty())
    }
}

/// Go's `filepath.Match` on a single name: `*`, `?`, `[a-z]`, `[^a]` and backslash; a bad pattern matches nothing.
fn glob(pattern: &[char], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some('?') => Some(p + 1),
            Some('[') => match class(&pattern[p..], name[n]) {
                Some((true, length)) => Some(p + length),
                Some((false, _)) => None,
                None => return false,
            },
            Some('\\') if p + 1 < pattern.len() => (pattern[p + 1] == name[n]).then_some(p + 2),
            Some('\\') => return false,
            Some(literal) => (*literal == name[n]).then_some(p + 1),
            None => None,
        };
        match (step, star) {
            (Some(next), _) => {
                p = next;
                n += 1;
            }
            (None, Some((after, from))) => {
                star = Some((after, from + 1));
                p = after;
                n = from + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|rest| *rest == '*')
}

/// A `[…]` at the start of `pattern`: whether it holds `candidate`, and its length. `None` when malformed.
fn class(pattern: &[char], candidate: char) -> Option<(bool, usize)> {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&'^');
    if negated {
        at += 1;
    }
    let mut holds = false;
    let mut ranges = 0;
    loop {
        if pattern.get(at) == Some(&']') && ranges > 0 {
            return Some((holds != negated, at + 1));
        }
        let low = class_member(pattern, &mut at)?;
        let high = if pattern.get(at) == Some(&'-') {
            at += 1;
            class_member(pattern, &mut at)?
        } else {
            low
        };
        holds |= (low..=high).contains(&candidate);
        ranges += 1;
    }
}

fn class_member(pattern: &[char], at: &mut usize) -> Option<char> {
    match pattern.get(*at)? {
        '-' | ']' => None,
        '\\' => {
            *at += 2;
            pattern.get(*at - 1).copied()
        }
        member => {
            *at += 1;
            Some(*member)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(patterns: &str, path: &str) -> bool {
        Ignore::for_source([], Some(patterns)).excludes(&TreePath::parse(path).unwrap(), false)
    }

    #[test]
    fn defaults_hold_until_somebody_writes_a_pattern() {
        let defaults = Ignore::for_source([], None);
        let path = |text| TreePath::parse(text).unwrap();
        assert!(defaults.excludes(&path("docs/a.png"), false));
        assert!(defaults.excludes(&path(".github/workflows/ci.yaml"), false));
        assert!(defaults.excludes(&path("a/b/.sops.yaml"), false));
        for name in [
            "a.jpg",
            "a.jpeg",
            "a.gif",
            "a.png",
            "a.wmv",
            "a.flv",
            "a.tar.gz",
            "a.zip",
            ".github/x",
            ".circleci/x",
            ".travis.yml",
            ".gitlab-ci.yml",
            "appveyor.yml",
            ".drone.yml",
            "cloudbuild.yaml",
            "codeship-services.yml",
            "codeship-steps.yml",
            "a/.goreleaser.yml",
            "a/.sops.yaml",
            "a/.flux.yaml",
            ".git/config",
            ".gitignore",
            ".gitmodules",
            ".gitattributes",
        ] {
            assert!(defaults.excludes(&path(name), false), "{name}");
        }
        assert!(!defaults.excludes(&path("apps/a.yaml"), false));
        // Comments and blank lines are no patterns: the defaults stay.
        assert!(excluded("# nothing\n\n", "docs/a.png"));
        assert!(!excluded("*.md", "docs/a.png"));
        assert!(excluded("*.md", ".gitignore"));
    }

    #[test]
    fn the_last_word_counts_even_below_an_excluded_folder() {
        let patterns = "/*\n!/deploy\n";
        assert!(excluded(patterns, "docs/x.yaml"));
        assert!(!excluded(patterns, "deploy/x.yaml"));
        assert!(!excluded("apps/\n!apps/keep.yaml\n", "apps/keep.yaml"));
    }

    #[test]
    fn a_folder_pattern_covers_what_is_below_but_no_file_of_that_name() {
        assert!(excluded("build/", "a/build/x"));
        assert!(!excluded("build/", "a/build"));
    }

    #[test]
    fn two_stars_cross_folders() {
        assert!(excluded("**/test/*.yaml", "a/b/test/x.yaml"));
        assert!(excluded("**/test/*.yaml", "test/x.yaml"));
        assert!(!excluded("**/test/*.yaml", "a/testing/x.yaml"));
        assert!(excluded("a/**", "a/b/c"));
    }

    #[test]
    fn patterns_of_a_sub_folder_stay_there() {
        let folder = TreePath::parse("apps").unwrap();
        let ignore = Ignore::for_source([(&folder, "/secret.yaml\n")], None);
        assert!(ignore.excludes(&TreePath::parse("apps/secret.yaml").unwrap(), false));
        assert!(!ignore.excludes(&TreePath::parse("secret.yaml").unwrap(), false));
        assert!(!ignore.excludes(&TreePath::parse("apps/deep/secret.yaml").unwrap(), false));
    }

    #[test]
    fn classes_and_escapes() {
        let glob = |pattern: &str, name: &str| Part::parse(pattern).matches(name);
        assert!(glob("*.tar.gz", "x.tar.gz") && glob("*", "x") && glob("**", "x") && glob("a**c", "abbc"));
        assert!(!glob("*.png", "png") && !glob("name", "names") && !glob("", "x"));
        assert!(excluded("a**c", "x/abbc") && !excluded("x/a**c", "x/abbc"));
        assert!(glob("[a-c]x?", "bxz"));
        assert!(!glob("[^a-c]x", "bx"));
        assert!(glob("a\\*b", "a*b"));
        assert!(!glob("a\\*b", "aab"));
        assert!(glob("*.ya*ml", "x.yaml"));
        assert!(!glob("[", "["));
        assert!(!glob("[]a]", "]"));
    }
}
