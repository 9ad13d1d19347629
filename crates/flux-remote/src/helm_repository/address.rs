//! Addresses of repositories and of what they name, joined as Helm joins them.

use url::Url;

use super::Error;

/// One form for all spellings of a repository's address: a slash at the end over HTTP, none for a registry.
pub fn normalize(address: &str) -> Result<String, Error> {
    if address.is_empty() {
        return Ok(String::new());
    }
    let mut url = parse(address)?;
    let path = url.path().trim_end_matches('/').to_owned();
    match url.scheme() {
        // A path that ends in nothing: the parser writes none for schemes it does not know.
        "oci" => url.set_path(&path),
        _ => url.set_path(&format!("{path}/")),
    }
    Ok(url.to_string())
}

/// Where a chart is that an index names, perhaps relative to the index. The query of the repository is kept, since
/// it may carry a token.
pub fn resolve(repository: &str, reference: &str) -> Result<Url, Error> {
    if let Ok(absolute) = Url::parse(reference) {
        return Ok(absolute);
    }
    let mut base = parse(repository)?;
    base.set_path(&format!("{}/", base.path().trim_end_matches('/')));
    let mut resolved = base
        .join(reference)
        .map_err(|error| Error::Address(format!("failed to parse {reference} as URL: {error}")))?;
    resolved.set_query(base.query());
    Ok(resolved)
}

/// Where the index of a repository is.
pub(super) fn index(repository: &str) -> Result<Url, Error> {
    let mut url = parse(repository)?;
    let path = format!("{}/index.yaml", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

pub(super) fn parse(address: &str) -> Result<Url, Error> {
    Url::parse(address).map_err(|error| Error::Address(format!("parse \"{address}\": {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_repository_are_one() {
        for spelling in
            ["https://example.com/charts", "https://example.com/charts/", "https://example.com/charts///"]
        {
            assert_eq!(normalize(spelling).unwrap(), "https://example.com/charts/");
        }
        assert_eq!(normalize("https://example.com").unwrap(), "https://example.com/");
        assert_eq!(normalize("oci://example.com/charts//").unwrap(), "oci://example.com/charts");
        assert!(normalize("https://[").is_err());
    }

    #[test]
    fn charts_are_found_relative_to_the_repository() {
        let at = |reference| resolve("https://example.com/charts?token=t", reference).unwrap().to_string();
        assert_eq!(at("a-1.0.0.tgz"), "https://example.com/charts/a-1.0.0.tgz?token=t");
        assert_eq!(at("/elsewhere/a.tgz"), "https://example.com/elsewhere/a.tgz?token=t");
        assert_eq!(at("https://cdn.example.com/a.tgz"), "https://cdn.example.com/a.tgz");
        assert_eq!(
            index("https://example.com/charts/?token=t").unwrap().as_str(),
            "https://example.com/charts/index.yaml?token=t"
        );
    }
}
