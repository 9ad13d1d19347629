//! What a server has, and getting it: protocol version 2, with version 0 as the fall-back.

use std::collections::BTreeSet;

use tokio::io::AsyncWriteExt;

use super::objects::ObjectStore;
use super::packet::{self, Packet, Request};
use super::transport::{Remote, Reply, Service};
use super::{Error, Limits, Oid};

pub(super) const AGENT: &str = concat!("agent=flux/", env!("CARGO_PKG_VERSION"));

/// Of a ref; longer ones exist nowhere.
const LONGEST_NAME: usize = 4096;

/// A name on the server and what it points at; `peeled` is the commit behind an annotated tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRef {
    pub name: String,
    pub target: Oid,
    pub peeled: Option<Oid>,
}

impl RemoteRef {
    /// The commit this name leads to.
    pub fn commit(&self) -> Oid {
        self.peeled.unwrap_or(self.target)
    }
}

/// The refs of the repository whose names start with one of `prefixes` (all, when empty).
pub async fn list_refs(
    remote: &mut dyn Remote,
    prefixes: &[&str],
    limits: Limits,
) -> Result<Vec<RemoteRef>, Error> {
    let odd = |prefix: &&&str| prefix.len() > LONGEST_NAME || prefix.chars().any(char::is_control);
    if let Some(prefix) = prefixes.iter().find(odd) {
        return Err(Error::NoSuchRef(prefix.chars().filter(|one| !one.is_control()).take(100).collect()));
    }
    match greet(remote, limits).await? {
        Greeting::Two => {
            let mut request = Request::default()
                .line("command=ls-refs")
                .line(AGENT)
                .line("object-format=sha1")
                .delimiter()
                .line("peel")
                .line("symrefs");
            for prefix in prefixes {
                request = request.line(&format!("ref-prefix {prefix}"));
            }
            let mut reply = remote.request(Service::UploadPack, request.flush().into_bytes()).await?;
            let refs = read_version_two_refs(&mut reply, limits).await?;
            Ok(refs.into_iter().filter(|one| matches(&one.name, prefixes)).collect())
        }
        Greeting::Zero { refs, .. } => {
            Ok(refs.into_iter().filter(|one| matches(&one.name, prefixes)).collect())
        }
    }
}

/// Brings `wants` into `store`: their trees and files, and history to `depth` (`None` is all of it).
/// What the store already holds is not sent again.
pub async fn fetch(
    remote: &mut dyn Remote,
    store: &mut ObjectStore,
    wants: &[Oid],
    depth: Option<u32>,
    limits: Limits,
) -> Result<(), Error> {
    let wants: BTreeSet<Oid> = wants.iter().copied().filter(|want| !store.holds(want, depth)).collect();
    if wants.is_empty() {
        return Ok(());
    }
    let greeting = greet(remote, limits).await?;
    let version_two = matches!(greeting, Greeting::Two);
    let request = match &greeting {
        Greeting::Two => version_two_request(store, &wants, depth),
        Greeting::Zero { capabilities, .. } => version_zero_request(store, &wants, depth, capabilities)?,
    };
    // All history is asked for as a depth too where some of it was cut off before.
    let deepened = depth.is_some() || store.boundaries().next().is_some();
    let mut reply = remote.request(Service::UploadPack, request).await?;
    let boundaries = if version_two {
        skip_to_pack(&mut reply).await?
    } else {
        read_version_zero_preamble(&mut reply, deepened).await?
    };
    let pack = receive_pack(&mut reply, store, limits).await?;
    drop(reply);
    store.add_pack(pack, limits).await?;
    store.note_fetched(&wants, &boundaries, depth)
}

/// What a repository says whose objects have names of SHA-256.
const OTHER_NAMES: &str = "object-format=sha256";

fn other_names() -> Error {
    Error::Unsupported("the repository's objects have SHA-256 names; only SHA-1 is supported".to_owned())
}

enum Greeting {
    Two,
    Zero { capabilities: String, refs: Vec<RemoteRef> },
}

