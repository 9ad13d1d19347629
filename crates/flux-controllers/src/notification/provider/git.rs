//! What the Git hosts have in common: which repository an address means, which commit an event is about, and how its state
//! and its comment are put.

use flux_api::names::EventMetadata;
use serde_json::Value;
use url::Url;

use super::markdown;
use super::{Error, Settings};
use crate::notification::event::Event;

/// A repository at a host.
#[derive(Debug)]
pub(super) struct Repository {
    /// `https://host[:port]/`.
    pub host: Url,
    /// Its path there, without slashes around it and without `.git`.
    pub id: String,
}

impl Repository {
    /// `https://host/owner/repo.git`, `ssh://git@host/owner/repo` or `git@host:owner/repo`.
    pub fn parse(settings: &Settings) -> Result<Self, Error> {
        const SERVICE: &str = "Git repository";
        let wrong = |problem: String| Error::Address { service: SERVICE, problem };
        let address = &settings.address;
        let scp = match address.split_once(':') {
            Some((host, path)) if !address.contains("://") && !host.contains('/') => {
                Some(format!("ssh://{host}/{}", path.trim_start_matches('/')))
            }
            _ => None,
        };
        let url = Url::parse(scp.as_deref().unwrap_or(address)).map_err(|error| wrong(error.to_string()))?;
        let scheme = match url.scheme() {
            "http" => "http",
            "https" | "ssh" => "https",
            _ => return Err(wrong("it must begin with http://, https:// or ssh://".to_owned())),
        };
        let host = url
            .host_str()
            .filter(|host| !host.is_empty())
            .ok_or_else(|| wrong("it has no host".to_owned()))?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host =
            Url::parse(&format!("{scheme}://{host}{port}/")).map_err(|error| wrong(error.to_string()))?;
        let path = url.path().trim_start_matches('/');
        let id = path.strip_suffix(".git").unwrap_or(path).to_owned();
        Ok(Self { host, id })
    }

    /// The parts of the id, which must be this many.
    pub fn parts<const N: usize>(&self) -> Result<[&str; N], Error> {
        let parts: Vec<&str> = self.id.split('/').collect();
        let wrong =
            || Error::Address { service: "Git repository", problem: "invalid repository id".to_owned() };
        let parts: [&str; N] = parts.try_into().map_err(|_| wrong())?;
        if parts.iter().any(|part| part.is_empty()) { Err(wrong()) } else { Ok(parts) }
    }

    /// An address below the host, each segment escaped.
    pub fn at(&self, segments: &[&str]) -> Url {
        below(&self.host, segments)
    }
}

pub(super) fn below(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    url.path_segments_mut().expect("an http address has a path").pop_if_empty().extend(segments);
    url
}

/// The token, or the password where there is none.
pub(super) fn token<'a>(settings: &'a Settings, missing: &'static str) -> Result<&'a str, Error> {
    let (token, password) = (settings.token.expose().as_str(), settings.password.expose().as_str());
    match (token, password) {
        ("", "") => Err(Error::Missing(missing)),
        ("", password) => Ok(password),
        (token, _) => Ok(token),
    }
}

/// How it stands with a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Good,
    Bad,
}

/// What is written on a commit.
pub(super) struct Status {
    pub commit: String,
    pub state: State,
    pub id: String,
    /// `kustomization/apps`
    pub name: String,
    /// `reconciliation succeeded`
    pub description: String,
}

impl Status {
    /// `None` while it is not decided yet.
    pub fn of(event: &Event, settings: &Settings) -> Result<Option<Self>, Error> {
        if event.reason == "Progressing" { Ok(None) } else { Self::now(event, settings).map(Some) }
    }

    pub fn now(event: &Event, settings: &Settings) -> Result<Self, Error> {
        let commit = commit(event)?;
        let state = match event.severity.as_str() {
            "info" => State::Good,
            "error" => State::Bad,
            _ => return Err(field("severity", "only info and error say how a commit is".to_owned())),
        };
        if settings.commit_status.is_empty() {
            return Err(Error::Missing("commit status cannot be empty"));
        }
        let (name, description) = event.name_and_description();
        Ok(Self { commit, state, id: settings.commit_status.clone(), name, description })
    }
}

