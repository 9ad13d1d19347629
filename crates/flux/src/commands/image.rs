//! `flux image explain policy`: for each tag why it was kept or dropped, and the order. Ours.
//!
//! The tags come from the registry, with the rights of whoever asks: the pull secrets of the ImageRepository are read
//! from the cluster. `--tags-from` takes a file instead, one tag a line, `-` for standard input.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use flux_api::Object;
use flux_api::image::{ImagePolicy, ImageRepository};
use flux_api::kinds as api;
use flux_controllers::image::choose::{Fate, Policy};
use flux_controllers::image::{registry, scan};
use flux_controllers::reconcile::Metrics;
use flux_controllers::source::cloud::{Asker, CloudIdentity};
use flux_remote::cloud::{Cloud, Environment};
use serde_json::Value;

use super::required_name;
use crate::error::{CliError, fail};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

const LARGEST_FILE: u64 = 64 << 20;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let name = required_name(run, "image policy")?;
    let session = Session::open(run).await?;
    let policy: ImagePolicy = typed(session.get(&api::IMAGE_POLICY, name).await?)?;
    let reference = &policy.spec.image_repository_ref;
    let there = session.in_namespace(reference.namespace.as_deref().unwrap_or(&session.namespace));
    let repository: ImageRepository = typed(there.get(&api::IMAGE_REPOSITORY, &reference.name).await?)?;
    let tags = match run.some("tags-from") {
        Some(file) => read(file)?,
        None => scanned(&there, &repository).await?,
    };
    let chosen = Policy::new(&policy.spec.policy, policy.spec.filter_tags.as_ref());
    let chosen = chosen.map_err(|error| fail!("{error}"))?;
    let all = tags.len();
    let kept =
        scan::keep(tags.clone(), &repository.spec.exclusion_list()).map_err(|error| fail!("{error}"))?;
    let mut rows: Vec<Vec<String>> = chosen
        .explain(&kept.tags)
        .into_iter()
        .map(|one| {
            let (place, why) = match one.fate {
                Fate::Ranked(1) => ("1".to_owned(), "chosen".to_owned()),
                Fate::Ranked(place) => (place.to_string(), "in the order, not the first".to_owned()),
                Fate::Dropped(why) => ("-".to_owned(), why),
            };
            vec![one.tag, one.extracted.unwrap_or_else(|| "-".to_owned()), place, why]
        })
        .collect();
    rows.extend(excluded(tags, &kept.tags));
    let header = ["Tag", "Ordered by", "Place", "Why"].map(str::to_owned);
    output::data(&output::table(&header, &rows))?;
    if let Some(doubt) = chosen.doubt(&kept.tags) {
        output::warning(&doubt);
    }
    match chosen.latest(&kept.tags) {
        Ok(tag) => {
            output::success(&format!("{}:{tag} is chosen out of {all} tags", repository.spec.image));
            Ok(())
        }
        Err(error) => Err(fail!("no tag is chosen out of {all}: {error}")),
    }
}

fn typed<T: flux_api::Object>(object: Value) -> Result<T, CliError> {
    serde_json::from_value(object).map_err(|error| fail!("the object cannot be read: {error}"))
}

fn excluded(all: Vec<String>, kept: &[String]) -> Vec<Vec<String>> {
    let kept: std::collections::BTreeSet<&String> = kept.iter().collect();
    let row = |tag: String| {
        let why = match scan::is_tag(&tag) {
            true => "left out by the ImageRepository's exclusionList",
            false => "is no tag by the OCI distribution specification",
        };
        let shown: String = tag.chars().filter(|one| !one.is_control()).take(128).collect();
        vec![shown, "-".to_owned(), "-".to_owned(), why.to_owned()]
    };
    all.into_iter().filter(|tag| !kept.contains(tag)).map(row).collect()
}

fn read(file: &str) -> Result<Vec<String>, CliError> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().take(LARGEST_FILE).read_to_string(&mut text),
        path => std::fs::File::open(path).and_then(|file| file.take(LARGEST_FILE).read_to_string(&mut text)),
    };
    read.map_err(|error| fail!("{file}: {error}"))?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

async fn scanned(session: &Session, repository: &ImageRepository) -> Result<Vec<String>, CliError> {
    let spec = &repository.spec;
    let image = scan::image(&spec.image, spec.insecure).map_err(|error| fail!("{error}"))?;
    let cloud = Cloud::new(Environment::of_this_process(), 1, Duration::from_secs(60));
    let identity = CloudIdentity {
        client: session.client.clone(),
        cloud: Arc::new(cloud),
        default_service_account: None,
        object_level: spec.service_account_name.is_some(),
        metrics: Metrics::default(),
    };
    let asker =
        Asker { kind: "ImageRepository", namespace: &session.namespace, name: Object::name(repository) };
    output::action(&format!("listing the tags of {}", spec.image));
    let listing = async {
        let registry = registry::connect(&identity, asker, spec, image).await?;
        registry.tags().await.map_err(|error| error.to_string())
    };
    match tokio::time::timeout(session.timeout, listing).await {
        Ok(tags) => tags.map_err(|error| fail!("{error}")),
        Err(_) => Err(fail!("the registry gave no answer within {} s", session.timeout.as_secs())),
    }
}
