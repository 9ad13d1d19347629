//! One page of a bucket's keys, in the first and the second form of the list request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use axum::body::Bytes;

use super::etag;

/// S3 never returns more.
const LARGEST_PAGE: usize = 1000;

pub(super) fn page(bucket: &str, objects: &BTreeMap<String, Bytes>, query: &[(String, String)]) -> String {
    let value = |name: &str| {
        let found = query.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let second_form = value("list-type") == "2";
    let (prefix, delimiter) = (value("prefix"), value("delimiter"));
    // The continuation token is the last key of the page before.
    let after = if second_form {
        [value("continuation-token"), value("start-after")].into_iter().max().unwrap_or("")
    } else {
        value("marker")
    };
    let size = value("max-keys").parse().unwrap_or(LARGEST_PAGE).min(LARGEST_PAGE);
    let encode = |key: &str| {
        if value("encoding-type") == "url" { super::signature::encode(key, true) } else { escape(key) }
    };

    let mut contents = String::new();
    let mut folders = BTreeSet::new();
    let (mut count, mut last, mut truncated) = (0, "", false);
    for (key, bytes) in objects {
        if !key.starts_with(prefix) || key.as_str() <= after {
            continue;
        }
        let rest = &key[prefix.len()..];
        let folder = (!delimiter.is_empty())
            .then(|| rest.find(delimiter))
            .flatten()
            .map(|end| &key[..prefix.len() + end + delimiter.len()]);
        if folder.is_some_and(|folder| folders.contains(folder) || folder <= after) {
            last = key;
            continue;
        }
        if count == size {
            truncated = true;
            break;
        }
        count += 1;
        last = key;
        match folder {
            Some(folder) => {
                folders.insert(folder);
            }
            None => {
                let (key, tag) = (encode(key), escape(&etag(bytes)));
                // Writing to a String cannot fail.
                let _ = write!(
                    contents,
                    "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{tag}</ETag>\
                     <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                    bytes.len()
                );
            }
        }
    }
    let folders: String = folders
        .iter()
        .map(|folder| format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", encode(folder)))
        .collect();
    let next = match (truncated, second_form) {
        (false, _) => String::new(),
        (true, true) => format!("<NextContinuationToken>{}</NextContinuationToken>", escape(last)),
        (true, false) => format!("<NextMarker>{}</NextMarker>", encode(last)),
    };
    let encoding = match value("encoding-type").is_empty() {
        true => String::new(),
        false => "<EncodingType>url</EncodingType>".to_owned(),
    };
    format!(
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>{}</Name><Prefix>{}</Prefix>{encoding}\
         <MaxKeys>{size}</MaxKeys><KeyCount>{count}</KeyCount><IsTruncated>{truncated}</IsTruncated>{next}{contents}{folders}</ListBucketResult>",
        escape(bucket),
        encode(prefix),
    )
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(query: &[(&str, &str)]) -> (Vec<String>, Option<String>) {
        let names = ["a/1", "a/2", "b", "c/1", "c & d"];
        let objects = names.iter().map(|name| ((*name).to_owned(), Bytes::new())).collect();
        let query: Vec<_> = query.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let text = page("bucket", &objects, &query);
        let found = |tag: &str| {
            text.split(&format!("<{tag}>"))
                .skip(1)
                .filter_map(|rest| rest.split("</").next())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut entries = found("Key");
        entries.extend(found("CommonPrefixes><Prefix"));
        (entries, found("NextContinuationToken").pop())
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let (page, next) = keys(&[("list-type", "2"), ("max-keys", "2"), ("continuation-token", &token)]);
            assert!(page.len() <= 2);
            all.extend(page);
            match next {
                Some(next) => token = next,
                None => break,
            }
        }
        assert_eq!(all, ["a/1", "a/2", "b", "c &amp; d", "c/1"]);
    }

    #[test]
    fn a_delimiter_folds_folders() {
        let (entries, _) = keys(&[("list-type", "2"), ("delimiter", "/")]);
        assert_eq!(entries, ["b", "c &amp; d", "a/", "c/"]);
        let (entries, _) = keys(&[("list-type", "2"), ("prefix", "a/")]);
        assert_eq!(entries, ["a/1", "a/2"]);
    }
}
