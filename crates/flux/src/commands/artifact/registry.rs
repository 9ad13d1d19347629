//! The registry of an artifact command: who logs in to it, and what an artifact of Flux is made of. The requests are
//! `flux_remote`'s.
//!
//! Credentials come from `--creds` or docker's configuration. Cloud providers' own logins are not spoken here.

use std::collections::BTreeMap;
use std::time::Duration;

use flux_api::secret::SecretString;
use flux_remote::oci::{
    self, ArtifactLayer, Credentials, Descriptor, DockerConfig, FLUX_CONFIG, FLUX_CONTENT,
};
use flux_remote::transport::Transport;
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::output;
use crate::tree::Invocation;

use super::first_layer;
use super::reference::Reference;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// A layer is held in memory while it is unpacked.
const MOST_LAYER: u64 = 2 << 30;

pub(in crate::commands) struct Registry {
    remote: oci::Registry,
    timeout: Duration,
}

impl Registry {
    pub(in crate::commands) fn open(run: &Invocation, reference: &Reference) -> Result<Registry, CliError> {
        let provider = run.text("provider");
        if provider != "generic" {
            output::action("logging in to registry with provider credentials");
            return Err(fail!(
                "error during login with provider: could not login to provider {provider} with url {}: \
                 this build has no login of its own for {provider}; log in with the provider's tool and use --creds",
                reference.given()
            ));
        }
        let plain = run.given("insecure-registry") && run.is("insecure-registry") || reference.is_local();
        let repository =
            oci::Repository::parse(&reference.name(), plain).map_err(|error| fail!("{error}"))?;
        let credentials = match run.some("creds") {
            Some(given) => {
                output::action("logging in to registry with credentials");
                Some(given.split_once(':').map_or_else(
                    || Credentials::Bearer(SecretString::new(given.to_owned())),
                    |(username, password)| Credentials::Basic {
                        username: username.to_owned(),
                        password: SecretString::new(password.to_owned()),
                    },
                ))
            }
            None => docker_login(&repository),
        };
        let remote = oci::Registry::new(repository, &Transport::default(), credentials);
        let timeout = run.duration("timeout").to_std();
        Ok(Registry { remote: remote.map_err(|error| fail!("{error}"))?, timeout })
    }

    /// The manifest and its digest.
    pub(in crate::commands) async fn manifest(
        &self,
        reference: &Reference,
    ) -> Result<(String, Value), CliError> {
        let fetched = self.in_time(self.remote.fetch(reference.identifier())).await?;
        let manifest = serde_json::from_slice(&fetched.bytes)
            .map_err(|error| fail!("parsing manifest failed: {error}"))?;
        Ok((fetched.digest.to_string(), manifest))
    }

    /// The bytes of the first layer, which is what Flux takes as an artifact's content.
    pub(in crate::commands) async fn first_layer(&self, manifest: &Value) -> Result<Vec<u8>, CliError> {
        let digest = first_layer(manifest).ok_or_else(|| fail!("no layers found in artifact"))?;
        let size = manifest.pointer("/layers/0/size").and_then(Value::as_u64).unwrap_or_default();
        let descriptor = Descriptor { digest: digest.to_owned(), size, ..Descriptor::default() };
        self.in_time(self.remote.blob(&descriptor, MOST_LAYER)).await
    }

    pub(in crate::commands) async fn tags(&self) -> Result<Vec<String>, CliError> {
        self.in_time(self.remote.tags()).await
    }

    /// Gives the artifact another tag.
    pub(in crate::commands) async fn tag(&self, reference: &Reference, tag: &str) -> Result<(), CliError> {
        let fetched = self.in_time(self.remote.fetch(reference.identifier())).await?;
        self.in_time(self.remote.tag(&fetched, tag)).await.map(|_| ())
    }

    /// Uploads the layer, a configuration that says nothing, and the manifest that ties them. Returns its digest.
    pub(in crate::commands) async fn push(
        &self,
        reference: &Reference,
        layer: Vec<u8>,
        annotations: &BTreeMap<String, String>,
    ) -> Result<String, CliError> {
        let created = annotations.get(super::CREATED).cloned().unwrap_or_default();
        let unpacked = unzipped_digest(&layer)?;
        let config = json!({
            "architecture": "", "created": created, "history": [{"created": "0001-01-01T00:00:00Z"}], "os": "",
            "rootfs": {"type": "layers", "diff_ids": [unpacked]}, "config": {},
        });
        let layer = ArtifactLayer { media_type: FLUX_CONTENT.to_owned(), bytes: layer };
        let config =
            ArtifactLayer { media_type: FLUX_CONFIG.to_owned(), bytes: config.to_string().into_bytes() };
        let layer = self.in_time(self.remote.push_blob(&layer)).await?;
        let config = self.in_time(self.remote.push_blob(&config)).await?;
        let described =
            |one: &Descriptor| json!({"mediaType": one.media_type, "size": one.size, "digest": one.digest});
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": described(&config),
            "layers": [described(&layer)], "annotations": annotations,
        });
        let bytes = manifest.to_string().into_bytes();
        let put = self.remote.put_manifest(reference.identifier(), MANIFEST, bytes);
        Ok(self.in_time(put).await?.to_string())
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, oci::Error>>) -> Result<T, CliError> {
        match tokio::time::timeout(self.timeout, work).await {
            Ok(done) => done.map_err(|error| fail!("{error}")),
            Err(_) => Err(CliError::timed_out()),
        }
    }
}

fn unzipped_digest(bytes: &[u8]) -> Result<String, CliError> {
    let mut plain = Vec::new();
    std::io::copy(&mut flate2::read::GzDecoder::new(bytes), &mut plain).map_err(|error| fail!("{error}"))?;
    Ok(oci::Digest::of(&plain).to_string())
}

/// What `docker login` left behind, for this repository.
fn docker_login(repository: &oci::Repository) -> Option<Credentials> {
    let folder = std::env::var_os("DOCKER_CONFIG")
        .map(std::path::PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| std::path::Path::new(&home).join(".docker")))?;
    let config = DockerConfig::parse(&std::fs::read(folder.join("config.json")).ok()?).ok()?;
    config.find(repository.registry(), repository.name()).cloned()
}