fn field(field: &'static str, problem: String) -> Error {
    Error::Field { field, problem }
}

/// The commit an event is about: what its object was annotated with, else where its revision came from, else its revision.
fn commit(event: &Event) -> Result<String, Error> {
    let keys = [EventMetadata::Commit, EventMetadata::OriginRevision, EventMetadata::Revision];
    let revision =
        keys.iter().find_map(|key| event.metadata.get(key.as_str()).filter(|value| !value.is_empty()));
    let revision = revision.ok_or(Error::Missing("missing revision metadata"))?;
    hash(revision)
        .ok_or_else(|| field("revision", format!("failed to extract commit hash from '{revision}' revision")))
}

/// `main@sha1:…`, `sha1:…`, and as older versions wrote it `main/…` or the bare hash.
fn hash(revision: &str) -> Option<String> {
    let last = revision.rsplit('@').next().unwrap_or(revision);
    let is_hex =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hash = match last.split_once(':') {
        Some(("sha1", hash)) => Some(hash).filter(|hash| is_hex(hash, 40)),
        Some(("sha256", hash)) => Some(hash).filter(|hash| is_hex(hash, 64)),
        Some(_) => None,
        None => Some(revision.rsplit('/').next().unwrap_or(revision)).filter(|hash| is_hex(hash, 40)),
    };
    hash.map(str::to_owned)
}

/// A comment that is written once and then kept up to date: it is found by a marker.
pub(super) struct Comment {
    /// The number of the pull or merge request.
    pub number: u64,
    pub marker: String,
    pub body: String,
}

impl Comment {
    pub fn of(event: &Event, settings: &Settings, prefix: &str) -> Result<Self, Error> {
        if settings.uid.is_empty() {
            return Err(Error::Missing("provider UID cannot be empty"));
        }
        let key = EventMetadata::ChangeRequest.as_str();
        let number =
            event.metadata.get(key).ok_or(Error::Missing("missing \"change_request\" metadata key"))?;
        let number = number.parse().map_err(|_| {
            field(
                "change_request metadata",
                format!("{:?} is no number", number.chars().take(64).collect::<String>()),
            )
        })?;
        let marker = format!("<!-- {prefix}:{}/{} -->", settings.uid, event.object());
        let body = format!("{marker}\n\n{}", markdown::text(event));
        Ok(Self { number, marker, body })
    }
}

impl Comment {
    /// The one we wrote before, among those of a change request; who wrote a comment is for the service to say.
    pub(super) fn find(&self, comments: &[Value], is_author: impl Fn(&Value) -> bool) -> Option<u64> {
        let is_ours = |known: &&Value| {
            is_author(known) && known["body"].as_str().is_some_and(|body| body.contains(&self.marker))
        };
        comments.iter().find(is_ours).and_then(|known| known["id"].as_u64())
    }
}

/// The list in an answer.
pub(super) fn list(service: &'static str, answer: &[u8]) -> Result<Vec<Value>, Error> {
    if answer.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(answer).map_err(|error| Error::Answer { service, problem: error.to_string() })
}

