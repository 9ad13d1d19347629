//! GitHub: the status of a commit, a comment on a pull request, a repository dispatch.

use http::Method;
use serde_json::{Value, json};
use url::Url;

use super::git::{Comment, Repository, State, Status, below, list, text, token};
use super::{Error, Request, Settings, Step};
use crate::notification::event::Event;

const SERVICE: &str = "GitHub";
const NO_TOKEN: &str = "github token or github app details must be specified";

/// A repository with the way to its API.
struct Api {
    base: Url,
    owner: String,
    repository: String,
    token: String,
}

impl Api {
    fn of(settings: &Settings) -> Result<Self, Error> {
        let token = token(settings, NO_TOKEN)?.to_owned();
        let repository = Repository::parse(settings)?;
        let [owner, name] = repository.parts::<2>()?;
        let base = match repository.host.host_str() {
            Some("github.com") => Url::parse("https://api.github.com/").expect("it is a URL"),
            _ => repository.at(&["api", "v3"]),
        };
        Ok(Self { base, owner: owner.to_owned(), repository: name.to_owned(), token })
    }

    fn at(&self, segments: &[&str]) -> Url {
        let all: Vec<&str> =
            ["repos", &self.owner, &self.repository].into_iter().chain(segments.iter().copied()).collect();
        below(&self.base, &all)
    }

    fn sign(&self, request: Request) -> Result<Request, Error> {
        request.header("Accept", "application/vnd.github.v3+json")?.bearer(&self.token)
    }
}

pub(super) fn commit_status(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    let api = Api::of(settings)?;
    let Some(status) = Status::of(event, settings)? else { return Ok(Vec::new()) };
    let mut url = api.at(&["commits", &status.commit, "statuses"]);
    url.set_query(Some("per_page=50"));
    let state = match status.state {
        State::Good => "success",
        State::Bad => "failure",
    };
    let create = json!({ "state": state, "context": status.id, "description": status.description });
    let request = api.sign(Request::post(api.at(&["statuses", &status.commit]), &create))?;
    Ok(vec![Step::then(api.sign(Request::get(url))?, move |answer| {
        let statuses = list(SERVICE, answer)?;
        Ok(if is_written(&statuses, &create, "state") { Vec::new() } else { vec![Step::only(request)] })
    })])
}

/// Whether the newest status with the same context says the same.
pub(super) fn is_written(statuses: &[Value], wanted: &Value, state: &str) -> bool {
    let newest = statuses.iter().find(|known| {
        known["context"] == wanted["context"] && known[state].is_string() && known["description"].is_string()
    });
    newest
        .is_some_and(|known| known[state] == wanted["state"] && known["description"] == wanted["description"])
}

pub(super) fn dispatch(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    let api = Api::of(settings)?;
    let object = &event.involved_object;
    let kind = format!("{}/{}.{}", object.kind, object.name, object.namespace);
    let body = json!({ "event_type": kind, "client_payload": event });
    Ok(vec![Step::only(api.sign(Request::post(api.at(&["dispatches"]), &body))?)])
}

/// Looks up who we are, then our comment, then writes it. An App cannot ask who it is; its comments are a bot's.
pub(super) fn comment(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    let comment = Comment::of(event, settings, "flux-pr-comment-key")?;
    let api = Api::of(settings)?;
    if settings.data.contains_key("githubAppID") && !settings.data.contains_key("token") {
        return Ok(vec![find(api, comment, None)?]);
    }
    let who = api.sign(Request::get(below(&api.base, &["user"])))?;
    Ok(vec![Step::then(who, move |answer| {
        let login = text(SERVICE, answer, "login")?;
        Ok(vec![find(api, comment, Some(login))?])
    })])
}

