//! Git hosts, as far as bootstrap speaks to them: each host's paths, bodies and headers over one small set of facts, and
//! Git itself handed through to a real server.
//!
//! Written from the hosts' API documents, not from our client: what a client sends wrongly is refused here.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::{Value, json};
use testbed::git_server::{Accounts, GitServer, Repository, Security};
use testbed::http_server::HttpServer;

pub const TOKEN: &str = "the-token-that-nobody-may-see";
pub const DEPLOY_USER: &str = "gitlab+deploy-token-1";
const DEPLOY_TOKEN: &str = "the-deploy-token";
const OWNER: &str = "my-org";
const NAME: &str = "fleet-infra";
/// Bitbucket's key for the project.
const KEY: &str = "ORG";
/// GitLab's number of every group.
const GROUP: u64 = 77;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    GitHub,
    GitLab,
    Gitea,
    Bitbucket,
}

impl Dialect {
    pub fn command(self) -> &'static str {
        match self {
            Dialect::GitHub => "github",
            Dialect::GitLab => "gitlab",
            Dialect::Gitea => "gitea",
            Dialect::Bitbucket => "bitbucket-server --username=me",
        }
    }

    pub fn token_variable(self) -> &'static str {
        match self {
            Dialect::GitHub => "GITHUB_TOKEN",
            Dialect::GitLab => "GITLAB_TOKEN",
            Dialect::Gitea => "GITEA_TOKEN",
            Dialect::Bitbucket => "BITBUCKET_TOKEN",
        }
    }

    pub fn team_flag(self) -> &'static str {
        if self == Dialect::Bitbucket { "--group=platform:push" } else { "--team=platform:push" }
    }

    fn prefix(self) -> &'static str {
        match self {
            Dialect::GitHub => "/api/v3",
            Dialect::GitLab => "/api/v4",
            Dialect::Gitea => "/api/v1",
            Dialect::Bitbucket => "/rest",
        }
    }

    fn admits(self, headers: &HeaderMap) -> bool {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match self {
            Dialect::GitHub | Dialect::Bitbucket => header("authorization") == format!("Bearer {TOKEN}"),
            Dialect::Gitea => header("authorization") == format!("token {TOKEN}"),
            Dialect::GitLab => header("private-token") == TOKEN,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Key {
    pub title: String,
    pub key: String,
    pub write: bool,
}

/// What the host knows.
#[derive(Default)]
struct Facts {
    /// Who the repository belongs to, once there is one: the person's or the organization's.
    repository: Option<Arc<Repository>>,
    personal: bool,
    keys: Vec<Key>,
    granted: Vec<String>,
    tokens: usize,
    refuses: bool,
    requests: Vec<String>,
}

pub struct Host {
    pub dialect: Dialect,
    http: HttpServer,
    site: Arc<Site>,
}

struct Site {
    dialect: Dialect,
    git: GitServer,
    facts: Mutex<Facts>,
    client: reqwest::Client,
}

impl Host {
    pub fn start(dialect: Dialect) -> Host {
        let tokens = vec![TOKEN.to_owned(), DEPLOY_TOKEN.to_owned()];
        let git = GitServer::start_with(Accounts { tokens, ..Accounts::default() }, Security::Plain).unwrap();
        let site = Site { dialect, git, facts: Mutex::default(), client: reqwest::Client::new() };
        let site = Arc::new(site);
        let router = Router::new().fallback(answer).with_state(site.clone());
        Host { dialect, http: HttpServer::start(router, Security::Plain).unwrap(), site }
    }

    pub fn url(&self) -> String {
        self.http.url()
    }

    /// Where Git is spoken over SSH, which other hosts do on their own port.
    pub fn ssh_address(&self) -> String {
        let url = self.site.git.ssh_url("x");
        url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned()
    }

    pub fn repository(&self) -> Arc<Repository> {
        self.site.facts.lock().unwrap().repository.clone().expect("bootstrap has made it")
    }

    pub fn keys(&self) -> Vec<Key> {
        self.site.facts.lock().unwrap().keys.clone()
    }

    pub fn granted(&self) -> Vec<String> {
        self.site.facts.lock().unwrap().granted.clone()
    }

    pub fn deploy_tokens(&self) -> usize {
        self.site.facts.lock().unwrap().tokens
    }

    pub fn requests(&self) -> Vec<String> {
        self.site.facts.lock().unwrap().requests.clone()
    }

    pub fn refuse(&self) {
        self.site.facts.lock().unwrap().refuses = true;
    }

    pub fn was_fetched_over_ssh(&self) -> bool {
        self.site.git.ssh_commands().iter().any(|command| command.contains("git-upload-pack"))
    }
}

async fn answer(
    State(site): State<Arc<Site>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(path) = uri.path().strip_prefix(site.dialect.prefix()) else {
        return site.git(method, &uri, headers, body).await;
    };
    let mut facts = site.facts.lock().unwrap();
    facts.requests.push(format!("{method} {uri}"));
    if facts.refuses || !site.dialect.admits(&headers) {
        return (StatusCode::UNAUTHORIZED, json!({"message": "Bad credentials"}).to_string()).into_response();
    }
    let asked = Asked {
        method,
        path: path.to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let answered = match site.dialect {
        Dialect::GitHub | Dialect::Gitea => site.github(&mut facts, &asked),
        Dialect::GitLab => site.gitlab(&mut facts, &asked),
        Dialect::Bitbucket => site.bitbucket(&mut facts, &asked),
    };
    let (status, body) = answered.unwrap_or((StatusCode::NOT_FOUND, json!({"message": "Not Found"})));
    (status, body.to_string()).into_response()
}

struct Asked {
    method: Method,
    path: String,
    query: String,
    body: Value,
}

type Answered = Option<(StatusCode, Value)>;

fn ok(body: Value) -> Answered {
    Some((StatusCode::OK, body))
}

impl Site {
    /// Git's own requests, to the server behind.
    async fn git(&self, method: Method, uri: &Uri, headers: HeaderMap, body: Bytes) -> Response {
        let url = format!("{}{uri}", self.git.http().url());
        let mut request = self.client.request(method, url).body(body);
        for (name, value) in headers.iter().filter(|(name, _)| *name != "host" && *name != "content-length") {
            request = request.header(name, value);
        }
        let answer = request.send().await.unwrap();
        let mut response = Response::builder().status(answer.status());
        for (name, value) in answer.headers().iter().filter(|(name, _)| *name != "transfer-encoding") {
            response = response.header(name, value);
        }
        response.body(Body::from(answer.bytes().await.unwrap())).unwrap()
    }

    fn create(&self, facts: &mut Facts, personal: bool, owner: &str) {
        let made = self.git.create(&format!("{owner}/{NAME}")).unwrap();
        // Hosts know a repository without the ending too.
        let plain = made.folder().with_extension("");
        std::os::unix::fs::symlink(made.folder(), plain).unwrap();
        facts.repository = Some(Arc::new(made));
        facts.personal = personal;
    }

    fn add_key(facts: &mut Facts, title: &Value, key: &Value, write: bool) {
        let text = |value: &Value| value.as_str().expect("keys are texts").to_owned();
        facts.keys.push(Key { title: text(title), key: text(key), write });
    }

    fn github(&self, facts: &mut Facts, asked: &Asked) -> Answered {
        let repository = format!("/repos/{OWNER}/{NAME}");
        let (path, body) = (asked.path.as_str(), &asked.body);
        match (asked.method.as_str(), path) {
            ("GET", path) if path == repository => facts.repository.as_ref().and(ok(json!({"name": NAME}))),
            ("POST", "/user/repos") if body["name"] == NAME && body["private"] == true => {
                self.create(facts, true, OWNER);
                Some((StatusCode::CREATED, json!({"name": NAME})))
            }
            ("POST", path) if path == format!("/orgs/{OWNER}/repos") && body["private"] == true => {
                self.create(facts, false, OWNER);
                Some((StatusCode::CREATED, json!({"name": NAME})))
            }
            ("PUT", path)
                if self.dialect == Dialect::GitHub
                    && path == format!("/orgs/{OWNER}/teams/platform{repository}") =>
            {
                assert_eq!(body["permission"], "push");
                facts.granted.push("platform".to_owned());
                Some((StatusCode::NO_CONTENT, Value::Null))
            }
            ("PUT", path)
                if self.dialect == Dialect::Gitea && path == format!("{repository}/teams/platform") =>
            {
                facts.granted.push("platform".to_owned());
                Some((StatusCode::NO_CONTENT, Value::Null))
            }
            ("GET", path) if path == format!("{repository}/keys") => {
                let keys = facts.keys.iter().enumerate();
                ok(keys.map(|(id, key)| json!({"id": id, "title": key.title, "key": key.key})).collect())
            }
            ("POST", path) if path == format!("{repository}/keys") => {
                Self::add_key(facts, &body["title"], &body["key"], body["read_only"] == false);
                Some((StatusCode::CREATED, json!({})))
            }
            _ => None,
        }
    }

    fn gitlab(&self, facts: &mut Facts, asked: &Asked) -> Answered {
        let project = format!("/projects/{OWNER}%2F{NAME}");
        let (path, body) = (asked.path.as_str(), &asked.body);
        match (asked.method.as_str(), path) {
            ("GET", path) if path == project => facts.repository.as_ref().and(ok(json!({"path": NAME}))),
            ("GET", path) if path.starts_with("/groups/") => ok(json!({"id": GROUP})),
            ("POST", "/projects") if body["path"] == NAME && body["visibility"] == "private" => {
                let personal = body["namespace_id"].is_null();
                assert!(personal || body["namespace_id"] == GROUP, "{body}");
                self.create(facts, personal, OWNER);
                Some((StatusCode::CREATED, json!({"path": NAME})))
            }
            ("POST", path) if path == format!("{project}/share") => {
                assert_eq!(*body, json!({"group_id": GROUP, "group_access": 30}));
                facts.granted.push("platform".to_owned());
                Some((StatusCode::CREATED, json!({})))
            }
            ("GET", path) if path == format!("{project}/deploy_keys") => {
                let keys = facts.keys.iter().enumerate();
                ok(keys.map(|(id, key)| json!({"id": id, "title": key.title, "key": key.key})).collect())
            }
            ("POST", path) if path == format!("{project}/deploy_keys") => {
                Self::add_key(facts, &body["title"], &body["key"], body["can_push"] == true);
                Some((StatusCode::CREATED, json!({})))
            }
            ("GET", path) if path == format!("{project}/deploy_tokens") => {
                let name = "flux-system-main-flux-system-./clusters/production";
                ok((0..facts.tokens).map(|id| json!({"id": id, "name": name})).collect())
            }
            ("POST", path) if path == format!("{project}/deploy_tokens") => {
                assert_eq!(body["scopes"], json!(["read_repository"]));
                facts.tokens += 1;
                Some((StatusCode::CREATED, json!({"username": DEPLOY_USER, "token": DEPLOY_TOKEN})))
            }
            _ => None,
        }
    }

    fn bitbucket(&self, facts: &mut Facts, asked: &Asked) -> Answered {
        let (path, body) = (asked.path.as_str(), &asked.body);
        let listed = |values: Value| ok(json!({"values": values, "isLastPage": true, "size": 1}));
        let home = |facts: &Facts| if facts.personal { format!("~{OWNER}") } else { KEY.to_owned() };
        let clone = |home: &str| {
            let base = self.git.http_url(&format!("scm/{home}/{NAME}"));
            let ssh = self.git.ssh_url(&format!("scm/{home}/{NAME}"));
            json!({"slug": NAME, "links": {"clone": [{"name": "http", "href": base}, {"name": "ssh", "href": ssh}]}})
        };
        let project = path.strip_prefix("/api/1.0/projects");
        match (asked.method.as_str(), project) {
            ("GET", Some("")) => {
                assert!(asked.query.starts_with(&format!("name={OWNER}")), "{}", asked.query);
                listed(json!([{"key": "OTHER", "name": "my-org-too"}, {"key": KEY, "name": OWNER}]))
            }
            ("GET", Some(rest)) if rest == format!("/{}/repos/{NAME}", home(facts)) => {
                facts.repository.as_ref().and(ok(clone(&home(facts))))
            }
            ("POST", Some(rest))
                if body["name"] == NAME && body["scmId"] == "git" && body["public"] == false =>
            {
                let owner = rest.strip_prefix('/')?.strip_suffix("/repos")?;
                self.create(facts, owner.starts_with('~'), &format!("scm/{owner}"));
                Some((StatusCode::CREATED, clone(owner)))
            }
            ("PUT", Some(rest)) if rest == format!("/{KEY}/repos/{NAME}/permissions/groups") => {
                assert_eq!(asked.query, "name=platform&permission=REPO_WRITE");
                facts.granted.push("platform".to_owned());
                Some((StatusCode::NO_CONTENT, Value::Null))
            }
            (method, None) if path == format!("/keys/1.0/projects/{}/repos/{NAME}/ssh", home(facts)) => {
                match method {
                    "GET" => {
                        let keys = facts.keys.iter().enumerate();
                        let shown = |(id, key): (usize, &Key)| json!({"key": {"id": id, "label": key.title, "text": key.key}, "permission": "REPO_READ"});
                        listed(keys.map(shown).collect())
                    }
                    "POST" => {
                        let key = &body["key"];
                        Self::add_key(facts, &key["label"], &key["text"], body["permission"] == "REPO_WRITE");
                        Some((StatusCode::CREATED, json!({})))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
