//! Charts of a folder on this machine, and the index that a repository of them would have.

use std::fs;
use std::io;
use std::path::Path;

use flux_remote::helm_repository::ChartVersion;
use helm::{Chart, Dialect, Limits};
use serde_json::{Map, Value, json};

/// Charts that one folder may hold.
const MOST: usize = 2_000;
const LARGEST: u64 = 64 << 20;

/// A chart as an archive.
#[derive(Clone, Debug)]
pub struct LocalChart {
    pub name: String,
    pub version: String,
    pub archive: Vec<u8>,
}

impl LocalChart {
    /// The versions of a chart as an index lists them. An index cannot do without an address for each.
    pub fn versions(charts: &[LocalChart], name: &str) -> Vec<ChartVersion> {
        let version = |chart: &LocalChart| ChartVersion {
            name: chart.name.clone(),
            version: chart.version.clone(),
            urls: vec![format!("{}-{}.tgz", chart.name, chart.version)],
            created: None,
        };
        charts.iter().filter(|chart| chart.name == name).map(version).collect()
    }

    /// The index of a repository of these charts.
    pub fn index(charts: &[LocalChart]) -> Value {
        let mut entries: Map<String, Value> = Map::new();
        for chart in charts {
            let LocalChart { name, version, .. } = chart;
            let entry = json!({ "apiVersion": "v2", "name": name, "version": version, "urls": [format!("{name}-{version}.tgz")] });
            if let Value::Array(list) = entries.entry(name.clone()).or_insert_with(|| json!([])) {
                list.push(entry);
            }
        }
        json!({ "apiVersion": "v1", "entries": entries })
    }
}

/// The chart at `place`, a file or a folder, or the charts right below it.
pub(super) fn read(place: &Path) -> io::Result<Vec<LocalChart>> {
    if place.is_file() {
        return Ok(vec![packaged(place)?]);
    }
    if is_chart(place) {
        return Ok(vec![unpacked(place)?]);
    }
    let mut charts = Vec::new();
    let mut paths: Vec<_> =
        fs::read_dir(place)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.extension().is_some_and(|end| end == "tgz") {
            charts.push(packaged(&path)?);
        } else if is_chart(&path) {
            charts.push(unpacked(&path)?);
        }
        if charts.len() > MOST {
            return Err(io::Error::other(format!("more than {MOST} charts")));
        }
    }
    Ok(charts)
}

fn is_chart(folder: &Path) -> bool {
    folder.join("Chart.yaml").is_file()
}

fn packaged(file: &Path) -> io::Result<LocalChart> {
    let failed = |problem: String| io::Error::other(format!("{}: {problem}", file.display()));
    if fs::metadata(file)?.len() > LARGEST {
        return Err(failed(format!("more than {LARGEST} bytes")));
    }
    let archive = fs::read(file)?;
    let chart = Chart::from_archive(&archive, Limits::default(), Dialect::Helm4)
        .map_err(|error| failed(error.to_string()))?;
    Ok(LocalChart { name: chart.metadata.name.clone(), version: chart.metadata.version.clone(), archive })
}

fn unpacked(folder: &Path) -> io::Result<LocalChart> {
    let failed = |problem: String| io::Error::other(format!("{}: {problem}", folder.display()));
    let files = flux_remote::local::LocalFolder::list(folder)?;
    let mut tree = file_tree::MemoryTree::new();
    for file in files.files() {
        tree.insert(file.path.clone(), files.read(&file.path)?);
    }
    let root = file_tree::TreePath::root();
    let chart = Chart::from_tree(&tree, &root, Limits::default(), Dialect::Helm4)
        .map_err(|error| failed(error.to_string()))?;
    let archive = chart.package().map_err(|error| failed(error.to_string()))?;
    Ok(LocalChart { name: chart.metadata.name.clone(), version: chart.metadata.version.clone(), archive })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_chart(folder: &Path, name: &str, version: &str) {
        fs::create_dir_all(folder.join("templates")).unwrap();
        fs::write(folder.join("Chart.yaml"), format!("apiVersion: v2\nname: {name}\nversion: {version}\n"))
            .unwrap();
        fs::write(folder.join("templates/a.yaml"), "kind: ConfigMap\n").unwrap();
    }

    #[test]
    fn charts_are_found_in_folders_and_archives() {
        let folder = tempfile::tempdir().unwrap();
        write_chart(&folder.path().join("a"), "web", "1.0.0");
        write_chart(&folder.path().join("b"), "web", "2.0.0");
        fs::create_dir_all(folder.path().join("other")).unwrap();
        let one = read(&folder.path().join("a")).unwrap();
        fs::write(folder.path().join("c.tgz"), &one[0].archive).unwrap();
        let all = read(folder.path()).unwrap();
        let names: Vec<(&str, &str)> =
            all.iter().map(|chart| (chart.name.as_str(), chart.version.as_str())).collect();
        assert_eq!(names, [("web", "1.0.0"), ("web", "2.0.0"), ("web", "1.0.0")]);
        assert_eq!(LocalChart::versions(&all, "web").len(), 3);
        assert_eq!(LocalChart::index(&all)["entries"]["web"][1]["version"], "2.0.0");
    }

    #[test]
    fn what_is_no_chart_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("bad.tgz"), "nothing").unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("bad.tgz"), "{error}");
    }
}
