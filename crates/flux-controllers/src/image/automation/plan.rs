//! What to check out and where to push, from the automation and its GitRepository. Pure, except for the signing key.

use std::collections::BTreeMap;
use std::time::Duration;

use flux_api::image::{GitSpec, SigningKey, SigningKeyType};
use flux_api::source::{GitReference, GitRepository};
use flux_remote::git::{self, Person, PushOptions, Reference, Refspec, Signer};

use crate::source::access::{self, Secrets};

const TIMEOUT: Duration = Duration::from_secs(60);
/// What Flux means when nothing is said.
const DEFAULT_BRANCH: &str = "master";

/// How an automation uses its repository.
#[derive(Clone, Debug)]
pub struct Plan {
    pub reference: Reference,
    pub push_branch: String,
    /// The branch that is checked out, where it is one.
    pub checkout_branch: Option<String>,
    /// Whether another branch is pushed to than the one that is checked out.
    pub switches: bool,
    pub refspec: Option<(String, Refspec)>,
    pub options: BTreeMap<String, String>,
    pub author: Person,
    /// For each conversation with the server.
    pub timeout: Duration,
}

impl Plan {
    pub fn new(git: &GitSpec, repository: &GitRepository) -> Result<Self, String> {
        let given = git.checkout.as_ref().map(|checkout| &checkout.reference);
        let wanted: Option<&GitReference> = given.or(repository.spec.reference.as_ref());
        let push = git.push.clone().unwrap_or_default();
        let branch = wanted.and_then(|wanted| wanted.branch.clone()).filter(|branch| !branch.is_empty());
        let (push_branch, switches) = match push.branch {
            Some(own) => {
                let from = match wanted {
                    Some(_) => branch.as_deref().unwrap_or_default(),
                    None => DEFAULT_BRANCH,
                };
                let switches = own != from;
                (own, switches)
            }
            None => (branch.clone().ok_or("push spec not provided, and cannot be inferred from .spec.git.checkout.ref or GitRepository .spec.ref")?, false),
        };
        let refspec = match push.refspec {
            Some(text) => {
                let parsed = Refspec::parse(&text);
                let parsed = parsed.map_err(|error| format!("spec.git.push.refspec '{text}': {error}"))?;
                Some((text, parsed))
            }
            None => None,
        };
        let author = &git.commit.author;
        Ok(Self {
            reference: wanted.map(reference).unwrap_or_default(),
            push_branch,
            checkout_branch: branch,
            switches,
            refspec,
            options: push.options,
            author: Person::new(author.name.as_deref().unwrap_or_default(), &author.email),
            timeout: repository.spec.timeout.map_or(TIMEOUT, |timeout| timeout.to_std()),
        })
    }

    pub fn push_options(&self, force: bool) -> PushOptions {
        PushOptions { options: self.options.clone(), force, ..PushOptions::default() }
    }
}

fn reference(wanted: &GitReference) -> Reference {
    Reference {
        branch: wanted.branch.clone(),
        tag: wanted.tag.clone(),
        semver: wanted.semver.clone(),
        name: wanted.name.clone(),
        commit: wanted.commit.clone(),
    }
}

