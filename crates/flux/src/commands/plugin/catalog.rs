//! The catalogue of plugins: what there is, which program belongs to this machine, and bringing it here.
//!
//! A program is only put in place when its checksum is the catalogue's. Zip archives are refused: Linux builds come as tarballs.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::error::{CliError, fail};
use crate::kinds::text;
use crate::output;
use crate::session::innermost;

const PUBLIC: &str = "https://github.com/fluxcd/plugins/releases/latest/download/";
const API_VERSION: &str = "cli.fluxcd.io/v1beta1";
const MOST_MANIFEST: usize = 10 << 20;
const MOST_PROGRAM: usize = 512 << 20;
const OS: &str = "linux";

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) struct Catalog {
    base: String,
    http: reqwest::Client,
}

/// What the catalogue says of one plugin.
pub(super) struct Manifest {
    name: String,
    bin: String,
    versions: Vec<Value>,
}

/// One version for this machine.
pub(super) struct Release {
    pub(super) version: String,
    url: String,
    checksum: String,
}

impl Catalog {
    pub(super) fn open() -> Result<Catalog, CliError> {
        let set = std::env::var("FLUXCD_PLUGIN_CATALOG").ok().filter(|base| !base.is_empty());
        let http = reqwest::Client::builder().timeout(Duration::from_secs(300)).build();
        let http = http.map_err(|error| fail!("{error}"))?;
        Ok(Catalog { base: set.unwrap_or_else(|| PUBLIC.to_owned()), http })
    }

    pub(super) async fn manifest(&self, name: &str) -> Result<Manifest, CliError> {
        let url = format!("{}{name}.yaml", self.base);
        let bytes = self.fetch(&url, MOST_MANIFEST).await;
        let bytes = bytes.map_err(|_| fail!("plugin {name:?} not found in catalog"))?;
        let read = yaml::to_json(&bytes)
            .map_err(|error| fail!("failed to parse plugin manifest for {name:?}: {error}"))?;
        check(&read, &format!("plugin {name:?}"), "Plugin")?;
        let bin = text(&read, "/bin");
        // It becomes the name of a file.
        if !bin.starts_with(super::PREFIX) || bin.contains('/') || bin.contains("..") {
            return Err(fail!(
                "plugin {name:?} has invalid bin {bin:?} (must be a plain filename prefixed with \"flux-\")"
            ));
        }
        Ok(Manifest {
            name: name.to_owned(),
            bin: bin.to_owned(),
            versions: read.get("versions").and_then(Value::as_array).cloned().unwrap_or_default(),
        })
    }

    /// Names and descriptions.
    pub(super) async fn all(&self) -> Result<Vec<(String, String)>, CliError> {
        let url = format!("{}catalog.yaml", self.base);
        let bytes = self.fetch(&url, MOST_MANIFEST).await;
        let bytes = bytes.map_err(|error| fail!("failed to fetch plugin catalog: {error}"))?;
        let read = yaml::to_json(&bytes).map_err(|error| fail!("failed to parse plugin catalog: {error}"))?;
        check(&read, "plugin catalog", "PluginCatalog")?;
        let plugins = read.get("plugins").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(plugins
            .iter()
            .map(|one| (text(one, "/name").to_owned(), text(one, "/description").to_owned()))
            .collect())
    }

    pub(super) async fn install(
        &self,
        folder: &Path,
        manifest: &Manifest,
        release: &Release,
    ) -> Result<(), CliError> {
        let what = format!("installing {} v{}", manifest.name, release.version);
        output::waiting(&what);
        let bytes = self.fetch(&release.url, MOST_PROGRAM).await;
        let bytes = bytes.map_err(|error| fail!("failed to download plugin: {error}"))?;
        let hex: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let (want, got) = (&release.checksum, format!("sha256:{hex}"));
        if *want != got {
            return Err(fail!("checksum verification failed (expected: {want}, got: {got})"));
        }
        let program = unpacked(&release.url, &bytes, &manifest.bin)?;
        put(&folder.join(&manifest.bin), &program)?;
        let receipt = json!({
            "name": manifest.name, "version": release.version,
            "installedAt": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "platform": {"os": OS, "arch": arch(), "url": release.url, "checksum": release.checksum},
        });
        let place = super::receipt_path(folder, &manifest.name);
        std::fs::write(&place, output::yaml_text(&receipt)?)
            .map_err(|error| fail!("{}: {error}", place.display()))
    }

