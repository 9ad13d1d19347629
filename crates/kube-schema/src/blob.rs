//! The committed form of the tables: varints and texts, squeezed with zlib.
//!
//! Layout: length of the packed rows, packed rows, packed prose. Prose stays packed until someone
//! asks for a description. This is a private format between `examples/generate.rs` and this crate:
//! a change of layout means running the generator again, so there is no version to negotiate.

use std::io::{Read, Write};
use std::sync::OnceLock;

use crate::tables::{Edge, KindRow, Node, Prose, ResourceRow, SubresourceRow, TYPES, Tables, Text, Texts};

/// The blob is damaged. Only a bad build can cause it; the tests decode both committed files.
#[derive(Debug, thiserror::Error)]
#[error("the schema tables are damaged: {0}")]
pub struct Damaged(&'static str);

pub(crate) fn pack(tables: &Tables) -> std::io::Result<Vec<u8>> {
    let mut rows = Writer(Vec::new());
    rows.texts(&tables.texts);
    rows.list(&tables.nodes, Writer::node);
    rows.list(&tables.kinds, Writer::kind);
    let rows = deflate(&rows.0)?;
    let mut prose = Writer(Vec::new());
    if let Prose::Here(texts) = &tables.prose {
        prose.texts(texts);
    }
    let mut out = (rows.len() as u32).to_le_bytes().to_vec();
    out.extend(rows);
    out.extend(deflate(&prose.0)?);
    Ok(out)
}

pub(crate) fn unpack(blob: &'static [u8]) -> Result<Tables, Damaged> {
    let (length, rest) = blob.split_first_chunk::<4>().ok_or(Damaged("no header"))?;
    let length = u32::from_le_bytes(*length) as usize;
    let rows = rest.get(..length).ok_or(Damaged("rows cut off"))?;
    let bytes = inflate(rows)?;
    let mut reader = Reader(&bytes);
    let texts = reader.texts()?;
    let nodes = reader.list(Reader::node)?;
    let kinds = reader.list(Reader::kind)?;
    if nodes.is_empty() {
        return Err(Damaged("no nodes"));
    }
    let mut tables = Tables {
        texts,
        prose: Prose::Packed(&rest[length..], OnceLock::new()),
        nodes,
        kinds,
        by_gvk: Vec::new(),
        definitions: Default::default(),
        root: Edge::default(),
    };
    tables.index();
    Ok(tables)
}

pub(crate) fn unpack_prose(packed: &[u8]) -> Result<Texts, Damaged> {
    Reader(&inflate(packed)?).texts()
}

fn deflate(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn inflate(bytes: &[u8]) -> Result<Vec<u8>, Damaged> {
    let mut out = Vec::new();
    flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut out).map_err(|_| Damaged("zlib"))?;
    Ok(out)
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.number(items.len() as u32);
        for item in items {
            write(self, item);
        }
    }

    fn numbers(&mut self, numbers: &[Text]) {
        self.list(numbers, |writer, number| writer.number(*number));
    }

    fn texts(&mut self, texts: &Texts) {
        self.number(texts.ends.len() as u32);
        let mut start = 0;
        for end in &texts.ends {
            self.number(end - start);
            start = *end;
        }
        self.0.extend_from_slice(texts.buffer.as_bytes());
    }

    fn edge(&mut self, edge: &Edge) {
        for number in
            [edge.name, edge.node, edge.description, edge.default, edge.patch_strategy, edge.merge_key]
        {
            self.number(number);
        }
        self.number(edge.map_type.into());
        self.number(edge.go.into());
        self.number(edge.go_type);
    }

    fn option<T>(&mut self, value: Option<&T>, write: impl Fn(&mut Self, &T)) {
        self.number(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn node(&mut self, node: &Node) {
        self.number(node.name);
        self.number(node.description);
        self.number(TYPES.iter().position(|type_| *type_ == node.type_).unwrap_or(0) as u32);
        self.number(node.format);
        self.number(node.flags);
        self.number(node.list_type.into());
        self.number(node.map_type.into());
        self.numbers(&node.list_map_keys);
        self.numbers(&node.required);
        self.numbers(&node.allowed);
        self.number(node.default);
        self.number(node.patch_strategy);
        self.number(node.merge_key);
        self.list(&node.fields, Writer::edge);
        self.option(node.items.as_deref(), Writer::edge);
        self.option(node.values.as_deref(), Writer::edge);
    }

    fn kind(&mut self, row: &KindRow) {
        for number in [row.group, row.version, row.kind, row.scope.into()] {
            self.number(number);
        }
        self.option(row.schema.as_ref(), |writer, id| writer.number(*id));
        self.option(row.resource.as_deref(), Writer::resource);
    }

    fn resource(&mut self, row: &ResourceRow) {
        self.number(row.plural);
        self.number(row.singular);
        self.numbers(&row.short_names);
        self.numbers(&row.categories);
        self.numbers(&row.verbs);
        self.list(&row.subresources, |writer, row| {
            for number in [row.name, row.group, row.version, row.kind] {
                writer.number(number);
            }
            writer.numbers(&row.verbs);
        });
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Result<u32, Damaged> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Damaged("cut off"))?;
            self.0 = rest;
            value |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damaged("number too long"))
    }

    fn small(&mut self) -> Result<u8, Damaged> {
        u8::try_from(self.number()?).map_err(|_| Damaged("number too large"))
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, Damaged>) -> Result<Vec<T>, Damaged> {
        let count = self.number()? as usize;
        // Every item takes a byte at least, so a wild count cannot reserve wild memory.
        let mut items = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    fn numbers(&mut self) -> Result<Vec<Text>, Damaged> {
        self.list(Reader::number)
    }

    fn option<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, Damaged>) -> Result<Option<T>, Damaged> {
        Ok(if self.number()? == 0 { None } else { Some(read(self)?) })
    }

    fn texts(&mut self) -> Result<Texts, Damaged> {
        let lengths = self.numbers()?;
        let mut end = 0u32;
        let mut ends = Vec::with_capacity(lengths.len());
        for length in lengths {
            end = end.checked_add(length).ok_or(Damaged("texts too long"))?;
            ends.push(end);
        }
        let bytes = self.0.get(..end as usize).ok_or(Damaged("texts cut off"))?;
        self.0 = &self.0[end as usize..];
        let buffer = String::from_utf8(bytes.to_vec()).map_err(|_| Damaged("texts are not UTF-8"))?;
        Ok(Texts { buffer, ends })
    }

    fn edge(&mut self) -> Result<Edge, Damaged> {
        Ok(Edge {
            name: self.number()?,
            node: self.number()?,
            description: self.number()?,
            default: self.number()?,
            patch_strategy: self.number()?,
            merge_key: self.number()?,
            map_type: self.small()?,
            go: self.small()?,
            go_type: self.number()?,
        })
    }

    fn node(&mut self) -> Result<Node, Damaged> {
        Ok(Node {
            name: self.number()?,
            description: self.number()?,
            type_: *TYPES.get(self.number()? as usize).ok_or(Damaged("unknown type"))?,
            format: self.number()?,
            flags: self.number()?,
            list_type: self.small()?,
            map_type: self.small()?,
            list_map_keys: self.numbers()?,
            required: self.numbers()?,
            allowed: self.numbers()?,
            default: self.number()?,
            patch_strategy: self.number()?,
            merge_key: self.number()?,
            fields: self.list(Reader::edge)?,
            items: self.option(Reader::edge)?.map(Box::new),
            values: self.option(Reader::edge)?.map(Box::new),
        })
    }

    fn kind(&mut self) -> Result<KindRow, Damaged> {
        Ok(KindRow {
            group: self.number()?,
            version: self.number()?,
            kind: self.number()?,
            scope: self.small()?,
            schema: self.option(Reader::number)?,
            resource: self.option(Reader::resource)?.map(Box::new),
        })
    }

    fn resource(&mut self) -> Result<ResourceRow, Damaged> {
        Ok(ResourceRow {
            plural: self.number()?,
            singular: self.number()?,
            short_names: self.numbers()?,
            categories: self.numbers()?,
            verbs: self.numbers()?,
            subresources: self.list(|reader| {
                Ok(SubresourceRow {
                    name: reader.number()?,
                    group: reader.number()?,
                    version: reader.number()?,
                    kind: reader.number()?,
                    verbs: reader.numbers()?,
                })
            })?,
        })
    }
}
