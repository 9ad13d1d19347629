//! Which commit a `spec.ref` means, given what the server has. Pure.

use semver_range::{Constraint, Version};

use super::fetch::RemoteRef;
use super::{Error, Oid};

/// `GitRepository.spec.ref`, by precedence: commit, name, tag, semver, branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    pub branch: Option<String>,
    pub tag: Option<String>,
    pub semver: Option<String>,
    pub name: Option<String>,
    pub commit: Option<String>,
}

/// The commit to check out and how its revision is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    pub commit: Oid,
    /// The annotated tag object on the way there, which carries the tag's signature.
    pub tag: Option<Oid>,
    /// The name of the tag, where one led here, annotated or not.
    pub tag_name: Option<String>,
    /// `main`, `v1.0.0`, `refs/pull/1/head`; nothing for a bare commit.
    pub label: Option<String>,
    /// What to ask the server for.
    pub want: Oid,
    /// Tags of equal version: the newest commit wins, which only a fetch can tell.
    pub rivals: Vec<RemoteRef>,
    /// Whether the commit must be looked for in the history of `want`.
    pub deep: bool,
}

impl Pick {
    /// `main@sha1:…`, or `sha1:…` for a bare commit.
    pub fn revision(&self) -> String {
        match &self.label {
            Some(label) => format!("{label}@sha1:{}", self.commit),
            None => format!("sha1:{}", self.commit),
        }
    }
}

impl Reference {
    /// The refs to ask the server for.
    pub fn prefixes(&self) -> Vec<String> {
        match self {
            Reference { commit: Some(_), branch: Some(branch), .. } => vec![format!("refs/heads/{branch}")],
            Reference { commit: Some(_), .. } => vec!["refs/heads/".to_owned()],
            Reference { name: Some(name), .. } => vec![peeled(name).to_owned()],
            Reference { tag: Some(tag), .. } => vec![format!("refs/tags/{tag}")],
            Reference { semver: Some(_), .. } => vec!["refs/tags/".to_owned()],
            Reference { branch, .. } => vec![format!("refs/heads/{}", default_branch(branch))],
        }
    }
}

/// `refs/tags/v1^{}` is the commit behind the tag, which is what every tag leads to here.
fn peeled(name: &str) -> &str {
    name.strip_suffix("^{}").unwrap_or(name)
}

/// Flux means `master` when nothing is said, whatever the server's HEAD is.
fn default_branch(branch: &Option<String>) -> &str {
    branch.as_deref().filter(|branch| !branch.is_empty()).unwrap_or("master")
}

/// Decides among `refs`, as listed for [`Reference::prefixes`].
pub fn pick(reference: &Reference, refs: &[RemoteRef]) -> Result<Pick, Error> {
    let named = |name: &str| {
        refs.iter().find(|one| one.name == name).ok_or_else(|| Error::NoSuchRef(name.to_owned()))
    };
    let at = |one: &RemoteRef, label: &str| Pick {
        commit: one.commit(),
        tag: one.peeled.map(|_| one.target),
        tag_name: one.name.strip_prefix("refs/tags/").map(str::to_owned),
        label: Some(label.to_owned()),
        want: one.target,
        rivals: Vec::new(),
        deep: false,
    };
    match reference {
        Reference { commit: Some(commit), branch, name, .. } => {
            let id = Oid::parse(commit).ok_or_else(|| Error::NoSuchCommit(commit.clone()))?;
            let want = match branch {
                Some(branch) => named(&format!("refs/heads/{branch}"))?.target,
                None => id,
            };
            // A full name beside the commit is not looked up, only shown.
            let label = name.clone().or_else(|| branch.clone());
            let deep = branch.is_some();
            Ok(Pick { commit: id, tag: None, tag_name: None, label, want, rivals: Vec::new(), deep })
        }
        Reference { name: Some(name), .. } if name.starts_with('/') || name.ends_with('/') => {
            Err(Error::InvalidRef(name.clone()))
        }
        Reference { name: Some(name), .. } => match named(peeled(name)) {
            Ok(one) => Ok(at(one, name)),
            Err(_) => Err(Error::UnresolvedRef(name.clone())),
        },
        Reference { tag: Some(tag), .. } => Ok(at(named(&format!("refs/tags/{tag}"))?, tag)),
        Reference { semver: Some(range), .. } => newest(range, refs),
        Reference { branch, .. } => {
            let branch = default_branch(branch);
            Ok(at(named(&format!("refs/heads/{branch}"))?, branch))
        }
    }
}

