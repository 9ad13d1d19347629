//! An index as it was published becomes the JSON that is stored: sorted, checked, one entry at a time.

use std::io::{Read, Seek, SeekFrom, Write};

use helm::Metadata;
use semver_range::Version;
use serde_json::{Map, Value as Json};

use super::scan::LARGEST_IRREGULAR;
use super::{Error, Format, Layout, Span, scan};

/// The versions of one chart are sorted in memory up to this size, and read twice beyond it.
const SORTED_IN_MEMORY: u64 = 8 << 20;

/// What was found in an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    pub charts: usize,
    pub versions: usize,
    /// Entries that no chart could have been made from.
    pub dropped: usize,
}

/// Reads the index in `input` and writes it to `out` as JSON.
pub fn convert(input: &mut (impl Read + Seek), out: &mut impl Write) -> Result<Converted, Error> {
    let mut converter = Converter { converted: Converted::default(), out };
    match scan(input)? {
        Some(layout) => converter.layout(input, &layout)?,
        None => converter.whole(input)?,
    }
    Ok(converter.converted)
}

struct Converter<'a, W> {
    converted: Converted,
    out: &'a mut W,
}

impl<W: Write> Converter<'_, W> {
    fn layout(&mut self, input: &mut (impl Read + Seek), layout: &Layout) -> Result<(), Error> {
        self.begin(&layout.head)?;
        for (name, spans) in &layout.entries {
            self.begin_chart(name)?;
            let size: u64 = spans.iter().map(|span| span.length()).sum();
            if size <= SORTED_IN_MEMORY {
                let mut kept = Vec::with_capacity(spans.len());
                for span in spans {
                    if let Some(entry) = self.entry(read_entry(input, layout.format, *span)?)? {
                        kept.push((entry.version, entry.text));
                    }
                }
                sort(&mut kept);
                let texts = kept.into_iter().map(|(_, text)| Ok(text));
                self.write_versions(texts)?;
            } else {
                self.large_chart(input, layout.format, spans)?;
            }
        }
        self.end()
    }

    fn large_chart(
        &mut self,
        input: &mut (impl Read + Seek),
        format: Format,
        spans: &[Span],
    ) -> Result<(), Error> {
        let mut order = Vec::with_capacity(spans.len());
        for span in spans {
            if let Some(entry) = self.entry(read_entry(input, format, *span)?)? {
                order.push((entry.version, *span));
            }
        }
        sort(&mut order);
        let again = order.into_iter().map(|(_, span)| {
            let entry = checked(read_entry(input, format, span)?)?;
            Ok(entry.map(|entry| entry.text).unwrap_or_default())
        });
        self.write_versions(again)
    }

    /// The rare index that cannot be cut.
    fn whole(&mut self, input: &mut (impl Read + Seek)) -> Result<(), Error> {
        input.seek(SeekFrom::Start(0))?;
        let mut text = Vec::new();
        input.take(LARGEST_IRREGULAR + 1).read_to_end(&mut text)?;
        if text.len() as u64 > LARGEST_IRREGULAR {
            return Err(Error::Irregular(LARGEST_IRREGULAR));
        }
        let Json::Object(mut head) = from_yaml(&text)? else {
            return Err(Error::NoApiVersion);
        };
        let entries = match head.remove("entries") {
            Some(Json::Object(entries)) => entries,
            None | Some(Json::Null) => Map::new(),
            Some(_) => return Err(Error::Malformed("entries is no map of charts".to_owned())),
        };
        self.begin(&head)?;
        for (name, versions) in entries {
            self.begin_chart(&name)?;
            let versions = match versions {
                Json::Array(versions) => versions,
                Json::Null => Vec::new(),
                _ => return Err(Error::Malformed(format!("entries.{name} is no list of versions"))),
            };
            let mut kept = Vec::new();
            for version in versions {
                if let Some(entry) = self.entry(version)? {
                    kept.push((entry.version, entry.text));
                }
            }
            sort(&mut kept);
            self.write_versions(kept.into_iter().map(|(_, text)| Ok(text)))?;
        }
        self.end()
    }

    fn entry(&mut self, value: Json) -> Result<Option<Entry>, Error> {
        let entry = checked(value)?;
        match entry {
            Some(_) => self.converted.versions += 1,
            None => self.converted.dropped += 1,
        }
        Ok(entry)
    }

    fn begin(&mut self, head: &Map<String, Json>) -> Result<(), Error> {
        let version = head.get("apiVersion").and_then(Json::as_str).unwrap_or_default();
        if version.is_empty() {
            return Err(Error::NoApiVersion);
        }
        self.out.write_all(b"{\n")?;
        for (key, value) in head.iter().filter(|(key, _)| *key != "entries") {
            writeln!(self.out, "  {}: {},", Json::String(key.clone()), value)?;
        }
        self.out.write_all(b"  \"entries\": {")?;
        Ok(())
    }

    fn begin_chart(&mut self, name: &str) -> Result<(), Error> {
        let comma = if self.converted.charts > 0 { "," } else { "" };
        self.converted.charts += 1;
        write!(self.out, "{comma}\n    {}: [", Json::String(name.to_owned()))?;
        Ok(())
    }

    fn write_versions(&mut self, texts: impl Iterator<Item = Result<String, Error>>) -> Result<(), Error> {
        for (index, text) in texts.enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(self.out, "{comma}\n      {}", text?)?;
        }
        self.out.write_all(b"]")?;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        self.out.write_all(b"\n  }\n}\n")?;
        Ok(())
    }
}

