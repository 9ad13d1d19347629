//! Paths through a tree: how they are split, and kyaml's `PathGetter`, which follows one.

use super::{Kind, NodeId, Tree};

/// Splits at `delimiter`, which a backslash before it escapes; one delimiter at the start is skipped.
pub(crate) fn split_path(path: &str, delimiter: char) -> Vec<String> {
    let mut parts = path.split(delimiter).peekable();
    let mut result: Vec<String> = Vec::new();
    let first = parts.next().unwrap_or_default();
    if !first.is_empty() || parts.peek().is_none() {
        result.push(first.to_owned());
    } else if let Some(second) = parts.next() {
        result.push(second.to_owned());
    }
    for part in parts {
        match result.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push(delimiter);
                last.push_str(part);
            }
            _ => result.push(part.to_owned()),
        }
    }
    result
}

/// As [`split_path`], but brackets hold together: `[name=a.b]` stays whole with its brackets, since it picks an
/// element, and `[a.b]` stays whole without them, since it is only a name with dots.
pub(crate) fn smart_split(path: &str, delimiter: char) -> Vec<String> {
    let mut result = Vec::new();
    let mut parts = split_path(path, delimiter).into_iter();
    while let Some(part) = parts.next() {
        if !part.starts_with('[') || part.ends_with(']') {
            result.push(part);
            continue;
        }
        let mut bracketed = part;
        for next in parts.by_ref() {
            bracketed.push(delimiter);
            bracketed.push_str(&next);
            if next.ends_with(']') {
                break;
            }
        }
        if bracketed.contains('=') {
            result.push(bracketed);
        } else {
            result.push(bracketed.trim_matches(['[', ']']).to_owned());
        }
    }
    result
}

/// `[name=value]`, apart.
pub(crate) fn element_selector(part: &str) -> Result<(&str, &str), String> {
    let inner = part.strip_suffix(']').unwrap_or(part);
    let inner = inner.strip_prefix('[').unwrap_or(inner);
    inner
        .split_once('=')
        .ok_or_else(|| "list path element must contain fieldName=fieldValue for element to match".to_owned())
}

pub(crate) fn is_element_selector(part: &str) -> bool {
    part.starts_with('[') && part.ends_with(']')
}

/// The kind of node that a path needs where its next part goes on.
pub(crate) fn kind_before(next: Option<&str>, last: Kind) -> Kind {
    match next {
        None | Some("") => last,
        Some(part) if is_element_selector(part) || is_index(part) => Kind::Seq,
        Some(_) => Kind::Map,
    }
}

pub(crate) fn is_index(part: &str) -> bool {
    go_int(part).is_some_and(|index| index >= 0)
}

/// Go's `strconv.Atoi`.
pub(crate) fn go_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(())?;
    text.parse().ok()
}

impl Tree {
    /// The node at `path`, if every part of it is there.
    pub(crate) fn lookup<S: AsRef<str>>(&self, start: NodeId, path: &[S]) -> Result<Option<NodeId>, String> {
        let mut at = start;
        for part in path.iter().map(|part| part.as_ref().trim()).filter(|part| !part.is_empty()) {
            match self.step(at, part)? {
                Some(next) => at = next,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn step(&self, at: NodeId, part: &str) -> Result<Option<NodeId>, String> {
        if let Some(index) = go_int(part) {
            let index =
                usize::try_from(index).map_err(|_| format!("array index {index} cannot be negative"))?;
            return Ok(self.elements(at).map_err(|error| error.to_string())?.get(index).copied());
        }
        match part {
            "-" => Ok(self.elements(at).map_err(|error| error.to_string())?.last().copied()),
            "*" => Err("wildcard is not supported in PathGetter".to_owned()),
            _ if is_element_selector(part) => {
                let (key, value) = element_selector(part)?;
                self.elements(at).map_err(|error| error.to_string())?;
                Ok(self.find_element(at, &[key.to_owned()], &[value.to_owned()]))
            }
            name => self.field(at, name).map_err(|error| error.to_string()),
        }
    }

    /// The node at `path`, the missing parts made on the way; the last one of kind `kind`.
    pub(crate) fn lookup_create<S: AsRef<str>>(
        &mut self,
        start: NodeId,
        path: &[S],
        kind: Kind,
    ) -> Result<Option<NodeId>, String> {
        let parts: Vec<&str> =
            path.iter().map(|part| part.as_ref().trim()).filter(|part| !part.is_empty()).collect();
        let mut at = start;
        for (index, part) in parts.iter().enumerate() {
            let next_kind = kind_before(parts.get(index + 1).copied(), kind);
            let next = if is_element_selector(part) {
                Some(self.element_or_create(at, part)?)
            } else if go_int(part).is_some() || matches!(*part, "-" | "*") {
                self.step(at, part)?
            } else {
                self.field_or_create(at, part, next_kind).map_err(|error| error.to_string())?
            };
            match next {
                Some(next) => at = next,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn element_or_create(&mut self, list: NodeId, part: &str) -> Result<NodeId, String> {
        if let Some(found) = self.step(list, part)? {
            return Ok(found);
        }
        let (key, value) = element_selector(part)?;
        let value = self.plain(value);
        let element = if key.is_empty() {
            value
        } else {
            let key = self.plain(key);
            let map = self.empty(Kind::Map);
            self.push_field(map, key, value);
            map
        };
        if let Some(content) = self.content_mut(list) {
            content.push(element);
        }
        Ok(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_keeps_a_delimiter() {
        assert_eq!(split_path(r"metadata/annotations/a\/b", '/'), ["metadata", "annotations", "a/b"]);
        assert_eq!(split_path("/a/b", '/'), ["a", "b"]);
        assert_eq!(split_path("", '/'), [""]);
    }

    #[test]
    fn brackets_hold_dots() {
        assert_eq!(
            smart_split("spec.containers.[name=a.b].image", '.'),
            ["spec", "containers", "[name=a.b]", "image"]
        );
        assert_eq!(smart_split("metadata.annotations.[a.b/c]", '.'), ["metadata", "annotations", "a.b/c"]);
    }
}