async fn greet(remote: &mut dyn Remote, limits: Limits) -> Result<Greeting, Error> {
    let mut reply = remote.advertisement(Service::UploadPack).await?;
    let first = match packet::read(&mut reply).await? {
        Packet::Flush => return Ok(Greeting::Zero { capabilities: String::new(), refs: Vec::new() }),
        packet => packet,
    };
    let text = first.text().ok_or_else(|| Error::Garbage("an advertisement that is not text".to_owned()))?;
    if let Some(reason) = text.strip_prefix("ERR ") {
        return Err(Error::Refused(reason.to_owned()));
    }
    if text == "version 2" {
        loop {
            match packet::read(&mut reply).await? {
                Packet::Flush => return Ok(Greeting::Two),
                packet if packet.text() == Some(OTHER_NAMES) => return Err(other_names()),
                _ => {}
            }
        }
    }
    if text.split(['\0', ' ']).any(|word| word == OTHER_NAMES) {
        return Err(other_names());
    }
    let mut lines = vec![text.to_owned()];
    loop {
        match packet::read(&mut reply).await? {
            Packet::Flush => break,
            packet => lines.push(packet.text().unwrap_or_default().to_owned()),
        }
        if lines.len() > limits.refs {
            return Err(Error::TooLarge { what: "the list of refs", limit: limits.refs as u64 });
        }
    }
    read_version_zero_refs(&lines)
}

fn read_version_zero_refs(lines: &[String]) -> Result<Greeting, Error> {
    let mut capabilities = String::new();
    let mut refs: Vec<RemoteRef> = Vec::new();
    for line in lines.iter().filter(|line| !line.starts_with("version ") && !line.starts_with("shallow ")) {
        let line = match line.split_once('\0') {
            Some((line, said)) => {
                said.clone_into(&mut capabilities);
                line
            }
            None => line,
        };
        let (id, name) = line.split_once(' ').ok_or_else(|| Error::Garbage("a malformed ref".to_owned()))?;
        let target = Oid::parse(id).ok_or_else(|| Error::Garbage("a malformed object id".to_owned()))?;
        if let Some(name) = name.strip_suffix("^{}") {
            // `capabilities^{}` stands alone when there are no refs.
            if let Some(last) = refs.last_mut().filter(|last| last.name == name) {
                last.peeled = Some(target);
            }
            continue;
        }
        refs.push(RemoteRef { name: name.to_owned(), target, peeled: None });
    }
    Ok(Greeting::Zero { capabilities, refs })
}

async fn read_version_two_refs(reply: &mut Reply<'_>, limits: Limits) -> Result<Vec<RemoteRef>, Error> {
    let mut refs = Vec::new();
    loop {
        let packet = packet::read(&mut *reply).await?;
        if packet == Packet::Flush {
            return Ok(refs);
        }
        let line = packet.text().ok_or_else(|| Error::Garbage("a malformed ref".to_owned()))?;
        if let Some(reason) = line.strip_prefix("ERR ") {
            return Err(Error::Refused(reason.to_owned()));
        }
        let mut words = line.split(' ');
        let id = words.next().unwrap_or_default();
        let name = words.next().ok_or_else(|| Error::Garbage("a malformed ref".to_owned()))?;
        if id == "unborn" {
            continue;
        }
        let target = Oid::parse(id).ok_or_else(|| Error::Garbage("a malformed object id".to_owned()))?;
        let peeled = words.find_map(|word| word.strip_prefix("peeled:")).and_then(Oid::parse);
        refs.push(RemoteRef { name: name.to_owned(), target, peeled });
        if refs.len() > limits.refs {
            return Err(Error::TooLarge { what: "the list of refs", limit: limits.refs as u64 });
        }
    }
}