struct Entry {
    version: Option<Version>,
    text: String,
}

/// An entry that a chart can be made from, or nothing.
fn checked(value: Json) -> Result<Option<Entry>, Error> {
    let mut fields = match value {
        Json::Object(fields) => fields,
        Json::Null => return Ok(None),
        _ => return Err(Error::Malformed("an entry that is no chart version".to_owned())),
    };
    let mut metadata = Metadata::from_fields(&fields).map_err(Error::Malformed)?;
    if metadata.api_version.is_empty() {
        metadata.api_version = "v1".to_owned();
        fields.insert("apiVersion".to_owned(), Json::String("v1".to_owned()));
    }
    match metadata.check() {
        Ok(()) => {}
        // Upstream lets these pass: charts of the past have them.
        Err(problem) if problem.starts_with("more than one dependency with name or alias") => {}
        Err(_) => return Ok(None),
    }
    // Numbers where Helm reads text are text from here on.
    for (key, text) in
        [("name", &metadata.name), ("version", &metadata.version), ("appVersion", &metadata.app_version)]
    {
        if fields.contains_key(key) {
            fields.insert(key.to_owned(), Json::String(text.clone()));
        }
    }
    let version = Version::parse(&metadata.version).ok();
    Ok(Some(Entry { version, text: Json::Object(fields).to_string() }))
}

/// Newest first; those that are no versions come last.
fn sort<T>(entries: &mut [(Option<Version>, T)]) {
    entries.sort_by(|(a, _), (b, _)| b.cmp(a));
}

fn read_entry(input: &mut (impl Read + Seek), format: Format, span: Span) -> Result<Json, Error> {
    let bytes = span.read(input)?;
    match format {
        Format::Json => serde_json::from_slice(&bytes).map_err(|error| Error::Malformed(error.to_string())),
        Format::Yaml => match from_yaml(&bytes)? {
            Json::Array(mut items) if items.len() == 1 => Ok(items.remove(0)),
            _ => Err(Error::Malformed(format!("no list item at byte {}", span.start))),
        },
    }
}

fn from_yaml(text: &[u8]) -> Result<Json, Error> {
    ::yaml::to_json_strict(text)
        .map_err(|error| Error::Malformed(format!("error converting YAML to JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn converted(text: &str) -> Result<(Converted, Json), Error> {
        let mut out = Vec::new();
        let found = convert(&mut Cursor::new(text.as_bytes()), &mut out)?;
        Ok((found, serde_json::from_slice(&out).unwrap()))
    }

    const INDEX: &str = "apiVersion: v1\nentries:\n  b:\n  - {name: b, version: 1.0.0, urls: [b-1.0.0.tgz]}\n  a:\n\
        \x20 - name: a\n    version: 1.0.0\n    appVersion: 1.10\n  - name: a\n    version: 1.10.0\n    apiVersion: v2\n\
        \x20 - name: a\n    version: nonsense\n  -\n    name: a\n    version: 1.9.0\ngenerated: \"2026-01-01T00:00:00Z\"\n";

    #[test]
    fn entries_are_sorted_checked_and_completed() {
        let (found, index) = converted(INDEX).unwrap();
        assert_eq!(found, Converted { charts: 2, versions: 4, dropped: 1 });
        let versions: Vec<&str> = index["entries"]["a"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v["version"].as_str().unwrap())
            .collect();
        assert_eq!(versions, ["1.10.0", "1.9.0", "1.0.0"]);
        assert_eq!(index["entries"]["a"][2]["appVersion"], "1.1");
        assert_eq!(index["entries"]["a"][2]["apiVersion"], "v1");
        assert_eq!(index["generated"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn the_same_index_in_any_form_gives_the_same_json() {
        let (_, block) = converted(INDEX).unwrap();
        let (_, json) = converted(&block.to_string()).unwrap();
        assert_eq!(block, json);
        let flow = "apiVersion: v1\nentries: {a: [{name: a, version: 1.0.0}]}\n";
        assert_eq!(converted(flow).unwrap().0.versions, 1);
    }

    #[test]
    fn an_index_without_a_version_or_with_damage_is_refused() {
        assert!(matches!(converted("entries: {}\n"), Err(Error::NoApiVersion)));
        assert!(matches!(converted(""), Err(Error::Empty)));
        assert!(matches!(
            converted("apiVersion: v1\nentries:\n  a:\n  - name: [\n"),
            Err(Error::Malformed(_))
        ));
        assert!(matches!(
            converted("{\"apiVersion\":\"v1\",\"entries\":{\"a\":[{\"na"),
            Err(Error::Malformed(_))
        ));
        assert!(matches!(
            converted("apiVersion: v1\nentries:\n  a:\n  - name: a\n  a:\n  - name: a\n"),
            Err(Error::Malformed(problem)) if problem.contains("already set")
        ));
    }
}
