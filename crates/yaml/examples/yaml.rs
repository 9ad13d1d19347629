//! The crate as a filter: `to-json`, `to-json-strict`, `to-yaml` as sigs.k8s.io/yaml, `format` as kyaml,
//! `kustomize` as `kustomize build` prints a resource.
#![allow(clippy::disallowed_methods)]

use std::io::{Read, Write};
use std::process::ExitCode;

use yaml::{Options, Schema};

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let mut input = Vec::new();
    if let Err(error) = std::io::stdin().read_to_end(&mut input) {
        eprintln!("stdin: {error}");
        return ExitCode::FAILURE;
    }
    match run(&task, &input) {
        Ok(output) => match std::io::stdout().write_all(output.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &str, input: &[u8]) -> Result<String, Box<dyn std::error::Error>> {
    Ok(match task {
        "to-json" => yaml::json_text(&yaml::to_json(input)?),
        "to-json-strict" => yaml::json_text(&yaml::to_json_strict(input)?),
        "to-yaml" => yaml::to_yaml_sigs(&yaml::to_json(input)?)?,
        "format" => joined(input, Options::new(Schema::V3).with_comments(), |document| {
            yaml::format_document(document)
        })?,
        "kustomize" => {
            joined(input, Options::new(Schema::V3), |document| yaml::kustomize_yaml(&document.root))?
        }
        _ => return Err("usage: yaml to-json|to-json-strict|to-yaml|format|kustomize < FILE".into()),
    })
}

fn joined(
    input: &[u8],
    options: Options,
    write: impl Fn(&yaml::Document) -> Result<String, yaml::EmitError>,
) -> Result<String, Box<dyn std::error::Error>> {
    let documents = yaml::parse_stream(input, &options)?;
    Ok(documents.iter().map(write).collect::<Result<Vec<_>, _>>()?.join("---\n"))
}
