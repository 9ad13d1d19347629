//! The files of a checkout that markers change: which are looked at, and what comes out. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use flux_remote::git::{Mode, Working};

use crate::image::setters::{self, Changes, Problem, Setters};

const MOST_LINKS: usize = 40;
/// A file larger than this is not looked into.
const LARGEST: usize = 64 << 20;

/// A checkout as far as this looks at it.
pub trait Tree {
    fn files(&self) -> Vec<(String, Mode)>;
    fn read(&self, path: &str) -> Result<Cow<'_, [u8]>, String>;
}

impl Tree for Working {
    fn files(&self) -> Vec<(String, Mode)> {
        Working::files(self).map(|(path, mode)| (path.to_string(), mode)).collect()
    }

    fn read(&self, path: &str) -> Result<Cow<'_, [u8]>, String> {
        Working::read(self, path).map_err(|error| error.to_string())
    }
}

/// What an update makes of a checkout.
#[derive(Debug, Default)]
pub struct Updated {
    pub changes: Changes,
    /// New contents by path.
    pub files: Vec<(String, Vec<u8>)>,
    /// Malformed markers, by path below the repository.
    pub problems: Vec<(String, Problem)>,
}

/// Follows the markers below `path`, the whole repository if there is none.
pub fn update(tree: &dyn Tree, path: Option<&str>, setters: &Setters) -> Result<Updated, String> {
    update_up_to(LARGEST, tree, path, setters)
}

