//! As much XML as object stores answer with: elements and text, in the order they come.

/// A piece of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A name, and the attributes as they are written.
    Start(&'a str, &'a str),
    Text(String),
    End(&'a str),
}

/// The pieces of `text`; what is cut off or crooked ends them.
pub(super) fn pieces(text: &str) -> Pieces<'_> {
    Pieces { rest: text, pending: None }
}

pub(super) struct Pieces<'a> {
    rest: &'a str,
    /// The end of an element that was written as one, `<a/>`.
    pending: Option<&'a str>,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if let Some(name) = self.pending.take() {
            return Some(Piece::End(name));
        }
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let Some(tag) = self.rest.strip_prefix('<') else {
                let end = self.rest.find('<').unwrap_or(self.rest.len());
                let (text, rest) = self.rest.split_at(end);
                self.rest = rest;
                return Some(Piece::Text(unescape(text)));
            };
            let end = tag.find('>')?;
            let inside = &tag[..end];
            self.rest = &tag[end + 1..];
            if inside.starts_with(['?', '!']) {
                continue;
            }
            if let Some(name) = inside.strip_prefix('/') {
                return Some(Piece::End(name.trim()));
            }
            let element = inside.trim_end_matches('/').trim_start();
            let end = element.find(|c: char| c.is_ascii_whitespace()).unwrap_or(element.len());
            let (name, attributes) = element.split_at(end);
            if name.is_empty() {
                return None;
            }
            if inside.ends_with('/') {
                self.pending = Some(name);
            }
            return Some(Piece::Start(name, attributes.trim()));
        }
    }
}

/// The text of the first element of that name.
pub(crate) fn text_of(document: &str, name: &str) -> Option<String> {
    let mut pieces = pieces(document);
    pieces.find(|piece| matches!(piece, Piece::Start(found, _) if *found == name))?;
    match pieces.next()? {
        Piece::Text(text) => Some(text),
        Piece::Start(..) | Piece::End(_) => Some(String::new()),
    }
}

fn unescape(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((name, after)) = rest.split_once(';') else { break };
        let code = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
        let found = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => match name.strip_prefix("#x") {
                Some(digits) => code(digits, 16),
                None => name.strip_prefix('#').and_then(|digits| code(digits, 10)),
            },
        };
        plain.extend(found);
        rest = after;
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_text_come_in_order() {
        let text = "<?xml version=\"1.0\"?><!-- x --><a b=\"c\"><d>1 &amp; &#x32;</d><e/></a>";
        let found: Vec<Piece<'_>> = pieces(text).collect();
        assert_eq!(
            found,
            [
                Piece::Start("a", "b=\"c\""),
                Piece::Start("d", ""),
                Piece::Text("1 & 2".into()),
                Piece::End("d"),
                Piece::Start("e", ""),
                Piece::End("e"),
                Piece::End("a"),
            ]
        );
        assert_eq!(text_of(text, "d").as_deref(), Some("1 & 2"));
        assert_eq!(text_of(text, "x"), None);
    }

    #[test]
    fn what_is_crooked_ends() {
        for text in ["<", "<a", "<a><b", "&", "a&b", "<>", "</", "<a/", "&#xffffffff;"] {
            let _ = pieces(text).count();
            let _ = text_of(text, "a");
        }
    }
}
