//! One case: prepare the folder and the cluster, run the command, look at what it did.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use testbed::http_server::HttpServer;
use testbed::registry::Registry;
use tokio::runtime::Handle;

use crate::cluster::{Background, Cluster, stand_in, write_once};
use crate::folder::{Corpus, copy, write_files};
use crate::judge::judge;
use crate::log_api::log_api;
use crate::peers::Webhook;
use crate::values::Values;
use crate::{Answer, flag_values, scenario};

/// A server that nobody can reach: a case without a cluster must not find one by accident.
pub const DEAD: &str = r#"apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"#;

/// A command that has not ended by then hangs.
const LIMIT: Duration = Duration::from_secs(90);

pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    /// Both streams as a terminal would show them.
    pub merged: String,
    pub webhook: Option<Webhook>,
    /// What the case's `same_stdout_as` printed.
    pub other: Option<String>,
}

pub struct Player<'a> {
    pub corpus: &'a Corpus,
    pub runtime: Handle,
    cluster: Option<Cluster>,
    registry: Option<Registry>,
}

impl<'a> Player<'a> {
    pub fn new(corpus: &'a Corpus, runtime: Handle) -> Player<'a> {
        Player { corpus, runtime, cluster: None, registry: None }
    }

    pub fn play(&mut self, group: &[Value]) -> Vec<Answer> {
        if group[0]["skip_replay"] == true {
            return scenario::play(self, group);
        }
        let play = |case| match unplayable(case) {
            None => self.one(case),
            Some(why) => flag_values::play(self.corpus, case).unwrap_or(Answer::Skipped(why)),
        };
        group.iter().map(play).collect()
    }

    fn one(&mut self, case: &Value) -> Answer {
        let place = Place::new(self.corpus);
        let mut values = place.values(case);
        let answer = self.prepared(case, &place, &mut values);
        if case["exclusive"] == true {
            self.cluster = None;
        }
        answer
    }

    fn prepared(&mut self, case: &Value, place: &Place, values: &mut Values) -> Answer {
        write_files(case, values);
        let mut kubeconfig = DEAD.to_owned();
        if case["needs_cluster"] == true {
            if self.cluster.is_none() {
                self.cluster = Some(self.runtime.block_on(Cluster::start()));
            }
            let cluster = self.cluster.as_ref().unwrap();
            kubeconfig = cluster.kubeconfig.clone();
            values.set("serverversion", self.runtime.block_on(cluster.version()));
        }
        if case["needs_registry"] == true {
            let registry = self.registry.get_or_insert_with(|| Registry::start().unwrap());
            values.set("registry", registry.host());
        }
        fs::write(place.kubeconfig(), kubeconfig).unwrap();
        let mut stage = Stage { background: Background::default(), webhook: None, _logs: None };
        let mut problems = Vec::new();
        for step in case["setup"].as_array().into_iter().flatten() {
            problems.extend(self.step(case, step, place, values, &mut stage));
        }
        let outcome = place.run(case, values, stage.webhook.take());
        drop(stage);
        self.tidy(case, place, values);
        match outcome {
            Ok(outcome) => {
                let found = judge(case, &outcome, values, &place.cwd(case, values));
                if !found.is_empty() {
                    problems.extend(found);
                    return Answer::Played(problems);
                }
                Answer::Played(Vec::new())
            }
            Err(problem) => Answer::Played(vec![problem]),
        }
    }

    fn step(
        &self,
        case: &Value,
        step: &Value,
        place: &Place,
        values: &mut Values,
        stage: &mut Stage,
    ) -> Option<String> {
        let step = values.fill_all(step);
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let objects = self.cluster.as_ref().filter(|_| case["needs_cluster"] == true);
        let objects = objects.map(|cluster| cluster.objects.clone());
        match (step["do"].as_str().unwrap_or_default(), objects) {
            // Upstream prepares these, and the command never looks at them.
            ("create_objects" | "create_inline" | "create_namespace" | "server_side_apply", None) => None,
            ("background_status" | "label_crd" | "standin_controllers", None) => None,
            ("create_objects" | "create_inline", Some(objects)) => {
                let wanted = match step["file"].as_str() {
                    Some(file) => place.objects(file, case, values),
                    None => step["objects"].as_array().cloned().unwrap_or_default(),
                };
                let create = async {
                    for object in &wanted {
                        if let Some(problem) = objects.create(object).await {
                            return Some(format!("setup: {problem}"));
                        }
                    }
                    None
                };
                self.runtime.block_on(create)
            }
            ("create_namespace", Some(objects)) => {
                let namespace = serde_json::json!({
                    "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": step["namespace"]}});
                self.runtime.block_on(objects.create(&namespace));
                None
            }
            ("server_side_apply", Some(objects)) => {
                let manager = step["field_manager"].as_str().unwrap_or_default();
                let wanted = place.objects(step["file"].as_str().unwrap_or_default(), case, values);
                let mut problem = None;
                for object in &wanted {
                    let failed = self.runtime.block_on(objects.apply(object, manager));
                    problem = problem.or(failed.map(|failed| format!("setup: {failed}")));
                }
                problem
            }
            ("background_status", Some(objects)) => {
                stage.background.add(self.runtime.spawn(write_once(objects, step, now)));
                None
            }
            ("standin_controllers", Some(objects)) => {
                let listed = step["objects"].as_array().cloned().unwrap_or_default();
                stage.background.add(self.runtime.spawn(stand_in(objects, listed, now)));
                None
            }
            ("label_crd", Some(objects)) => {
                let name = step["name"].as_str().unwrap_or_default();
                self.runtime.block_on(objects.label_crd(name, &step["labels"]));
                None
            }
            ("flux", _) => {
                let words: Vec<String> = match &step["args"] {
                    Value::String(text) => text.split_whitespace().map(str::to_owned).collect(),
                    words => words
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_str)
                        .map(str::to_owned)
                        .collect(),
                };
                let output = place.command(case, values, &words).output().unwrap();
                (!output.status.success())
                    .then(|| format!("setup: {}", String::from_utf8_lossy(&output.stderr).trim_end()))
            }
            ("webhook", _) => {
                let webhook = Webhook::start(&step["responses"]);
                values.set("url", webhook.http.url());
                stage.webhook = Some(webhook);
                None
            }
            ("fake_log_api", _) => {
                let api = log_api(step["log"].as_str().unwrap_or_default().to_owned());
                fs::write(place.kubeconfig(), DEAD.replace("http://127.0.0.1:1", &api.url())).unwrap();
                stage._logs = Some(api);
                None
            }
            ("start_registry", _) => None,
            (other, _) => Some(format!("setup: unknown step {other}")),
        }
    }

    /// Puts the cluster back, so that the next case does not see this one.
    fn tidy(&self, case: &Value, place: &Place, values: &Values) {
        let Some(cluster) = self.cluster.as_ref().filter(|_| case["needs_cluster"] == true) else { return };
        let objects = &cluster.objects;
        for step in case["teardown"].as_array().into_iter().flatten() {
            let step = values.fill_all(step);
            let gone: Vec<Value> = match step["do"].as_str().unwrap_or_default() {
                "delete_objects" => place.objects(step["file"].as_str().unwrap_or_default(), case, values),
                "delete_inline" => {
                    let steps = case["setup"].as_array().into_iter().flatten();
                    let all = steps.flat_map(|step| step["objects"].as_array().cloned().unwrap_or_default());
                    let kinds = step["kinds"].as_array().cloned().unwrap_or_default();
                    all.filter(|object| kinds.contains(&object["kind"]))
                        .map(|object| values.fill_all(&object))
                        .collect()
                }
                "label_crd" => {
                    let name = step["name"].as_str().unwrap_or_default();
                    self.runtime.block_on(objects.label_crd(name, &step["labels"]));
                    Vec::new()
                }
                _ => Vec::new(),
            };
            for object in &gone {
                self.runtime.block_on(objects.delete(object));
            }
        }
        for name in ["fluxns", "ns", "ns2", "targetns", "emptyns"] {
            if let Some(namespace) = values.get(name) {
                let path = format!("/api/v1/namespaces/{namespace}");
                self.runtime.block_on(objects.request("DELETE", &path, "application/json", &Value::Null));
            }
        }
    }
}