/// The key of a Secret in the automation's namespace.
pub async fn signer(secrets: Secrets<'_>, key: &SigningKey) -> Result<Signer, String> {
    let name = &key.secret_ref.name;
    let data = secrets.get(name).await.map_err(|error| {
        let cause = match error {
            access::Error::NoSecret(_) => format!("secrets \"{name}\" not found"),
            other => other.to_string(),
        };
        format!("could not find signing key secret '{name}': {cause}")
    })?;
    let text = |key: &'static str| data.secret_text(key).map_err(|error| error.to_string());
    let locked = |field: &str| {
        format!(
            "can not use passphrase protected signing key without '{field}' field present in secret {name}"
        )
    };
    match key.key_type.unwrap_or_default() {
        SigningKeyType::Gpg => {
            let ring = data
                .bytes("git.asc")
                .ok_or_else(|| format!("signing key secret '{name}' does not contain a 'git.asc' key"))?;
            let passphrase = data.bytes("passphrase").map(|_| text("passphrase")).transpose()?;
            match Signer::count_open_pgp(ring) {
                Ok(0 | 1) => {}
                Ok(_) => {
                    return Err(format!(
                        "multiple entities read from secret '{name}', could not determine which signing key to use"
                    ));
                }
                Err(error) => {
                    return Err(format!("could not read signing key from secret '{name}': {error}"));
                }
            }
            Signer::open_pgp(ring, passphrase.as_ref(), None).map_err(|error| match passphrase {
                None => locked("passphrase"),
                Some(_) => format!("could not use the signing key of secret {name}: {error}"),
            })
        }
        SigningKeyType::Ssh => {
            if data.bytes("identity").is_none() {
                return Err(format!("signing key secret '{name}' does not contain an 'identity' key"));
            }
            let password = data.bytes("password").map(|_| text("password")).transpose()?;
            // The line break at the end belongs to the key.
            let pem = flux_api::secret::SecretString::new(format!("{}\n", text("identity")?.expose()));
            Signer::ssh(&pem, password.as_ref()).map_err(|error| match error {
                git::Error::PassphraseMissing => locked("password"),
                other => format!("could not parse SSH signing key from secret '{name}': {other}"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn plan(git: Value, reference: Value) -> Result<Plan, String> {
        let mut git = git;
        git["commit"] = json!({ "author": { "email": "flux@example.com" } });
        let git: GitSpec = serde_json::from_value(git).unwrap();
        let mut spec = json!({ "url": "https://git.example.com/a", "interval": "1m" });
        if !reference.is_null() {
            spec["ref"] = reference;
        }
        let repository = json!({ "metadata": { "name": "a" }, "spec": spec });
        Plan::new(&git, &serde_json::from_value(repository).unwrap())
    }

    fn shown(git: Value, reference: Value) -> String {
        match plan(git, reference) {
            Ok(plan) => format!("{} {}", plan.push_branch, plan.switches),
            Err(error) => error,
        }
    }

    #[test]
    fn the_branch_to_push_is_the_one_given_or_the_one_checked_out() {
        let main = json!({ "branch": "main" });
        let none = "push spec not provided, and cannot be inferred from .spec.git.checkout.ref or GitRepository .spec.ref";
        assert_eq!(shown(json!({}), main.clone()), "main false");
        assert_eq!(shown(json!({ "push": { "branch": "main" } }), main.clone()), "main false");
        assert_eq!(shown(json!({ "push": { "branch": "auto" } }), main.clone()), "auto true");
        assert_eq!(shown(json!({ "checkout": { "ref": { "branch": "dev" } } }), main.clone()), "dev false");
        assert_eq!(shown(json!({}), Value::Null), none);
        assert_eq!(shown(json!({ "push": { "branch": "master" } }), Value::Null), "master false");
        assert_eq!(shown(json!({}), json!({ "tag": "v1" })), none);
        assert_eq!(shown(json!({ "push": { "branch": "main" } }), json!({ "tag": "v1" })), "main true");
        // A refspec alone still pushes the branch.
        let refspec =
            json!({ "push": { "refspec": "refs/heads/main:refs/heads/other", "options": { "a": "b" } } });
        let planned = plan(refspec, main.clone()).unwrap();
        assert_eq!((planned.push_branch.as_str(), planned.options["a"].as_str()), ("main", "b"));
        assert!(planned.refspec.is_some());
        let bad = shown(json!({ "push": { "refspec": "main" } }), main);
        assert!(bad.starts_with("spec.git.push.refspec 'main': "), "{bad}");
        assert_eq!(plan(json!({}), json!({ "branch": "main" })).unwrap().timeout.as_secs(), 60);
    }
}
