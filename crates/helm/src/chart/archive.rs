//! Reads a chart's `.tgz` into files, refusing what leaves the chart's folder and what grows beyond its limits.

use std::io::Read;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use tar::EntryType;

use super::File;
use super::load::Budget;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// Go's `gzip.ErrHeader`.
    #[error("gzip: invalid header")]
    NotGzip,
    #[error("chart illegally contains absolute paths")]
    AbsolutePath,
    #[error("chart illegally contains content outside the base directory: {0:?}")]
    OutsideBase(String),
    #[error("chart illegally references parent directory")]
    ParentReference,
    #[error("chart contains illegally named files")]
    IllegalName,
    #[error("chart yaml not in base directory")]
    ChartYamlNotInBase,
    #[error("{0:?} links outside the chart")]
    LinkOutside(String),
    #[error("decompressed chart is larger than the maximum size {0}")]
    TooLarge(u64),
    #[error("chart archive holds more than {0} files")]
    TooManyFiles(usize),
    #[error("no files in chart archive")]
    Empty,
    #[error("{0}")]
    Damaged(String),
}

/// Entries of one archive; large public charts have a thousand.
const MAX_ENTRIES: usize = 50_000;

pub(super) fn unpack(bytes: &[u8], budget: &mut Budget) -> Result<Vec<File>, ArchiveError> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(ArchiveError::NotGzip);
    }
    let mut files = Vec::new();
    // Headers and padding count too, or an archive of empty entries would never end.
    let stream =
        MultiGzDecoder::new(bytes).take(budget.remaining().saturating_mul(2).saturating_add(64 * 1024));
    let mut archive = tar::Archive::new(stream);
    for (at, entry) in archive.entries().map_err(damaged)?.enumerate() {
        if at >= MAX_ENTRIES {
            return Err(ArchiveError::TooManyFiles(MAX_ENTRIES));
        }
        let mut entry = entry.map_err(damaged)?;
        if let Some(file) = read_entry(&mut entry, budget)? {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(ArchiveError::Empty);
    }
    Ok(files)
}

fn read_entry(
    entry: &mut tar::Entry<'_, impl Read>,
    budget: &mut Budget,
) -> Result<Option<File>, ArchiveError> {
    let kind = entry.header().entry_type();
    let full_name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    if kind.is_dir()
        || full_name.ends_with('/')
        || matches!(kind, EntryType::XGlobalHeader | EntryType::XHeader)
    {
        return Ok(None);
    }
    let name = name_in_chart(&full_name)?;
    check_link(entry, &name, &full_name)?;
    if entry.size() > budget.remaining() {
        return Err(ArchiveError::TooLarge(budget.limit()));
    }
    let mut data = Vec::with_capacity(usize::try_from(entry.size()).unwrap_or_default().min(16 << 20));
    let size = entry.size();
    entry.read_to_end(&mut data).map_err(damaged)?;
    if (data.len() as u64) < size || !budget.spend(data.len() as u64) {
        return Err(ArchiveError::TooLarge(budget.limit()));
    }
    let modified = entry
        .header()
        .mtime()
        .ok()
        .and_then(|s| i64::try_from(s).ok())
        .and_then(|s| jiff::Timestamp::from_second(s).ok());
    Ok(Some(File { name, data: without_bom(data), modified }))
}

/// The name below the archive's one folder, normalised. The rules and their order are Helm's.
fn name_in_chart(full_name: &str) -> Result<String, ArchiveError> {
    let separator = if full_name.contains('\\') { '\\' } else { '/' };
    let (base, rest) = full_name.split_once(separator).unwrap_or((full_name, ""));
    let rest = rest.replace(separator, "/");
    if rest.starts_with('/') {
        return Err(ArchiveError::AbsolutePath);
    }
    let name = clean(&rest);
    if name == "." {
        return Err(ArchiveError::OutsideBase(full_name.to_owned()));
    }
    if name.starts_with("..") {
        return Err(ArchiveError::ParentReference);
    }
    let bytes = name.as_bytes();
    if bytes.len() > 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':' && bytes[2] == b'/' {
        return Err(ArchiveError::IllegalName);
    }
    if base == "Chart.yaml" {
        return Err(ArchiveError::ChartYamlNotInBase);
    }
    Ok(name)
}

/// Helm takes a link for an empty file. Ours is empty too, but one that points outside is not let through in silence.
fn check_link(entry: &tar::Entry<'_, impl Read>, name: &str, full_name: &str) -> Result<(), ArchiveError> {
    let Some(target) = entry.link_name_bytes() else { return Ok(()) };
    let target = String::from_utf8_lossy(&target).into_owned();
    let outside = match entry.header().entry_type() {
        EntryType::Symlink => {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            target.starts_with('/')
                || clean(format!("{folder}/{target}").trim_start_matches('/')).starts_with("..")
        }
        EntryType::Link => target.starts_with('/') || name_in_chart(&target).is_err(),
        _ => false,
    };
    if outside { Err(ArchiveError::LinkOutside(full_name.to_owned())) } else { Ok(()) }
}

/// Go's `path.Clean` for a relative path.
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

pub(super) fn without_bom(data: Vec<u8>) -> Bytes {
    let skip = if data.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    Bytes::from(data).slice(skip..)
}

fn damaged(error: std::io::Error) -> ArchiveError {
    ArchiveError::Damaged(error.to_string())
}
