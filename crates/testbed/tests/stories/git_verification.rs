//! GitRepository: signatures, as `gpg` and `ssh-keygen` made them (recorded beside flux-remote's tests).

use flux_api::kinds::{Controller, GIT_REPOSITORY};
use serde_json::{Value, json};
use testbed::Cluster;

use crate::flux::{Flux, condition, ready};

crate::stories!(
    a_signature_is_asked_for_and_its_key_is_named,
    without_a_good_signature_there_is_no_artifact,
    a_change_of_keys_or_mode_is_noticed,
);

fn recorded(name: &str) -> String {
    let path = format!("{}/../flux-remote/tests/signatures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// Puts the recorded commits and the tag into `fleet`.
async fn start(cluster: &Cluster) -> Flux {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    let git = |arguments: &[&str], input: &str| flux.fleet.git(arguments, input.as_bytes()).unwrap();
    let blob = git(&["hash-object", "-w", "--stdin"], "signed: true\n");
    git(&["mktree"], &format!("100644 blob {blob}\tapp.yaml\n"));
    let put = |kind: &str, file: &str, reference: &str| {
        let id = git(&["hash-object", "-t", kind, "-w", "--stdin"], &recorded(file));
        git(&["update-ref", reference, &id], "");
        id
    };
    let commit = put("commit", "ann.commit", "refs/heads/ann");
    put("commit", "ssh-ed25519.commit", "refs/heads/ssh");
    put("commit", "expired.commit", "refs/heads/expired");
    put("tag", "ann.tag", "refs/tags/v1.0.0");
    flux.fleet.tag("light", &commit, None).unwrap();
    // The signed tag under a name it was not signed for.
    let tag = git(&["rev-parse", "refs/tags/v1.0.0"], "");
    git(&["update-ref", "refs/tags/v2.0.0", &tag], "");
    flux.fleet
        .commit_to("unsigned", "plain", &[testbed::git_server::repository::Change::Write("a", "1")])
        .unwrap();
    flux.secret("pgp", &[("ann.asc", &recorded("ann.asc")), ("expired.asc", &recorded("expired.asc"))]).await;
    flux.secret("ssh", &[("team.sshpub", &recorded("ssh-ed25519.pub")), ("other.asc", &recorded("rsa.asc"))])
        .await;
    flux
}

fn spec(flux: &Flux, reference: Value, mode: &str, secret: &str) -> Value {
    json!({
        "url": flux.server.http_url("fleet"), "interval": "1h", "ref": reference,
        "verify": { "mode": mode, "secretRef": { "name": secret } },
    })
}

async fn a_signature_is_asked_for_and_its_key_is_named(cluster: &Cluster) {
    let flux = start(cluster).await;
    let commit = flux.fleet.resolve("refs/heads/ann").unwrap();
    let tag = flux.fleet.git(&["rev-parse", "refs/tags/v1.0.0"], b"").unwrap();
    let (the_commit, the_tag) = (
        format!("\n\t- commit '{commit}' with key '6AA5E2C4491A7DFC'"),
        format!("\n\t- tag 'v1.0.0@{tag}' with key '6AA5E2C4491A7DFC'"),
    );
    let cases = [
        ("head", json!({ "branch": "ann" }), "HEAD", "pgp", "HEAD", the_commit.clone()),
        ("legacy", json!({ "branch": "ann" }), "head", "pgp", "HEAD", the_commit.clone()),
        ("tag", json!({ "tag": "v1.0.0" }), "Tag", "pgp", "Tag", the_tag.clone()),
        (
            "both",
            json!({ "semver": "1.x" }),
            "TagAndHEAD",
            "pgp",
            "TagAndHEAD",
            format!("{the_tag}{the_commit}"),
        ),
        ("ssh", json!({ "branch": "ssh" }), "HEAD", "ssh", "HEAD", "with key 'SHA256:".to_owned()),
    ];
    for (name, reference, mode, secret, _, _) in &cases {
        flux.apply(&GIT_REPOSITORY, name, spec(&flux, reference.clone(), mode, secret)).await;
    }
    for (name, _, _, _, mode, text) in &cases {
        let object = flux.ready(&GIT_REPOSITORY, name).await;
        let (status, reason, message) = condition(&object, "SourceVerified");
        assert_eq!((status, reason), ("True", "Succeeded"), "{name}");
        assert!(message.starts_with("verified signature of") && message.contains(text), "{name}: {message}");
        assert_eq!(object["status"]["sourceVerificationMode"], *mode, "{name}");
    }
}

async fn without_a_good_signature_there_is_no_artifact(cluster: &Cluster) {
    let flux = start(cluster).await;
    let cases = [
        (
            "unsigned",
            json!({ "branch": "unsigned" }),
            "HEAD",
            "pgp",
            "InvalidCommitSignature",
            "unsupported signature type: empty",
        ),
        (
            "expired",
            json!({ "branch": "expired" }),
            "HEAD",
            "pgp",
            "InvalidCommitSignature",
            "no matching key",
        ),
        (
            "stranger",
            json!({ "branch": "ssh" }),
            "HEAD",
            "pgp",
            "InvalidCommitSignature",
            "no SSH public keys found",
        ),
        (
            "light",
            json!({ "tag": "light" }),
            "Tag",
            "pgp",
            "InvalidGitObject",
            "tag 'light' since it is not signed",
        ),
        ("renamed", json!({ "tag": "v2.0.0" }), "Tag", "pgp", "InvalidGitObject", "v2.0.0@"),
        ("other", json!({ "tag": "v1.0.0" }), "TagAndHEAD", "ssh", "InvalidTagSignature", "no matching key"),
        (
            "missing",
            json!({ "branch": "ann" }),
            "HEAD",
            "nothing",
            "VerificationError",
            "public keys secret error",
        ),
        (
            "no-tag",
            json!({ "branch": "ann" }),
            "Tag",
            "pgp",
            "InvalidVerificationMode",
            "a tag reference is not specified",
        ),
    ];
    for (name, reference, mode, secret, _, _) in &cases {
        flux.apply(&GIT_REPOSITORY, name, spec(&flux, reference.clone(), mode, secret)).await;
    }
    for (name, _, _, _, reason, text) in &cases {
        let object = flux.not_ready(&GIT_REPOSITORY, name, reason).await;
        let (status, why, message) = condition(&object, "SourceVerified");
        assert_eq!((status, why), ("False", *reason), "{name}");
        assert!(message.contains(text), "{name}: {message}");
        assert!(object.pointer("/status/artifact").is_none(), "{name}");
        assert_eq!(condition(&object, "Stalled").0 == "True", *name == "no-tag", "{name}");
    }
    flux.event("unsigned", "InvalidCommitSignature", "signature verification of commit").await;
}

async fn a_change_of_keys_or_mode_is_noticed(cluster: &Cluster) {
    let flux = start(cluster).await;
    let verified = spec(&flux, json!({ "tag": "v1.0.0" }), "Tag", "pgp");
    flux.apply(&GIT_REPOSITORY, "fleet", verified).await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;
    // More is asked for than was checked.
    flux.apply(&GIT_REPOSITORY, "fleet", spec(&flux, json!({ "tag": "v1.0.0" }), "TagAndHEAD", "pgp")).await;
    flux.until(&GIT_REPOSITORY, "fleet", "both are checked", |object| {
        object["status"]["sourceVerificationMode"] == "TagAndHEAD" && ready(object).0 == "True"
    })
    .await;
    // Nothing is asked for any more.
    let spec_without =
        json!({ "url": flux.server.http_url("fleet"), "interval": "1h", "ref": { "tag": "v1.0.0" } });
    flux.apply(&GIT_REPOSITORY, "fleet", spec_without).await;
    let object = flux
        .until(&GIT_REPOSITORY, "fleet", "nothing is checked", |object| {
            object.pointer("/status/sourceVerificationMode").is_none() && ready(object).0 == "True"
        })
        .await;
    assert_eq!(condition(&object, "SourceVerified"), ("", "", ""));
    // What was there before anybody asked for a signature is served on, and is not ready.
    let unsigned = json!({
        "url": flux.server.http_url("fleet"), "interval": "1h", "ref": { "branch": "unsigned" },
    });
    flux.apply(&GIT_REPOSITORY, "unsigned", unsigned).await;
    let before = flux.ready(&GIT_REPOSITORY, "unsigned").await;
    flux.apply(&GIT_REPOSITORY, "unsigned", spec(&flux, json!({ "branch": "unsigned" }), "HEAD", "pgp"))
        .await;
    let refused = flux.not_ready(&GIT_REPOSITORY, "unsigned", "InvalidCommitSignature").await;
    assert_eq!(refused["status"]["artifact"], before["status"]["artifact"]);
    assert_eq!(crate::git_repository::download(&refused).await.len(), 1);
    // The right key comes later, and nobody has to do anything.
    flux.secret("later", &[("a.asc", &recorded("rsa.asc"))]).await;
    flux.apply(&GIT_REPOSITORY, "later", spec(&flux, json!({ "branch": "ann" }), "HEAD", "later")).await;
    flux.not_ready(&GIT_REPOSITORY, "later", "InvalidCommitSignature").await;
    flux.secret("later", &[("a.asc", &recorded("rsa.asc")), ("b.asc", &recorded("ann.asc"))]).await;
    flux.ready(&GIT_REPOSITORY, "later").await;
}