fn matches(name: &str, prefixes: &[&str]) -> bool {
    prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn version_two_request(store: &ObjectStore, wants: &BTreeSet<Oid>, depth: Option<u32>) -> Vec<u8> {
    let mut request = Request::default()
        .line("command=fetch")
        .line(AGENT)
        .line("object-format=sha1")
        .delimiter()
        .line("no-progress")
        .line("ofs-delta");
    // Also what makes a server leave out the files of a commit that is here when history is cut off between the two:
    // without it a new commit of a shallow fetch comes with everything again.
    if store.tips().next().is_some() {
        request = request.line("thin-pack");
    }
    for want in wants {
        request = request.line(&format!("want {want}"));
    }
    request = shallow_lines(request, store, depth);
    for have in store.tips() {
        request = request.line(&format!("have {have}"));
    }
    request.line("done").flush().into_bytes()
}

fn version_zero_request(
    store: &ObjectStore,
    wants: &BTreeSet<Oid>,
    depth: Option<u32>,
    capabilities: &str,
) -> Result<Vec<u8>, Error> {
    let offered: BTreeSet<&str> = capabilities.split(' ').collect();
    if depth.is_some() && !offered.contains("shallow") {
        return Err(Error::Unsupported("the server offers no shallow fetch".to_owned()));
    }
    let asked: Vec<&str> = ["side-band-64k", "ofs-delta", "no-progress", "thin-pack"]
        .into_iter()
        .filter(|one| offered.contains(one))
        .collect();
    if !asked.contains(&"side-band-64k") {
        return Err(Error::Unsupported(
            "the server offers neither protocol version 2 nor side-band-64k".to_owned(),
        ));
    }
    let mut request = Request::default();
    for (index, want) in wants.iter().enumerate() {
        let tail = if index == 0 { format!(" {} {AGENT}", asked.join(" ")) } else { String::new() };
        request = request.line(&format!("want {want}{tail}"));
    }
    request = shallow_lines(request, store, depth).flush();
    for have in store.tips() {
        request = request.line(&format!("have {have}"));
    }
    Ok(request.line("done").into_bytes())
}

fn shallow_lines(mut request: Request, store: &ObjectStore, depth: Option<u32>) -> Request {
    for boundary in store.boundaries() {
        request = request.line(&format!("shallow {boundary}"));
    }
    match depth {
        Some(depth) => request.line(&format!("deepen {depth}")),
        // The most Git understands as "everything": also lifts earlier boundaries.
        None if store.boundaries().next().is_some() => request.line("deepen 2147483647"),
        None => request,
    }
}

#[derive(Default)]
pub(super) struct Boundaries {
    pub(super) shallow: Vec<Oid>,
    pub(super) unshallow: Vec<Oid>,
}

impl Boundaries {
    fn note(&mut self, line: &str) {
        if let Some(id) = line.strip_prefix("shallow ").and_then(Oid::parse) {
            self.shallow.push(id);
        } else if let Some(id) = line.strip_prefix("unshallow ").and_then(Oid::parse) {
            self.unshallow.push(id);
        }
    }
}

async fn skip_to_pack(reply: &mut Reply<'_>) -> Result<Boundaries, Error> {
    let mut boundaries = Boundaries::default();
    loop {
        let packet = packet::read(&mut *reply).await?;
        match packet.text() {
            Some("packfile") => return Ok(boundaries),
            Some(line) => {
                if let Some(reason) = line.strip_prefix("ERR ") {
                    return Err(Error::Refused(reason.to_owned()));
                }
                boundaries.note(line);
            }
            None if packet == Packet::Flush => {
                return Err(Error::Garbage("no pack in its answer".to_owned()));
            }
            None => {}
        }
    }
}

async fn read_version_zero_preamble(reply: &mut Reply<'_>, deepened: bool) -> Result<Boundaries, Error> {
    let mut boundaries = Boundaries::default();
    if deepened {
        loop {
            let packet = packet::read(&mut *reply).await?;
            match packet.text() {
                Some(line) => match line.strip_prefix("ERR ") {
                    Some(reason) => return Err(Error::Refused(reason.to_owned())),
                    None => boundaries.note(line),
                },
                None => break,
            }
        }
    }
    let packet = packet::read(&mut *reply).await?;
    match packet.text() {
        Some(line) if line.starts_with("NAK") || line.starts_with("ACK") => Ok(boundaries),
        Some(line) => Err(Error::Refused(line.trim_start_matches("ERR ").to_owned())),
        None => Err(Error::Garbage("no acknowledgement".to_owned())),
    }
}

/// Copies the pack out of the side band into a file of the store.
async fn receive_pack(
    reply: &mut Reply<'_>,
    store: &ObjectStore,
    limits: Limits,
) -> Result<tempfile::NamedTempFile, Error> {
    let file = store.incoming()?;
    let mut writer =
        tokio::io::BufWriter::new(tokio::fs::File::from_std(file.reopen().map_err(Error::cache)?));
    let mut received: u64 = 0;
    loop {
        let bytes = match packet::read(&mut *reply).await? {
            Packet::Line(bytes) => bytes,
            Packet::Flush | Packet::ResponseEnd => break,
            Packet::Delimiter => continue,
        };
        match bytes.split_first() {
            Some((1, data)) => {
                received += data.len() as u64;
                if received > limits.pack_bytes {
                    return Err(Error::TooLarge { what: "the pack", limit: limits.pack_bytes });
                }
                writer.write_all(data).await.map_err(Error::cache)?;
            }
            Some((2, _)) => {}
            Some((3, message)) => {
                return Err(Error::Refused(String::from_utf8_lossy(message).trim().to_owned()));
            }
            _ => return Err(Error::Garbage("a pack outside of any side band".to_owned())),
        }
    }
    writer.flush().await.map_err(Error::cache)?;
    Ok(file)
}
