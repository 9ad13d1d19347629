//! `known_hosts`: which keys a host may show. Pure.
//!
//! Lines of certificate authorities are read and never taken for host keys; hosts that show certificates are not
//! supported.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use russh::keys::{Algorithm, HashAlg, PublicKey};
use sha1::Sha1;

use super::Error;

/// A parsed file.
pub struct KnownHosts {
    lines: Vec<Line>,
}

struct Line {
    hosts: Hosts,
    key: PublicKey,
    marker: Marker,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Marker {
    HostKey,
    Revoked,
    Authority,
}

enum Hosts {
    /// Patterns with `*` and `?`, each maybe negated by `!`.
    Patterns(Vec<(bool, String)>),
    /// A salted hash of one name.
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

impl KnownHosts {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut lines = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let line = line(text)
                .ok_or_else(|| Error::HostKey(format!("known_hosts: line {} is malformed", index + 1)))?;
            lines.push(line);
        }
        Ok(Self { lines })
    }

    /// The algorithms to ask the server for: those of the keys we know, best first. `host` is `name` or `[name]:port`.
    pub fn algorithms(&self, host: &str) -> Vec<Algorithm> {
        let mut found: Vec<Algorithm> = Vec::new();
        let keys =
            self.lines.iter().filter(|line| line.marker == Marker::HostKey && line.hosts.matches(host));
        for line in keys {
            let offered = match line.key.algorithm() {
                Algorithm::Rsa { .. } => vec![
                    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
                    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
                    Algorithm::Rsa { hash: None },
                ],
                other => vec![other],
            };
            for algorithm in offered {
                if !found.contains(&algorithm) {
                    found.push(algorithm);
                }
            }
        }
        found
    }

    /// Whether `host` may show `key`.
    pub fn check(&self, host: &str, key: &PublicKey) -> Result<(), Error> {
        let same = |line: &&Line| line.key.key_data() == key.key_data();
        if self.lines.iter().filter(same).any(|line| line.marker == Marker::Revoked) {
            return Err(Error::HostKey("knownhosts: key is revoked".to_owned()));
        }
        let of_host: Vec<&Line> = self
            .lines
            .iter()
            .filter(|line| line.marker == Marker::HostKey && line.hosts.matches(host))
            .collect();
        if of_host.is_empty() {
            return Err(Error::HostKey(format!(
                "knownhosts: key is unknown: no line of known_hosts is for {host}"
            )));
        }
        match of_host.iter().any(same) {
            true => Ok(()),
            false => Err(Error::HostKey(format!(
                "knownhosts: key mismatch: {host} shows {}, which known_hosts does not have for it",
                key.fingerprint(HashAlg::Sha256)
            ))),
        }
    }
}

fn line(text: &str) -> Option<Line> {
    let mut words = text.split_whitespace();
    let mut hosts = words.next()?;
    let marker = match hosts {
        "@revoked" => Marker::Revoked,
        "@cert-authority" => Marker::Authority,
        other if other.starts_with('@') => return None,
        _ => Marker::HostKey,
    };
    if marker != Marker::HostKey {
        hosts = words.next()?;
    }
    let (algorithm, key) = (words.next()?, words.next()?);
    let key = PublicKey::from_openssh(&format!("{algorithm} {key}")).ok()?;
    Some(Line { hosts: self::hosts(hosts)?, key, marker })
}

fn hosts(text: &str) -> Option<Hosts> {
    if let Some(hashed) = text.strip_prefix("|1|") {
        let (salt, hash) = hashed.split_once('|')?;
        return Some(Hosts::Hashed { salt: STANDARD.decode(salt).ok()?, hash: STANDARD.decode(hash).ok()? });
    }
    let patterns = text.split(',').filter(|one| !one.is_empty()).map(|one| match one.strip_prefix('!') {
        Some(rest) => (true, normal(rest)),
        None => (false, normal(one)),
    });
    Some(Hosts::Patterns(patterns.collect()))
}

/// `[host]:22` is written `host`.
fn normal(host: &str) -> String {
    let plain = host.strip_prefix('[').and_then(|rest| rest.strip_suffix("]:22"));
    plain.unwrap_or(host).to_lowercase()
}

