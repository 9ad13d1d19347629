//! Azure DevOps: the status of a commit.

use serde_json::{Value, json};

use super::git::{Repository, State, Status};
use super::{Error, Request, Settings, Step};
use crate::notification::event::Event;

const SERVICE: &str = "Azure DevOps";
const VERSION: &str = "api-version=7.1-preview.1";

/// The address is `https://dev.azure.com/org/project/_git/repo`.
pub(super) fn commit_status(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    // A token that a person made is a password, one of Entra's is a token.
    let sign =
        |request: Request| match (settings.token.expose().as_str(), settings.identity.expose().as_str()) {
            ("", "") => Err(Error::Missing("azure devops token cannot be empty")),
            ("", identity) => request.bearer(identity),
            (token, _) => request.basic("", token),
        };
    let repository = Repository::parse(settings)?;
    let [organization, project, _, name] = repository.parts::<4>()?;
    let Some(status) = Status::of(event, settings)? else { return Ok(Vec::new()) };
    let commit = status.commit.as_str();
    let mut url = repository.at(&[
        organization,
        project,
        "_apis",
        "git",
        "repositories",
        name,
        "commits",
        commit,
        "statuses",
    ]);
    url.set_query(Some(VERSION));
    let genre = match event.metadata.get("summary") {
        Some(summary) => format!("fluxcd:{summary}"),
        None => "fluxcd".to_owned(),
    };
    let state = match status.state {
        State::Good => "succeeded",
        State::Bad => "error",
    };
    let create = json!({
        "description": status.description,
        "state": state,
        "context": { "genre": genre, "name": status.id },
    });
    let look = sign(Request::get(url.clone()))?;
    let request = sign(Request::post(url, &create))?;
    Ok(vec![Step::then(look, move |answer| {
        let known: Value = serde_json::from_slice(answer)
            .map_err(|error| Error::Answer { service: SERVICE, problem: error.to_string() })?;
        let statuses = known["value"].as_array().map(Vec::as_slice).unwrap_or_default();
        let newest = statuses.iter().find(|known| {
            known["context"]["name"] == create["context"]["name"]
                && known["context"]["genre"] == create["context"]["genre"]
        });
        let same = newest.is_some_and(|known| {
            known["state"] == create["state"] && known["description"] == create["description"]
        });
        Ok(if same { Vec::new() } else { vec![Step::only(request)] })
    })])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::provider::git::tests::{COMMIT, at_commit, with_token};
    use crate::notification::provider::plan;
    use crate::notification::provider::tests::problem;
    use flux_api::notification::ProviderType;

    #[test]
    fn a_status_has_a_genre_and_a_name() {
        let mut settings =
            with_token(ProviderType::AzureDevOps, "https://dev.azure.com/org/project/_git/repo");
        let mut event = at_commit();
        event.metadata.insert("summary".to_owned(), "prod".to_owned());
        let look = || plan(&event, &settings).unwrap().remove(0);
        let line = format!(
            "https://dev.azure.com/org/project/_apis/git/repositories/repo/commits/{COMMIT}/statuses?{VERSION}"
        );
        assert_eq!(
            (look().request.line(), look().request.value("authorization")),
            (format!("GET {line}"), "Basic OnQ=")
        );
        let written = look().then.unwrap()(br#"{"count":0,"value":[]}"#).unwrap().remove(0).request;
        assert_eq!(written.line(), format!("POST {line}"));
        let expected = json!({ "description": "reconciliation failed", "state": "error", "context": { "genre": "fluxcd:prod", "name": "kustomization/apps/0c9c2e41" } });
        assert_eq!(written.body_json(), expected);
        let known = json!({ "value": [expected] }).to_string();
        assert!(look().then.unwrap()(known.as_bytes()).unwrap().is_empty());
        assert!(look().then.unwrap()(b"<html>sign in</html>").is_err());
        settings.token = String::new().into();
        assert_eq!(problem(&event, &settings), "azure devops token cannot be empty");
        settings.identity = "jwt".to_owned().into();
        let step = plan(&event, &settings).unwrap().remove(0);
        assert_eq!(step.request.value("authorization"), "Bearer jwt");
        let written = step.then.unwrap()(br#"{"value":[]}"#).unwrap().remove(0).request;
        assert_eq!(written.value("authorization"), "Bearer jwt");
        let wrong = with_token(ProviderType::AzureDevOps, "https://dev.azure.com/org/project");
        assert!(problem(&event, &wrong).contains("invalid repository id"));
    }
}
