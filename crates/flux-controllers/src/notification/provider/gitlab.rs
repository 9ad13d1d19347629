//! GitLab: the status of a commit, a note on a merge request.

use http::Method;
use serde_json::{Value, json};
use url::Url;

use super::git::{Comment, Repository, State, Status, list, text, token};
use super::{Error, Request, Settings, Step};
use crate::notification::event::Event;

const SERVICE: &str = "GitLab";

struct Api {
    repository: Repository,
    token: String,
}

impl Api {
    fn of(settings: &Settings) -> Result<Self, Error> {
        let token = token(settings, "gitlab token cannot be empty")?.to_owned();
        Ok(Self { repository: Repository::parse(settings)?, token })
    }

    /// Below the project, whose whole path is one segment.
    fn at(&self, segments: &[&str]) -> Url {
        let start = ["api", "v4", "projects", self.repository.id.as_str()];
        let all: Vec<&str> = start.into_iter().chain(segments.iter().copied()).collect();
        self.repository.at(&all)
    }

    fn sign(&self, request: Request) -> Result<Request, Error> {
        request.header("PRIVATE-TOKEN", &self.token)
    }
}

pub(super) fn commit_status(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    let api = Api::of(settings)?;
    let Some(status) = Status::of(event, settings)? else { return Ok(Vec::new()) };
    let mut url = api.at(&["repository", "commits", &status.commit, "statuses"]);
    url.query_pairs_mut().append_pair("name", &status.id);
    let state = match status.state {
        State::Good => "success",
        State::Bad => "failed",
    };
    let create = json!({ "state": state, "name": status.id, "description": status.description });
    let request = api.sign(Request::post(api.at(&["statuses", &status.commit]), &create))?;
    Ok(vec![Step::then(api.sign(Request::get(url))?, move |answer| {
        let is_same = |known: &Value| {
            known["sha"] == status.commit.as_str()
                && known["status"] == state
                && known["name"] == status.id.as_str()
                && known["description"] == status.description.as_str()
        };
        Ok(if list(SERVICE, answer)?.iter().any(is_same) { Vec::new() } else { vec![Step::only(request)] })
    })])
}

pub(super) fn comment(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    let comment = Comment::of(event, settings, "flux-mr-comment-key")?;
    let api = Api::of(settings)?;
    let who = api.sign(Request::get(api.repository.at(&["api", "v4", "user"])))?;
    Ok(vec![Step::then(who, move |answer| {
        let username = text(SERVICE, answer, "username")?;
        Ok(vec![find(api, comment, username)?])
    })])
}

fn find(api: Api, comment: Comment, username: String) -> Result<Step, Error> {
    let number = comment.number.to_string();
    let mut url = api.at(&["merge_requests", &number, "notes"]);
    url.set_query(Some("sort=asc&order_by=created_at&per_page=100"));
    Ok(Step::then(api.sign(Request::get(url))?, move |answer| {
        let notes = list(SERVICE, answer)?;
        let ours = comment.find(&notes, |known| known["author"]["username"] == username.as_str());
        let body = json!({ "body": comment.body });
        let request = match ours {
            Some(id) => {
                let url = api.at(&["merge_requests", &number, "notes", &id.to_string()]);
                Request::json(Method::PUT, url, &body)
            }
            None => Request::post(api.at(&["merge_requests", &number, "notes"]), &body),
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

    fn next(step: Step, answer: &Value) -> Vec<Step> {
        step.then.unwrap()(answer.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_status_is_written_unless_it_stands_there() {
        let settings = with_token(ProviderType::GitLab, "https://gitlab.com/group/sub/repo.git");
        let look = || plan(&at_commit(), &settings).unwrap().remove(0);
        let project = "https://gitlab.com/api/v4/projects/group%2Fsub%2Frepo";
        let line = format!(
            "GET {project}/repository/commits/{COMMIT}/statuses?name=kustomization%2Fapps%2F0c9c2e41"
        );
        assert_eq!((look().request.line(), look().request.value("private-token")), (line, "t"));
        let written = next(look(), &json!([])).remove(0).request;
        assert_eq!(written.line(), format!("POST {project}/statuses/{COMMIT}"));
        let expected = json!({ "state": "failed", "name": "kustomization/apps/0c9c2e41", "description": "reconciliation failed" });
        assert_eq!(written.body_json(), expected);
        let known = json!([{ "sha": COMMIT, "status": "failed", "name": "kustomization/apps/0c9c2e41", "description": "reconciliation failed" }]);
        assert!(next(look(), &known).is_empty());
        let mut settings = with_token(ProviderType::GitLab, "https://gitlab.com/o/r");
        settings.token = String::new().into();
        assert_eq!(problem(&at_commit(), &settings), "gitlab token cannot be empty");
    }

    #[test]
    fn one_note_is_kept_up_to_date() {
        let settings = with_token(ProviderType::GitLabMergeRequestComment, "git@gitlab.com:group/repo.git");
        let marker = "<!-- flux-mr-comment-key:uid/GitRepository/gitops-system/webapp -->";
        let look = || {
            let who = plan(&at_commit(), &settings).unwrap().remove(0);
            assert_eq!(who.request.line(), "GET https://gitlab.com/api/v4/user");
            next(who, &json!({ "username": "bot" })).remove(0)
        };
        let notes = "https://gitlab.com/api/v4/projects/group%2Frepo/merge_requests/7/notes";
        assert_eq!(look().request.line(), format!("GET {notes}?sort=asc&order_by=created_at&per_page=100"));
        let written =
            next(look(), &json!([{ "id": 1, "author": { "username": "eve" }, "body": marker }])).remove(0);
        assert_eq!(written.request.line(), format!("POST {notes}"));
        let again =
            next(look(), &json!([{ "id": 2, "author": { "username": "bot" }, "body": marker }])).remove(0);
        assert_eq!(again.request.line(), format!("PUT {notes}/2"));
    }
}
