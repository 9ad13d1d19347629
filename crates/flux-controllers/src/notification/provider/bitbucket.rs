//! Bitbucket, in the cloud and as a server: the status of a commit. Its key has 40 letters at most, so it is a hash.

use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use url::Url;

use super::git::{Repository, State, Status, below};
use super::{Accept, Error, Request, Settings, Step};
use crate::notification::event::Event;

const SERVICE: &str = "Bitbucket";

/// The token is `user:password`.
pub(super) fn cloud(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    let token = settings.required_token("bitbucket token cannot be empty")?;
    let wrong = Error::Missing("invalid token format, expected to be <user>:<password>");
    let parts: Vec<&str> = token.split(':').collect();
    let [user, password] = parts[..] else { return Err(wrong) };
    let repository = Repository::parse(settings)?;
    let [owner, name] = repository.parts::<2>()?;
    let Some(status) = Status::of(event, settings)? else { return Ok(Vec::new()) };
    let base = Url::parse("https://api.bitbucket.org/2.0/").expect("it is a URL");
    let builds = below(&base, &["repositories", owner, name, "commit", &status.commit, "statuses", "build"]);
    let key = key(&status.id);
    let mut look = Request::get(below(&builds, &[&key])).basic(user, password)?;
    look.accept = Accept::SuccessOrMissing;
    let create = json!({
        "state": state(status.state),
        "key": key,
        "name": status.name,
        "description": status.description,
        "url": "https://bitbucket.org",
    });
    let request = Request::post(builds, &create).basic(user, password)?;
    Ok(vec![unless_written(look, request, create, &["state", "description"])])
}

/// The address is that of a clone over HTTP: `https://host/context/scm/project/repo.git`.
pub(super) fn server(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    let url = settings.url("Bitbucket server")?;
    let wrong = |problem: &str| Error::Address { service: "Bitbucket server", problem: problem.to_owned() };
    let path = url.path().strip_suffix(".git").unwrap_or(url.path());
    let (context, id) = path.rsplit_once("/scm/").ok_or_else(|| wrong("it is no http(s) git clone url"))?;
    let (project, name) = id.split_once('/').ok_or_else(|| wrong("invalid repository id"))?;
    if project.is_empty() || name.is_empty() || name.contains('/') {
        return Err(wrong("invalid repository id"));
    }
    let (token, password) = (settings.token.expose().as_str(), settings.password.expose().as_str());
    if token.is_empty() && (settings.username.is_empty() || password.is_empty()) {
        return Err(Error::Missing(
            "invalid credentials, expected to be one of username/password or API Token",
        ));
    }
    let Some(status) = Status::of(event, settings)? else { return Ok(Vec::new()) };
    let mut base = settings.origin("Bitbucket server")?;
    let _ = base.set_username("");
    let _ = base.set_password(None);
    let context: Vec<&str> = context.split('/').filter(|part| !part.is_empty()).collect();
    let rest =
        ["rest", "api", "latest", "projects", project, "repos", name, "commits", &status.commit, "builds"];
    let builds = below(&base, &[&context[..], &rest[..]].concat());
    let sign = |request: Request| {
        let request = match token {
            "" => request.basic(&settings.username, password)?,
            token => request.bearer(token)?,
        };
        request.header("x-atlassian-token", "no-check")?.header("x-requested-with", "XMLHttpRequest")
    };
    let key = key(&status.id);
    let mut url = builds.clone();
    url.query_pairs_mut().append_pair("key", &key);
    let mut look = sign(Request::get(url))?;
    look.accept = Accept::SuccessOrMissing;
    let create = json!({
        "description": status.description,
        "key": key,
        // What a browser shows is the name, so it says how it went.
        "name": format!("{} [{}]", status.name, status.description),
        "state": state(status.state),
        "url": settings.address,
    });
    let request = sign(Request::post(builds, &create))?;
    Ok(vec![unless_written(look, request, create, &["key", "state", "description", "name"])])
}

fn state(state: State) -> &'static str {
    match state {
        State::Good => "SUCCESSFUL",
        State::Bad => "FAILED",
    }
}