fn newest(range: &str, refs: &[RemoteRef]) -> Result<Pick, Error> {
    let constraint = Constraint::parse(range).map_err(|error| Error::InvalidRange(error.to_string()))?;
    let mut matching: Vec<(Version, &RemoteRef)> = refs
        .iter()
        .filter_map(|one| {
            let version = Version::parse(one.name.strip_prefix("refs/tags/")?).ok()?;
            constraint.check(&version).then_some((version, one))
        })
        .collect();
    matching.sort_by(|(a, _), (b, _)| b.cmp(a));
    let Some((best, chosen)) = matching.first() else {
        return Err(Error::NoSemverMatch(range.to_owned()));
    };
    let rivals: Vec<RemoteRef> = matching
        .iter()
        .skip(1)
        .take_while(|(version, _)| version.cmp(best).is_eq())
        .map(|(_, one)| (*one).clone())
        .collect();
    let label = chosen.name.strip_prefix("refs/tags/").unwrap_or(&chosen.name).to_owned();
    Ok(Pick {
        commit: chosen.commit(),
        tag: chosen.peeled.map(|_| chosen.target),
        tag_name: Some(label.clone()),
        label: Some(label),
        want: chosen.target,
        rivals,
        deep: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(digit: char) -> Oid {
        Oid::parse(&digit.to_string().repeat(40)).unwrap()
    }

    fn refs() -> Vec<RemoteRef> {
        let one = |name: &str, target, peeled| RemoteRef { name: name.to_owned(), target, peeled };
        vec![
            one("refs/heads/main", oid('1'), None),
            one("refs/heads/feature/x", oid('2'), None),
            one("refs/tags/v1.0.0", oid('3'), Some(oid('4'))),
            one("refs/tags/v1.1.0", oid('5'), None),
            one("refs/tags/v2.0.0-rc.1", oid('6'), None),
            one("refs/tags/latest", oid('7'), None),
            one("refs/pull/420/head", oid('8'), None),
        ]
    }

    fn revision(reference: Reference) -> String {
        pick(&reference, &refs()).unwrap().revision()
    }

    #[test]
    fn a_branch_keeps_its_slashes() {
        let branch = |name: &str| Reference { branch: Some(name.to_owned()), ..Default::default() };
        assert_eq!(revision(branch("main")), format!("main@sha1:{}", oid('1')));
        assert_eq!(revision(branch("feature/x")), format!("feature/x@sha1:{}", oid('2')));
    }

    #[test]
    fn nothing_said_means_master() {
        let error = pick(&Reference::default(), &refs()).unwrap_err();
        assert_eq!(error.to_string(), "couldn't find remote ref \"refs/heads/master\"");
    }

    #[test]
    fn an_annotated_tag_is_peeled() {
        let picked =
            pick(&Reference { tag: Some("v1.0.0".to_owned()), ..Default::default() }, &refs()).unwrap();
        assert_eq!(picked.revision(), format!("v1.0.0@sha1:{}", oid('4')));
        assert_eq!(picked.tag, Some(oid('3')));
    }

    #[test]
    fn a_range_takes_the_newest_stable_tag() {
        let range = |text: &str| Reference { semver: Some(text.to_owned()), ..Default::default() };
        assert_eq!(revision(range("1.x")), format!("v1.1.0@sha1:{}", oid('5')));
        assert_eq!(revision(range("*")), format!("v1.1.0@sha1:{}", oid('5')));
        assert_eq!(revision(range(">=2.0.0-0")), format!("v2.0.0-rc.1@sha1:{}", oid('6')));
        assert!(pick(&range("5.x"), &refs()).is_err());
        assert!(pick(&range("not a range"), &refs()).is_err());
    }

    #[test]
    fn a_full_name_is_taken_as_it_is() {
        let name = |text: &str| Reference { name: Some(text.to_owned()), ..Default::default() };
        assert_eq!(revision(name("refs/pull/420/head")), format!("refs/pull/420/head@sha1:{}", oid('8')));
        assert_eq!(revision(name("refs/tags/v1.0.0^{}")), format!("refs/tags/v1.0.0^{{}}@sha1:{}", oid('4')));
        let error = |text: &str| pick(&name(text), &refs()).unwrap_err().to_string();
        assert_eq!(error("refs/gone"), "unable to resolve ref 'refs/gone' to a specific commit");
        assert!(error("/refs/heads/main").contains("cannot begin or end with a slash"));
    }

    #[test]
    fn a_commit_beats_everything() {
        let reference =
            Reference { commit: Some("9".repeat(40)), tag: Some("v1.0.0".to_owned()), ..Default::default() };
        assert_eq!(revision(reference), format!("sha1:{}", oid('9')));
        let named = Reference {
            commit: Some("9".repeat(40)),
            name: Some("refs/pull/1/head".to_owned()),
            ..Default::default()
        };
        assert_eq!(revision(named), format!("refs/pull/1/head@sha1:{}", oid('9')));
        let short = Reference { commit: Some("1234".to_owned()), ..Default::default() };
        assert!(pick(&short, &refs()).unwrap_err().to_string().contains("'1234': object not found"));
    }
}
