//! Sending a pack and moving refs: `git-receive-pack`.
//!
//! The server is asked to move all refs or none where it can. A ref is only moved from where the server said it is, so
//! two pushes at once cannot undo each other.

use std::collections::BTreeMap;

use super::fetch::AGENT;
use super::packet::{self, Packet, Request};
use super::transport::{Remote, Reply, Service};
use super::{Error, Oid};

const NOTHING: &str = "0000000000000000000000000000000000000000";
const LONGEST_REPORT: usize = 1 << 20;
const MOST_REFS: usize = 1_000_000;

#[derive(Clone, Debug, Default)]
pub struct PushOptions {
    /// Moves a branch even where that loses commits on the server.
    pub force: bool,
    pub refspecs: Vec<Refspec>,
    /// Handed to the server's hooks, as `git push -o`.
    pub options: BTreeMap<String, String>,
}

/// `[+]source:target`; without a source the target is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refspec {
    pub force: bool,
    pub source: Option<String>,
    pub target: String,
}

impl Refspec {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (force, rest) = match text.strip_prefix('+') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (source, target) = rest.split_once(':').unwrap_or((rest, rest));
        if !is_ref_name(target) || target.contains('*') {
            return Err(Error::NoSuchRef(format!("{text} (a refspec is source:refs/…)")));
        }
        Ok(Self {
            force,
            source: Some(source.to_owned()).filter(|one| !one.is_empty()),
            target: target.to_owned(),
        })
    }
}

/// The rules of `git check-ref-format` for a full name.
pub(super) fn is_ref_name(name: &str) -> bool {
    let parts_fine = name.split('/').all(|part| {
        !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock") && !part.ends_with('.')
    });
    name.starts_with("refs/")
        && parts_fine
        && !name.contains("..")
        && !name.contains("@{")
        && !name
            .chars()
            .any(|one| one.is_control() || matches!(one, ' ' | '~' | '^' | ':' | '?' | '[' | '\\' | '\x7f'))
}

pub(super) struct Update {
    pub(super) target: String,
    /// `None` deletes it.
    pub(super) new: Option<Oid>,
    pub(super) force: bool,
}

struct Greeting {
    refs: BTreeMap<String, Oid>,
    capabilities: Vec<String>,
}

impl Greeting {
    fn offers(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|one| one == capability)
    }
}

/// Whether the credentials may push at all: the server is greeted as for a push, and left.
pub async fn check_push(remote: &mut dyn Remote) -> Result<(), Error> {
    greet(remote).await.map(|_| ()).map_err(read_only)
}

/// Moves the refs. `history` holds the commits that a ref may be at to be moved without force.
pub(super) async fn push(
    remote: &mut dyn Remote,
    updates: &[Update],
    pack: &[u8],
    history: &[Oid],
    options: &PushOptions,
) -> Result<(), Error> {
    let greeting = greet(remote).await.map_err(read_only)?;
    let mut commands = Vec::new();
    for update in updates {
        if !is_ref_name(&update.target) {
            return Err(Error::NoSuchRef(update.target.clone()));
        }
        let old = greeting.refs.get(&update.target);
        if old == update.new.as_ref() {
            continue;
        }
        let forward = old.is_none_or(|old| history.contains(old));
        if update.new.is_some() && !forward && !update.force {
            return Err(Error::NotFastForward(update.target.clone()));
        }
        let word = |id: Option<&Oid>| id.map_or_else(|| NOTHING.to_owned(), Oid::to_string);
        commands.push(format!("{} {} {}", word(old), word(update.new.as_ref()), update.target));
    }
    if commands.is_empty() {
        return Ok(());
    }
    let body = request(&greeting, &commands, updates, pack, options)?;
    let mut reply = remote.request(Service::ReceivePack, body).await.map_err(read_only)?;
    let report = read_report(&mut reply, greeting.offers("side-band-64k")).await.map_err(read_only)?;
    judge(&report)
}

