//! `flux build artifact`: a folder or a file as a gzipped tarball that says nothing of this machine.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use file_tree::TreePath;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flux_remote::ignore::Ignore;

use crate::error::{CliError, fail, go_cause};
use crate::output;
use crate::tree::Invocation;

/// Folders deeper than this are refused.
const DEEPEST: usize = 256;
/// What an artifact may unpack to.
const MOST_BYTES: u64 = 4 << 30;
/// A manifest from stdin is no longer than this.
const MOST_STDIN: u64 = 256 << 20;

pub(super) fn run(run: &Invocation) -> Result<(), CliError> {
    let path = run.some("path").ok_or_else(|| fail!("invalid path \"\""))?;
    let contents = Contents::open(path, run.is("resolve-symlinks"))?;
    output::action(&format!("building artifact from {}", contents.path.display()));
    let out = Path::new(run.text("output"));
    let failed = |error: &dyn std::fmt::Display| fail!("building artifact failed, error: {error}");
    let bytes = pack(&contents, &run.list("ignore-paths")).map_err(|error| failed(&error))?;
    // Whoever looks sees the old file or the whole new one.
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new().permissions(permissions()).tempfile_in(folder)?;
        file.write_all(&bytes)?;
        file.persist(out).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|error| failed(&format!("open {}: {}", out.display(), go_cause(&error))))?;
    output::success(&format!("artifact created at {}", out.display()));
    Ok(())
}

fn permissions() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt as _;
    fs::Permissions::from_mode(0o640)
}

/// What goes into an artifact.
pub(in crate::commands) struct Contents {
    pub(in crate::commands) path: PathBuf,
    follow: bool,
    /// Keeps what came by stdin until it is packed.
    _stdin: Option<tempfile::TempPath>,
}

impl Contents {
    /// `-` reads one manifest from stdin.
    pub(in crate::commands) fn open(path: &str, follow: bool) -> Result<Contents, CliError> {
        if path == "-" {
            return Contents::from_stdin();
        }
        if fs::metadata(path).is_err() {
            return Err(fail!("invalid path '{path}', must point to an existing directory or file"));
        }
        Ok(Contents { path: path.into(), follow, _stdin: None })
    }

    fn from_stdin() -> Result<Contents, CliError> {
        let mut text = Vec::new();
        let read = std::io::stdin().lock().take(MOST_STDIN).read_to_end(&mut text);
        read.map_err(|error| fail!("cannot read stdin: {error}"))?;
        let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
        let write = || -> std::io::Result<tempfile::TempPath> {
            let mut file = tempfile::Builder::new().prefix("").suffix(".yaml").tempfile()?;
            file.write_all(&text[..end])?;
            Ok(file.into_temp_path())
        };
        let kept = write().map_err(|error| fail!("error writing stdin to file: {error}"))?;
        Ok(Contents { path: kept.to_path_buf(), follow: false, _stdin: Some(kept) })
    }
}

#[derive(Debug, thiserror::Error)]
pub(in crate::commands) enum BuildError {
    #[error("{path}: {cause}")]
    Unreadable { path: String, cause: String },
    #[error("{0}: folders are more than {DEEPEST} deep")]
    TooDeep(String),
}

/// The tarball: entries in order, no owners, no times, so that the same files give the same bytes.
pub(in crate::commands) fn pack(contents: &Contents, ignore: &[String]) -> Result<Vec<u8>, BuildError> {
    let packer = Packer { ignore: Ignore::from_text(&ignore.join("\n")), follow: contents.follow };
    let mut out = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    let bad = |error: std::io::Error| unreadable(&contents.path, &error);
    let metadata = fs::metadata(&contents.path).map_err(bad)?;
    append(&mut out, ".", true, 0o755, &[]).map_err(bad)?;
    if metadata.is_dir() {
        let mut above = BTreeSet::new();
        packer.folder(&mut out, &contents.path, &TreePath::root(), 0, &mut above)?;
    } else {
        let name = contents.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(&contents.path).map_err(bad)?;
        append(&mut out, &name, false, mode(&metadata), &bytes).map_err(bad)?;
    }
    out.into_inner().and_then(GzEncoder::finish).map_err(bad)
}

fn unreadable(path: &Path, error: &std::io::Error) -> BuildError {
    BuildError::Unreadable { path: path.display().to_string(), cause: go_cause(error) }
}

struct Packer {
    ignore: Ignore,
    /// Symbolic links become what they point at; otherwise they are left out.
    follow: bool,
}

