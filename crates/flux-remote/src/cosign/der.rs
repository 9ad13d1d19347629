//! As much DER as it takes to cut one extension out of a certificate.

/// One element: its tag, what is in it, and all of it.
#[derive(Clone, Copy)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    pub(super) whole: &'a [u8],
}

/// The element at the start of `bytes`, and what follows it.
pub(super) fn read(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=127 => (usize::from(first), rest),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let (digits, rest) = rest.split_at_checked(count)?;
            (digits.iter().fold(0_usize, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    let whole = &bytes[..bytes.len() - after.len()];
    Some((Element { tag, content, whole }, after))
}

/// The elements one after another in `bytes`; `None` when something else is among them.
pub(super) fn all(mut bytes: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (element, rest) = read(bytes)?;
        found.push(element);
        bytes = rest;
    }
    Some(found)
}

pub(super) fn write(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let length = content.len();
    if length < 128 {
        bytes.push(length as u8);
    } else {
        let digits: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|digit| *digit == 0).collect();
        bytes.push(0x80 | digits.len() as u8);
        bytes.extend(digits);
    }
    bytes.extend_from_slice(content);
    bytes
}

/// A certificate's signed part without the extension of that (encoded) identifier.
pub(super) fn without_extension(tbs: &[u8], identifier: &[u8]) -> Option<Vec<u8>> {
    let (sequence, _) = read(tbs)?;
    let mut fields = Vec::new();
    for field in all(sequence.content)? {
        // [3] holds the extensions.
        if field.tag != 0xa3 {
            fields.extend_from_slice(field.whole);
            continue;
        }
        let (list, _) = read(field.content)?;
        let mut kept = Vec::new();
        for extension in all(list.content)? {
            let (name, _) = read(extension.content)?;
            if name.content != identifier {
                kept.extend_from_slice(extension.whole);
            }
        }
        fields.extend(write(0xa3, &write(0x30, &kept)));
    }
    Some(write(0x30, &fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let bytes = write(0x04, &vec![7; length]);
            let (element, rest) = read(&bytes).unwrap();
            assert_eq!((element.tag, element.content.len(), rest.len()), (0x04, length, 0));
        }
        for damaged in [&[][..], &[0x30], &[0x30, 5, 1], &[0x30, 0x85, 1, 1, 1, 1, 1], &[0x30, 0x80, 0, 0]] {
            assert!(read(damaged).is_none(), "{damaged:?}");
        }
    }
}
