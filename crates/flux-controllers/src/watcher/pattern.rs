//! `pathPattern`: one set of artifacts for each folder of a source that matches. Pure.

use std::collections::{BTreeMap, BTreeSet};

use file_tree::TreePath;
use flux_api::extensions::{CopyOperation, OutputArtifact};

/// An artifact to make, and the labels that its folder gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub artifact: OutputArtifact,
    pub labels: BTreeMap<String, String>,
}

/// Only another spec, or other folders, can help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// The artifacts of the spec, for each folder in `folders` that the pattern matches.
pub fn expand(
    pattern: &str,
    folders: &BTreeSet<TreePath>,
    artifacts: &[OutputArtifact],
) -> Result<Vec<Wanted>, Error> {
    let failed = |text: String| Error(format!("pathPattern \"{pattern}\": {text}"));
    let (_, inside) = pattern
        .split_once('/')
        .filter(|(alias, _)| alias.starts_with('@'))
        .ok_or_else(|| Error(format!("invalid pathPattern format: {pattern}")))?;
    let parts = parse(inside).map_err(failed)?;
    let (mut wanted, mut names) = (Vec::new(), BTreeMap::<String, &TreePath>::new());
    for folder in folders.iter().filter(|folder| !folder.is_root()) {
        let Some(captures) = captures(&parts, folder.as_str()) else { continue };
        let lowered: BTreeMap<String, String> =
            captures.iter().map(|(name, value)| (name.clone(), value.to_lowercase())).collect();
        for (name, value) in &lowered {
            if !is_label_value(value) {
                return Err(failed(format!(
                    "captured value \"{value}\" for variable \"{name}\" is not a valid Kubernetes label value: {LABEL_VALUE}"
                )));
            }
        }
        for artifact in artifacts {
            let artifact = rendered(artifact, &lowered, &captures).map_err(|cause| {
                failed(format!("failed to render artifact {} for match {folder}: {cause}", artifact.name))
            })?;
            if !is_object_name(&artifact.name) {
                return Err(failed(format!(
                    "rendered artifact name \"{}\" is not a valid Kubernetes object name: {OBJECT_NAME}",
                    artifact.name
                )));
            }
            if let Some(other) = names.insert(artifact.name.clone(), folder) {
                return Err(failed(format!(
                    "directories \"{other}\" and \"{folder}\" both resolve to artifact name \"{}\"",
                    artifact.name
                )));
            }
            wanted.push(Wanted { artifact, labels: lowered.clone() });
        }
    }
    Ok(wanted)
}

enum Piece {
    Text(String),
    Capture(String),
}

/// A template as pieces of text and captures.
fn pieces(template: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = template;
    let offset = |rest: &str| template.len() - rest.len();
    while !rest.is_empty() {
        let at = rest.find(['{', '}']).unwrap_or(rest.len());
        if at > 0 {
            pieces.push(Piece::Text(rest[..at].to_owned()));
        }
        rest = &rest[at..];
        if rest.starts_with('}') {
            return Err(format!("invalid capture ending at offset {}: missing opening brace", offset(rest)));
        }
        let Some(after) = rest.strip_prefix('{') else { continue };
        let Some((name, after)) = after.split_once('}') else {
            return Err(format!(
                "invalid capture starting at offset {}: missing closing brace",
                offset(rest)
            ));
        };
        if name.is_empty() {
            return Err("empty capture variable".to_owned());
        }
        let is_name = |name: &str| {
            !name.starts_with(|first: char| first.is_ascii_digit())
                && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        };
        if !is_name(name) {
            return Err(format!(
                "capture variable \"{name}\" must be a valid capture name matching [A-Za-z_][A-Za-z0-9_]*"
            ));
        }
        pieces.push(Piece::Capture(name.to_owned()));
        rest = after;
    }
    Ok(pieces)
}

fn parse(pattern: &str) -> Result<Vec<Piece>, String> {
    let pieces = pieces(pattern)?;
    let mut seen = BTreeSet::new();
    for piece in &pieces {
        if let Piece::Capture(name) = piece {
            if !seen.insert(name.clone()) {
                return Err(format!("duplicate capture variable \"{name}\""));
            }
            // A label key begins and ends with a letter or digit.
            if name.starts_with('_') || name.ends_with('_') || name.len() > 63 {
                return Err(format!("capture variable \"{name}\" is not a valid Kubernetes label key"));
            }
        }
    }
    Ok(pieces)
}

/// The values of the captures when the whole of `path` matches; each takes at least one letter and no slash.
fn captures(pieces: &[Piece], path: &str) -> Option<BTreeMap<String, String>> {
    let Some((piece, rest)) = pieces.split_first() else {
        return path.is_empty().then(BTreeMap::new);
    };
    match piece {
        Piece::Text(text) => captures(rest, path.strip_prefix(text.as_str())?),
        Piece::Capture(name) => {
            let longest = path.find('/').unwrap_or(path.len());
            // The longest first, as a regular expression would take it.
            let ends = path[..longest].char_indices().map(|(at, letter)| at + letter.len_utf8());
            let ends: Vec<usize> = ends.collect();
            ends.into_iter().rev().find_map(|end| {
                let mut found = captures(rest, &path[end..])?;
                found.insert(name.clone(), path[..end].to_owned());
                Some(found)
            })
        }
    }
}

