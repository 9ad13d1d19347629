//! The keys that a Kustomization may decrypt with: from the Secret it names, or from the one a flag names for all.

use std::collections::BTreeMap;

use flux_build::decrypt::Keyring;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use sha2::{Digest, Sha256};

use super::failure::Failure;
use super::kms::ServiceKeys;
use super::kustomization::short;
use super::run::Run;

/// What a Kustomization decrypts with.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) keyring: Keyring,
    pub(super) services: ServiceKeys,
    /// Tells whether they are still the same.
    pub(super) fingerprint: [u8; 32],
}

/// `None` when the Kustomization does not decrypt.
pub(super) async fn keys(run: &Run<'_>) -> Result<Option<Keys>, Failure> {
    let Some(decryption) = &run.object.spec.decryption else { return Ok(None) };
    if let Some(reference) = &decryption.secret_ref {
        let place = format!("sops decryption Secret '{}/{}'", run.namespace(), reference.name);
        let data = secret(run, run.namespace(), &reference.name, &place).await?;
        return import(data, &place).map(Some).map_err(Failure::Build);
    }
    let options = &run.ctx.options;
    if let (Some(name), Some(namespace)) = (&options.sops_age_secret, &options.runtime_namespace) {
        let place = format!("sops SOPS age decryption Secret '{namespace}/{name}'");
        let mut data = secret(run, namespace, name, &place).await?;
        // Only age keys are for everyone: a cloud credential here would defeat the identity of each object.
        data.retain(|key, _| key.ends_with(".agekey"));
        return import(data, &place).map(Some).map_err(Failure::Build);
    }
    Ok(Some(Keys::default()))
}

async fn secret(
    run: &Run<'_>,
    namespace: &str,
    name: &str,
    place: &str,
) -> Result<BTreeMap<String, ByteString>, Failure> {
    let api: Api<Secret> = Api::namespaced(run.ctx.client.clone(), namespace);
    let secret = api.get(name).await.map_err(|error| match error {
        kube::Error::Api(answer) if answer.code == 404 => Failure::Build(answer.message.clone()),
        error => Failure::Build(format!("cannot get {place}: {}", short(&error))),
    })?;
    Ok(secret.data.unwrap_or_default())
}

fn import(data: BTreeMap<String, ByteString>, place: &str) -> Result<Keys, String> {
    let (mut keyring, mut services) = (Keyring::default(), ServiceKeys::default());
    let mut fingerprint = Sha256::new();
    for (name, ByteString(value)) in data {
        for part in [name.as_bytes(), &value] {
            fingerprint.update((part.len() as u64).to_le_bytes());
            fingerprint.update(part);
        }
        let failed = |why: String| format!("failed to import '{name}' data from {place}: {why}");
        let text = || std::str::from_utf8(&value).map_err(|_| failed("it is not text".to_owned()));
        if name.ends_with(".asc") {
            keyring.pgp.add_keys(&value).map_err(|error| failed(error.to_string()))?;
        } else if name.ends_with(".agekey") {
            keyring.age.add_key_file(text()?).map_err(|error| failed(error.to_string()))?;
        } else if let Some(identity) = services.import(&name, &value).map_err(failed)? {
            keyring.note_identity(identity);
        }
    }
    Ok(Keys { keyring, services, fingerprint: fingerprint.finalize().into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn keys_are_told_by_their_suffix_and_the_rest_is_not_looked_at() {
        let age = "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ";
        let error = import(data(&[("a.agekey", "nonsense")]), "Secret 'ns/x'").err().unwrap();
        assert!(error.starts_with("failed to import 'a.agekey' data from Secret 'ns/x'"), "{error}");
        assert!(!error.contains("nonsense"), "{error}");
        assert!(import(data(&[("notes.txt", age), ("sops.vault-token.old", "x")]), "s").is_ok());
        assert!(import(data(&[("key.asc", "-----BEGIN PGP")]), "s").is_err());
    }
}