/// A text in an answer.
pub(super) fn text(service: &'static str, answer: &[u8], field: &str) -> Result<String, Error> {
    let value: serde_json::Value = serde_json::from_slice(answer)
        .map_err(|error| Error::Answer { service, problem: error.to_string() })?;
    let found = value[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    found.ok_or_else(|| Error::Answer { service, problem: format!("there is no {field}") })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::notification::provider::tests::{failed, settings};
    use flux_api::notification::ProviderType;

    pub(in crate::notification::provider) const COMMIT: &str = "7bf2bf1e7cb1dc1ff4a6b2ac2c7f1d1b4c1b2b3a";

    /// A failure at a commit, in change request 7.
    pub(in crate::notification::provider) fn at_commit() -> Event {
        let pairs = [("revision", format!("main@sha1:{COMMIT}")), ("change_request", "7".to_owned())];
        Event {
            metadata: pairs.map(|(key, value)| (key.to_owned(), value)).into(),
            reason: "ReconciliationFailed".to_owned(),
            ..failed()
        }
    }

    /// Settings with a token and the id of a status.
    pub(in crate::notification::provider) fn with_token(
        provider_type: ProviderType,
        address: &str,
    ) -> Settings {
        let mut settings = settings(provider_type, address);
        settings.token = "t".to_owned().into();
        settings.commit_status = "kustomization/apps/0c9c2e41".to_owned();
        settings.uid = "uid".to_owned();
        settings
    }

    fn parsed(address: &str) -> String {
        match Repository::parse(&settings(ProviderType::GitHub, address)) {
            Ok(found) => format!("{} {}", found.host, found.id),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn addresses_as_git_takes_them() {
        assert_eq!(parsed("https://github.com/org/repo.git"), "https://github.com/ org/repo");
        assert_eq!(
            parsed("ssh://git@gitlab.example.com:2222/a/b/c"),
            "https://gitlab.example.com:2222/ a/b/c"
        );
        assert_eq!(parsed("git@github.com:org/repo.git"), "https://github.com/ org/repo");
        assert_eq!(parsed("http://user:pw@host:8080/o/r"), "http://host:8080/ o/r");
        for wrong in ["", "canary", "ftp://host/canary", "file:///canary"] {
            let text = parsed(wrong);
            assert!(text.starts_with("invalid Git repository address") && !text.contains("canary"), "{text}");
        }
        let three = Repository::parse(&settings(ProviderType::GitHub, "https://h/a/b/c")).unwrap();
        assert!(three.parts::<2>().is_err() && three.parts::<3>().is_ok());
        assert!(
            Repository::parse(&settings(ProviderType::GitHub, "https://h/a//c"))
                .unwrap()
                .parts::<3>()
                .is_err()
        );
    }

    #[test]
    fn a_commit_is_found_in_the_revision() {
        let bare = COMMIT;
        for good in [
            format!("main@sha1:{bare}"),
            format!("sha1:{bare}"),
            format!("feature/x/{bare}"),
            bare.to_owned(),
            format!("v1@x@sha1:{bare}"),
        ] {
            assert_eq!(hash(&good).as_deref(), Some(bare), "{good}");
        }
        assert_eq!(hash(&format!("sha256:{}", "a".repeat(64))).map(|hash| hash.len()), Some(64));
        for bad in ["", "main", "1.2.3", "sha1:xyz", "sha512:00", "main@sha1:../../evil"] {
            assert_eq!(hash(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_commit_of_the_object_comes_first() {
        let mut event = at_commit();
        event.metadata.insert("originRevision".to_owned(), format!("sha1:{}", "b".repeat(40)));
        assert_eq!(commit(&event).unwrap(), "b".repeat(40));
        event.metadata.insert("commit".to_owned(), format!("sha1:{}", "c".repeat(40)));
        assert_eq!(commit(&event).unwrap(), "c".repeat(40));
        event.metadata.clear();
        assert_eq!(commit(&event).unwrap_err().to_string(), "missing revision metadata");
    }

    #[test]
    fn a_comment_needs_a_number() {
        let settings = with_token(ProviderType::GitHubPullRequestComment, "https://github.com/o/r");
        let comment = Comment::of(&at_commit(), &settings, "flux-pr-comment-key").unwrap();
        assert!(comment.body.starts_with(
            "<!-- flux-pr-comment-key:uid/GitRepository/gitops-system/webapp -->\n\n## Flux Status\n"
        ));
        let mut event = at_commit();
        event.metadata.insert("change_request".to_owned(), "7/../8".to_owned());
        assert!(Comment::of(&event, &settings, "x").is_err());
    }
}