fn render(template: &str, values: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let invalid = |cause: String| format!("invalid template \"{template}\": {cause}");
    for piece in pieces(template).map_err(invalid)? {
        match piece {
            Piece::Text(text) => out.push_str(&text),
            Piece::Capture(name) => out.push_str(values.get(&name).ok_or_else(|| {
                invalid(format!("capture variable \"{name}\" is not defined by pathPattern"))
            })?),
        }
    }
    Ok(out)
}

/// Names and labels take the captures in lower case, paths as they are.
fn rendered(
    artifact: &OutputArtifact,
    lowered: &BTreeMap<String, String>,
    raw: &BTreeMap<String, String>,
) -> Result<OutputArtifact, String> {
    let copy = artifact.copy.iter().map(|operation| {
        let (from, to) = (render(&operation.from, raw)?, render(&operation.to, raw)?);
        Ok(CopyOperation { from, to, ..operation.clone() })
    });
    let copy = copy.collect::<Result<_, String>>()?;
    Ok(OutputArtifact { name: render(&artifact.name, lowered)?, copy, ..artifact.clone() })
}

pub const OBJECT_NAME: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// A DNS subdomain.
pub fn is_object_name(name: &str) -> bool {
    let inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(inner) && label.ends_with(inner) && label.chars().all(|c| inner(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_label_value(value: &str) -> bool {
    let ends = |letter: char| letter.is_ascii_alphanumeric();
    value.is_empty()
        || (value.len() <= 63
            && value.starts_with(ends)
            && value.ends_with(ends)
            && value.chars().all(|c| ends(c) || matches!(c, '-' | '_' | '.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(name: &str, from: &str) -> OutputArtifact {
        let to = "@artifact/".to_owned();
        let copy = vec![CopyOperation { from: from.to_owned(), to, exclude: Vec::new(), strategy: None }];
        OutputArtifact { name: name.to_owned(), revision: None, origin_revision: None, copy }
    }

    fn folders(paths: &[&str]) -> BTreeSet<TreePath> {
        paths.iter().map(|path| TreePath::parse(path).unwrap()).collect()
    }

    #[test]
    fn each_folder_gives_its_artifacts() {
        let folders = folders(&["apps", "apps/Web", "apps/api", "apps/api/deep", "other/x"]);
        let found = expand("@s/apps/{app}", &folders, &[artifact("x-{app}", "@s/apps/{app}/**")]).unwrap();
        let names: Vec<(&str, &str)> = found
            .iter()
            .map(|one| (one.artifact.name.as_str(), one.artifact.copy[0].from.as_str()))
            .collect();
        assert_eq!(names, [("x-web", "@s/apps/Web/**"), ("x-api", "@s/apps/api/**")]);
        assert_eq!(found[0].labels, BTreeMap::from([("app".to_owned(), "web".to_owned())]));
        assert_eq!(expand("@s/none/{app}", &folders, &[artifact("{app}", "@s/a")]), Ok(Vec::new()));
    }

    #[test]
    fn several_captures_share_a_part() {
        let folders = folders(&["env/prod-eu-web"]);
        let found = expand("@s/env/{stage}-{app}", &folders, &[artifact("{app}.{stage}", "@s/a")]).unwrap();
        assert_eq!(found[0].artifact.name, "web.prod-eu");
    }

    #[test]
    fn mistakes_are_explained() {
        let folders = folders(&["apps/A", "apps/a", "more/_x"]);
        for (pattern, name, words) in [
            ("@s/apps/{app", "x", "missing closing brace"),
            ("@s/apps/app}", "x", "missing opening brace"),
            ("@s/apps/{}", "x", "empty capture variable"),
            ("@s/{a}/{a}", "x", "duplicate capture variable"),
            ("@s/apps/{1}", "x", "must be a valid capture name"),
            ("@s/apps/{_a}", "x", "not a valid Kubernetes label key"),
            ("@s/apps/{app}", "{app}", "both resolve to artifact name \"a\""),
            ("@s/apps/A{none}", "{none}", ""),
            ("@s/more/{app}", "{app}", "not a valid Kubernetes label value"),
            ("@s/more/_{app}", "{other}", "is not defined by pathPattern"),
            ("@s/more/_{app}", "{app}-", "not a valid Kubernetes object name"),
        ] {
            match expand(pattern, &folders, &[artifact(name, "@s/a")]) {
                Ok(found) => assert!(words.is_empty() && found.is_empty(), "{pattern} {name}: {found:?}"),
                Err(error) => {
                    assert!(!words.is_empty() && error.0.contains(words), "{pattern} {name}: {error}")
                }
            }
        }
    }
}
