//! `flux create image`: repositories, policies and updates.

use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::tree::Invocation;

use super::{labels, reference_of, signed_duration_of, text_of};

pub(super) fn repository(run: &Invocation) -> Result<Value, CliError> {
    let image = run.some("image").ok_or_else(|| fail!("an image repository (--image) is required"))?;
    check_repository(image).map_err(|problem| fail!("unable to parse image value: {problem}"))?;
    Ok(json!({
        "image": image,
        "interval": run.text("interval"),
        "timeout": signed_duration_of(run, "scan-timeout"),
        "secretRef": reference_of(run, "secret-ref"),
        "certSecretRef": reference_of(run, "cert-ref"),
    }))
}

/// `[registry/]path`, without a tag.
fn check_repository(image: &str) -> Result<(), String> {
    if image.is_empty() {
        return Err("a repository name must be specified".to_owned());
    }
    let is_registry = |part: &str| part.contains(['.', ':']) || part == "localhost";
    let path = match image.split_once('/') {
        Some((first, rest)) if is_registry(first) => rest,
        _ => image,
    };
    let allowed = |letter: char| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '_' | '-' | '.' | '/')
    };
    if !(2..=255).contains(&path.chars().count()) {
        return Err(format!("repository must be between 2 and 255 characters in length: {path}"));
    }
    if !path.chars().all(allowed) {
        let set = "`abcdefghijklmnopqrstuvwxyz0123456789_-./`";
        return Err(format!("repository can only contain the characters {set}: {path}"));
    }
    Ok(())
}

pub(super) fn policy(run: &Invocation) -> Result<Value, CliError> {
    let image = run
        .some("image-ref")
        .ok_or_else(|| fail!("the name of an ImageRepository in the namespace is required (--image-ref)"))?;
    labels::of(run)?;
    let choice = choice(run)?;
    let filter = filter(run)?;
    let reflect = run.text("reflect-digest");
    if !matches!(reflect, "" | "Never" | "IfNotPresent" | "Always") {
        return Err(fail!(
            "invalid value for --reflect-digest, must be one of 'Never', 'IfNotPresent', 'Always'"
        ));
    }
    let interval = signed_duration_of(run, "interval");
    if !interval.is_null() && reflect != "Always" {
        return Err(fail!(
            "the --interval flag can only be used with the 'Always' digest reflection policy, use --reflect-digest=Always"
        ));
    }
    Ok(json!({
        "imageRepositoryRef": {"name": image},
        "policy": choice,
        "filterTags": filter,
        "digestReflectionPolicy": text_of(run, "reflect-digest"),
        "interval": interval,
    }))
}

/// How the newest is found. A range together with an order gives an empty policy, as upstream does.
fn choice(run: &Invocation) -> Result<Value, CliError> {
    let (range, alpha, numeric) =
        (run.some("select-semver"), run.some("select-alpha"), run.some("select-numeric"));
    let order = |flag: &str, order: &str| match order {
        "asc" | "desc" => Ok(json!({ "order": order })),
        _ => Err(fail!("--{flag} must be one of [\"asc\", \"desc\"]")),
    };
    match (range, alpha, numeric) {
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => Ok(json!({})),
        (None, Some(_), Some(_)) => {
            Err(fail!("only one of --select-semver, --select-alpha or --select-numeric can be specified"))
        }
        (Some(range), None, None) => Ok(json!({"semver": {"range": range}})),
        (None, Some(alpha), None) => Ok(json!({"alphabetical": order("select-alpha", alpha)?})),
        (None, None, Some(numeric)) => Ok(json!({"numerical": order("select-numeric", numeric)?})),
        (None, None, None) => {
            Err(fail!("a policy must be provided with either --select-semver or --select-alpha"))
        }
    }
}

fn filter(run: &Invocation) -> Result<Value, CliError> {
    let (pattern, extract) = (run.some("filter-regex"), run.some("filter-extract"));
    let Some(pattern) = pattern else {
        return match extract {
            Some(_) => Err(fail!("cannot specify --filter-extract without specifying --filter-regex")),
            None => Ok(Value::Null),
        };
    };
    let regex =
        regex::Regex::new(pattern).map_err(|_| fail!("--filter-regex is an invalid regex pattern"))?;
    if let Some(extract) = extract {
        check_extract(extract, &regex)?;
    }
    Ok(json!({"pattern": pattern, "extract": run.text("filter-extract")}))
}

/// Every `$name` and `${name}` must be a group of the pattern; numbers are left to the controller.
fn check_extract(template: &str, regex: &regex::Regex) -> Result<(), CliError> {
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
            continue;
        }
        let braced = rest.strip_prefix('{');
        let name_on = braced.unwrap_or(rest);
        let end =
            name_on.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(name_on.len());
        let (name, after) = name_on.split_at(end);
        let after = if braced.is_some() { after.strip_prefix('}') } else { Some(after) };
        let Some(after) = after.filter(|_| !name.is_empty()) else {
            return Err(fail!("--filter-extract is malformed"));
        };
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number && !regex.capture_names().flatten().any(|known| known == name) {
            return Err(fail!("capture group ${name} used in --filter-extract not found in --filter-regex"));
        }
        rest = after;
    }
    Ok(())
}

pub(super) fn update(run: &Invocation) -> Result<Value, CliError> {
    let needed =
        |flag: &str, what: &str| run.some(flag).ok_or_else(|| fail!("{what} is required (--{flag})"));
    let repository = needed("git-repo-ref", "a reference to a GitRepository")?;
    let branch = needed("checkout-branch", "the Git repository branch")?;
    let author = needed("author-name", "the author name")?;
    let email = needed("author-email", "the author email")?;
    let (key, kind) = (run.some("signing-key-secret"), run.some("signing-key-type"));
    if kind.is_some() && key.is_none() {
        return Err(fail!("--signing-key-type requires --signing-key-secret"));
    }
    if kind.is_some_and(|kind| !matches!(kind, "gpg" | "ssh")) {
        return Err(fail!("--signing-key-type must be one of: gpg, ssh"));
    }
    let signing = key.map_or(
        Value::Null,
        |name| json!({"secretRef": {"name": name}, "type": text_of(run, "signing-key-type")}),
    );
    Ok(json!({
        "sourceRef": {"kind": "GitRepository", "name": repository, "namespace": text_of(run, "git-repo-namespace")},
        "git": {
            "checkout": {"ref": {"branch": branch}},
            "commit": {
                "author": {"name": author, "email": email},
                "messageTemplate": text_of(run, "commit-template"),
                "signingKey": signing,
            },
            "push": run.some("push-branch").map_or(Value::Null, |branch| json!({ "branch": branch })),
        },
        "interval": run.text("interval"),
        "update": run.some("git-repo-path").map_or(Value::Null, |path| json!({"path": path, "strategy": "Setters"})),
    }))
}
