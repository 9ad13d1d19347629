//! A pull or merge request for what was pushed to a branch of its own, at GitHub, GitLab or Gitea.
//!
//! Ours, and only where the automation asks for it: `fluxcd.rs/pull-request: github|gitlab|gitea`. The token is the
//! `token` (else the `password`) of the Secret that `fluxcd.rs/pull-request-secret` names, else of the GitRepository's;
//! its `address` is the API's, else that is derived from the repository's. The token goes nowhere else: redirects are
//! not followed. What is asked and what an answer means is decided without a socket.

use std::time::Duration;

use flux_api::Object;
use flux_api::secret::SecretString;
use flux_api::source::GitRepository;
use flux_remote::git::Address;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue, USER_AGENT};
use reqwest::{Client, Method, Url};
use serde_json::{Value, json};

use crate::source::access::{Data, Secrets};

pub const ANNOTATION: &str = "fluxcd.rs/pull-request";
pub const SECRET_ANNOTATION: &str = "fluxcd.rs/pull-request-secret";
const LONGEST_TITLE: usize = 250;
const LARGEST_ANSWER: usize = 8 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    GitHub,
    GitLab,
    Gitea,
}

impl Host {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "github" => Ok(Host::GitHub),
            "gitlab" => Ok(Host::GitLab),
            "gitea" | "forgejo" => Ok(Host::Gitea),
            other => Err(format!("annotation {ANNOTATION}: '{other}' is none of github, gitlab and gitea")),
        }
    }

    /// What its users call it.
    pub fn request_name(self) -> &'static str {
        match self {
            Host::GitHub | Host::Gitea => "pull request",
            Host::GitLab => "merge request",
        }
    }
}

/// Where a request is opened, and from what to what.
#[derive(Clone, Debug)]
pub struct Target {
    host: Host,
    /// The API's address, without a slash at its end.
    api: String,
    /// `owner/name`, or deeper at GitLab.
    path: String,
    from: String,
    to: String,
}

/// One question to the API.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    method: Method,
    url: String,
    body: Option<Value>,
}

impl Target {
    pub fn new(
        host: Host,
        address: &Address,
        api: Option<&str>,
        from: &str,
        to: &str,
    ) -> Result<Self, String> {
        let (scheme, name, path) = match address {
            Address::Http(url) => {
                let name = url.host_str().unwrap_or_default();
                let name = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
                (url.scheme().to_owned(), name, url.path().to_owned())
            }
            Address::Ssh(at) => ("https".to_owned(), at.host.clone(), at.path.clone()),
        };
        let path = path.trim_matches('/').trim_end_matches(".git").to_owned();
        if path.split('/').count() < 2 || path.split('/').any(|part| part.is_empty() || part == "..") {
            return Err(format!("'{path}' is no repository of an owner"));
        }
        let api = match (api, host) {
            (Some(api), _) => api.trim_end_matches('/').to_owned(),
            (None, Host::GitHub) if name == "github.com" => "https://api.github.com".to_owned(),
            (None, Host::GitHub) => format!("{scheme}://{name}/api/v3"),
            (None, Host::GitLab) => format!("{scheme}://{name}/api/v4"),
            (None, Host::Gitea) => format!("{scheme}://{name}/api/v1"),
        };
        Url::parse(&api).map_err(|_| format!("'{api}' is no address of an API"))?;
        Ok(Self { host, api, path, from: from.to_owned(), to: to.to_owned() })
    }

    fn encoded(text: &str) -> String {
        url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
    }

    fn find(&self) -> Question {
        let (from, to) = (Self::encoded(&self.from), Self::encoded(&self.to));
        let url = match self.host {
            Host::GitHub => {
                let owner = self.path.split('/').next().unwrap_or_default();
                format!("{}/repos/{}/pulls?state=open&head={owner}:{from}&base={to}", self.api, self.path)
            }
            Host::GitLab => {
                let project = Self::encoded(&self.path);
                format!(
                    "{}/projects/{project}/merge_requests?state=opened&source_branch={from}&target_branch={to}",
                    self.api
                )
            }
            Host::Gitea => format!("{}/repos/{}/pulls?state=open&limit=50", self.api, self.path),
        };
        Question { method: Method::GET, url, body: None }
    }

