//! `.gitmodules`: where submodules are and where they come from. Pure.

use file_tree::TreePath;

use super::Error;
use super::checkout::is_safe;

const MOST_SUBMODULES: usize = 500;
const LONGEST_FILE: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submodule {
    pub name: String,
    pub path: TreePath,
    /// As written: maybe relative to the address of the repository it is in.
    pub url: String,
}

/// Reads the file. A section without path or address says nothing about any folder and is left out.
pub fn parse_submodules(text: &[u8]) -> Result<Vec<Submodule>, Error> {
    if text.len() > LONGEST_FILE {
        return Err(Error::TooLarge { what: ".gitmodules", limit: LONGEST_FILE as u64 });
    }
    let text = String::from_utf8_lossy(text);
    let mut found: Vec<(String, Option<String>, Option<String>)> = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']').trim();
            let name = section.strip_prefix("submodule").map(|rest| rest.trim().trim_matches('"').to_owned());
            inside = name.is_some();
            found.extend(name.map(|name| (name, None, None)));
            continue;
        }
        let (Some((key, value)), Some(last)) = (line.split_once('='), found.last_mut()) else { continue };
        if !inside {
            continue;
        }
        match key.trim().to_ascii_lowercase().as_str() {
            "path" => last.1 = Some(unquoted(value)),
            "url" => last.2 = Some(unquoted(value)),
            _ => {}
        }
    }
    if found.len() > MOST_SUBMODULES {
        return Err(Error::TooLarge { what: "the number of submodules", limit: MOST_SUBMODULES as u64 });
    }
    let complete = found.into_iter().filter_map(|(name, path, url)| Some((name, path?, url?)));
    complete.map(|(name, path, url)| checked(name, &path, url)).collect()
}

fn checked(name: String, path: &str, url: String) -> Result<Submodule, Error> {
    let unsafe_path = || Error::UnsafePath(path.to_owned());
    // A name is a folder below .git/modules for Git; `..` in it has been used to climb out.
    let climbs = name.split(['/', '\\']).any(|part| part == "..");
    let path = TreePath::parse(path).map_err(|_| unsafe_path())?;
    if climbs || path.is_root() || !path.parts().all(is_safe) {
        return Err(unsafe_path());
    }
    Ok(Submodule { name, path, url })
}

/// A value ends at a comment unless it is quoted.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    match value.strip_prefix('"') {
        Some(rest) => rest.split('"').next().unwrap_or_default().to_owned(),
        None => value.split([';', '#']).next().unwrap_or_default().trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_with_path_and_address_count() {
        let text = b"# c\n[submodule \"lib\"]\n\tpath = vendor/lib\n\turl = ../lib.git\n\tbranch = main\n[core]\n\tpath = x\n\
            [submodule \"half\"]\n\tpath = half\n[submodule \"q\"]\n\turl = \"https://h/a;b\" ; c\n\tPath = q # c\n";
        let found = parse_submodules(text).unwrap();
        let plain: Vec<(&str, &str, &str)> =
            found.iter().map(|one| (one.name.as_str(), one.path.as_str(), one.url.as_str())).collect();
        assert_eq!(plain, [("lib", "vendor/lib", "../lib.git"), ("q", "q", "https://h/a;b")]);
    }

    #[test]
    fn a_path_or_name_that_climbs_is_refused() {
        for (name, path) in
            [("a", "../x"), ("a", ".git/hooks"), ("../../hooks", "x"), ("a", "."), ("a", "x/.GIT")]
        {
            let text = format!("[submodule \"{name}\"]\npath = {path}\nurl = https://h/x\n");
            assert!(parse_submodules(text.as_bytes()).is_err(), "{name} {path}");
        }
    }
}
