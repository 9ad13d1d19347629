//! Gitea: the status of a commit (pending while something is under way), a comment on a pull request.

use http::Method;
use serde_json::json;
use url::Url;

use super::git::{Comment, Repository, State, Status, list, text, token};
use super::github::is_written;
use super::{Error, Request, Settings, Step};
use crate::notification::event::Event;

const SERVICE: &str = "Gitea";

struct Api {
    repository: Repository,
    owner: String,
    name: String,
    token: String,
}

impl Api {
    fn of(settings: &Settings) -> Result<Self, Error> {
        let token = token(settings, "gitea token cannot be empty")?.to_owned();
        let repository = Repository::parse(settings)?;
        let [owner, name] = repository.parts::<2>()?.map(str::to_owned);
        Ok(Self { repository, owner, name, token })
    }

    fn at(&self, segments: &[&str]) -> Url {
        let start = ["api", "v1", "repos", self.owner.as_str(), self.name.as_str()];
        let all: Vec<&str> = start.into_iter().chain(segments.iter().copied()).collect();
        self.repository.at(&all)
    }

    fn sign(&self, request: Request) -> Result<Request, Error> {
        request.authorization(&format!("token {}", self.token))
    }
}

pub(super) fn commit_status(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    let api = Api::of(settings)?;
    let status = Status::now(event, settings)?;
    let state = match status.state {
        _ if event.reason == "Progressing" => "pending",
        State::Good => "success",
        State::Bad => "failure",
    };
    let mut url = api.at(&["commits", &status.commit, "statuses"]);
    url.set_query(Some("limit=50"));
    let create =
        json!({ "state": state, "target_url": "", "description": status.description, "context": status.id });
    let request = api.sign(Request::post(api.at(&["statuses", &status.commit]), &create))?;
    Ok(vec![Step::then(api.sign(Request::get(url))?, move |answer| {
        let statuses = list(SERVICE, answer)?;
        Ok(if is_written(&statuses, &create, "status") { Vec::new() } else { vec![Step::only(request)] })
    })])
}

pub(super) fn comment(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    let comment = Comment::of(event, settings, "flux-pr-comment-key")?;
    let api = Api::of(settings)?;
    let who = api.sign(Request::get(api.repository.at(&["api", "v1", "user"])))?;
    Ok(vec![Step::then(who, move |answer| {
        let login = text(SERVICE, answer, "login")?;
        Ok(vec![find(api, comment, login)?])
    })])
}

fn find(api: Api, comment: Comment, login: String) -> Result<Step, Error> {
    let number = comment.number.to_string();
    let mut url = api.at(&["issues", &number, "comments"]);
    url.set_query(Some("limit=100&page=1"));
    Ok(Step::then(api.sign(Request::get(url))?, move |answer| {
        let comments = list(SERVICE, answer)?;
        let ours = comment.find(&comments, |known| known["user"]["login"] == login.as_str());
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
    use serde_json::Value;

    fn next(step: Step, answer: &Value) -> Vec<Step> {
        step.then.unwrap()(answer.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_status_is_written_unless_it_stands_there() {
        let settings = with_token(ProviderType::Gitea, "https://gitea.example.com/org/repo");
        let look = |event: &Event| plan(event, &settings).unwrap().remove(0);
        let base = "https://gitea.example.com/api/v1/repos/org/repo";
        assert_eq!(
            look(&at_commit()).request.line(),
            format!("GET {base}/commits/{COMMIT}/statuses?limit=50")
        );
        assert_eq!(look(&at_commit()).request.value("authorization"), "token t");
        let written = next(look(&at_commit()), &json!([])).remove(0).request;
        assert_eq!(written.line(), format!("POST {base}/statuses/{COMMIT}"));
        let expected = json!({ "state": "failure", "target_url": "", "description": "reconciliation failed", "context": "kustomization/apps/0c9c2e41" });
        assert_eq!(written.body_json(), expected);
        let known = json!([{ "context": "kustomization/apps/0c9c2e41", "status": "failure", "description": "reconciliation failed" }]);
        assert!(next(look(&at_commit()), &known).is_empty());
        let progressing = Event { reason: "Progressing".to_owned(), ..at_commit() };
        assert_eq!(next(look(&progressing), &json!([])).remove(0).request.body_json()["state"], "pending");
        let mut settings = with_token(ProviderType::Gitea, "https://gitea.example.com/org/repo");
        settings.token = String::new().into();
        assert_eq!(problem(&at_commit(), &settings), "gitea token cannot be empty");
    }

    #[test]
    fn one_comment_is_kept_up_to_date() {
        let settings =
            with_token(ProviderType::GiteaPullRequestComment, "https://gitea.example.com/org/repo");
        let marker = "<!-- flux-pr-comment-key:uid/GitRepository/gitops-system/webapp -->";
        let look = || {
            let who = plan(&at_commit(), &settings).unwrap().remove(0);
            assert_eq!(who.request.line(), "GET https://gitea.example.com/api/v1/user");
            next(who, &json!({ "login": "bot" })).remove(0)
        };
        let base = "https://gitea.example.com/api/v1/repos/org/repo/issues";
        assert_eq!(look().request.line(), format!("GET {base}/7/comments?limit=100&page=1"));
        assert_eq!(next(look(), &json!([])).remove(0).request.line(), format!("POST {base}/7/comments"));
        let again = next(look(), &json!([{ "id": 2, "user": { "login": "bot" }, "body": marker }])).remove(0);
        assert_eq!(again.request.line(), format!("PATCH {base}/comments/2"));
    }
}
