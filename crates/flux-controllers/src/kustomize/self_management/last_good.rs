//! The last set of this system that came up, kept in Secrets beside its Kustomization: compressed, and in several where one
//! would be too large. With it goes what is being tried, and what was tried in vain.
//!
//! Written with the controller's own rights; whatever is read back is applied with those of the Kustomization only, so
//! that whoever may write Secrets there gains nothing.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flux_api::Object;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::run::{KIND, Run, STATUS_MANAGER};

/// A Secret may hold a mebibyte.
const PART: usize = 768 * 1024;
const MOST_PARTS: usize = 8;
/// Of the set when it is unpacked.
const LARGEST: u64 = 64 * 1024 * 1024;
/// Sets that are remembered as tried.
const MOST_DIGESTS: usize = 10;
const LABEL: &str = "fluxcd.rs/last-good";

/// What is known about the sets of a Kustomization that holds this system.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub(super) struct State {
    pub(super) good: Option<Good>,
    pub(super) trial: Option<Trial>,
    pub(super) pinned: Option<Pinned>,
}

/// A set that came up.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct Good {
    pub(super) revision: String,
    /// Of the manifests, as `.status.history` has it.
    pub(super) digest: String,
    /// Of the compressed set.
    packed: String,
    parts: usize,
}

/// What was applied and has not come up yet.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct Trial {
    pub(super) revision: String,
    /// More than one where the Kustomization itself changed and was built anew.
    pub(super) digests: Vec<String>,
    /// In seconds since 1970.
    pub(super) since: i64,
    /// The set changed the source that it comes from.
    pub(super) source_changed: bool,
}

/// What did not come up and is not tried again.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct Pinned {
    pub(super) revision: String,
    pub(super) digests: Vec<String>,
    pub(super) why: String,
    /// The last good set is back.
    pub(super) restored: bool,
}

impl State {
    /// Starts to try a set, or goes on with it.
    pub(super) fn try_set(&mut self, revision: &str, digest: &str, now: i64) {
        self.pinned = None;
        match &mut self.trial {
            Some(trial) if trial.revision == revision => {
                if !trial.digests.iter().any(|known| known == digest) && trial.digests.len() < MOST_DIGESTS {
                    trial.digests.push(digest.to_owned());
                }
            }
            trial => {
                let source_changed = trial.as_ref().is_some_and(|trial| trial.source_changed);
                *trial = Some(Trial {
                    revision: revision.to_owned(),
                    digests: vec![digest.to_owned()],
                    since: now,
                    source_changed,
                });
            }
        }
    }

    /// Gives up what is being tried.
    pub(super) fn give_up(&mut self, why: &str) {
        if let Some(trial) = self.trial.take() {
            self.pinned = Some(Pinned {
                revision: trial.revision,
                digests: trial.digests,
                why: why.to_owned(),
                restored: false,
            });
        }
    }

    pub(super) fn is_pinned(&self, digest: &str) -> bool {
        self.pinned.as_ref().is_some_and(|pinned| pinned.digests.iter().any(|known| known == digest))
    }
}

/// What is kept for the Kustomization; nothing where nothing is, or where it cannot be read.
pub(super) async fn read(run: &Run<'_>) -> Result<State, kube::Error> {
    let Some(secret) = api(run).get_opt(&name(run)).await? else { return Ok(State::default()) };
    let data = secret.data.unwrap_or_default();
    let state = data.get("state").and_then(|bytes| serde_json::from_slice(&bytes.0).ok());
    Ok(state.unwrap_or_default())
}

/// Keeps the state, with the set it speaks of as it was.
pub(super) async fn write(run: &Run<'_>, state: &State) -> Result<(), kube::Error> {
    let first = match &state.good {
        Some(_) => {
            api(run).get_opt(&name(run)).await?.and_then(|mut secret| secret.data.as_mut()?.remove("set"))
        }
        None => None,
    };
    write_first(run, state, first.map(|bytes| bytes.0).unwrap_or_default()).await
}

/// Keeps `objects` as the last good set; `false` where they are too large.
pub(super) async fn keep(
    run: &Run<'_>,
    revision: &str,
    digest: &str,
    objects: &[Value],
) -> Result<bool, kube::Error> {
    let Some(parts) = pack(objects) else { return Ok(false) };
    let packed = digest_of(&parts.concat());
    for (number, part) in parts.iter().enumerate().skip(1) {
        let name = part_name(run, &packed, number);
        write_secret(run, &name, json!({ "set": ByteString(part.clone()) })).await?;
    }
    let good = Good { revision: revision.to_owned(), digest: digest.to_owned(), packed, parts: parts.len() };
    let state = State { good: Some(good.clone()), trial: None, pinned: None };
    write_first(run, &state, parts.into_iter().next().unwrap_or_default()).await?;
    forget_other_parts(run, &good).await;
    Ok(true)
}

/// The last good set.
pub(super) async fn load(run: &Run<'_>, good: &Good) -> Result<Vec<Value>, String> {
    let mut packed = Vec::new();
    for number in 0..good.parts.min(MOST_PARTS) {
        let name = if number == 0 { name(run) } else { part_name(run, &good.packed, number) };
        let secret = api(run).get(&name).await.map_err(|error| format!("Secret {name}: {error}"))?;
        let part = secret.data.unwrap_or_default().remove("set").unwrap_or_default();
        packed.extend_from_slice(&part.0);
    }
    if digest_of(&packed) != good.packed {
        return Err(format!("Secret {} was changed", name(run)));
    }
    unpack(&packed).ok_or_else(|| format!("Secret {} cannot be unpacked", name(run)))
}

