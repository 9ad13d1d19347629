//! Real CRDs from the shared corpus: their schemas are structural and every one of their rules compiles.

use std::sync::Arc;

use apiserver::structural::{Rules, Structural};

#[test]
fn schemas_and_rules_of_real_definitions_are_accepted() {
    let shared = std::env::var("FLUX_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
    let Ok(folder) = std::fs::read_dir(format!("{shared}/crds")) else {
        println!("skipped: no corpus");
        return;
    };
    let (mut schemas, mut wrong) = (0, Vec::new());
    for file in folder {
        let path = file.expect("a folder lists its files").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read(&path).expect("the file can be read");
        let definition = yaml::to_json(&text).expect("the file is YAML");
        for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
            schemas += 1;
            let schema =
                Structural::parse(&version["schema"]["openAPIV3Schema"]).expect("the schema can be read");
            let schema = Arc::new(schema);
            let rules = Rules::new(schema.clone());
            let errors = schema.check("schema").into_iter().chain(rules.check("schema"));
            wrong.extend(errors.map(|error| format!("{} {}: {error}", path.display(), version["name"])));
        }
    }
    println!("{schemas} schemas, {} complaints", wrong.len());
    assert!(schemas > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}
