//! The `Setters` strategy: writes picked images into files where a comment names their policy, and changes no other
//! byte. Pure.
//!
//! `marker` reads the comments, `file` edits one file, `result` is what commit messages and events are made of.

pub mod file;
pub mod marker;
pub mod result;

use std::collections::BTreeMap;

use flux_api::image::ImageReference;

pub use file::{Edited, Problem, edit};
pub use result::{Change, Changes, ObjectId};

use super::scan;

/// Files without this text are not looked at.
pub const TOKEN: &[u8] = b"\"$imagepolicy\"";

/// What each marker stands for, by what is written in it.
#[derive(Clone, Debug, Default)]
pub struct Setters {
    values: BTreeMap<String, String>,
    images: BTreeMap<String, ImageReference>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("encountered invalid image ref \"{image}\": ImagePolicy {policy}: {problem}")]
pub struct InvalidImage {
    policy: String,
    image: String,
    problem: String,
}

impl Setters {
    /// The images of the policies of one namespace, by the policies' names.
    pub fn new(namespace: &str, policies: &BTreeMap<String, ImageReference>) -> Result<Self, InvalidImage> {
        let mut setters = Self::default();
        for (name, image) in policies {
            let problem = match (scan::image(&image.name, true), scan::is_tag(&image.tag)) {
                (Err(problem), _) => Some(problem),
                (Ok(_), false) => Some("its tag is no tag".to_owned()),
                (Ok(_), true) => None,
            };
            if let Some(problem) = problem {
                return Err(InvalidImage { policy: name.clone(), image: image.to_string(), problem });
            }
            let id = format!("{namespace}:{name}");
            setters.values.insert(format!("{id}:tag"), image.tag.clone());
            setters.values.insert(format!("{id}:name"), image.name.clone());
            // Where no digest was looked up this is empty, and is written so, as upstream does.
            setters.values.insert(format!("{id}:digest"), image.digest.clone().unwrap_or_default());
            setters.values.insert(id.clone(), image.to_string());
            setters.images.insert(id, image.clone());
        }
        Ok(setters)
    }

    /// What to write for a marker; nothing where its policy is not among those in question.
    pub fn value(&self, marker: &str) -> Option<&str> {
        self.values.get(marker).map(String::as_str)
    }

    /// The image behind a marker, with its policy's `namespace:name`.
    pub fn image(&self, marker: &str) -> Option<(&str, &ImageReference)> {
        let id = match marker.match_indices(':').nth(1) {
            Some((at, _)) => &marker[..at],
            None => marker,
        };
        self.images.get_key_value(id).map(|(id, image)| (id.as_str(), image))
    }
}

/// Whether the strategy looks into a file of this name.
pub fn is_candidate(file_name: &str) -> bool {
    file_name == "Kustomization"
        || file_name.rsplit_once('.').is_some_and(|(_, extension)| matches!(extension, "yaml" | "yml"))
}

pub fn has_token(bytes: &[u8]) -> bool {
    bytes.windows(TOKEN.len()).any(|window| window == TOKEN)
}