fn api(run: &Run<'_>) -> Api<Secret> {
    Api::namespaced(run.ctx.client.clone(), run.namespace())
}

/// `<Kustomization>-last-good`, shortened where that is no name.
pub(super) fn name(run: &Run<'_>) -> String {
    secret_name(run.object.name())
}

fn secret_name(kustomization: &str) -> String {
    if kustomization.len() <= 200 {
        return format!("{kustomization}-last-good");
    }
    format!(
        "{}-{}-last-good",
        kustomization[..180].trim_end_matches(['-', '.']),
        &digest_of(kustomization.as_bytes())[..8]
    )
}

fn part_name(run: &Run<'_>, packed: &str, number: usize) -> String {
    format!("{}-{}-{number}", name(run), packed.get(..8).unwrap_or_default())
}

async fn write_first(run: &Run<'_>, state: &State, set: Vec<u8>) -> Result<(), kube::Error> {
    let state = serde_json::to_vec(state).map_err(kube::Error::SerdeError)?;
    write_secret(run, &name(run), json!({ "state": ByteString(state), "set": ByteString(set) })).await
}

async fn write_secret(run: &Run<'_>, name: &str, data: Value) -> Result<(), kube::Error> {
    let owner = json!({
        "apiVersion": KIND.api_version(), "kind": KIND.kind, "name": run.object.name(),
        "uid": run.raw.uid(),
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": name, "labels": { LABEL: label(run) },
            // It goes with its Kustomization.
            "ownerReferences": [owner],
        },
        "data": data,
    });
    let parameters = PatchParams::apply(STATUS_MANAGER).force();
    api(run).patch(name, &parameters, &Patch::Apply(secret)).await.map(|_| ())
}

/// A label holds 63 letters, fewer than a name.
fn label(run: &Run<'_>) -> String {
    digest_of(run.object.name().as_bytes())[..16].to_owned()
}

async fn forget_other_parts(run: &Run<'_>, good: &Good) {
    let own: Vec<String> = (1..good.parts).map(|number| part_name(run, &good.packed, number)).collect();
    let parameters = ListParams::default().labels(&format!("{LABEL}={}", label(run)));
    let Ok(list) = api(run).list_metadata(&parameters).await else { return };
    for secret in list.items {
        let found = secret.name_any();
        if found != name(run) && !own.contains(&found) {
            // What cannot be deleted now is deleted with the next set.
            let _ = api(run).delete(&found, &DeleteParams::default()).await;
        }
    }
}

fn digest_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// In parts that fit a Secret each; `None` where they are too many.
fn pack(objects: &[Value]) -> Option<Vec<Vec<u8>>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&serde_json::to_vec(objects).ok()?).ok()?;
    let packed = encoder.finish().ok()?;
    let parts: Vec<Vec<u8>> = packed.chunks(PART).map(<[u8]>::to_vec).collect();
    (parts.len() <= MOST_PARTS).then_some(parts)
}

fn unpack(packed: &[u8]) -> Option<Vec<Value>> {
    let mut text = Vec::new();
    GzDecoder::new(packed).take(LARGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hexadecimal digits of digests: gzip halves them and no more.
    fn incompressible(kibibytes: usize) -> Vec<Value> {
        let lines = (0..kibibytes * 16).map(|line: usize| digest_of(&line.to_le_bytes()));
        vec![json!({"kind": "ConfigMap", "data": {"text": lines.collect::<String>()}})]
    }

    #[test]
    fn a_set_comes_back_from_as_many_parts_as_it_needs_and_one_too_large_is_not_kept() {
        let small = vec![json!({"kind": "ConfigMap"})];
        assert_eq!(pack(&small).unwrap().len(), 1);
        let large = incompressible(3 * 1024);
        let parts = pack(&large).unwrap();
        assert!(parts.len() > 1 && parts.iter().all(|part| part.len() <= PART), "{}", parts.len());
        assert_eq!(unpack(&parts.concat()).unwrap(), large);
        assert_eq!(unpack(b"no gzip"), None);
        assert_eq!(pack(&incompressible(16 * 1024)), None);
    }

    #[test]
    fn what_was_given_up_is_pinned_until_another_set_is_tried() {
        let mut state = State::default();
        state.try_set("one", "a", 5);
        state.try_set("one", "b", 9);
        assert_eq!(state.trial.as_ref().map(|trial| trial.since), Some(5), "a trial that goes on");
        state.give_up("broken");
        assert!(state.is_pinned("a") && state.is_pinned("b") && !state.is_pinned("c"));
        state.try_set("two", "c", 20);
        assert!(!state.is_pinned("a"));
        assert_eq!(state.trial.as_ref().map(|trial| trial.since), Some(20));
    }

    #[test]
    fn names_of_secrets_are_names() {
        assert_eq!(secret_name("flux-system"), "flux-system-last-good");
        let long = secret_name(&"a".repeat(253));
        assert!(long.len() < 220, "{long}");
        assert_ne!(long, secret_name(&"a".repeat(252)));
    }
}