/// The same for files of at most `largest` bytes.
fn update_up_to(
    largest: usize,
    tree: &dyn Tree,
    path: Option<&str>,
    setters: &Setters,
) -> Result<Updated, String> {
    let files: BTreeMap<String, Mode> = tree.files().into_iter().collect();
    let root = resolve(tree, &files, path.unwrap_or_default())?;
    let (below, base) = match files.contains_key(&root) {
        // A single file: paths are told relative to the folder it is in.
        true => {
            (root.clone(), root.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/")))
        }
        false if root.is_empty() => (String::new(), String::new()),
        false => (format!("{root}/"), format!("{root}/")),
    };
    let mut updated = Updated::default();
    let mut any = root.is_empty();
    for (file, mode) in files.iter().filter(|(file, _)| file.starts_with(&below) || **file == root) {
        any = true;
        let name = file.rsplit('/').next().unwrap_or_default();
        // A link is no file of its own: what it points to is changed where it is.
        if !matches!(mode, Mode::Regular | Mode::Executable) || !setters::is_candidate(name) {
            continue;
        }
        let bytes = tree.read(file)?;
        if !setters::has_token(&bytes) {
            continue;
        }
        if bytes.len() > largest {
            let problem = format!(
                "the file has markers and {} bytes; files of more than {largest} are not looked into: split it",
                bytes.len()
            );
            updated.problems.push((file.clone(), Problem { line: 0, problem }));
            continue;
        }
        let edited = setters::edit(&bytes, setters);
        updated.problems.extend(edited.problems.into_iter().map(|problem| (file.clone(), problem)));
        let told = file.strip_prefix(&base).unwrap_or(file);
        for (object, change) in edited.changes {
            updated.changes.add(told, object, change);
        }
        if let Some(bytes) = edited.bytes {
            updated.files.push((file.clone(), bytes));
        }
    }
    if !any {
        return Err(format!("walking path for files: {root}: no such file or directory in the repository"));
    }
    Ok(updated)
}

/// The folder that `path` means: nothing leads out of the repository, neither dots nor links.
fn resolve(tree: &dyn Tree, files: &BTreeMap<String, Mode>, path: &str) -> Result<String, String> {
    let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let mut at: Vec<String> = Vec::new();
    let mut links = 0;
    while let Some(part) = left.pop() {
        match part.as_str() {
            "" | "." => {}
            ".." => drop(at.pop()),
            _ => {
                at.push(part);
                let here = at.join("/");
                if files.get(&here) != Some(&Mode::Symlink) {
                    continue;
                }
                links += 1;
                if links > MOST_LINKS {
                    return Err(format!("'{path}': too many symbolic links"));
                }
                let target = String::from_utf8_lossy(&tree.read(&here)?).into_owned();
                at.pop();
                if target.starts_with('/') {
                    at.clear();
                }
                left.extend(target.split('/').rev().map(str::to_owned));
            }
        }
    }
    Ok(at.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_api::image::ImageReference;

    struct Files(BTreeMap<&'static str, (Mode, String)>);

    impl Tree for Files {
        fn files(&self) -> Vec<(String, Mode)> {
            self.0.iter().map(|(path, (mode, _))| ((*path).to_owned(), *mode)).collect()
        }

        fn read(&self, path: &str) -> Result<Cow<'_, [u8]>, String> {
            self.0
                .get(path)
                .map(|(_, text)| Cow::Borrowed(text.as_bytes()))
                .ok_or_else(|| "missing".to_owned())
        }
    }

    fn tree() -> Files {
        let marked = "image: x:1 # {\"$imagepolicy\": \"flux:app\"}\n".to_owned();
        let file = |text: &str| (Mode::Regular, text.to_owned());
        Files(BTreeMap::from([
            ("apps/a.yaml", file(&marked)),
            ("apps/deep/b.yml", file(&marked)),
            ("apps/Kustomization", file(&marked)),
            ("apps/notes.txt", file(&marked)),
            ("apps/broken.yaml", file(&format!("{{{{ if }}}}\n{marked}"))),
            ("apps/link.yaml", (Mode::Symlink, "../infra/c.yaml".to_owned())),
            ("apps/module", (Mode::Submodule, String::new())),
            ("apps-two/d.yaml", file(&marked)),
            ("current", (Mode::Symlink, "apps/deep".to_owned())),
            ("out", (Mode::Symlink, "../../../../infra".to_owned())),
            ("loop", (Mode::Symlink, "loop".to_owned())),
            ("infra/c.yaml", file(&marked)),
        ]))
    }

    fn changed(path: Option<&str>) -> Result<(Vec<String>, Vec<String>), String> {
        let updated = update(&tree(), path, &setters())?;
        let files = updated.files.iter().map(|(path, _)| path.clone()).collect();
        Ok((files, updated.changes.files.keys().cloned().collect()))
    }

    #[test]
    fn only_yaml_files_below_the_path_are_changed_and_told_relative_to_it() {
        let (files, told) = changed(Some("./apps")).unwrap();
        assert_eq!(files, ["apps/Kustomization", "apps/a.yaml", "apps/deep/b.yml"]);
        assert_eq!(told, ["Kustomization", "a.yaml", "deep/b.yml"]);
        assert_eq!(changed(None).unwrap().0.len(), 5);
        let (files, told) = changed(Some("apps/deep/b.yml")).unwrap();
        assert_eq!((files, told), (vec!["apps/deep/b.yml".to_owned()], vec!["b.yml".to_owned()]));
    }

    #[test]
    fn a_path_leads_nowhere_outside() {
        assert_eq!(changed(Some("../../apps/deep")).unwrap().0, ["apps/deep/b.yml"]);
        assert_eq!(changed(Some("current")).unwrap().0, ["apps/deep/b.yml"]);
        assert_eq!(changed(Some("out")).unwrap().0, ["infra/c.yaml"]);
        assert_eq!(changed(Some("/infra")).unwrap().0, ["infra/c.yaml"]);
        assert!(changed(Some("loop")).unwrap_err().contains("too many symbolic links"));
        assert!(changed(Some("nope")).unwrap_err().contains("no such file or directory"));
    }

    fn setters() -> Setters {
        let image = ImageReference { name: "r.io/app".into(), tag: "2".into(), digest: None };
        Setters::new("flux", &BTreeMap::from([("app".to_owned(), image)])).unwrap()
    }

    #[test]
    fn a_file_that_is_too_large_to_look_into_is_told_and_the_others_are_changed() {
        let mut tree = tree();
        let padding = "# nothing\n".repeat(100);
        let marked = tree.0["apps/a.yaml"].1.clone();
        tree.0.insert("apps/large.yaml", (Mode::Regular, format!("{marked}{padding}")));
        tree.0.insert("apps/large-without.yaml", (Mode::Regular, padding));
        let updated = update_up_to(500, &tree, Some("apps"), &setters()).unwrap();
        assert!(updated.files.iter().all(|(path, _)| !path.contains("large")) && updated.files.len() == 3);
        let told: Vec<&(String, Problem)> =
            updated.problems.iter().filter(|(path, _)| path.contains("large")).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].0, "apps/large.yaml");
        assert!(told[0].1.problem.contains("files of more than 500 are not looked into"), "{told:?}");
    }

    #[test]
    fn what_could_not_be_read_is_told_with_its_file() {
        let setters = setters();
        let updated = update(&tree(), None, &setters).unwrap();
        assert_eq!(updated.problems.len(), 1);
        assert_eq!(updated.problems[0].0, "apps/broken.yaml");
    }
}
