//! A signature's envelope in COSE, the binary sister of the JSON one, and as much CBOR as it takes to read it.
//!
//! Lengths are given in front, as signers write them; whatever has none is not read.

use jiff::Timestamp;
use serde_json::{Map, Value as Json};

use super::envelope::Parts;

pub(super) const MEDIA_TYPE: &str = "application/cose";
const SIGN_ONE: u64 = 18;
const TIME: u64 = 1;
const DEEPEST: usize = 8;
// Labels of headers.
const ALGORITHM: i64 = 1;
const CRITICAL: i64 = 2;
const CONTENT_TYPE: i64 = 3;
const CERTIFICATES: i64 = 33;

/// One item.
#[derive(Debug, PartialEq)]
enum Item<'a> {
    Number(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
    Array(Vec<Item<'a>>),
    Map(Vec<(Item<'a>, Item<'a>)>),
    Tag(u64, Box<Item<'a>>),
    Simple,
}

/// The parts of an envelope, its attributes under the names that they have in JSON.
pub(super) fn read(bytes: &[u8]) -> Option<Parts> {
    let (Item::Tag(SIGN_ONE, inner), []) = item(bytes, 0)? else { return None };
    let Item::Array(parts) = *inner else { return None };
    let [Item::Bytes(protected), Item::Map(unprotected), Item::Bytes(payload), Item::Bytes(signature)] =
        parts.as_slice()
    else {
        return None;
    };
    let (Item::Map(headers), []) = item(protected, 0)? else { return None };
    let certificates = unprotected.iter().find(|(label, _)| *label == Item::Number(CERTIFICATES));
    let chain = match certificates {
        Some((_, Item::Array(chain))) => chain.iter().map(bytes_of).collect::<Option<Vec<_>>>()?,
        _ => Vec::new(),
    };
    let mut attributes = Map::new();
    for (label, value) in &headers {
        // What stands there twice may mean either.
        if attributes.insert(name(label)?, json(label, value)?).is_some() {
            return None;
        }
    }
    Some(Parts {
        attributes,
        chain,
        message: signed(protected, payload),
        payload: payload.to_vec(),
        signature: signature.to_vec(),
    })
}

fn bytes_of(item: &Item<'_>) -> Option<Vec<u8>> {
    match item {
        Item::Bytes(bytes) => Some(bytes.to_vec()),
        _ => None,
    }
}

fn name(label: &Item<'_>) -> Option<String> {
    match label {
        Item::Number(ALGORITHM) => Some("alg".to_owned()),
        Item::Number(CRITICAL) => Some("crit".to_owned()),
        Item::Number(CONTENT_TYPE) => Some("cty".to_owned()),
        Item::Number(other) => Some(other.to_string()),
        Item::Text(text) => Some((*text).to_owned()),
        _ => None,
    }
}

fn json(label: &Item<'_>, value: &Item<'_>) -> Option<Json> {
    Some(match value {
        Item::Number(number) if *label == Item::Number(ALGORITHM) => algorithm(*number)?.into(),
        Item::Number(number) => (*number).into(),
        Item::Text(text) => (*text).into(),
        Item::Array(items) => items.iter().map(name).collect::<Option<Vec<_>>>()?.into(),
        Item::Tag(TIME, second) => match **second {
            Item::Number(second) => Timestamp::from_second(second).ok()?.to_string().into(),
            _ => return None,
        },
        Item::Bytes(_) | Item::Map(_) | Item::Tag(..) | Item::Simple => Json::Null,
    })
}

fn algorithm(number: i64) -> Option<&'static str> {
    Some(match number {
        -7 => "ES256",
        -35 => "ES384",
        -36 => "ES512",
        -37 => "PS256",
        -38 => "PS384",
        -39 => "PS512",
        _ => return None,
    })
}

/// What a signature is over: its purpose, the protected headers, nothing from outside, the payload.
fn signed(protected: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut message = vec![0x84, 0x6a];
    message.extend_from_slice(b"Signature1");
    for part in [protected, &[], payload] {
        message.extend(head(2, part.len() as u64));
        message.extend_from_slice(part);
    }
    message
}

fn head(kind: u8, number: u64) -> Vec<u8> {
    let kind = kind << 5;
    let digits = number.to_be_bytes();
    match number {
        0..24 => vec![kind | number as u8],
        24..0x100 => vec![kind | 24, number as u8],
        0x100..0x1_0000 => [&[kind | 25][..], &digits[6..]].concat(),
        0x1_0000..0x1_0000_0000 => [&[kind | 26][..], &digits[4..]].concat(),
        _ => [&[kind | 27][..], &digits].concat(),
    }
}

/// The item at the start of `bytes`, and what follows it.
fn item(bytes: &[u8], depth: usize) -> Option<(Item<'_>, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if depth > DEEPEST {
        return None;
    }
    let (number, rest) = match first & 0x1f {
        small @ 0..24 => (u64::from(small), rest),
        size @ 24..=27 => {
            let (digits, rest) = rest.split_at_checked(1 << (size - 24))?;
            (digits.iter().fold(0, |number, digit| number << 8 | u64::from(*digit)), rest)
        }
        _ => return None,
    };
    let many = || usize::try_from(number).ok().filter(|many| *many <= bytes.len());
    match first >> 5 {
        0 => Some((Item::Number(i64::try_from(number).ok()?), rest)),
        1 => Some((Item::Number(-1 - i64::try_from(number).ok()?), rest)),
        2 => rest.split_at_checked(many()?).map(|(bytes, rest)| (Item::Bytes(bytes), rest)),
        3 => {
            let (text, rest) = rest.split_at_checked(many()?)?;
            Some((Item::Text(std::str::from_utf8(text).ok()?), rest))
        }
        4 => {
            let (mut items, mut rest) = (Vec::new(), rest);
            for _ in 0..many()? {
                let (next, after) = item(rest, depth + 1)?;
                items.push(next);
                rest = after;
            }
            Some((Item::Array(items), rest))
        }
        5 => {
            let (mut items, mut rest) = (Vec::new(), rest);
            for _ in 0..many()? {
                let (label, after) = item(rest, depth + 1)?;
                let (value, after) = item(after, depth + 1)?;
                items.push((label, value));
                rest = after;
            }
            Some((Item::Map(items), rest))
        }
        6 => {
            let (inner, rest) = item(rest, depth + 1)?;
            Some((Item::Tag(number, Box::new(inner)), rest))
        }
        _ => Some((Item::Simple, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_to_their_end_and_not_beyond() {
        // {1: -7, "a": [h'0102', 1(1700000000), true]}, as the standard writes it.
        let bytes = [
            &[0xa2, 0x01, 0x26, 0x61, b'a', 0x83, 0x42, 1, 2, 0xc1, 0x1a][..],
            &1_700_000_000_u32.to_be_bytes(),
            &[0xf5],
        ]
        .concat();
        let (read, rest) = item(&bytes, 0).unwrap();
        let list =
            vec![Item::Bytes(&[1, 2]), Item::Tag(1, Box::new(Item::Number(1_700_000_000))), Item::Simple];
        let wanted = vec![(Item::Number(1), Item::Number(-7)), (Item::Text("a"), Item::Array(list))];
        assert_eq!((read, rest.len()), (Item::Map(wanted), 0));
        for cut in 0..bytes.len() {
            assert!(item(&bytes[..cut], 0).is_none(), "{cut}");
        }
        // Endless, nested without end, and longer than what is there.
        for bad in [
            &[0x9f][..],
            &[0x81; 100],
            &[0x5b, 255, 255, 255, 255, 255, 255, 255, 255],
            &[0x9a, 255, 255, 255, 255],
        ] {
            assert!(item(bad, 0).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn lengths_are_written_as_they_are_read() {
        for length in [0, 23, 24, 255, 256, 65_535, 65_536] {
            let bytes = [head(2, length as u64), vec![7; length]].concat();
            assert_eq!(item(&bytes, 0), Some((Item::Bytes(&vec![7; length]), &[][..])));
        }
    }
}
