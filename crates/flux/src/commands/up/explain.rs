//! What is wrong, in words that name the file and the fix. Pure, over the objects and the files they come from.
//!
//! Conditions keep the words that Flux users know; this translates them for somebody who sees them for the first time.
//! What only waits for something else that is wrong is left out.

use std::sync::LazyLock;

use flux_remote::local::LocalFolder;
use regex::{Captures, Regex};
use serde_json::Value;

use super::super::test::{report, warnings};
use crate::fleet::{Seen, Verdict, files};
use crate::tree::distance;

struct Repository<'a> {
    files: &'a LocalFolder,
    home: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Problem {
    /// `Kind/namespace/name`, or several of them.
    object: String,
    /// Where in the repository, as far as it is known.
    file: Option<String>,
    what: String,
    fix: String,
}

impl Problem {
    pub(super) fn lines(&self) -> Vec<String> {
        let place = self.file.as_ref().map_or(String::new(), |file| format!("{file}: "));
        let mut what = self.what.trim().lines().map(str::trim_end);
        let mut lines =
            vec![format!("✗ {}", self.object), format!("    {place}{}", what.next().unwrap_or_default())];
        // A template's error has a trace below it, which helps up to a point.
        lines.extend(what.take(6).map(|line| format!("    {line}")));
        lines.push(format!("    fix: {}", self.fix));
        lines
    }
}

/// `home` is the cluster's own folder: of two files that say the same, the one there is meant.
pub(super) fn problems(objects: &[Seen], files: &LocalFolder, home: &str) -> Vec<Problem> {
    let folder = &Repository { files, home };
    let mut found = circles(objects, folder);
    found.extend(dangling(objects, folder));
    for object in objects {
        let failed = object.verdict == Verdict::Failed && !object.reason.starts_with("Dependency");
        if failed && !report::is_consequence(object, objects) {
            found.push(explain(object, folder));
        }
    }
    found
}

fn circles(objects: &[Seen], folder: &Repository<'_>) -> Vec<Problem> {
    let circles = warnings::cycles(objects).into_iter();
    let circle = |circle: warnings::Warning| {
        let first = circle.message.split(" → ").next().unwrap_or_default().to_owned();
        let definition = objects.iter().find(|one| one.id() == first).and_then(|one| defined_in(one, folder));
        Problem {
            object: circle.message,
            file: definition,
            what: "these wait for each other through spec.dependsOn, so none of them ever starts".to_owned(),
            fix: "take one of them out of the spec.dependsOn of another".to_owned(),
        }
    };
    circles.map(circle).collect()
}

fn dangling(objects: &[Seen], folder: &Repository<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    for warning in warnings::dangling(objects) {
        let Some(object) = objects.iter().find(|one| warning.message.starts_with(&format!("{} ", one.id())))
        else {
            continue;
        };
        found.push(Problem {
            object: object.id(),
            file: defined_in(object, folder),
            what: warning.message,
            fix: "name something that exists in spec.dependsOn, or add what is missing".to_owned(),
        });
    }
    found
}

fn explain(object: &Seen, folder: &Repository<'_>) -> Problem {
    let message = cause(object);
    let told = RULES.iter().find_map(|(pattern, rule)| {
        let found = pattern.captures(&message)?;
        rule(&Case { object, folder, message: &message, found })
    });
    let told = told.unwrap_or_else(|| Told {
        file: defined_in(object, folder),
        what: message.clone(),
        fix: format!(
            "`flux events --for {}/{} -n {}` has the history",
            object.kind, object.name, object.namespace
        ),
    });
    Problem { object: object.id(), file: told.file, what: told.what, fix: told.fix }
}

