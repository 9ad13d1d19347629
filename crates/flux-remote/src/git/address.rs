//! Where a repository is: `https://…`, `ssh://…`, or the short `git@host:path` that submodules use.
//!
//! Nothing else is an address: no local paths, no `file:`, no `ext::`, nothing that reads like an option.

use url::Url;

use super::Error;

const SSH_PORT: u16 = 22;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Http(Url),
    Ssh(SshAddress),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshAddress {
    /// `git`, where the address names nobody.
    pub user: Option<String>,
    pub host: String,
    pub port: u16,
    /// As it is handed to the server, absolute for `ssh://`, as written for the short form.
    pub path: String,
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.chars().any(char::is_control) || text.starts_with('-') {
            return Err(Error::InvalidUrl(
                "control characters and leading dashes are not allowed".to_owned(),
            ));
        }
        if !text.contains("://") {
            return short(text);
        }
        let url = Url::parse(text).map_err(|error| Error::InvalidUrl(error.to_string()))?;
        match url.scheme() {
            "http" | "https" if url.host_str().is_some() => Ok(Address::Http(url)),
            "ssh" => ssh(&url),
            other => Err(Error::InvalidUrl(format!("scheme '{other}' is none of http, https and ssh"))),
        }
    }

    /// Scheme, host and port: credentials belong to these.
    pub fn origin(&self) -> (String, String, u16) {
        match self {
            Address::Http(url) => (
                url.scheme().to_owned(),
                url.host_str().unwrap_or_default().to_lowercase(),
                url.port_or_known_default().unwrap_or_default(),
            ),
            Address::Ssh(at) => ("ssh".to_owned(), at.host.to_lowercase(), at.port),
        }
    }

    /// User and password for HTTP that stand in the address, as they were before they were made part of it.
    pub fn user_and_password(&self) -> (Option<String>, Option<String>) {
        let Address::Http(url) = self else { return (None, None) };
        let plain = |text: &str| decoded(text).ok().filter(|text| !text.is_empty());
        (plain(url.username()), url.password().and_then(plain))
    }
}

impl SshAddress {
    /// `host`, or `[host]:port` for another port than 22, as `known_hosts` writes it.
    pub fn known_as(&self) -> String {
        match self.port {
            SSH_PORT => self.host.clone(),
            port => format!("[{}]:{port}", self.host),
        }
    }
}

fn ssh(url: &Url) -> Result<Address, Error> {
    let host = url.host_str().ok_or_else(|| Error::InvalidUrl("no host".to_owned()))?;
    let path = decoded(url.path())?;
    let user = Some(decoded(url.username())?).filter(|user| !user.is_empty());
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    checked(SshAddress { user, host, port: url.port().unwrap_or(SSH_PORT), path })
}

/// `user@host:path`, or `host:path`.
fn short(text: &str) -> Result<Address, Error> {
    let invalid = || Error::InvalidUrl("expected https://…, ssh://… or user@host:path".to_owned());
    let (place, path) = text.split_once(':').ok_or_else(invalid)?;
    if place.contains('/') || path.starts_with(':') {
        return Err(invalid());
    }
    let (user, host) = match place.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, place),
    };
    checked(SshAddress { user, host: host.to_owned(), port: SSH_PORT, path: path.to_owned() })
}

fn checked(at: SshAddress) -> Result<Address, Error> {
    let odd = |text: &str| text.is_empty() || text.starts_with('-') || text.chars().any(char::is_control);
    if odd(&at.host) || odd(&at.path) || at.path == "/" || at.user.as_deref().is_some_and(odd) {
        return Err(Error::InvalidUrl(
            "user, host and path must be there and not start with a dash".to_owned(),
        ));
    }
    Ok(Address::Ssh(at))
}

fn decoded(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = (*first == b'%')
            .then(|| tail.get(..2).and_then(|two| std::str::from_utf8(two).ok()))
            .flatten()
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| Error::InvalidUrl("not UTF-8".to_owned()))
}

