//! What the storage promises: one copy, cheap successors, repair, nothing half-written.

use std::collections::BTreeMap;

use file_tree::Files;
use flux_api::kinds::GIT_REPOSITORY;
use sha2::Digest as _;

use super::*;

struct Fleet {
    files: BTreeMap<String, String>,
    named: bool,
    reads: usize,
}

impl Fleet {
    fn new(count: usize, named: bool) -> Self {
        let files =
            (0..count).map(|n| (format!("apps/a{:03}/{n}.yaml", n / 10), format!("n: {n}\n"))).collect();
        Self { files, named, reads: 0 }
    }
}

impl Contents for Fleet {
    fn each(&mut self, each: &mut Each<'_>) -> io::Result<()> {
        for (path, text) in &self.files {
            self.reads += 1;
            each(&path_of(path), false, text.as_bytes())?;
        }
        Ok(())
    }

    fn listed(&mut self) -> Option<Vec<Listed>> {
        let listed = |(path, text): (&String, &String)| Listed {
            path: path_of(path),
            executable: false,
            id: sha2::Sha256::digest(text.as_bytes()).to_vec(),
        };
        self.named.then(|| self.files.iter().map(listed).collect())
    }

    fn read(&mut self, file: &Listed) -> io::Result<Vec<u8>> {
        self.reads += 1;
        Ok(self.files[file.path.as_str()].clone().into_bytes())
    }
}

fn path_of(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn storage(root: &Path, algorithm: Algorithm) -> Storage {
    Storage::new(StorageOptions {
        root: root.to_owned(),
        advertised: "localhost:9090".to_owned(),
        retention_age: Duration::from_secs(60),
        retention_records: 2,
        algorithm,
    })
    .unwrap()
}

fn key() -> ObjectKey {
    ObjectKey::new("flux-system", "fleet")
}

fn store(storage: &Storage, name: &str, contents: &mut Fleet) -> Artifact {
    storage.store(&GIT_REPOSITORY, &key(), name, Revision::from(name.to_owned()), contents).unwrap()
}

#[test]
fn an_artifact_is_read_in_place_and_named_as_upstream_names_it() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path(), Algorithm::Sha256);
    let artifact = store(&storage, "one.tar.gz", &mut Fleet::new(50, true));
    assert_eq!(artifact.path, "gitrepository/flux-system/fleet/one.tar.gz");
    assert_eq!(artifact.url, "http://localhost:9090/gitrepository/flux-system/fleet/one.tar.gz");
    let tree = storage.tree(&artifact).unwrap().unwrap();
    assert_eq!(tree.read(&path_of("apps/a003/33.yaml")).unwrap().as_ref(), b"n: 33\n");
    assert!(Arc::ptr_eq(&tree, &storage.tree(&artifact).unwrap().unwrap()), "it is shared");
    let size = fs::metadata(root.path().join(&artifact.path)).unwrap().len();
    assert_eq!(artifact.size, i64::try_from(size).ok());
}

#[test]
fn an_advertised_address_with_a_scheme_is_taken_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    for (advertised, url) in [
        ("source.flux-system.svc", "http://source.flux-system.svc/a/b.tar.gz"),
        ("https://artifacts.example.com", "https://artifacts.example.com/a/b.tar.gz"),
    ] {
        let options = StorageOptions {
            advertised: advertised.to_owned(),
            ..storage(root.path(), Algorithm::Sha256).options.clone()
        };
        assert_eq!(Storage::new(options).unwrap().url("a/b.tar.gz"), url);
    }
}

#[test]
fn the_next_artifact_reads_only_what_changed() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path(), Algorithm::Sha256);
    let mut fleet = Fleet::new(3000, true);
    store(&storage, "one.tar.gz", &mut fleet);
    fleet.files.insert("apps/a100/1000.yaml".to_owned(), "changed\n".to_owned());
    fleet.reads = 0;
    let second = store(&storage, "two.tar.gz", &mut fleet);
    assert!(fleet.reads <= 256, "{}", fleet.reads);
    let tree = storage.tree(&second).unwrap().unwrap();
    assert_eq!(tree.read(&path_of("apps/a100/1000.yaml")).unwrap().as_ref(), b"changed\n");
    assert_eq!(tree.read(&path_of("apps/a299/2999.yaml")).unwrap().as_ref(), b"n: 2999\n");
    assert_eq!(tree.files().count(), 3000);
    assert!(storage.verify(&second).unwrap());
    let other = tempfile::tempdir().unwrap();
    let from_nothing = store(&self::storage(other.path(), Algorithm::Sha256), "two.tar.gz", &mut fleet);
    assert_eq!(second.digest, from_nothing.digest);
}

