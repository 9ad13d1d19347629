//! `WWW-Authenticate`: what a registry asks for before it answers.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
    Unknown(String),
}

/// Reads the challenges of an answer; a bearer challenge is preferred.
pub(super) fn parse<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut found: Vec<Challenge> = headers.map(one).collect();
    found.sort_by_key(|challenge| match challenge {
        Challenge::Bearer { .. } => 0,
        Challenge::Basic => 1,
        Challenge::Unknown(_) => 2,
    });
    found.into_iter().next()
}

fn one(header: &str) -> Challenge {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Challenge::Basic;
    }
    let mut parameters = parameters(rest);
    match parameters.remove("realm") {
        Some(realm) if scheme.eq_ignore_ascii_case("bearer") => Challenge::Bearer {
            realm,
            service: parameters.remove("service"),
            scope: parameters.remove("scope"),
        },
        _ => Challenge::Unknown(scheme.chars().take(40).collect()),
    }
}

/// `a="b",c=d`; a quoted value may hold commas and escaped quotes.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text.trim_start();
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim().trim_start_matches(',').trim().to_ascii_lowercase();
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find(',').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        found.entry(name).or_insert(value);
        rest = left.trim_start().trim_start_matches(',').trim_start();
    }
    found
}

fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_challenge_is_read_and_preferred() {
        let headers = [
            "Basic realm=\"x\"",
            "Bearer realm=\"https://auth.io/token?a=b,c\", service=\"reg, io\",scope=\"repository:a/b:pull\"",
        ];
        assert_eq!(
            parse(headers.into_iter()),
            Some(Challenge::Bearer {
                realm: "https://auth.io/token?a=b,c".into(),
                service: Some("reg, io".into()),
                scope: Some("repository:a/b:pull".into()),
            })
        );
        assert_eq!(parse(["Basic"].into_iter()), Some(Challenge::Basic));
        assert_eq!(
            parse(["Bearer service=\"no realm\""].into_iter()),
            Some(Challenge::Unknown("Bearer".into()))
        );
        assert_eq!(parse(["Negotiate"].into_iter()), Some(Challenge::Unknown("Negotiate".into())));
        assert_eq!(parse(std::iter::empty()), None);
    }

    #[test]
    fn garbage_ends() {
        for text in ["Bearer =", "Bearer a=\"", "Bearer ,,,=,=", "Bearer realm=\"\\"] {
            let _ = parse([text].into_iter());
        }
    }
}