/// Of a release that was put back to where it was, the condition that says why.
fn cause(object: &Seen) -> String {
    let conditions = object.object.pointer("/status/conditions").and_then(Value::as_array);
    let released =
        conditions.into_iter().flatten().find(|one| one["type"] == "Released" && one["status"] == "False");
    let remedied = object.reason.starts_with("Uninstall") || object.reason.starts_with("Rollback");
    match released.and_then(|one| one["message"].as_str()) {
        Some(message) if remedied || object.message.trim().is_empty() => message.to_owned(),
        _ => object.message.clone(),
    }
}

struct Case<'a> {
    object: &'a Seen,
    folder: &'a Repository<'a>,
    message: &'a str,
    found: Captures<'a>,
}

impl Case<'_> {
    fn part(&self, at: usize) -> &str {
        self.found.get(at).map_or("", |part| part.as_str())
    }

    fn spec(&self, path: &str) -> &str {
        self.object.object.pointer(&format!("/spec/{path}")).and_then(Value::as_str).unwrap_or_default()
    }

    fn definition(&self) -> Option<String> {
        defined_in(self.object, self.folder)
    }

    fn definition_or_object(&self) -> String {
        self.definition().unwrap_or_else(|| self.object.id())
    }
}

struct Told {
    file: Option<String>,
    what: String,
    fix: String,
}

