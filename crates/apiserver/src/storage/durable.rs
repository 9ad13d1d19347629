//! Keeping every acknowledged write on disk: one redb file, one writer thread, many writes in one commit.
//!
//! While a commit is flushed the next writes queue up and share the following commit (group commit), so that
//! throughput does not depend on the disk's latency. Writes become visible in memory before they are durable; after a
//! crash revisions continue well beyond any that could have been seen, so none is ever used twice.

use std::path::Path;
use std::sync::mpsc;

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tokio::sync::oneshot;

const OBJECTS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("objects");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Revisions that may have been handed out but not made durable before a crash.
const LEAP: u64 = 100_000;
/// Writes in one commit.
const BATCH: usize = 1_000;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("store in {folder}: {problem}")]
    Open { folder: String, problem: String },
    #[error("writing to the store: {0}")]
    Write(String),
    #[error("the store's writer has stopped")]
    Stopped,
}

/// One write: a new state, or `None` for a deletion.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) place: Box<str>,
    pub(super) key: Box<str>,
    pub(super) revision: u64,
    pub(super) json: Option<Bytes>,
}

pub(super) type Done = oneshot::Receiver<Result<(), Error>>;

type Job = (Op, oneshot::Sender<Result<(), Error>>);

#[derive(Debug)]
pub(super) struct Durable {
    // Every job's sender awaits its answer, so at most one job per request in flight is queued.
    jobs: mpsc::Sender<Job>,
}

/// What was on disk.
pub(super) struct Loaded {
    pub(super) revision: u64,
    pub(super) objects: Vec<(String, String, Vec<u8>)>,
}

impl Durable {
    pub(super) fn open(folder: &Path) -> Result<(Durable, Loaded), Error> {
        let failed = |problem: String| Error::Open { folder: folder.display().to_string(), problem };
        std::fs::create_dir_all(folder).map_err(|e| failed(e.to_string()))?;
        let database = Database::create(folder.join("objects.redb")).map_err(|e| failed(e.to_string()))?;
        let loaded = load(&database).map_err(|e| failed(e.to_string()))?;
        let (jobs, queue) = mpsc::channel();
        std::thread::Builder::new()
            .name("apiserver-store".into())
            .spawn(move || run(&database, &queue))
            .map_err(|e| failed(e.to_string()))?;
        Ok((Durable { jobs }, loaded))
    }

    pub(super) fn submit(&self, op: Op) -> Done {
        let (done, answer) = oneshot::channel();
        if let Err(mpsc::SendError((_, done))) = self.jobs.send((op, done)) {
            // The receiver may be gone too; then nobody is waiting for this answer.
            let _ = done.send(Err(Error::Stopped));
        }
        answer
    }
}

fn load(database: &Database) -> Result<Loaded, redb::Error> {
    let write = database.begin_write()?;
    {
        write.open_table(OBJECTS)?;
        let mut meta = write.open_table(META)?;
        let last = meta.get("revision")?.map_or(0, |revision| revision.value());
        meta.insert("revision", last + LEAP)?;
    }
    write.commit()?;
    let read = database.begin_read()?;
    let revision = read.open_table(META)?.get("revision")?.map_or(1, |revision| revision.value());
    let mut objects = Vec::new();
    for entry in read.open_table(OBJECTS)?.iter()? {
        let (key, value) = entry?;
        let (place, name) = key.value();
        objects.push((place.to_owned(), name.to_owned(), value.value().to_vec()));
    }
    Ok(Loaded { revision, objects })
}

fn run(database: &Database, queue: &mpsc::Receiver<Job>) {
    while let Ok(first) = queue.recv() {
        let mut batch = vec![first];
        batch.extend(queue.try_iter().take(BATCH));
        let outcome = commit(database, &batch).map_err(|e| Error::Write(e.to_string()));
        for (_, done) in batch {
            // A request that was cancelled no longer waits.
            let _ = done.send(outcome.clone());
        }
    }
}

fn commit(database: &Database, batch: &[Job]) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut objects = write.open_table(OBJECTS)?;
        let mut last = 0;
        for (op, _) in batch {
            match &op.json {
                Some(json) => drop(objects.insert((&*op.place, &*op.key), &json[..])?),
                None => drop(objects.remove((&*op.place, &*op.key))?),
            }
            last = last.max(op.revision);
        }
        write.open_table(META)?.insert("revision", last)?;
    }
    write.commit()?;
    Ok(())
}
