//! Looking at the remote and bringing what is needed here: the commit, its files, and those of its submodules.

use std::future::Future;

use file_tree::{Files, TreePath};
use flux_remote::git::{
    self, Address, Checkout, Commit, Limits, Mode, ObjectStore, Oid, Pick, Remote, parse_submodules,
    submodule_address,
};
use flux_remote::transport::shown_text as shown;
use tokio::time::Instant;

use super::connect::Way;
use super::failure::Failure;
use super::{Found, GitRepositories, hash, reference};
use crate::source::skeleton::Job;

const DEEPEST_SUBMODULE: usize = 10;
const MOST_SUBMODULES: usize = 500;

/// A submodule's files and where they go.
pub(super) struct Module {
    pub(super) at: TreePath,
    pub(super) store: ObjectStore,
    pub(super) commit: Oid,
}

impl GitRepositories {
    /// What the reference means on the remote now.
    pub(super) async fn look(
        &self,
        job: &mut Job<'_, Self>,
        way: &mut Way,
        deadline: Instant,
    ) -> Result<Pick, Failure> {
        let reference = reference(job.object);
        // Where there is an artifact, upstream lists before it clones, and says so.
        let listing = job.status.artifact.is_some() || reference.name.is_some();
        if reference.commit.is_some() && reference.branch.is_none() {
            return git::pick(&reference, &[]).map_err(|cause| failed(job, listing, cause));
        }
        let prefixes = reference.prefixes();
        let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
        let remote = way.remote.as_mut();
        let looking = async {
            let refs = git::list_refs(remote, &prefixes, Limits::DEFAULT).await?;
            match git::pick(&reference, &refs) {
                Err(cause) if refs.is_empty() => {
                    let any = git::list_refs(remote, &[], Limits::DEFAULT).await?;
                    Ok(Err(if any.is_empty() { git::Error::Empty } else { cause }))
                }
                picked => Ok(picked),
            }
        };
        let host = way.address.origin().1;
        let looked = self.in_time(job, &host, deadline, looking).await?;
        match looked {
            Ok(picked) => picked.map_err(|cause| failed(job, false, cause)),
            Err(cause) => Err(failed(job, listing, cause)),
        }
    }

    /// Brings the commit here.
    pub(super) async fn bring(
        &self,
        job: &mut Job<'_, Self>,
        way: &mut Way,
        mut pick: Pick,
        deadline: Instant,
    ) -> Result<Found, Failure> {
        let folder = self.cache_folder(&job.key());
        let own = hash(&job.object.spec.url);
        forget_other_addresses(&folder, &own);
        let mut store = ObjectStore::open(&folder.join(&own)).map_err(|cause| failed(job, false, cause))?;
        let mut wants = vec![pick.want];
        wants.extend(pick.rivals.iter().map(|rival| rival.target));
        let remote = way.remote.as_mut();
        let depth = if pick.deep { None } else { Some(1) };
        let wanted = reference(job.object);
        let asked_for_commit = wanted.commit.is_some() && wanted.branch.is_none();
        let fetching = async {
            match git::fetch(remote, &mut store, &wants, depth, Limits::DEFAULT).await {
                Err(git::Error::Refused(_)) if asked_for_commit => fetch_everything(remote, &mut store).await,
                other => other,
            }
        };
        let host = way.address.origin().1;
        self.in_time(job, &host, deadline, fetching).await?.map_err(|cause| failed(job, false, cause))?;
        settle_rivals(&store, &mut pick).map_err(|cause| failed(job, false, cause))?;
        let commit = commit(&store, &pick).map_err(|cause| failed(job, false, cause))?;
        Ok(Found { store, pick, commit })
    }

    /// The submodules of a commit, theirs, and so on.
    pub(super) async fn submodules(
        &self,
        job: &mut Job<'_, Self>,
        way: &mut Way,
        found: &Found,
        deadline: Instant,
    ) -> Result<Vec<Module>, Failure> {
        let folder = self.cache_folder(&job.key());
        let root = Place { at: TreePath::root(), url: job.object.spec.url.clone(), depth: 0 };
        let mut waiting =
            places(&found.store, found.pick.commit, &root).map_err(|cause| failed(job, false, cause))?;
        let mut modules: Vec<Module> = Vec::new();
        while let Some((place, id)) = waiting.pop() {
            if modules.len() >= MOST_SUBMODULES || place.depth > DEEPEST_SUBMODULE {
                let cause =
                    git::Error::TooLarge { what: "the tree of submodules", limit: MOST_SUBMODULES as u64 };
                return Err(failed(job, false, cause));
            }
            let of_module = |cause| Failure::Git { url: shown(&place.url), listing: false, cause };
            let address = Address::parse(&place.url).map_err(of_module)?;
            let mut remote = self.connector.connect_submodule(way, &address)?;
            let mut store = ObjectStore::open(&folder.join(hash(&place.url))).map_err(of_module)?;
            let fetching = async {
                match git::fetch(remote.as_mut(), &mut store, &[id], Some(1), Limits::DEFAULT).await {
                    Err(git::Error::Refused(_)) => fetch_everything(remote.as_mut(), &mut store).await,
                    other => other,
                }
            };
            let host = address.origin().1;
            self.in_time(job, &host, deadline, fetching).await?.map_err(of_module)?;
            waiting.extend(places(&store, id, &place).map_err(of_module)?);
            modules.push(Module { at: place.at, store, commit: id });
        }
        Ok(modules)
    }