fn find(api: Api, comment: Comment, login: Option<String>) -> Result<Step, Error> {
    let number = comment.number.to_string();
    let mut url = api.at(&["issues", &number, "comments"]);
    url.set_query(Some("sort=created&direction=asc&per_page=100"));
    Ok(Step::then(api.sign(Request::get(url))?, move |answer| {
        let comments = list(SERVICE, answer)?;
        let ours = comment.find(&comments, |known| {
            let by = known["user"]["login"].as_str().unwrap_or_default();
            login.as_deref().map_or_else(|| by.ends_with("[bot]"), |login| by == login)
        });
        let body = json!({ "body": comment.body });
        let request = match ours {
            Some(id) => Request::json(Method::PATCH, api.at(&["issues", "comments", &id.to_string()]), &body),
            None => Request::post(api.at(&["issues", &number, "comments"]), &body),
        };
        Ok(vec![Step::only(api.sign(request)?)])
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::provider::git::tests::{COMMIT, at_commit, with_token};
    use crate::notification::provider::plan;
    use crate::notification::provider::tests::problem;
    use flux_api::notification::ProviderType;

    fn first(event: &Event, settings: &Settings) -> Step {
        plan(event, settings).unwrap().remove(0)
    }

    fn next(step: Step, answer: &Value) -> Vec<Step> {
        step.then.unwrap()(answer.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_status_is_written_unless_it_stands_there() {
        let settings = with_token(ProviderType::GitHub, "https://github.com/org/repo");
        let step = first(&at_commit(), &settings);
        assert_eq!(
            step.request.line(),
            format!("GET https://api.github.com/repos/org/repo/commits/{COMMIT}/statuses?per_page=50")
        );
        assert_eq!(step.request.value("authorization"), "Bearer t");
        let written = next(
            step,
            &json!([{ "context": "other", "state": "failure", "description": "reconciliation failed" }]),
        )
        .remove(0);
        assert_eq!(
            written.request.line(),
            format!("POST https://api.github.com/repos/org/repo/statuses/{COMMIT}")
        );
        let expected = json!({ "state": "failure", "context": "kustomization/apps/0c9c2e41", "description": "reconciliation failed" });
        assert_eq!(written.request.body_json(), expected);
        let newest = |state: &str| json!([{ "context": "kustomization/apps/0c9c2e41", "state": state, "description": "reconciliation failed" }, expected]);
        assert!(next(first(&at_commit(), &settings), &newest("failure")).is_empty());
        assert_eq!(
            next(first(&at_commit(), &settings), &newest("success")).len(),
            1,
            "only the newest counts"
        );
        let progressing = Event { reason: "Progressing".to_owned(), ..at_commit() };
        assert!(plan(&progressing, &settings).unwrap().is_empty());
    }

    #[test]
    fn what_is_missing_is_told() {
        let mut settings = with_token(ProviderType::GitHub, "https://github.com/org");
        assert!(problem(&at_commit(), &settings).contains("invalid repository id"));
        settings.address = "https://ghe.example.com/org/repo".to_owned();
        assert!(
            first(&at_commit(), &settings)
                .request
                .line()
                .starts_with("GET https://ghe.example.com/api/v3/repos/org/repo/commits/")
        );
        settings.token = String::new().into();
        assert_eq!(problem(&at_commit(), &settings), NO_TOKEN);
        settings.password = "p".to_owned().into();
        assert_eq!(first(&at_commit(), &settings).request.value("authorization"), "Bearer p");
        let bad = step_error(first(&at_commit(), &settings), b"<html>");
        assert!(bad.starts_with("GitHub answered with something that is not understood"), "{bad}");
    }

    fn step_error(step: Step, answer: &[u8]) -> String {
        step.then.unwrap()(answer).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_dispatch_carries_the_event() {
        let step =
            first(&at_commit(), &with_token(ProviderType::GitHubDispatch, "https://github.com/org/repo"));
        assert_eq!(step.request.line(), "POST https://api.github.com/repos/org/repo/dispatches");
        let body = step.request.body_json();
        assert_eq!(body["event_type"], "GitRepository/webapp.gitops-system");
        assert_eq!(body["client_payload"]["message"], "message");
    }

    #[test]
    fn one_comment_is_kept_up_to_date() {
        let settings = with_token(ProviderType::GitHubPullRequestComment, "https://github.com/org/repo");
        let marker = "<!-- flux-pr-comment-key:uid/GitRepository/gitops-system/webapp -->";
        let look = || {
            let who = first(&at_commit(), &settings);
            assert_eq!(who.request.line(), "GET https://api.github.com/user");
            next(who, &json!({ "login": "bot" })).remove(0)
        };
        assert_eq!(
            look().request.line(),
            "GET https://api.github.com/repos/org/repo/issues/7/comments?sort=created&direction=asc&per_page=100"
        );
        let written =
            next(look(), &json!([{ "id": 1, "user": { "login": "eve" }, "body": marker }])).remove(0);
        assert_eq!(written.request.line(), "POST https://api.github.com/repos/org/repo/issues/7/comments");
        assert!(written.request.body_json()["body"].as_str().unwrap().starts_with(marker));
        let again = next(look(), &json!([{ "id": 2, "user": { "login": "bot" }, "body": marker }])).remove(0);
        assert_eq!(again.request.line(), "PATCH https://api.github.com/repos/org/repo/issues/comments/2");
        let mut app = with_token(ProviderType::GitHubPullRequestComment, "https://github.com/org/repo");
        app.data.insert("githubAppID".to_owned(), "1".to_owned().into());
        let again = next(
            first(&at_commit(), &app),
            &json!([{ "id": 3, "user": { "login": "flux[bot]" }, "body": marker }]),
        )
        .remove(0);
        assert_eq!(again.request.line(), "PATCH https://api.github.com/repos/org/repo/issues/comments/3");
    }
}