#[test]
fn contents_without_names_are_compared_by_their_digests() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path(), Algorithm::Sha256);
    let mut fleet = Fleet::new(300, false);
    let first = store(&storage, "one.tar.gz", &mut fleet);
    let again = store(&storage, "two.tar.gz", &mut fleet);
    assert_eq!(first.digest, again.digest);
    assert_eq!(storage.tree(&again).unwrap().unwrap().files().count(), 300);
}

#[test]
fn digests_are_in_the_algorithm_that_was_chosen() {
    for algorithm in Algorithm::ALL {
        let root = tempfile::tempdir().unwrap();
        let storage = storage(root.path(), *algorithm);
        let artifact = store(&storage, "one.tar.gz", &mut Fleet::new(10, true));
        assert_eq!(artifact.digest.algorithm(), Some(*algorithm));
        let found = digest::of(*algorithm, File::open(root.path().join(&artifact.path)).unwrap()).unwrap();
        assert_eq!(found, artifact.digest);
    }
}

#[test]
fn damage_is_found_and_not_copied_on() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path(), Algorithm::Sha256);
    let mut fleet = Fleet::new(100, true);
    let first = store(&storage, "one.tar.gz", &mut fleet);
    let file = root.path().join(&first.path);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&file, bytes).unwrap();
    assert!(!storage.verify(&first).unwrap());
    fs::remove_file(&file).unwrap();
    assert!(!storage.verify(&first).unwrap());
    fs::write(&file, b"something else").unwrap();
    let second = store(&storage, "two.tar.gz", &mut fleet);
    assert_eq!(second.digest, first.digest);
    assert!(storage.verify(&second).unwrap());
}

#[test]
fn a_lost_or_damaged_index_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let artifact = {
        let storage = storage(root.path(), Algorithm::Sha256);
        store(&storage, "one.tar.gz", &mut Fleet::new(100, true))
    };
    let index = root.path().join(".trees/gitrepository/flux-system/fleet/one.tar.gz.index");
    for damage in [true, false] {
        match damage {
            true => fs::write(&index, b"damaged").unwrap(),
            false => {
                let _ = fs::remove_file(&index);
                fs::remove_dir_all(root.path().join(".trees")).unwrap();
            }
        }
        let storage = storage(root.path(), Algorithm::Sha256);
        let tree = storage.tree(&artifact).unwrap().unwrap();
        assert_eq!(tree.read(&path_of("apps/a009/99.yaml")).unwrap().as_ref(), b"n: 99\n");
    }
}

#[test]
fn old_artifacts_go_by_number_and_age_and_readers_keep_theirs() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path(), Algorithm::Sha256);
    let mut fleet = Fleet::new(10, true);
    let first = store(&storage, "one.tar.gz", &mut fleet);
    let reader = storage.tree(&first).unwrap().unwrap();
    for name in ["two.tar.gz", "three.tar.gz"] {
        fleet.files.insert("new".to_owned(), name.to_owned());
        store(&storage, name, &mut fleet);
    }
    let latest = store(&storage, "four.tar.gz", &mut fleet);
    std::os::unix::fs::symlink(
        "four.tar.gz",
        root.path().join("gitrepository/flux-system/fleet/latest.tar.gz"),
    )
    .unwrap();
    assert_eq!(storage.collect(&GIT_REPOSITORY, &key(), &latest).unwrap(), 2);
    let mut names: Vec<String> = fs::read_dir(root.path().join("gitrepository/flux-system/fleet"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["four.tar.gz", "latest.tar.gz", "three.tar.gz"]);
    assert_eq!(reader.read(&path_of("apps/a000/5.yaml")).unwrap().as_ref(), b"n: 5\n");
    assert!(storage.remove(&GIT_REPOSITORY, &key()).unwrap());
    assert!(!storage.remove(&GIT_REPOSITORY, &key()).unwrap(), "there is nothing left to remove");
    assert!(!root.path().join("gitrepository/flux-system/fleet").exists());
    assert!(!storage.verify(&latest).unwrap());
}

#[test]
fn what_a_killed_process_left_is_swept_up() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join(TEMPORARY)).unwrap();
    fs::write(root.path().join(TEMPORARY).join("half"), b"half").unwrap();
    storage(root.path(), Algorithm::Sha256);
    assert_eq!(fs::read_dir(root.path().join(TEMPORARY)).unwrap().count(), 0);
}

#[test]
fn a_downloaded_tarball_is_read_in_place_too() {
    let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let artifact =
        store(&storage(elsewhere.path(), Algorithm::Sha256), "one.tar.gz", &mut Fleet::new(40, true));
    let storage = storage(root.path(), Algorithm::Sha256);
    assert!(storage.tree(&artifact).unwrap().is_none());
    storage.unpack(File::open(elsewhere.path().join(&artifact.path)).unwrap(), &artifact).unwrap();
    let tree = storage.tree(&artifact).unwrap().unwrap();
    assert_eq!(tree.files().count(), 40);
    assert_eq!(tree.read(&path_of("apps/a003/33.yaml")).unwrap().as_ref(), b"n: 33\n");
}