fn key(id: &str) -> String {
    Sha1::digest(id.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes unless what is there agrees in these fields.
fn unless_written(look: Request, request: Request, wanted: Value, fields: &'static [&'static str]) -> Step {
    Step::then(look, move |answer| {
        if answer.is_empty() {
            return Ok(vec![Step::only(request)]);
        }
        let known: Value = serde_json::from_slice(answer)
            .map_err(|error| Error::Answer { service: SERVICE, problem: error.to_string() })?;
        let same = fields.iter().all(|field| known[field] == wanted[field]);
        Ok(if same { Vec::new() } else { vec![Step::only(request)] })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::provider::git::tests::{COMMIT, at_commit, with_token};
    use crate::notification::provider::plan;
    use crate::notification::provider::tests::problem;
    use flux_api::notification::ProviderType;

    fn next(step: Step, answer: &[u8]) -> Vec<Step> {
        step.then.unwrap()(answer).unwrap()
    }

    #[test]
    fn the_cloud_gets_a_build_status() {
        let mut settings = with_token(ProviderType::Bitbucket, "https://bitbucket.org/org/repo");
        assert_eq!(
            problem(&at_commit(), &settings),
            "invalid token format, expected to be <user>:<password>"
        );
        settings.token = "user:pw".to_owned().into();
        let look = || plan(&at_commit(), &settings).unwrap().remove(0);
        let base =
            format!("https://api.bitbucket.org/2.0/repositories/org/repo/commit/{COMMIT}/statuses/build");
        let key = key("kustomization/apps/0c9c2e41");
        assert_eq!(
            (look().request.line(), look().request.value("authorization")),
            (format!("GET {base}/{key}"), "Basic dXNlcjpwdw==")
        );
        let written = next(look(), b"").remove(0).request;
        assert_eq!(written.line(), format!("POST {base}"));
        let expected = json!({ "state": "FAILED", "key": key, "name": "gitrepository/webapp", "description": "reconciliation failed", "url": "https://bitbucket.org" });
        assert_eq!(written.body_json(), expected);
        assert!(next(look(), expected.to_string().as_bytes()).is_empty());
        assert_eq!(next(look(), br#"{"state":"SUCCESSFUL"}"#).len(), 1);
    }

    #[test]
    fn a_server_gets_one_below_its_context() {
        let address = "https://bb.example.com:7990/ctx/scm/proj/repo.git";
        let mut settings = with_token(ProviderType::BitbucketServer, address);
        let look = || plan(&at_commit(), &settings).unwrap().remove(0);
        let base = format!(
            "https://bb.example.com:7990/ctx/rest/api/latest/projects/proj/repos/repo/commits/{COMMIT}/builds"
        );
        let key = key("kustomization/apps/0c9c2e41");
        assert_eq!(look().request.line(), format!("GET {base}?key={key}"));
        assert_eq!(
            (look().request.value("authorization"), look().request.value("x-atlassian-token")),
            ("Bearer t", "no-check")
        );
        let written = next(look(), b"").remove(0).request;
        assert_eq!(written.line(), format!("POST {base}"));
        assert_eq!(written.body_json()["name"], "gitrepository/webapp [reconciliation failed]");
        assert_eq!(
            (&written.body_json()["url"], &written.body_json()["state"]),
            (&json!(address), &json!("FAILED"))
        );
        assert!(next(look(), &written.body).is_empty());
        settings.token = String::new().into();
        assert!(problem(&at_commit(), &settings).starts_with("invalid credentials"));
        (settings.username, settings.password) = ("u".to_owned(), "p".to_owned().into());
        assert_eq!(plan(&at_commit(), &settings).unwrap()[0].request.value("authorization"), "Basic dTpw");
        for wrong in ["https://h/proj/repo", "https://h/scm/repo", "https://h/scm/a/b/c", "ssh://h/scm/a/b"] {
            settings.address = wrong.to_owned();
            assert!(
                problem(&at_commit(), &settings).starts_with("invalid Bitbucket server address"),
                "{wrong}"
            );
        }
    }
}