    fn open(&self, message: &str) -> Question {
        let (title, text) = title_and_text(message);
        let (url, body) = match self.host {
            Host::GitHub | Host::Gitea => (
                format!("{}/repos/{}/pulls", self.api, self.path),
                json!({ "title": title, "body": text, "head": self.from, "base": self.to }),
            ),
            Host::GitLab => (
                format!("{}/projects/{}/merge_requests", self.api, Self::encoded(&self.path)),
                json!({
                    "title": title, "description": text,
                    "source_branch": self.from, "target_branch": self.to,
                }),
            ),
        };
        Question { method: Method::POST, url, body: Some(body) }
    }

    /// The address of the open request among those that the API lists.
    fn found(&self, answer: &Value) -> Option<String> {
        let is_it = |one: &&Value| {
            let text = |pointer: &str| one.pointer(pointer).and_then(Value::as_str);
            let (from, to) = match self.host {
                Host::GitLab => (text("/source_branch"), text("/target_branch")),
                Host::GitHub | Host::Gitea => (text("/head/ref"), text("/base/ref")),
            };
            from == Some(&self.from) && to == Some(&self.to)
        };
        answer.as_array()?.iter().find(is_it).map(|one| self.address_of(one))
    }

    fn address_of(&self, request: &Value) -> String {
        let field = match self.host {
            Host::GitLab => "web_url",
            Host::GitHub | Host::Gitea => "html_url",
        };
        request.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn authorization(&self, token: &SecretString) -> Result<(HeaderName, HeaderValue), String> {
        let (name, text) = match self.host {
            Host::GitHub => (AUTHORIZATION, format!("Bearer {}", token.expose())),
            Host::GitLab => (HeaderName::from_static("private-token"), token.expose().clone()),
            Host::Gitea => (AUTHORIZATION, format!("token {}", token.expose())),
        };
        let mut value = HeaderValue::from_str(&text)
            .map_err(|_| "the token holds characters that no token has".to_owned())?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

fn title_and_text(message: &str) -> (String, String) {
    let (title, text) = message.trim().split_once('\n').unwrap_or((message.trim(), ""));
    (title.chars().take(LONGEST_TITLE).collect(), text.trim().to_owned())
}

/// A way to the API with a token.
pub struct Api {
    client: Client,
    target: Target,
    token: SecretString,
}

/// What became of a request for what was pushed.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    Already(String),
    Now(String),
}

impl Api {
    /// As the annotations of an automation say.
    pub async fn new(
        secrets: Secrets<'_>,
        secret: Option<&str>,
        host: Host,
        repository: &GitRepository,
        address: &Address,
        (from, to): (&str, &str),
    ) -> Result<Self, String> {
        let data: Data = match (secret, &repository.spec.secret_ref) {
            (Some(name), _) => secrets.get(name).await.map_err(|error| error.to_string())?,
            (None, Some(reference)) => {
                let own = Secrets { namespace: Object::namespace(repository), ..secrets };
                own.get(&reference.name).await.map_err(|error| error.to_string())?
            }
            (None, None) => {
                return Err(format!("name a Secret with a token in the annotation {SECRET_ANNOTATION}"));
            }
        };
        let key = if data.bytes("token").is_some() { "token" } else { "password" };
        let token = data
            .secret_text(key)
            .map_err(|_| format!("secret '{}' has neither 'token' nor 'password' for the API", data.id()))?;
        let api = data.text("address").map_err(|error| error.to_string())?;
        let target = Target::new(host, address, api.as_deref(), from, to)?;
        let mut builder = Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(TIMEOUT);
        if let Some(ca) = data.bytes("ca.crt").or_else(|| data.bytes("caFile")) {
            let bundle = reqwest::Certificate::from_pem_bundle(ca)
                .map_err(|_| format!("secret '{}': ca.crt holds no certificates in PEM", data.id()))?;
            builder = builder.tls_certs_merge(bundle);
        }
        let client = builder.build().map_err(|error| error.without_url().to_string())?;
        Ok(Self { client, target, token })
    }

    /// Opens a request, unless one is open.
    pub async fn ensure(&self, message: &str) -> Result<Opened, String> {
        if let Some(address) = self.target.found(&self.ask(self.target.find()).await?) {
            return Ok(Opened::Already(address));
        }
        let made = self.ask(self.target.open(message)).await?;
        Ok(Opened::Now(self.target.address_of(&made)))
    }

    async fn ask(&self, question: Question) -> Result<Value, String> {
        let (name, value) = self.target.authorization(&self.token)?;
        let url = Url::parse(&question.url).map_err(|error| error.to_string())?;
        let shown = format!("{} {}{}", question.method, url.host_str().unwrap_or_default(), url.path());
        let mut request = self
            .client
            .request(question.method, url)
            .header(name, value)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, "flux/v2");
        if let Some(body) = &question.body {
            request = request.json(body);
        }
        let failed = |error: reqwest::Error| format!("{shown}: {}", error.without_url());
        let mut answer = request.send().await.map_err(failed)?;
        let status = answer.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if bytes.len() + chunk.len() > LARGEST_ANSWER {
                return Err(format!("{shown}: the answer is longer than {LARGEST_ANSWER} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        let said: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if !status.is_success() {
            let words = said.get("message").or_else(|| said.get("error")).map(Value::to_string);
            let words: String = words.unwrap_or_default().chars().take(300).collect();
            return Err(format!("{shown}: {status} {words}").trim_end().to_owned());
        }
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: Host, url: &str) -> Target {
        Target::new(host, &Address::parse(url).unwrap(), None, "auto/images", "main").unwrap()
    }

    #[test]
    fn each_host_is_asked_in_its_own_words() {
        let github = target(Host::GitHub, "https://github.com/org/fleet.git");
        assert_eq!(
            github.find().url,
            "https://api.github.com/repos/org/fleet/pulls?state=open&head=org:auto%2Fimages&base=main"
        );
        let asked = github.open("Update images\n\n- a\n- b\n");
        assert_eq!(
            (asked.method, asked.url.as_str()),
            (Method::POST, "https://api.github.com/repos/org/fleet/pulls")
        );
        assert_eq!(
            asked.body.unwrap(),
            json!({ "title": "Update images", "body": "- a\n- b", "head": "auto/images", "base": "main" })
        );
        let gitlab = target(Host::GitLab, "ssh://git@gitlab.example.com:2222/group/sub/fleet.git");
        assert!(
            gitlab.find().url.starts_with(
                "https://gitlab.example.com/api/v4/projects/group%2Fsub%2Ffleet/merge_requests?"
            )
        );
        assert_eq!(gitlab.open("x").body.unwrap()["source_branch"], "auto/images");
        let gitea = target(Host::Gitea, "https://git.example.com:3000/org/fleet");
        assert_eq!(
            gitea.find().url,
            "https://git.example.com:3000/api/v1/repos/org/fleet/pulls?state=open&limit=50"
        );
        let enterprise = target(Host::GitHub, "https://git.example.com/org/fleet");
        assert!(enterprise.find().url.starts_with("https://git.example.com/api/v3/repos/org/fleet/pulls"));
    }

    #[test]
    fn a_request_that_is_open_already_is_recognised() {
        let github = target(Host::GitHub, "https://github.com/org/fleet");
        let list = json!([
            { "head": { "ref": "other" }, "base": { "ref": "main" }, "html_url": "https://x/1" },
            { "head": { "ref": "auto/images" }, "base": { "ref": "main" }, "html_url": "https://x/2" },
        ]);
        assert_eq!(github.found(&list).as_deref(), Some("https://x/2"));
        assert_eq!(github.found(&json!([])), None);
        assert_eq!(github.found(&json!({ "message": "no" })), None);
        let gitlab = target(Host::GitLab, "https://gitlab.com/org/fleet");
        let list =
            json!([{ "source_branch": "auto/images", "target_branch": "main", "web_url": "https://y/1" }]);
        assert_eq!(gitlab.found(&list).as_deref(), Some("https://y/1"));
    }

    #[test]
    fn what_is_no_repository_or_host_is_refused() {
        let address = Address::parse("https://github.com/alone").unwrap();
        assert!(Target::new(Host::GitHub, &address, None, "a", "b").is_err());
        assert!(Host::parse("bitbucket").unwrap_err().contains("none of github, gitlab and gitea"));
        assert_eq!(Host::parse("forgejo").unwrap(), Host::Gitea);
    }
}