/// Why a case cannot be played here.
fn unplayable(case: &Value) -> Option<&'static str> {
    let is = |field: &str| case[field] == true;
    if case["level"] != "cli" {
        return Some("a table of a function inside of upstream, no command line");
    }
    let outside = is("needs_controllers") || is("needs_network");
    (outside && !is("replay_with_standin")).then_some("needs the internet")
}

/// What runs beside a command.
struct Stage {
    background: Background,
    webhook: Option<Webhook>,
    _logs: Option<HttpServer>,
}

/// Where a case happens.
pub struct Place {
    _folder: TempDir,
    root: PathBuf,
}

impl Place {
    pub fn new(corpus: &Corpus) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        for name in ["work", "t", "home"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        copy(&corpus.testdata(), &root.join("work/testdata"));
        Place { _folder: folder, root }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    pub fn values(&self, case: &Value) -> Values {
        let mut values = Values::of(case);
        for (name, folder) in [("cwd", "work"), ("tmp", "t"), ("home", "home")] {
            values.set_path(name, &self.root.join(folder));
        }
        values.set("version", "2.9.4");
        values.set("now", jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        values.set("bin", env!("CARGO_BIN_EXE_flux"));
        values
    }

    pub fn cwd(&self, case: &Value, values: &Values) -> PathBuf {
        case["cwd"].as_str().map_or_else(|| self.root.join("work"), |path| PathBuf::from(values.fill(path)))
    }

    fn objects(&self, file: &str, case: &Value, values: &Values) -> Vec<Value> {
        let text = fs::read_to_string(self.root.join("work").join(file)).unwrap();
        let text = values.template(&text, case);
        let documents = yaml::parse_stream(text.as_bytes(), &yaml::Options::new(yaml::Schema::V2)).unwrap();
        let objects =
            documents.iter().map(|document| yaml::node_to_json(&document.root, yaml::Schema::V2).unwrap());
        objects.filter(|object| !object.is_null()).collect()
    }

    pub fn command(&self, case: &Value, values: &Values, words: &[String]) -> Command {
        let mut environment: BTreeMap<String, String> = BTreeMap::from([
            ("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()),
            ("HOME".to_owned(), values.fill("{{home}}")),
            ("TZ".to_owned(), "UTC".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("KUBECONFIG".to_owned(), self.kubeconfig().to_string_lossy().into_owned()),
            ("HTTPS_PROXY".to_owned(), "http://127.0.0.1:1".to_owned()),
            ("HTTP_PROXY".to_owned(), "http://127.0.0.1:1".to_owned()),
            ("NO_PROXY".to_owned(), "127.0.0.1,localhost".to_owned()),
        ]);
        for (key, value) in case["env"].as_object().into_iter().flatten() {
            environment.insert(key.clone(), values.fill(value.as_str().unwrap_or_default()));
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
        command.args(words).current_dir(self.cwd(case, values)).env_clear().envs(environment);
        command
    }

    pub fn run(&self, case: &Value, values: &Values, webhook: Option<Webhook>) -> Result<Outcome, String> {
        let words = |value: &Value| -> Vec<String> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .map(|word| values.fill(word.as_str().unwrap_or_default()))
                .collect()
        };
        let input = match (case["stdin_file"].as_str(), case["stdin"].as_str()) {
            (Some(file), _) => fs::read(self.root.join("work").join(file)).unwrap(),
            (None, text) => text.unwrap_or_default().as_bytes().to_vec(),
        };
        let run = |words: &[String], merged: bool| {
            fs::write(self.root.join("stdin"), &input).unwrap();
            let out = File::create(self.root.join("stdout")).unwrap();
            let err = if merged {
                out.try_clone().unwrap()
            } else {
                File::create(self.root.join("stderr")).unwrap()
            };
            let mut command = self.command(case, values, words);
            command.stdin(File::open(self.root.join("stdin")).unwrap()).stdout(out).stderr(err);
            let status = ended(command.spawn().unwrap())?;
            let read = |name: &str| {
                String::from_utf8_lossy(&fs::read(self.root.join(name)).unwrap_or_default()).into_owned()
            };
            let stderr = if merged { String::new() } else { read("stderr") };
            Ok::<_, String>((status.code().unwrap_or(-1), read("stdout"), stderr))
        };
        let args = words(&case["args"]);
        let (code, stdout, stderr) = run(&args, false)?;
        let both = !stdout.is_empty() && !stderr.is_empty();
        let again = case["expect"]["type"] == "golden" && both && case["repeatable"] != false;
        let merged = if again { run(&args, true)?.1 } else { format!("{stdout}{stderr}") };
        let other = match &case["expect"]["same_stdout_as"] {
            Value::Null => None,
            other => Some(run(&words(other), false)?.1),
        };
        Ok(Outcome { code, stdout, stderr, merged, webhook, other })
    }
}

fn ended(mut child: Child) -> Result<ExitStatus, String> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Ok(status);
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err("hangs".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