impl Packer {
    fn folder(
        &self,
        out: &mut tar::Builder<GzEncoder<Vec<u8>>>,
        real: &Path,
        at: &TreePath,
        depth: usize,
        above: &mut BTreeSet<PathBuf>,
    ) -> Result<(), BuildError> {
        if depth > DEEPEST {
            return Err(BuildError::TooDeep(real.display().to_string()));
        }
        let bad = |error: std::io::Error| unreadable(real, &error);
        // A link to a folder we are in would never end.
        let canonical = fs::canonicalize(real).map_err(bad)?;
        if !above.insert(canonical.clone()) {
            return Ok(());
        }
        let mut names: Vec<_> = fs::read_dir(real).map_err(bad)?.collect::<Result<_, _>>().map_err(bad)?;
        names.sort_by_key(fs::DirEntry::file_name);
        for entry in names {
            let (path, below) = (entry.path(), at.child(&entry.file_name().to_string_lossy()));
            let bad = |error: std::io::Error| unreadable(&path, &error);
            let metadata = if self.follow { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
            let metadata = metadata.map_err(bad)?;
            if self.ignore.excludes(&below, metadata.is_dir()) {
                continue;
            }
            if metadata.is_dir() {
                append(out, below.as_str(), true, 0o755, &[]).map_err(bad)?;
                self.folder(out, &path, &below, depth + 1, above)?;
            } else if metadata.is_file() {
                let bytes = fs::read(&path).map_err(bad)?;
                append(out, below.as_str(), false, mode(&metadata), &bytes).map_err(bad)?;
            }
        }
        above.remove(&canonical);
        Ok(())
    }
}

/// Whether it can be run is all that is kept of a file's mode.
fn mode(metadata: &fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 }
}

fn append(
    out: &mut tar::Builder<GzEncoder<Vec<u8>>>,
    name: &str,
    folder: bool,
    mode: u32,
    bytes: &[u8],
) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(if folder { tar::EntryType::Directory } else { tar::EntryType::Regular });
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    header.set_mtime(0);
    if name == "." {
        // The root's own name is one that the library would tidy away.
        header.as_old_mut().name[0] = b'.';
        header.set_cksum();
        return out.append(&header, bytes);
    }
    out.append_data(&mut header, name, bytes)
}

/// Unpacks an artifact into a folder. Links and whatever else is no file are left out; nothing gets outside.
pub(in crate::commands) fn unpack(bytes: &[u8], folder: &Path) -> Result<(), CliError> {
    let bad = |error: &dyn std::fmt::Display| fail!("extracting artifact failed: {error}");
    let mut archive = tar::Archive::new(GzDecoder::new(bytes).take(MOST_BYTES));
    for entry in archive.entries().map_err(|error| bad(&error))? {
        let mut entry = entry.map_err(|error| bad(&error))?;
        let name = entry.path().map_err(|error| bad(&error))?.to_string_lossy().into_owned();
        let inside =
            TreePath::parse(&name).map_err(|_| bad(&format!("{name} is outside of the artifact")))?;
        let target = folder.join(inside.as_str());
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            fs::create_dir_all(&target).map_err(|error| bad(&error))?;
        } else if kind.is_file() {
            let parent = target.parent().unwrap_or(folder);
            fs::create_dir_all(parent).map_err(|error| bad(&error))?;
            // A link that was here before must not lead the file elsewhere.
            let real = fs::canonicalize(parent).map_err(|error| bad(&error))?;
            let root = fs::canonicalize(folder).map_err(|error| bad(&error))?;
            if !real.starts_with(&root) || fs::symlink_metadata(&target).is_ok_and(|at| at.is_symlink()) {
                return Err(bad(&format!("{name} is outside of the artifact")));
            }
            let mut file = fs::File::create(&target).map_err(|error| bad(&error))?;
            std::io::copy(&mut entry, &mut file).map_err(|error| bad(&error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_out_again_and_twice_the_same() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("sub")).unwrap();
        fs::write(from.path().join("sub/a.yaml"), "a: 1").unwrap();
        fs::write(from.path().join("b.png"), "picture").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.path().join("link")).unwrap();
        let contents = Contents { path: from.path().to_owned(), follow: false, _stdin: None };
        let bytes = pack(&contents, &["*.png".to_owned()]).unwrap();
        assert_eq!(bytes, pack(&contents, &["*.png".to_owned()]).unwrap());
        unpack(&bytes, to.path()).unwrap();
        assert_eq!(fs::read_to_string(to.path().join("sub/a.yaml")).unwrap(), "a: 1");
        assert!(!to.path().join("b.png").exists() && !to.path().join("link").exists());
    }

    #[test]
    fn nothing_is_unpacked_outside_or_through_a_link() {
        let hostile = |name: &str| {
            let mut out = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
            let mut header = tar::Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(1);
            header.set_entry_type(tar::EntryType::Regular);
            header.set_cksum();
            out.append(&header, &b"x"[..]).unwrap();
            out.into_inner().unwrap().finish().unwrap()
        };
        let (to, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(unpack(&hostile("../x"), to.path()).is_err());
        std::os::unix::fs::symlink(other.path(), to.path().join("out")).unwrap();
        assert!(unpack(&hostile("out/x"), to.path()).is_err());
        assert!(!other.path().join("x").exists());
    }
}