impl Hosts {
    fn matches(&self, host: &str) -> bool {
        let host = normal(host);
        match self {
            Hosts::Hashed { salt, hash } => {
                let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(salt) else { return false };
                mac.update(host.as_bytes());
                mac.verify_slice(hash).is_ok()
            }
            Hosts::Patterns(patterns) => {
                let matching = |negated: bool| {
                    patterns
                        .iter()
                        .any(|(not, pattern)| *not == negated && glob(pattern.as_bytes(), host.as_bytes()))
                };
                matching(false) && !matching(true)
            }
        }
    }
}

/// `*` is anything, `?` one character. Linear in the text for each star, never exponential.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut place, mut star) = (0, 0, None);
    while place < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(one) if *one == b'?' || *one == text[place] => {
                at += 1;
                place += 1;
            }
            _ => match star {
                Some((star_at, from)) => {
                    at = star_at + 1;
                    place = from + 1;
                    star = Some((star_at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|one| *one == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
    const TWO: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ9J8VZ8T6Ph1yDQmJqNjLPrHAvlBrSTIFdH9qHRyD0h";

    fn key(text: &str) -> PublicKey {
        PublicKey::from_openssh(text).unwrap()
    }

    fn problem(hosts: &str, host: &str, shown: &str) -> String {
        KnownHosts::parse(hosts).unwrap().check(host, &key(shown)).unwrap_err().to_string()
    }

    #[test]
    fn a_known_key_passes_an_unknown_host_and_another_key_do_not() {
        let text = format!("# comment\n\nexample.com,10.0.0.1 {ONE} me\n[example.com]:2222 {TWO}\n");
        let hosts = KnownHosts::parse(&text).unwrap();
        hosts.check("example.com", &key(ONE)).unwrap();
        hosts.check("EXAMPLE.com", &key(ONE)).unwrap();
        hosts.check("10.0.0.1", &key(ONE)).unwrap();
        hosts.check("[example.com]:2222", &key(TWO)).unwrap();
        assert!(problem(&text, "example.com", TWO).contains("key mismatch"));
        assert!(problem(&text, "other.com", ONE).contains("key is unknown"));
    }

    #[test]
    fn patterns_negation_and_markers_are_obeyed() {
        let text = format!("*.example.com,!bad.example.com {ONE}\n@cert-authority * {TWO}\n");
        KnownHosts::parse(&text).unwrap().check("git.example.com", &key(ONE)).unwrap();
        assert!(problem(&text, "bad.example.com", ONE).contains("unknown"));
        assert!(problem(&text, "git.example.com", TWO).contains("mismatch"));
        let revoked = format!("host {ONE}\n@revoked * {ONE}\n");
        assert!(problem(&revoked, "host", ONE).contains("revoked"));
    }

    #[test]
    fn a_hashed_name_is_recognised() {
        // `ssh-keygen -H` of the name `example.com`.
        let salt = [7_u8; 20];
        let mut mac = Hmac::<Sha1>::new_from_slice(&salt).unwrap();
        mac.update(b"example.com");
        let hash = STANDARD.encode(mac.finalize().into_bytes());
        let text = format!("|1|{}|{hash} {ONE}\n", STANDARD.encode(salt));
        KnownHosts::parse(&text).unwrap().check("example.com", &key(ONE)).unwrap();
        assert!(problem(&text, "example.org", ONE).contains("unknown"));
    }

    #[test]
    fn a_malformed_line_is_named() {
        for text in ["host", "host ssh-ed25519", "host ssh-ed25519 nonsense", "@what host key x"] {
            let error = KnownHosts::parse(&format!("#\n{text}\n")).err().unwrap().to_string();
            assert!(error.contains("line 2"), "{error}");
        }
    }

    #[test]
    fn the_server_is_asked_for_the_keys_we_know() {
        let hosts = KnownHosts::parse(&format!("host {ONE}\n")).unwrap();
        assert_eq!(hosts.algorithms("host"), [Algorithm::Ed25519]);
        assert!(hosts.algorithms("other").is_empty());
    }

    #[test]
    fn globs() {
        assert!(glob(b"a*b?d", b"axxbcd"));
        assert!(glob(b"*", b""));
        assert!(!glob(b"a*b", b"acd"));
        assert!(!glob(&b"*a".repeat(30), &b"b".repeat(1000)));
    }
}
