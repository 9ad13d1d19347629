//! `trustpolicy.json`: for which repositories whose signatures count, and what is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use jiff::Timestamp;
use regex::Regex;
use serde::Deserialize;

use super::chain;
use super::name::Name;

const ANY: &str = "*";
const SUBJECT: &str = "x509.subject";
const STORES: [&str; 3] = ["ca", "signingAuthority", "tsa"];

static DOMAIN: LazyLock<Regex> = LazyLock::new(|| {
    let label = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    Regex::new(&format!(r"^{label}(?:\.{label})*(?::[0-9]+)?$")).expect("a fixed expression")
});
static REPOSITORY: LazyLock<Regex> = LazyLock::new(|| {
    let part = "[a-z0-9]+(?:(?:[._]|__|-*)[a-z0-9]+)*";
    Regex::new(&format!("^{part}(?:/{part})*$")).expect("a fixed expression")
});

/// What is looked at in a signature beside that it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Check {
    Integrity,
    Authenticity,
    AuthenticTimestamp,
    Expiry,
    Revocation,
}

/// What is done about a flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Action {
    Enforce,
    Log,
    Skip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Strict,
    Permissive,
    Audit,
    Skip,
}

pub(super) struct Policy {
    statements: Vec<Statement>,
}

pub(super) struct Statement {
    name: String,
    level: Level,
    overrides: BTreeMap<Check, Action>,
    /// Whether a timestamp is wanted only once a chain has expired.
    only_after_expiry: bool,
    stores: Vec<String>,
    /// Nobody in particular, when it is empty.
    identities: Vec<Name>,
    anybody: bool,
    scopes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    version: String,
    #[serde(default)]
    trust_policies: Vec<StatementInFile>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatementInFile {
    name: String,
    signature_verification: Verification,
    trust_stores: Vec<String>,
    trusted_identities: Vec<String>,
    registry_scopes: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Verification {
    level: String,
    #[serde(rename = "override")]
    overrides: BTreeMap<String, String>,
    verify_timestamp: String,
}

impl Policy {
    pub(super) fn from_json(json: &[u8]) -> Result<Self, String> {
        let file: File = serde_json::from_slice(json)
            .map_err(|error| format!("error occurred while parsing trustpolicy.json: {error}"))?;
        match file.version.as_str() {
            "1.0" => {}
            "" => {
                return Err(
                    "oci trust policy document has empty version, version must be specified".to_owned()
                );
            }
            other => return Err(format!("oci trust policy document uses unsupported version \"{other}\"")),
        }
        if file.trust_policies.is_empty() {
            return Err("oci trust policy document can not have zero trust policy statements".to_owned());
        }
        let mut names = BTreeSet::new();
        let mut scopes = BTreeSet::new();
        let mut statements = Vec::new();
        for statement in file.trust_policies {
            let statement =
                Statement::read(statement).map_err(|problem| format!("oci trust policy: {problem}"))?;
            if !names.insert(statement.name.clone()) {
                return Err(format!(
                    "multiple oci trust policy statements use the same name \"{}\", statement names must be unique",
                    statement.name
                ));
            }
            for scope in &statement.scopes {
                if !scopes.insert(scope.clone()) {
                    return Err(format!(
                        "registry scope \"{scope}\" is present in multiple oci trust policy statements, one registry scope value can only be associated with one statement"
                    ));
                }
            }
            statements.push(statement);
        }
        Ok(Self { statements })
    }

    /// The statement that names the repository, or else the one for all.
    pub(super) fn applicable(&self, scope: &str) -> Option<&Statement> {
        let with = |wanted: &str| {
            self.statements.iter().find(|statement| statement.scopes.iter().any(|scope| scope == wanted))
        };
        with(scope).or_else(|| with(ANY))
    }
}

impl Statement {
    fn read(file: StatementInFile) -> Result<Self, String> {
        let StatementInFile { name, signature_verification: verification, trust_stores: stores, .. } = file;
        if name.is_empty() {
            return Err(
                "a trust policy statement is missing a name, every statement requires a name".to_owned()
            );
        }
        let of = |problem: String| format!("trust policy statement \"{name}\" {problem}");
        let level = level(&verification.level)
            .map_err(|problem| of(format!("has invalid signatureVerification: {problem}")))?;
        let overrides = overrides(level, &verification)
            .map_err(|problem| of(format!("has invalid signatureVerification: {problem}")))?;
        if !["", "always", "afterCertExpiry"].contains(&verification.verify_timestamp.as_str()) {
            let found = &verification.verify_timestamp;
            let problem =
                format!("verifyTimestamp must be \"always\" or \"afterCertExpiry\", but got \"{found}\"");
            return Err(of(format!("has invalid signatureVerification: {problem}")));
        }
        // What is skipped needs nobody; upstream passes over whom it names.
        let (stores, identities, anybody) = match level {
            Level::Skip => (Vec::new(), Vec::new(), false),
            Level::Strict | Level::Permissive | Level::Audit => {
                if stores.is_empty() || file.trusted_identities.is_empty() {
                    return Err(of(
                        "is either missing trust stores or trusted identities, both must be specified"
                            .to_owned(),
                    ));
                }
                check_stores(&stores).map_err(of)?;
                let (identities, anybody) = identities(&file.trusted_identities).map_err(of)?;
                (stores, identities, anybody)
            }
        };
        check_scopes(&file.registry_scopes).map_err(of)?;
        let only_after_expiry = verification.verify_timestamp == "afterCertExpiry";
        Ok(Self {
            name,
            level,
            overrides,
            only_after_expiry,
            stores,
            identities,
            anybody,
            scopes: file.registry_scopes,
        })
    }

    pub(super) fn skips(&self) -> bool {
        self.level == Level::Skip
    }

    pub(super) fn action(&self, check: Check) -> Action {
        if let Some(action) = self.overrides.get(&check) {
            return *action;
        }
        match (self.level, check) {
            (Level::Skip, _) => Action::Skip,
            (_, Check::Integrity) | (Level::Strict, _) | (Level::Permissive, Check::Authenticity) => {
                Action::Enforce
            }
            (Level::Permissive | Level::Audit, _) => Action::Log,
        }
    }

    pub(super) fn has_store(&self, kind: &str) -> bool {
        self.stores.iter().any(|store| store.split(':').next() == Some(kind))
    }

    pub(super) fn wants_timestamp(&self, certificates: &[Vec<u8>], now: Timestamp) -> bool {
        self.has_store("tsa") && (!self.only_after_expiry || chain::has_expired(certificates, now))
    }

    /// Whether the certificate is one of those that the statement names.
    pub(super) fn identifies(&self, leaf: &[u8]) -> Result<(), String> {
        if self.anybody {
            return Ok(());
        }
        if self.identities.is_empty() {
            return Err(format!(
                "no x509 trusted identities are configured in the trust policy \"{}\"",
                self.name
            ));
        }
        let subject = Name::of_certificate(leaf).map_err(|problem| {
            format!(
                "error while parsing the certificate subject from the digital signature. error : {problem}"
            )
        })?;
        if self.identities.iter().any(|identity| identity.is_part_of(&subject)) {
            return Ok(());
        }
        Err(format!(
            "signing certificate from the digital signature does not match the X.509 trusted identities defined in the trust policy \"{}\"",
            self.name
        ))
    }
}

fn level(text: &str) -> Result<Level, String> {
    match text {
        "strict" => Ok(Level::Strict),
        "permissive" => Ok(Level::Permissive),
        "audit" => Ok(Level::Audit),
        "skip" => Ok(Level::Skip),
        "" => {
            Err("signature verification level is empty or missing in the trust policy statement".to_owned())
        }
        other => Err(format!("invalid signature verification level \"{other}\"")),
    }
}

fn overrides(level: Level, verification: &Verification) -> Result<BTreeMap<Check, Action>, String> {
    if level == Level::Skip && !verification.overrides.is_empty() {
        return Err(
            "signature verification level \"skip\" can't be used to customize signature verification"
                .to_owned(),
        );
    }
    let read = |(check, action): (&String, &String)| {
        let known: Check = serde_json::from_value(check.as_str().into()).map_err(|_| {
            format!("verification type \"{check}\" in custom signature verification is not supported")
        })?;
        let action: Action = serde_json::from_value(action.as_str().into()).map_err(|_| {
            format!("verification action \"{action}\" in custom signature verification is not supported, supported values are \"enforce\", \"log\" and \"skip\"")
        })?;
        match (known, action) {
            (Check::Integrity, _) => Err(format!(
                "\"{check}\" verification can not be overridden in custom signature verification"
            )),
            (Check::Authenticity | Check::AuthenticTimestamp | Check::Expiry, Action::Skip) => {
                Err(format!("\"{check}\" verification can not be skipped in custom signature verification"))
            }
            (known, action) => Ok((known, action)),
        }
    };
    verification.overrides.iter().map(read).collect()
}

fn check_stores(stores: &[String]) -> Result<(), String> {
    for store in stores {
        let (kind, name) = store.split_once(':').ok_or_else(|| {
            format!("has malformed trust store value \"{store}\". The required format is <TrustStoreType>:<TrustStoreName>")
        })?;
        if !STORES.contains(&kind) {
            return Err(format!(
                "uses an unsupported trust store type \"{kind}\" in trust store value \"{store}\""
            ));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if name.is_empty() || !name.chars().all(allowed) {
            return Err(format!(
                "uses an unsupported trust store name \"{name}\" in trust store value \"{store}\""
            ));
        }
    }
    Ok(())
}

/// Those who are named, and whether that is everybody. Identities of kinds that plugins know are passed over.
fn identities(texts: &[String]) -> Result<(Vec<Name>, bool), String> {
    if texts.iter().any(|text| text == ANY) {
        return match texts.len() {
            1 => Ok((Vec::new(), true)),
            _ => Err("uses a wildcard trusted identity '*', a wildcard identity cannot be used in conjunction with other values".to_owned()),
        };
    }
    let mut names: Vec<Name> = Vec::new();
    for text in texts {
        let (kind, value) = text
            .split_once(':')
            .ok_or_else(|| format!("has trusted identity \"{text}\" missing separator"))?;
        if kind != SUBJECT {
            continue;
        }
        if value.is_empty() {
            return Err(format!("has trusted identity \"{text}\" without an identity value"));
        }
        let name = Name::parse(value).map_err(|problem| {
            format!("has trusted identity \"{text}\" with invalid identity value: {problem}")
        })?;
        if names.iter().any(|other| other.is_part_of(&name) || name.is_part_of(other)) {
            return Err(format!("has overlapping x509 trustedIdentities, \"{text}\" overlaps with another"));
        }
        names.push(name);
    }
    Ok((names, false))
}

fn check_scopes(scopes: &[String]) -> Result<(), String> {
    if scopes.is_empty() {
        return Err(
            "has zero registry scopes, it must specify registry scopes with at least one value".to_owned()
        );
    }
    if scopes.len() > 1 && scopes.iter().any(|scope| scope == ANY) {
        return Err("uses wildcard registry scope '*', a wildcard scope cannot be used in conjunction with other scope values".to_owned());
    }
    for scope in scopes.iter().filter(|scope| *scope != ANY) {
        let parts = scope.split_once('/');
        let valid = parts
            .is_some_and(|(domain, repository)| DOMAIN.is_match(domain) && REPOSITORY.is_match(repository));
        if !valid {
            return Err(format!(
                "has registry scope \"{scope}\", which is not valid, make sure it is a fully qualified repository without the scheme, protocol or tag. For example domain.com/my/repository"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn statement(more: Value) -> Value {
        let mut statement = json!({
            "name": "one", "signatureVerification": { "level": "strict" }, "trustStores": ["ca:fleet"],
            "trustedIdentities": ["*"], "registryScopes": ["*"],
        });
        statement.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        statement
    }

    fn policy(statements: &[Value]) -> Result<Policy, String> {
        Policy::from_json(json!({ "version": "1.0", "trustPolicies": statements }).to_string().as_bytes())
    }

    #[test]
    fn a_statement_for_a_repository_goes_before_the_one_for_all() {
        let own = json!({ "name": "own", "registryScopes": ["reg.example.com:5000/org/app"] });
        let policy = policy(&[statement(json!({})), statement(own)]).unwrap();
        assert_eq!(policy.applicable("reg.example.com:5000/org/app").unwrap().name, "own");
        assert_eq!(policy.applicable("reg.example.com/org/app").unwrap().name, "one");
    }

    #[test]
    fn levels_and_overrides_say_what_is_done_about_a_flaw() {
        let actions = |verification: Value| {
            let policy = policy(&[statement(json!({ "signatureVerification": verification }))]).unwrap();
            let statement = policy.applicable("a.b/c").unwrap();
            [Check::Authenticity, Check::AuthenticTimestamp, Check::Expiry, Check::Revocation]
                .map(|check| statement.action(check))
        };
        use Action::{Enforce, Log, Skip};
        assert_eq!(actions(json!({ "level": "strict" })), [Enforce; 4]);
        assert_eq!(actions(json!({ "level": "permissive" })), [Enforce, Log, Log, Log]);
        assert_eq!(actions(json!({ "level": "audit" })), [Log; 4]);
        let custom = json!({ "level": "strict", "override": { "revocation": "skip", "expiry": "log" } });
        assert_eq!(actions(custom), [Enforce, Enforce, Log, Skip]);
        assert_eq!(actions(json!({ "level": "skip" })), [Skip; 4]);
    }

    #[test]
    fn what_is_wrong_with_a_policy_is_named() {
        for (more, words) in [
            (json!({ "name": "" }), "missing a name"),
            (json!({ "signatureVerification": {} }), "level is empty or missing"),
            (
                json!({ "signatureVerification": { "level": "lax" } }),
                "invalid signature verification level \"lax\"",
            ),
            (
                json!({ "signatureVerification": { "level": "skip", "override": { "expiry": "log" } } }),
                "customize",
            ),
            (
                json!({ "signatureVerification": { "level": "strict", "override": { "integrity": "log" } } }),
                "overridden",
            ),
            (
                json!({ "signatureVerification": { "level": "strict", "override": { "expiry": "skip" } } }),
                "can not be skipped",
            ),
            (
                json!({ "signatureVerification": { "level": "strict", "override": { "x": "skip" } } }),
                "type \"x\"",
            ),
            (
                json!({ "signatureVerification": { "level": "strict", "override": { "expiry": "x" } } }),
                "action \"x\"",
            ),
            (
                json!({ "signatureVerification": { "level": "strict", "verifyTimestamp": "never" } }),
                "verifyTimestamp",
            ),
            (json!({ "trustStores": [] }), "missing trust stores"),
            (json!({ "trustStores": ["fleet"] }), "malformed trust store value"),
            (json!({ "trustStores": ["x:fleet"] }), "unsupported trust store type"),
            (json!({ "trustStores": ["ca:../x"] }), "unsupported trust store name"),
            (json!({ "trustedIdentities": ["*", "x509.subject:C=a,ST=b,O=c"] }), "wildcard trusted identity"),
            (json!({ "trustedIdentities": ["x509"] }), "missing separator"),
            (json!({ "trustedIdentities": ["x509.subject:"] }), "without an identity value"),
            (json!({ "trustedIdentities": ["x509.subject:CN=a"] }), "mandatory"),
            (
                json!({ "trustedIdentities": ["x509.subject:C=a,ST=b,O=c", "x509.subject:C=a,ST=b,O=c,CN=d"] }),
                "overlapping",
            ),
            (json!({ "registryScopes": [] }), "zero registry scopes"),
            (json!({ "registryScopes": ["*", "a.b/c"] }), "wildcard registry scope"),
            (json!({ "registryScopes": ["https://a.b/c"] }), "not valid"),
            (json!({ "registryScopes": ["a.b"] }), "not valid"),
        ] {
            let problem = policy(&[statement(more.clone())]).err().unwrap_or_default();
            assert!(problem.contains(words), "{more}: {problem}");
        }
        let twice = policy(&[statement(json!({})), statement(json!({ "registryScopes": ["a.b/c"] }))]);
        assert!(twice.err().unwrap().contains("same name"));
        let twice = policy(&[statement(json!({})), statement(json!({ "name": "two" }))]);
        assert!(twice.err().unwrap().contains("multiple oci trust policy statements"));
        for (text, words) in [
            ("", "parsing"),
            ("{}", "empty version"),
            (r#"{"version":"9"}"#, "unsupported version"),
            (r#"{"version":"1.0"}"#, "zero trust policy"),
        ] {
            assert!(Policy::from_json(text.as_bytes()).err().unwrap().contains(words), "{text}");
        }
    }
}