    /// Talks to a host without holding a turn of ours, but with one of the host's, until the deadline.
    async fn in_time<T: Send>(
        &self,
        job: &Job<'_, Self>,
        host: &str,
        deadline: Instant,
        talk: impl Future<Output = T> + Send,
    ) -> Result<T, Failure> {
        let turns = self.turn_at(host);
        let limited = async {
            let _turn = turns.acquire().await;
            tokio::time::timeout_at(deadline, talk).await
        };
        // Waiting for a turn must not outlive the deadline either.
        let talked = job.worker.outside(tokio::time::timeout_at(deadline, limited)).await;
        talked.and_then(|talked| talked).map_err(|_| Failure::TimedOut {
            url: shown(&job.object.spec.url),
            seconds: job.object.spec.timeout().to_std().as_secs(),
        })
    }
}

fn failed(job: &Job<'_, GitRepositories>, listing: bool, cause: git::Error) -> Failure {
    Failure::Git { url: shown(&job.object.spec.url), listing, cause }
}

/// Servers that hand out only what a ref points to are asked for all branches with their history.
async fn fetch_everything(remote: &mut dyn Remote, store: &mut ObjectStore) -> Result<(), git::Error> {
    let refs = git::list_refs(remote, &["refs/heads/"], Limits::DEFAULT).await?;
    if refs.is_empty() {
        return Err(git::Error::Empty);
    }
    let wants: Vec<Oid> = refs.iter().map(|one| one.target).collect();
    git::fetch(remote, store, &wants, None, Limits::DEFAULT).await
}

fn commit(store: &ObjectStore, pick: &Pick) -> Result<Commit, git::Error> {
    match store.commit(pick.commit) {
        Err(git::Error::Missing(id)) if id == pick.commit => Err(git::Error::NoSuchCommit(id.to_string())),
        other => other,
    }
}

/// Among tags of the same version the newest commit wins.
fn settle_rivals(store: &ObjectStore, pick: &mut Pick) -> Result<(), git::Error> {
    if pick.rivals.is_empty() {
        return Ok(());
    }
    let mut newest = store.commit(pick.commit)?.time;
    for rival in std::mem::take(&mut pick.rivals) {
        let time = store.commit(rival.commit())?.time;
        if time > newest {
            newest = time;
            pick.commit = rival.commit();
            pick.tag = rival.peeled.map(|_| rival.target);
            let name = rival.name.strip_prefix("refs/tags/").unwrap_or(&rival.name).to_owned();
            pick.tag_name = Some(name.clone());
            pick.label = Some(name);
        }
    }
    Ok(())
}

/// A folder that another repository fills.
struct Place {
    at: TreePath,
    url: String,
    depth: usize,
}

/// Where the submodules of `commit` go and which commits they are at. Those that `.gitmodules` does not know stay empty.
fn places(store: &ObjectStore, commit: Oid, parent: &Place) -> Result<Vec<(Place, Oid)>, git::Error> {
    let checkout = Checkout::new(store, commit)?;
    let Ok(file) = TreePath::parse(".gitmodules") else { return Ok(Vec::new()) };
    let text = match checkout.read(&file) {
        Ok(text) => text.into_owned(),
        Err(_) => return Ok(Vec::new()),
    };
    let mut found = Vec::new();
    for module in parse_submodules(&text)? {
        let entry =
            checkout.files().find(|(path, file)| **path == module.path && file.mode == Mode::Submodule);
        let Some((_, entry)) = entry else { continue };
        let at = parent
            .at
            .join(module.path.as_str())
            .map_err(|_| git::Error::UnsafePath(module.path.to_string()))?;
        let url = submodule_address(&parent.url, &module.url)?;
        found.push((Place { at, url, depth: parent.depth + 1 }, entry.id));
    }
    Ok(found)
}

/// What another address left behind is of no use any more. Submodules' folders go too: they cost a fetch.
fn forget_other_addresses(folder: &std::path::Path, own: &str) {
    let marker = folder.join("address");
    if std::fs::read_to_string(&marker).is_ok_and(|known| known == own) {
        return;
    }
    let _ = std::fs::remove_dir_all(folder);
    let _ = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&marker, own));
}
