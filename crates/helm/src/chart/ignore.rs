//! `.helmignore`: which files of an unpacked chart do not belong to it.
//!
//! Not gitignore: no `**`, patterns without a slash look at the last name only, and a `!` pattern ignores everything it does not
//! match, as Helm has it.

use super::LoadError;
use crate::path_match::{BadPattern, path_match};

pub(super) struct Rules {
    patterns: Vec<Pattern>,
}

struct Pattern {
    glob: String,
    scope: Scope,
    negate: bool,
    folders_only: bool,
}

enum Scope {
    WholePath,
    LastName,
}

impl Rules {
    /// The rules of a file, and Helm's own: dot files below `templates/` are not templates.
    pub(super) fn parse(text: &str) -> Result<Rules, LoadError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut patterns = Vec::new();
        for line in text.lines().chain(["templates/.?*"]) {
            patterns.extend(parse_line(line.trim())?);
        }
        Ok(Rules { patterns })
    }

    pub(super) fn ignore(&self, path: &str, is_folder: bool) -> bool {
        for pattern in &self.patterns {
            let wrong_kind = pattern.folders_only && !is_folder;
            let matches = !wrong_kind && pattern.matches(path);
            if pattern.negate != matches {
                return true;
            }
        }
        false
    }
}

fn parse_line(line: &str) -> Result<Option<Pattern>, LoadError> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if line.contains("**") {
        return Err(LoadError::Ignore("double-star (**) syntax is not supported".to_owned()));
    }
    path_match(line, "abc").map_err(|BadPattern| LoadError::Ignore(BadPattern.to_string()))?;
    let (negate, rule) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
    let (folders_only, rule) = rule.strip_suffix('/').map_or((false, rule), |rest| (true, rest));
    let (scope, rule) = match rule.strip_prefix('/') {
        Some(rest) => (Scope::WholePath, rest),
        None if rule.contains('/') => (Scope::WholePath, rule),
        None => (Scope::LastName, rule),
    };
    Ok(Some(Pattern { glob: rule.to_owned(), scope, negate, folders_only }))
}

impl Pattern {
    fn matches(&self, path: &str) -> bool {
        let subject = match self.scope {
            Scope::WholePath => path,
            Scope::LastName => path.rsplit('/').next().unwrap_or(path),
        };
        path_match(&self.glob, subject).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::Rules;

    fn ignored(rules: &str, path: &str, is_folder: bool) -> bool {
        Rules::parse(rules).unwrap().ignore(path, is_folder)
    }

    #[test]
    fn a_pattern_without_a_slash_looks_at_the_last_name() {
        assert!(ignored("*.txt", "a/b/c.txt", false));
        assert!(!ignored("/*.txt", "a/c.txt", false));
        assert!(ignored("/*.txt", "c.txt", false));
        assert!(ignored("a/*.txt", "a/c.txt", false));
    }

    #[test]
    fn a_trailing_slash_means_folders_only() {
        assert!(ignored("build/", "build", true));
        assert!(!ignored("build/", "build", false));
    }

    #[test]
    fn a_negated_pattern_ignores_everything_else() {
        assert!(ignored("!keep.yaml", "other.yaml", false));
        assert!(!ignored("!keep.yaml", "keep.yaml", false));
    }

    #[test]
    fn dot_files_below_templates_are_always_ignored() {
        assert!(ignored("", "templates/.swp", false));
        assert!(!ignored("", "templates/a.yaml", false));
    }

    #[test]
    fn double_stars_are_refused() {
        assert!(Rules::parse("a/**").is_err());
    }
}