/// The address of a submodule as seen from its parent: `./x` and `../x` are relative to the parent's address.
pub fn submodule_address(parent: &str, submodule: &str) -> Result<String, Error> {
    if !(submodule.starts_with("./") || submodule.starts_with("../")) {
        Address::parse(submodule)?;
        return Ok(submodule.to_owned());
    }
    let mut base = parent.trim_end_matches('/');
    let mut rest = submodule;
    loop {
        if let Some(tail) = rest.strip_prefix("./") {
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix("../") {
            rest = tail;
            base =
                up(base).ok_or_else(|| Error::InvalidUrl(format!("'{submodule}' climbs out of the host")))?;
        } else {
            break;
        }
    }
    let joined = match base.ends_with(':') {
        true => format!("{base}{rest}"),
        false => format!("{base}/{rest}"),
    };
    Address::parse(&joined)?;
    Ok(joined)
}

/// One folder up, never into the host.
fn up(base: &str) -> Option<&str> {
    let path_at = match base.find("://") {
        Some(scheme) => scheme + 3 + base[scheme + 3..].find('/')?,
        None => base.find(':')? + 1,
    };
    match base[path_at..].rfind('/') {
        Some(slash) => Some(&base[..path_at + slash]),
        None if path_at < base.len() => Some(&base[..path_at]),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(text: &str) -> SshAddress {
        match Address::parse(text).unwrap() {
            Address::Ssh(at) => at,
            Address::Http(_) => panic!("{text} is HTTP"),
        }
    }

    #[test]
    fn both_forms_of_ssh_are_read() {
        let long = ssh("ssh://git@example.com:2222/org/a%20b.git");
        assert_eq!(
            (long.user.as_deref(), long.port, long.path.as_str()),
            (Some("git"), 2222, "/org/a b.git")
        );
        assert_eq!(long.known_as(), "[example.com]:2222");
        let short = ssh("me@example.com:org/repo.git");
        assert_eq!(
            (short.user.as_deref(), short.port, short.path.as_str()),
            (Some("me"), 22, "org/repo.git")
        );
        assert_eq!(short.known_as(), "example.com");
        assert_eq!(ssh("ssh://[::1]:2222/x").host, "::1");
    }

    #[test]
    fn an_address_may_hold_a_user_and_a_password() {
        let of = |text: &str| Address::parse(text).unwrap().user_and_password();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("https://ann:p%40ss%2Fword@host/repo"), (some("ann"), some("p@ss/word")));
        assert_eq!(of("https://token@host/repo"), (some("token"), None));
        assert_eq!(of("https://host/repo"), (None, None));
        assert_eq!(of("ssh://git@host/repo"), (None, None));
    }

    #[test]
    fn what_could_be_taken_for_an_option_or_a_command_is_no_address() {
        for text in [
            "-oProxyCommand=x",
            "--upload-pack=x",
            "ssh://-oProxyCommand=x/repo",
            "ssh://-x@host/repo",
            "git@-x:repo",
            "git@host:-x",
            "ext::sh -c x",
            "file:///etc",
            "/etc/passwd",
            "ssh://host",
            "ssh://host/",
            "ssh://git@host/a\nb",
            "https://",
            "",
        ] {
            assert!(Address::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_submodule_may_be_named_from_where_its_parent_is() {
        let at = |parent: &str, child: &str| submodule_address(parent, child).unwrap();
        assert_eq!(at("https://host/org/repo.git", "../lib.git"), "https://host/org/lib.git");
        assert_eq!(at("https://host/org/repo.git/", "./lib"), "https://host/org/repo.git/lib");
        assert_eq!(at("ssh://git@host/org/repo", "../../other/lib"), "ssh://git@host/other/lib");
        assert_eq!(at("git@host:org/repo.git", "../lib"), "git@host:org/lib");
        assert_eq!(at("git@host:repo.git", "../lib"), "git@host:lib");
        assert_eq!(at("https://host/a", "https://other/b"), "https://other/b");
        assert!(submodule_address("https://host/repo", "../../x").is_err());
        assert!(submodule_address("https://host/repo", "ext::sh").is_err());
        assert!(submodule_address("https://host/repo", "/abs/path").is_err());
    }
}