type Rule = fn(&Case<'_>) -> Option<Told>;

/// The first that matches explains.
static RULES: LazyLock<Vec<(Regex, Rule)>> = LazyLock::new(|| {
    let rules: [(&str, Rule); 13] = [
        (r"MalformedYAMLError: yaml: (?:line (\d+): )?(.*) in File: (\S+)", yaml_of_a_build),
        (r"from (\S+\.ya?ml): yaml: (?:line (\d+): )?(.*)", yaml_of_a_file),
        (r"path not found: stat ([^:]+): no such file", path_missing),
        (r"invalid chart reference: stat ([^:]+): no such file", chart_missing),
        (r"lstat (/[^:]+): no such file", resource_missing),
        (r"([A-Za-z0-9_.-]+)/((?:charts/[^/]+/)*templates/[^:\s]+):(\d+)", template),
        (r#"variable not set \(strict mode\): "([^"]+)""#, variable_missing),
        (r#"no matches for kind "([^"]+)" in version "([^"]+)""#, kind_missing),
        (r#"User "system:serviceaccount:([^:"]+):([^"]+)" cannot (\S+) resource "([^"]+)""#, forbidden),
        (r#"(?:secrets?|Secret)[ "']+(?:[^/"' ]+/)?([^"' ]+)["']? not found"#, secret_missing),
        (r"(?i)decrypt", not_decrypted),
        (r#"([A-Z][A-Za-z]+)(?:\.[a-z0-9.]+)? "([^"]+)" is invalid: (.*)"#, invalid),
        (
            r"(?i)offline|dns error|error sending request|connection refused|no such host|timed out|unreachable",
            unreachable,
        ),
    ];
    let compiled = |pattern: &str| Regex::new(pattern).expect("each is tried by a test");
    rules.into_iter().map(|(pattern, rule)| (compiled(pattern), rule)).collect()
});

fn line(number: &str) -> String {
    if number.is_empty() { String::new() } else { format!("line {number}: ") }
}

fn yaml_of_a_build(case: &Case<'_>) -> Option<Told> {
    // The innermost folder that the build was in when it read the file.
    let inner = Regex::new(r"path '/?([^']*)'").ok()?;
    let built = case.spec("path").trim_start_matches("./").trim_end_matches('/').to_owned();
    let inside = inner.captures_iter(case.message).last().map_or(built, |found| found[1].to_owned());
    let name = case.part(3);
    let whole = format!("{inside}/{name}");
    let file = if exists(case.folder, &whole) { whole } else { name.to_owned() };
    bad_yaml(file, case.part(1), case.part(2))
}

fn yaml_of_a_file(case: &Case<'_>) -> Option<Told> {
    bad_yaml(case.part(1).to_owned(), case.part(2), case.part(3))
}

fn bad_yaml(file: String, number: &str, why: &str) -> Option<Told> {
    Some(Told {
        fix: format!(
            "mend the YAML of {file}; brackets, colons and indentation near that line are the usual suspects"
        ),
        what: format!("{}this is not YAML: {why}", line(number)),
        file: Some(file),
    })
}

fn path_missing(case: &Case<'_>) -> Option<Told> {
    let wanted = case.part(1);
    let folders: Vec<String> = files::folders(case.folder.files).into_iter().collect();
    let instead = nearest(wanted, &folders).map_or(String::new(), |near| format!(", for example ./{near}"));
    Some(Told {
        file: case.definition(),
        what: format!("spec.path leads to {wanted}, and there is no such folder"),
        fix: format!(
            "set spec.path in {} to a folder of the repository{instead}",
            case.definition_or_object()
        ),
    })
}

fn chart_missing(case: &Case<'_>) -> Option<Told> {
    let wanted = case.part(1);
    let charts: Vec<String> = case
        .folder
        .files
        .files()
        .iter()
        .filter_map(|file| file.path.as_str().strip_suffix("/Chart.yaml").map(str::to_owned))
        .collect();
    let instead = nearest(wanted, &charts).map_or(String::new(), |near| format!(", for example ./{near}"));
    let release = object_in(case.folder, "HelmRelease", release_name(case), None);
    Some(Told {
        fix: format!(
            "set spec.chart.spec.chart in {} to a folder with a Chart.yaml{instead}",
            release.clone().unwrap_or_else(|| case.object.id())
        ),
        file: release,
        what: format!("the chart {wanted} is not in the repository"),
    })
}

/// A HelmChart is named after the namespace and name of its release.
fn release_name<'a>(case: &'a Case<'_>) -> &'a str {
    let labels = case.object.object.pointer("/metadata/labels");
    let label = labels.and_then(|labels| labels.get("helm.toolkit.fluxcd.io/name")).and_then(Value::as_str);
    label.unwrap_or(&case.object.name)
}

fn resource_missing(case: &Case<'_>) -> Option<Told> {
    let wanted = case.part(1).trim_start_matches('/');
    let (folder, name) = wanted.rsplit_once('/').unwrap_or(("", wanted));
    let beside: Vec<String> = case
        .folder
        .files
        .files()
        .iter()
        .filter_map(|file| file.path.as_str().strip_prefix(folder)?.strip_prefix('/').map(str::to_owned))
        .filter(|rest| !rest.contains('/') && !rest.starts_with("kustomization."))
        .collect();
    let instead = nearest(name, &beside).map_or(String::new(), |near| format!("; {near} is there"));
    let list = format!("{folder}/kustomization.yaml");
    let file = exists(case.folder, &list).then_some(list);
    Some(Told {
        what: format!("{name} is listed, and {wanted} does not exist"),
        fix: format!(
            "correct the name in {}, or add the file{instead}",
            file.as_deref().unwrap_or("kustomization.yaml")
        ),
        file,
    })
}

fn template(case: &Case<'_>) -> Option<Told> {
    let (chart, path, number) = (case.part(1), case.part(2), case.part(3));
    let is_chart = |file: &&flux_remote::local::LocalFile| {
        let path = file.path.as_str();
        path.ends_with(&format!("{chart}/Chart.yaml"))
            && (path.len() == chart.len() + 11
                || path.as_bytes().get(path.len() - chart.len() - 12) == Some(&b'/'))
    };
    let here = case.folder.files.files().iter().find(is_chart);
    let home = here.and_then(|file| file.path.as_str().strip_suffix("/Chart.yaml")).unwrap_or(chart);
    let file = format!("{home}/{path}");
    let after = case.message.find(case.part(0)).map_or("", |at| &case.message[at..]);
    Some(Told {
        fix: if exists(case.folder, &file) {
            format!(
                "mend {file}, or give the value it asks for in spec.values of {}",
                case.definition_or_object()
            )
        } else {
            format!("give the value it asks for in spec.values of {}", case.definition_or_object())
        },
        what: format!("the chart's template fails at line {number}: {after}"),
        file: Some(file),
    })
}

fn variable_missing(case: &Case<'_>) -> Option<Told> {
    let name = case.part(1);
    Some(Told {
        file: case.definition(),
        what: format!("a manifest uses ${{{name}}}, and nothing sets {name}"),
        fix: format!(
            "set {name} in a ConfigMap or Secret of spec.postBuild.substituteFrom or in spec.postBuild.substitute of {}, or \
             write ${{{name}:=default}}",
            case.definition_or_object()
        ),
    })
}

fn kind_missing(case: &Case<'_>) -> Option<Told> {
    let (kind, version) = (case.part(1), case.part(2));
    Some(Told {
        file: of_kind(case.folder, kind).or_else(|| case.definition()),
        what: format!("the cluster knows no kind {kind} in {version}"),
        fix: format!(
            "if {kind} is spelled right, apply the CustomResourceDefinition first, in a Kustomization that {} names in \
             spec.dependsOn",
            case.definition_or_object()
        ),
    })
}

fn forbidden(case: &Case<'_>) -> Option<Told> {
    let (namespace, account, verb, resource) = (case.part(1), case.part(2), case.part(3), case.part(4));
    Some(Told {
        file: case.definition(),
        what: format!("the account {namespace}/{account} may not {verb} {resource}: {}", case.message),
        fix: format!("keep to the account's namespace, or give {account} a Role that allows it"),
    })
}

fn secret_missing(case: &Case<'_>) -> Option<Told> {
    let name = case.part(1);
    Some(Told {
        file: case.definition(),
        what: case.message.to_owned(),
        fix: format!(
            "create the Secret: kubectl create secret generic {name} -n {} --from-file=…",
            case.object.namespace
        ),
    })
}

fn not_decrypted(case: &Case<'_>) -> Option<Told> {
    let secret = case.spec("decryption/secretRef/name");
    Some(Told {
        file: case.definition(),
        what: case.message.to_owned(),
        fix: match secret {
            "" => format!(
                "name the Secret with the key in spec.decryption.secretRef of {}",
                case.definition_or_object()
            ),
            name => format!("put the private key that the file was encrypted for into the Secret {name}"),
        },
    })
}

fn invalid(case: &Case<'_>) -> Option<Told> {
    let (kind, name, why) = (case.part(1), case.part(2), case.part(3));
    let file = object_in(case.folder, kind, name, None);
    Some(Told {
        what: format!("{kind} {name} is not valid: {why}"),
        fix: format!(
            "correct that field of {kind} {name} in {}",
            file.clone().unwrap_or_else(|| format!("what {} applies", case.definition_or_object()))
        ),
        file: file.or_else(|| case.definition()),
    })
}

fn unreachable(case: &Case<'_>) -> Option<Told> {
    let address = case.spec("url");
    Some(Told {
        file: case.definition(),
        what: case.message.to_owned(),
        fix: format!(
            "{} is not on this machine; with the network it is tried again by itself, the rest goes on without it",
            if address.is_empty() { "what it fetches" } else { address }
        ),
    })
}

fn exists(folder: &Repository<'_>, path: &str) -> bool {
    folder.files.files().iter().any(|file| file.path.as_str() == path)
}

/// The likeliest word that was meant, if one is close.
fn nearest<'a>(wanted: &str, known: &'a [String]) -> Option<&'a str> {
    let close = |one: &&String| distance(wanted, one) <= 2 + wanted.len() / 3;
    known.iter().filter(close).min_by_key(|one| distance(wanted, one)).map(String::as_str)
}

/// The file that defines an object of Flux.
fn defined_in(object: &Seen, folder: &Repository<'_>) -> Option<String> {
    object_in(folder, &object.kind, &object.name, Some(&object.namespace))
}

/// An overlay may set the namespace, so a file without one counts.
fn object_in(folder: &Repository<'_>, kind: &str, name: &str, namespace: Option<&str>) -> Option<String> {
    find(folder, |object| {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let same_place =
            namespace.is_none_or(|wanted| text("/metadata/namespace").is_none_or(|one| one == wanted));
        text("/kind") == Some(kind) && text("/metadata/name") == Some(name) && same_place
    })
}

fn of_kind(folder: &Repository<'_>, kind: &str) -> Option<String> {
    find(folder, |object| object.get("kind").and_then(Value::as_str) == Some(kind))
}

fn find(folder: &Repository<'_>, wanted: impl Fn(&Value) -> bool) -> Option<String> {
    let is_yaml = |path: &str| path.ends_with(".yaml") || path.ends_with(".yml");
    let all = folder.files.files().iter().filter(|file| is_yaml(file.path.as_str()));
    let (mut near, far): (Vec<_>, Vec<_>) =
        all.partition(|file| file.path.as_str().starts_with(&format!("{}/", folder.home)));
    near.extend(far);
    let found = near.into_iter().find(|file| files::documents(folder.files, &file.path).iter().any(&wanted));
    found.map(|file| file.path.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(kind: &str, name: &str, spec: Value, message: &str) -> Seen {
        Seen {
            kind: kind.to_owned(),
            namespace: "flux-system".to_owned(),
            name: name.to_owned(),
            verdict: Verdict::Failed,
            reason: "BuildFailed".to_owned(),
            message: message.to_owned(),
            object: json!({ "metadata": { "name": name }, "spec": spec }),
        }
    }

    fn folder() -> (tempfile::TempDir, LocalFolder) {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "clusters/a/apps.yaml",
            "kind: Kustomization\nmetadata: {name: apps, namespace: flux-system}\n",
        );
        write("apps/base/web/kustomization.yaml", "resources: [servise.yaml]\n");
        write("apps/base/web/service.yaml", "kind: Service\nmetadata: {name: web}\n");
        write("apps/base/api/release.yaml", "kind: HelmRelease\nmetadata: {name: api}\n");
        write("charts/api/Chart.yaml", "name: api\n");
        write("charts/api/templates/service.yaml", "{{ .Values.nothing.here }}\n");
        let files = LocalFolder::list(folder.path()).unwrap();
        (folder, files)
    }

    fn told(object: &Seen) -> String {
        let (_folder, files) = folder();
        problems(std::slice::from_ref(object), &files, "clusters/a")[0].lines().join("\n")
    }

    fn kustomization(message: &str) -> String {
        told(&seen("Kustomization", "apps", json!({ "path": "./apps/production" }), message))
    }

    #[test]
    fn bad_yaml_is_named_with_its_folder_and_line() {
        let text = kustomization(
            "kustomize build failed: accumulating resources: recursed accumulation of path '/apps/base/web': accumulating \
             resources from 'service.yaml': MalformedYAMLError: yaml: line 2: did not find expected ',' or ']' in File: service.yaml",
        );
        assert!(
            text.contains("apps/base/web/service.yaml: line 2: this is not YAML: did not find"),
            "{text}"
        );
        let text =
            kustomization("failed to decode Kubernetes YAML from clusters/a/x.yaml: yaml: line 4: odd");
        assert!(text.contains("clusters/a/x.yaml: line 4: this is not YAML: odd"), "{text}");
    }

    #[test]
    fn a_missing_folder_or_file_is_named_with_what_is_there() {
        let text =
            kustomization("kustomization path not found: stat apps/base/wep: no such file or directory");
        assert!(text.contains("clusters/a/apps.yaml: spec.path leads to apps/base/wep"), "{text}");
        assert!(text.contains("for example ./apps/base/web"), "{text}");
        let text = kustomization(
            "evalsymlink failure on '/x' : lstat /apps/base/web/servise.yaml: no such file or directory",
        );
        assert!(text.contains("apps/base/web/kustomization.yaml: servise.yaml is listed"), "{text}");
        assert!(text.contains("service.yaml is there"), "{text}");
        let message = "invalid chart reference: stat charts/apo: no such file or directory";
        let mut chart = seen("HelmChart", "apps-api", json!({}), message);
        chart.object["metadata"]["labels"] = json!({ "helm.toolkit.fluxcd.io/name": "api" });
        let text = told(&chart);
        assert!(
            text.contains(
                "in apps/base/api/release.yaml to a folder with a Chart.yaml, for example ./charts/api"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_template_is_named_by_its_place_in_the_repository() {
        let message = "Helm install failed for release apps/api with chart api@1.0.0: api/templates/service.yaml:1:28\n  nil pointer";
        let mut release = seen("HelmRelease", "api", json!({}), "uninstalled");
        release.reason = "UninstallSucceeded".to_owned();
        release.object["status"] =
            json!({ "conditions": [{ "type": "Released", "status": "False", "message": message }] });
        let text = told(&release);
        assert!(
            text.contains("charts/api/templates/service.yaml: the chart's template fails at line 1"),
            "{text}"
        );
        assert!(
            text.contains("nil pointer") && text.contains("spec.values of apps/base/api/release.yaml"),
            "{text}"
        );
    }

    #[test]
    fn variables_kinds_accounts_keys_and_fields_have_a_fix() {
        let text = kustomization("envsubst error: variable not set (strict mode): \"mail\"");
        assert!(text.contains("nothing sets mail") && text.contains("${mail:=default}"), "{text}");
        let text = kustomization("no matches for kind \"Service\" in version \"v2\"");
        assert!(
            text.contains("apps/base/web/service.yaml: the cluster knows no kind Service in v2"),
            "{text}"
        );
        let text = kustomization(
            "configmaps is forbidden: User \"system:serviceaccount:flux-system:team\" cannot patch resource \"configmaps\" in API",
        );
        assert!(text.contains("the account flux-system/team may not patch configmaps"), "{text}");
        let text = kustomization("Service \"web\" is invalid: spec.ports: Required value");
        assert!(text.contains("apps/base/web/service.yaml: Service web is not valid: spec.ports"), "{text}");
        let text = kustomization("failed to decrypt and format 'x': cannot decrypt sops data key");
        assert!(text.contains("spec.decryption.secretRef of clusters/a/apps.yaml"), "{text}");
        let text = kustomization(
            "cannot get decryption Secret 'flux-system/sops-age-key': secrets \"sops-age-key\" not found",
        );
        assert!(text.contains("kubectl create secret generic sops-age-key -n flux-system"), "{text}");
        let text = kustomization("something nobody has thought of");
        assert!(
            text.contains("clusters/a/apps.yaml: something nobody") && text.contains("flux events --for"),
            "{text}"
        );
    }

    #[test]
    fn a_circle_and_a_name_that_is_not_there_are_told_once() {
        let waiting = |name: &str, other: &str| {
            let mut object =
                seen("Kustomization", name, json!({ "dependsOn": [{ "name": other }] }), "not ready");
            object.reason = "DependencyNotReady".to_owned();
            object
        };
        let (_folder, files) = folder();
        let found = problems(&[waiting("apps", "infra"), waiting("infra", "apps")], &files, "clusters/a");
        assert_eq!(found.len(), 1, "{found:?}");
        let text = found[0].lines().join("\n");
        assert!(text.contains("clusters/a/apps.yaml: these wait for each other"), "{text}");
        let text = problems(&[waiting("apps", "infar")], &files, "clusters/a")[0].lines().join("\n");
        assert!(text.contains("infar, which does not exist"), "{text}");
    }
}
