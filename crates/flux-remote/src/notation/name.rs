//! Distinguished names, as trust policies write them (RFC 4514) and as certificates hold them.

use std::collections::BTreeMap;

use x509_parser::prelude::{FromDer, X509Certificate};

/// Attributes by their short names; each stands there once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name(BTreeMap<String, String>);

const MANDATORY: [&str; 3] = ["C", "ST", "O"];

impl Name {
    /// `C=US, ST=WA, O=example\, inc., CN=…`
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pairs = Vec::new();
        for part in split(text, ',') {
            if split(part, '+').len() > 1 {
                return Err(format!("distinguished name (DN) \"{text}\" has multi-valued RDN attributes"));
            }
            let (kind, value) = part.split_once('=').ok_or_else(|| {
                format!("parsing distinguished name (DN) \"{text}\" failed: '{part}' is no attribute")
            })?;
            let value = unescape(value.trim()).ok_or_else(|| {
                format!("parsing distinguished name (DN) \"{text}\" failed: '{part}' ends with a backslash")
            })?;
            pairs.push((kind.trim().to_owned(), value));
        }
        Self::from_pairs(pairs, text)
    }

    /// Whose certificate it is.
    pub(super) fn of_certificate(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| "a certificate that is damaged")?;
        let subject = certificate.subject();
        let pairs = subject.iter_attributes().map(|attribute| {
            let id = attribute.attr_type().to_id_string();
            (short(&id).unwrap_or(&id).to_owned(), attribute.as_str().unwrap_or_default().to_owned())
        });
        Self::from_pairs(pairs.collect(), &subject.to_string())
    }

    fn from_pairs(pairs: Vec<(String, String)>, text: &str) -> Result<Self, String> {
        let mut name = BTreeMap::new();
        for (kind, value) in pairs {
            let kind = if kind == "S" { "ST".to_owned() } else { kind };
            if name.insert(kind.clone(), value).is_some() {
                return Err(format!(
                    "distinguished name (DN) \"{text}\" has duplicate RDN attribute for \"{kind}\", DN can only have unique RDN attributes"
                ));
            }
        }
        for kind in MANDATORY {
            if name.get(kind).is_none_or(String::is_empty) {
                return Err(format!(
                    "distinguished name (DN) \"{text}\" has no mandatory RDN attribute for \"{kind}\", it must contain 'C', 'ST' or 'S', and 'O' RDN attributes at a minimum"
                ));
            }
        }
        Ok(Self(name))
    }

    /// Whether the other name has all that this one has.
    pub(super) fn is_part_of(&self, other: &Name) -> bool {
        self.0.iter().all(|(kind, value)| other.0.get(kind) == Some(value))
    }
}

fn short(id: &str) -> Option<&'static str> {
    Some(match id {
        "2.5.4.3" => "CN",
        "2.5.4.5" => "SERIALNUMBER",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.17" => "POSTALCODE",
        _ => return None,
    })
}

/// Parts between separators that no backslash stands before.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if c == separator && !escaped {
            parts.push(text[start..at].trim());
            start = at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(text[start..].trim());
    parts
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'\\' {
            plain.push(byte);
            rest = after;
            continue;
        }
        let code = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match code.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[2..];
            }
            None => {
                let (&byte, after) = after.split_first()?;
                plain.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_by_their_attributes() {
        let name = |text: &str| Name::parse(text).unwrap();
        let full = name("CN=flux, O=example\\, inc., ST=WA, C=US");
        assert!(name("C=US,S=WA,O=example\\2c inc.").is_part_of(&full));
        assert!(!name("C=US,ST=WA,O=example").is_part_of(&full));
        assert!(!full.is_part_of(&name("C=US,ST=WA,O=example\\, inc.")));
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for (text, words) in [
            ("", "no attribute"),
            ("C=US,ST=WA", "mandatory RDN attribute for \"O\""),
            ("C=US,ST=WA,O=a,O=b", "duplicate"),
            ("C=US,ST=WA,O=a+OU=b", "multi-valued"),
            ("C=US,ST=WA,O=a\\", "backslash"),
        ] {
            let problem = Name::parse(text).err().unwrap_or_default();
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }
}