    async fn fetch(&self, url: &str, limit: usize) -> Result<Vec<u8>, CliError> {
        let failed = |error: reqwest::Error| fail!("{}", innermost(&error));
        let mut answer = self.http.get(url).send().await.map_err(failed)?;
        if !answer.status().is_success() {
            return Err(fail!("HTTP {} from {url}", answer.status().as_u16()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if bytes.len() + chunk.len() > limit {
                return Err(fail!("{url} is longer than {limit} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

fn check(read: &Value, what: &str, kind: &str) -> Result<(), CliError> {
    let (version, own) = (text(read, "/apiVersion"), text(read, "/kind"));
    if version != API_VERSION {
        return Err(fail!("{what} has unsupported apiVersion {version:?} (expected {API_VERSION:?})"));
    }
    if own != kind {
        return Err(fail!("{what} has unexpected kind {own:?} (expected {kind:?})"));
    }
    Ok(())
}

impl Manifest {
    /// The newest, a version by name, or the one with this checksum.
    pub(super) fn release(&self, reference: &str) -> Result<Release, CliError> {
        let name = &self.name;
        let Some(newest) = self.versions.first() else {
            return Err(fail!("plugin {name:?} has no versions"));
        };
        if reference.starts_with("sha256:") {
            let found = self
                .versions
                .iter()
                .find_map(|version| platform(version).filter(|it| it.checksum == reference));
            return found.ok_or_else(|| {
                fail!("digest {reference:?} not found for plugin {name:?} on {OS}/{}", arch())
            });
        }
        let version = if reference.is_empty() {
            Some(newest)
        } else {
            self.versions.iter().find(|version| text(version, "/version") == reference)
        };
        let version = version.ok_or_else(|| fail!("version {reference:?} not found for plugin {name:?}"))?;
        platform(version).ok_or_else(|| {
            fail!("plugin {name:?} v{} has no binary for {OS}/{}", text(version, "/version"), arch())
        })
    }
}

fn platform(version: &Value) -> Option<Release> {
    let platforms = version.get("platforms")?.as_array()?;
    let own = platforms.iter().find(|one| text(one, "/os") == OS && text(one, "/arch") == arch())?;
    Some(Release {
        version: text(version, "/version").to_owned(),
        url: text(own, "/url").to_owned(),
        checksum: text(own, "/checksum").to_owned(),
    })
}

/// The program itself, out of a tarball if it came in one.
fn unpacked(url: &str, bytes: &[u8], name: &str) -> Result<Vec<u8>, CliError> {
    if url.to_lowercase().ends_with(".zip") || bytes.starts_with(b"PK\x03\x04") {
        return Err(fail!("{url} is a zip archive; only tarballs and plain programs can be installed"));
    }
    let bad = |error: std::io::Error| fail!("failed to read tar: {error}");
    let mut plain = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let limit = MOST_PROGRAM as u64 * 2;
        flate2::read::GzDecoder::new(bytes).take(limit).read_to_end(&mut plain).map_err(bad)?;
    } else if bytes.get(257..262) == Some(b"ustar") {
        plain = bytes.to_vec();
    } else {
        return Ok(bytes.to_vec());
    }
    for entry in tar::Archive::new(plain.as_slice()).entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        let is_it = entry.path().is_ok_and(|path| path.file_name().is_some_and(|file| file == name));
        if entry.header().entry_type().is_file() && is_it {
            let mut program = Vec::new();
            entry.read_to_end(&mut program).map_err(bad)?;
            return Ok(program);
        }
    }
    Err(fail!("binary {name:?} not found in archive"))
}

/// Puts the program in place at once: a running one is never half overwritten.
fn put(place: &Path, program: &[u8]) -> Result<(), CliError> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = place.parent().unwrap_or(Path::new("."));
    let failed = |error: std::io::Error| fail!("failed to create {}: {error}", place.display());
    let permissions = std::fs::Permissions::from_mode(0o755);
    let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(folder).map_err(failed)?;
    file.write_all(program).map_err(failed)?;
    file.persist(place).map_err(|error| failed(error.error))?;
    Ok(())
}
