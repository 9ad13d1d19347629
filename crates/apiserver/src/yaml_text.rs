//! YAML in and out, as sigs.k8s.io/yaml reads and writes it.

/// YAML as JSON text.
pub fn to_json(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let value = yaml::to_json(bytes).map_err(|error| error.to_string())?;
    Ok(value.to_string().into_bytes())
}

/// An object as YAML; what cannot be written so is written as JSON, which is YAML too.
pub fn from_json(value: &serde_json::Value) -> String {
    yaml::to_yaml_sigs(value).unwrap_or_else(|_| value.to_string())
}