fn request(
    greeting: &Greeting,
    commands: &[String],
    updates: &[Update],
    pack: &[u8],
    options: &PushOptions,
) -> Result<Vec<u8>, Error> {
    if !greeting.offers("report-status") {
        return Err(Error::Unsupported("the server does not report what became of a push".to_owned()));
    }
    if !options.options.is_empty() && !greeting.offers("push-options") {
        return Err(Error::Unsupported("the server does not take push options".to_owned()));
    }
    let mut asked = vec!["report-status"];
    asked.extend(["side-band-64k", "atomic"].into_iter().filter(|one| greeting.offers(one)));
    if !options.options.is_empty() {
        asked.push("push-options");
    }
    let mut request = Request::default();
    for (index, command) in commands.iter().enumerate() {
        let tail = if index == 0 { format!("\0 {} {AGENT}", asked.join(" ")) } else { String::new() };
        request = request.line(&format!("{command}{tail}"));
    }
    request = request.flush();
    if !options.options.is_empty() {
        for (key, value) in &options.options {
            let option = if value.is_empty() { key.clone() } else { format!("{key}={value}") };
            if option.chars().any(char::is_control) || option.len() > 60_000 {
                return Err(Error::Unsupported(format!(
                    "push option '{key}' holds control characters or is too long"
                )));
            }
            request = request.line(&option);
        }
        request = request.flush();
    }
    let mut body = request.into_bytes();
    // Only deletions need no pack; an empty one is still a pack.
    if updates.iter().any(|update| update.new.is_some()) {
        match pack.is_empty() {
            false => body.extend_from_slice(pack),
            true => body.extend_from_slice(&super::pack::NewObjects::default().pack()?),
        }
    }
    Ok(body)
}

async fn greet(remote: &mut dyn Remote) -> Result<Greeting, Error> {
    let mut reply = remote.advertisement(Service::ReceivePack).await?;
    let mut greeting = Greeting { refs: BTreeMap::new(), capabilities: Vec::new() };
    let mut count = 0;
    loop {
        let packet = packet::read(&mut reply).await?;
        if packet == Packet::Flush {
            return Ok(greeting);
        }
        let line =
            packet.text().ok_or_else(|| Error::Garbage("an advertisement that is not text".to_owned()))?;
        if let Some(reason) = line.strip_prefix("ERR ") {
            return Err(Error::Refused(reason.to_owned()));
        }
        let (line, said) = line.split_once('\0').unwrap_or((line, ""));
        if !said.is_empty() {
            greeting.capabilities = said.split(' ').map(str::to_owned).collect();
        }
        if let Some((id, name)) = line.split_once(' ').filter(|(id, _)| *id != NOTHING && *id != "version") {
            let id = Oid::parse(id).ok_or_else(|| Error::Garbage("a malformed object id".to_owned()))?;
            greeting.refs.insert(name.to_owned(), id);
        }
        count += 1;
        if count > MOST_REFS {
            return Err(Error::TooLarge { what: "the list of refs", limit: MOST_REFS as u64 });
        }
    }
}

/// The lines of the report, taken out of the side band.
async fn read_report(reply: &mut Reply<'_>, side_band: bool) -> Result<Vec<String>, Error> {
    let mut bytes = Vec::new();
    let mut complaint = String::new();
    loop {
        let line = match packet::read(&mut *reply).await {
            Ok(Packet::Line(line)) => line,
            Ok(Packet::Flush | Packet::ResponseEnd) => break,
            Ok(Packet::Delimiter) => continue,
            Err(Error::Cut(_)) if !complaint.is_empty() => return Err(Error::Refused(complaint)),
            Err(error) => return Err(error),
        };
        match (side_band, line.split_first()) {
            (false, _) => bytes.extend_from_slice(&Request::default().raw(&line).into_bytes()),
            (true, Some((1, data))) => bytes.extend_from_slice(data),
            (true, Some((2, text))) => {
                let room = 2048_usize.saturating_sub(complaint.len());
                complaint
                    .extend(String::from_utf8_lossy(text).chars().filter(|one| !one.is_control()).take(room));
            }
            (true, Some((3, text))) => {
                return Err(Error::Refused(String::from_utf8_lossy(text).trim().to_owned()));
            }
            (true, _) => return Err(Error::Garbage("a report outside of any side band".to_owned())),
        }
        if bytes.len() > LONGEST_REPORT {
            return Err(Error::TooLarge { what: "the report", limit: LONGEST_REPORT as u64 });
        }
    }
    let mut lines = Vec::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        match packet::read(&mut rest).await? {
            Packet::Flush => break,
            packet => lines.push(packet.text().unwrap_or_default().to_owned()),
        }
    }
    Ok(lines)
}

