//! Where the entries of an index are, found in one pass and without reading what is in them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use serde_json::{Map, Value as Json};

use super::{Error, json, yaml};

/// Beyond this an index has to be of the form that every tool writes.
pub(super) const LARGEST_IRREGULAR: u64 = 4 << 20;
/// What stands beside the entries.
pub(super) const LARGEST_HEAD: usize = 1 << 20;
/// Names are charts; more than this is no index.
pub(super) const MOST_ENTRIES: usize = 4_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub start: u64,
    pub end: u64,
}

impl Span {
    pub fn read(self, file: &mut (impl Read + Seek)) -> Result<Vec<u8>, Error> {
        file.seek(SeekFrom::Start(self.start))?;
        let mut bytes = vec![0; usize::try_from(self.end - self.start).unwrap_or(usize::MAX)];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub fn length(self) -> u64 {
        self.end - self.start
    }
}

/// An index cut into pieces.
#[derive(Debug)]
pub struct Layout {
    pub format: Format,
    /// Everything but the entries.
    pub head: Map<String, Json>,
    pub entries: BTreeMap<String, Vec<Span>>,
}

/// Why a text cannot be cut.
#[derive(Debug)]
pub(super) enum Uncut {
    /// It may be valid, but is not of the usual form.
    Irregular,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Uncut {
    fn from(error: E) -> Self {
        Uncut::Failed(error.into())
    }
}

/// The entries of the index in `file`. `None` when it is of an unusual form and has to be read whole.
pub fn scan(file: &mut (impl Read + Seek)) -> Result<Option<Layout>, Error> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let scanned = match first_byte(&mut reader)? {
        None => return Err(Error::Empty),
        Some(b'{') => {
            reader.seek(SeekFrom::Start(0))?;
            json::scan(&mut reader)
        }
        Some(_) => {
            reader.seek(SeekFrom::Start(0))?;
            yaml::scan(&mut reader)
        }
    };
    match scanned {
        Ok(layout) => Ok(Some(layout)),
        Err(Uncut::Irregular) => Ok(None),
        Err(Uncut::Failed(error)) => Err(error),
    }
}

fn first_byte(reader: &mut impl BufRead) -> Result<Option<u8>, Error> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(None);
        }
        match buffer.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(byte) => return Ok(Some(*byte)),
            None => {
                let length = buffer.len();
                reader.consume(length);
            }
        }
    }
}
