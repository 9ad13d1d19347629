//! Upstream's tables of what a flag takes, each played through a command that has the flag.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::Answer;
use crate::folder::Corpus;
use crate::play::{DEAD, Place};

/// A command with the flag, and how its output shows a value that was taken. Where nothing is shown, taking it is all.
struct Flag {
    before: &'static [&'static str],
    flag: &'static str,
    after: &'static [&'static str],
    shown: fn(&str) -> Vec<String>,
}

fn flag(group: &str) -> Option<Flag> {
    let kustomization: &[_] = &["create", "kustomization", "app"];
    let release: &[_] = &["create", "helmrelease", "app", "--chart=app"];
    let key: &[_] = &["create", "secret", "git", "app", "--url=ssh://git@127.0.0.1:1/app"];
    let git: &[_] = &["--source=GitRepository/app", "--export"];
    let found = |before, flag, after, shown| Some(Flag { before, flag, after, shown });
    match group {
        "flags_safe_relative_path" => found(kustomization, "path", git, |path| vec![format!("path: {path}")]),
        "flags_kustomization_source" => found(kustomization, "source", &["--export"], reference),
        "flags_decryption_provider" => found(kustomization, "decryption-provider", git, provider),
        "flags_helm_chart_source" => found(release, "source", &["--export"], reference),
        "flags_crds" => found(release, "crds", &["--source=HelmRepository/app", "--export"], |policy| {
            vec![format!("crds: {policy}")]
        }),
        "flags_rsa_key_bits" => found(key, "ssh-rsa-bits", &["--ssh-key-algorithm=rsa"], nothing),
        "flags_ecdsa_curve" => found(key, "ssh-ecdsa-curve", &["--ssh-key-algorithm=ecdsa"], nothing),
        "flags_public_key_algorithm" => found(key, "ssh-key-algorithm", &[], nothing),
        "flags_gitlab_visibility" => {
            found(&["bootstrap", "gitlab", "--owner=team", "--repository=fleet"], "visibility", &[], nothing)
        }
        "flags_log_level" => found(&["logs"], "level", &[], nothing),
        "flags_source_oci_verify_provider" => found(
            &["create", "source", "oci", "app", "--url=oci://127.0.0.1:1/app", "--tag=1"],
            "verify-provider",
            &["--export"],
            provider,
        ),
        "flags_source_bucket_provider" => found(
            &["create", "source", "bucket", "app", "--endpoint=127.0.0.1:1", "--bucket-name=app"],
            "provider",
            &["--export"],
            provider,
        ),
        _ => None,
    }
}

fn reference(source: &str) -> Vec<String> {
    let (kind, name) = source.split_once('/').unwrap();
    vec![format!("kind: {kind}"), format!("name: {name}")]
}

fn provider(name: &str) -> Vec<String> {
    vec![format!("provider: {name}")]
}

fn nothing(_: &str) -> Vec<String> {
    Vec::new()
}

/// `None` for what is no table of a flag.
pub fn play(corpus: &Corpus, case: &Value) -> Option<Answer> {
    let flag = flag(case["group"].as_str()?)?;
    let (input, output) = (case["input"].as_str()?, case["output"].as_str()?);
    let place = Place::new(corpus);
    fs::write(place.kubeconfig(), DEAD).unwrap();
    let mut words: Vec<String> = flag.before.iter().map(|word| (*word).to_owned()).collect();
    words.push(format!("--{}={input}", flag.flag));
    words.extend(flag.after.iter().map(|word| (*word).to_owned()));
    let run = place.command(case, &place.values(case), &words).stdin(Stdio::null()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let refused = stderr.contains("invalid argument");
    let mut wrong = Vec::new();
    if refused != (output == "error") {
        wrong.push(format!("{words:?}: {stderr}"));
    } else if !refused {
        let missing =
            (flag.shown)(output).into_iter().filter(|line| !stdout.lines().any(|l| l.trim() == line));
        wrong.extend(missing.map(|line| format!("{words:?} does not show '{line}': {stdout}{stderr}")));
    }
    Some(Answer::Played(wrong))
}