fn judge(report: &[String]) -> Result<(), Error> {
    match report.first().and_then(|line| line.strip_prefix("unpack ")) {
        Some("ok") => {}
        Some(reason) => return Err(Error::Refused(format!("unpack error: {reason}"))),
        None => return Err(Error::Garbage("no report on the push".to_owned())),
    }
    let refused: Vec<(String, String)> = report
        .iter()
        .filter_map(|line| line.strip_prefix("ng "))
        .map(|line| line.split_once(' ').unwrap_or((line, "no reason given")))
        .map(|(name, reason)| (name.to_owned(), reason.to_owned()))
        .collect();
    // With an atomic push every ref is refused; the one with its own reason is the cause.
    let cause = refused.iter().find(|(_, reason)| !reason.contains("atomic")).or(refused.first());
    match cause {
        None => Ok(()),
        Some((name, reason)) if reason.contains("deny updating") => {
            Err(Error::ReadOnly(format!("{name}: {reason}")))
        }
        Some((name, reason)) => Err(Error::PushRefused { reference: name.clone(), reason: reason.clone() }),
    }
}

/// Hosts refuse a push with read-only credentials in many words.
fn read_only(error: Error) -> Error {
    let says_so = |text: &str| {
        let text = text.to_lowercase();
        [
            "read only",
            "read-only",
            "deny updating",
            "denied to",
            "not allowed to push",
            "write access",
            "authorized to write",
            "permission to write",
            "genericcontribute",
        ]
        .iter()
        .any(|one| text.contains(one))
    };
    match error {
        Error::Forbidden => Error::ReadOnly("authorization failed".to_owned()),
        Error::Refused(reason) if says_so(&reason) => Error::ReadOnly(reason),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refspecs() {
        let parse = |text: &str| Refspec::parse(text).unwrap();
        assert_eq!(
            parse("refs/heads/main:refs/heads/other"),
            Refspec {
                force: false,
                source: Some("refs/heads/main".into()),
                target: "refs/heads/other".into()
            }
        );
        assert!(parse("+refs/heads/main").force);
        assert_eq!(parse(":refs/heads/gone").source, None);
        for bad in [
            "main",
            "a:b",
            "refs/heads/*:refs/heads/*",
            "HEAD:refs/heads/../x",
            "HEAD:refs/heads/-x y",
            "HEAD:refs/heads/a\nb",
        ] {
            assert!(Refspec::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_cause_of_a_refusal_is_told() {
        let judged = |lines: &[&str]| {
            judge(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(judged(&["unpack ok", "ok refs/heads/main"]), Ok(()));
        let refused =
            judged(&["unpack ok", "ng refs/heads/a atomic push failure", "ng refs/heads/b hook declined"]);
        assert!(refused.unwrap_err().contains("refs/heads/b: hook declined"));
        assert!(judged(&["unpack index-pack abnormal exit"]).unwrap_err().contains("abnormal exit"));
        assert!(
            judged(&["unpack ok", "ng refs/x deny updating a hidden ref"]).unwrap_err().contains("read-only")
        );
        assert!(judged(&[]).is_err());
    }

    #[test]
    fn read_only_credentials_are_recognised() {
        let refused = |text: &str| read_only(Error::Refused(text.to_owned()));
        for text in [
            "ERROR: The key you are authenticating with has been marked as read only.",
            "Permission to org/repo.git denied to bot.",
            "This deploy key does not have write access to this project.",
            "Deploy Key: 7:flux is not authorized to write to org/repo.",
            "TF401027: You need the Git 'GenericContribute' permission to perform this action.",
        ] {
            assert!(matches!(refused(text), Error::ReadOnly(_)), "{text}");
        }
        assert!(matches!(read_only(Error::Forbidden), Error::ReadOnly(_)));
        assert!(matches!(refused("disk full"), Error::Refused(_)));
    }
}
