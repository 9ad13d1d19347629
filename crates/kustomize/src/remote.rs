//! Tells a URL or Git repository from a local path, as kustomize does before it looks at any file.
//!
//! Deliberately absent: fetching. A build refuses what is remote; a caller that allows it fetches first.

/// Whether kustomize would download this as a file.
pub(crate) fn is_url(path: &str) -> bool {
    let scheme = path.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https"))
}

/// Whether kustomize would clone this as a repository.
pub(crate) fn is_repository(path: &str) -> bool {
    if path.starts_with('/') {
        return false;
    }
    let location = path.split_once('?').map_or(path, |(location, _)| location);
    let location = strip_prefix_ignore_case(location, "git::").unwrap_or(location);
    let (scheme, rest) = split_scheme(location);
    let (user, rest) = split_user(rest);
    let github =
        ["github.com/", "github.com:"].iter().any(|host| strip_prefix_ignore_case(rest, host).is_some());
    let scp = scheme.is_empty() && (!user.is_empty() || github);
    if scheme.is_empty() && !scp {
        return false;
    }
    if scheme == "file://" {
        let repository = format!("{user}{rest}");
        return repository_path(&repository, None);
    }
    let Some(end_of_host) = host_end(rest, scp) else { return false };
    repository_path(&rest[end_of_host + 1..], Some(2))
}

fn split_scheme(text: &str) -> (&'static str, &str) {
    for scheme in ["ssh://", "https://", "http://", "file://"] {
        if let Some(rest) = strip_prefix_ignore_case(text, scheme) {
            return (scheme, rest);
        }
    }
    ("", text)
}

/// `user@`, if the text starts with one.
fn split_user(text: &str) -> (&str, &str) {
    let Some(at) = text.find('@') else { return ("", text) };
    let name = &text[..at];
    let letters = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if letters { text.split_at(at + 1) } else { ("", text) }
}

fn host_end(text: &str, scp: bool) -> Option<usize> {
    let slash = text.find('/');
    let colon = text.find(':').filter(|_| scp);
    match (slash, colon) {
        (None, colon) => colon,
        (Some(slash), Some(colon)) if colon > 0 && colon < slash => Some(colon),
        (slash, _) => slash,
    }
}

/// Whether the path after the host names a repository; without a mark in it, it needs `segments` parts.
fn repository_path(path: &str, segments: Option<usize>) -> bool {
    let (repository, inside) = if let Some(at) = path.find("_git/") {
        let (root, rest) = path.split_at(at + "_git/".len());
        let (name, inside) = rest.split_once('/').unwrap_or((rest, ""));
        (format!("{root}{name}"), inside)
    } else if let Some((repository, inside)) = path.split_once("//") {
        (repository.to_owned(), inside)
    } else if let Some(at) = path.find(".git") {
        let (repository, inside) = path.split_at(at + ".git".len());
        (repository.to_owned(), inside)
    } else {
        match segments {
            None => (path.to_owned(), ""),
            Some(count) => {
                let parts: Vec<&str> = path.split('/').collect();
                if parts.len() < count {
                    return false;
                }
                (parts[..count].join("/"), path.splitn(count + 1, '/').nth(count).unwrap_or_default())
            }
        }
    };
    !repository.is_empty() && !leaves(inside)
}

fn leaves(inside: &str) -> bool {
    let mut depth = 0_i64;
    for part in inside.split('/') {
        match part {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return true;
        }
    }
    false
}

fn strip_prefix_ignore_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_told_from_folders() {
        for remote in [
            "https://github.com/org/repo",
            "github.com/org/repo//base?ref=v1",
            "git@github.com:org/repo.git",
            "git::https://example.com/org/repo",
            "ssh://git@example.com/org/repo",
            "https://dev.azure.com/org/project/_git/repo/base",
            "file:///srv/repo",
        ] {
            assert!(is_repository(remote), "{remote}");
        }
        for local in ["../base", "base", "a.yaml", "/abs/base", "github.com", "github.com/org", "a:b/c"] {
            assert!(!is_repository(local), "{local}");
        }
    }

    #[test]
    fn urls_are_told_from_files() {
        assert!(is_url("https://example.com/a.yaml"));
        assert!(!is_url("a.yaml"));
    }
}
