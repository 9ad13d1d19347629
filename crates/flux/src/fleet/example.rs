//! The example fleet, for binaries that are far from their sources.

use std::io;
use std::path::PathBuf;

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../examples/fleet/", $path)))),*]
    };
}

const FILES: &[(&str, &str)] = files![
    ".sops.yaml",
    "README.md",
    "apps/base/api/kustomization.yaml",
    "apps/base/api/release.yaml",
    "apps/base/web/deployment.yaml",
    "apps/base/web/ingress.yaml",
    "apps/base/web/kustomization.yaml",
    "apps/base/web/service.yaml",
    "apps/base/web/session.sops.yaml",
    "apps/production/kustomization.yaml",
    "apps/staging/kustomization.yaml",
    "charts/api/Chart.yaml",
    "charts/api/templates/_labels.tpl",
    "charts/api/templates/deployment.yaml",
    "charts/api/templates/service.yaml",
    "charts/api/values.yaml",
    "charts/issuer/Chart.yaml",
    "charts/issuer/crds/clusterissuers.yaml",
    "charts/issuer/templates/deployment.yaml",
    "charts/issuer/values.yaml",
    "clusters/production/apps.yaml",
    "clusters/production/infrastructure.yaml",
    "clusters/production/settings.yaml",
    "clusters/production/tenants.yaml",
    "clusters/production/throw-away-age-key.yaml",
    "clusters/staging/apps.yaml",
    "clusters/staging/infrastructure.yaml",
    "clusters/staging/settings.yaml",
    "clusters/staging/tenants.yaml",
    "clusters/staging/throw-away-age-key.yaml",
    "infrastructure/configs/cluster-issuer.yaml",
    "infrastructure/configs/kustomization.yaml",
    "infrastructure/configs/namespaces.yaml",
    "infrastructure/controllers/issuer.yaml",
    "infrastructure/controllers/kustomization.yaml",
    "tenants/accounts/payments.yaml",
    "tenants/payments/ledger.yaml",
];

/// Writes the fleet to a new folder, which stays: the person may change it.
pub(super) fn unpack() -> io::Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix("flux-example-").tempdir()?.keep();
    for (path, text) in FILES {
        let file = folder.join(path);
        file.parent().map(std::fs::create_dir_all).transpose()?;
        std::fs::write(file, text)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_the_whole_example() {
        let sources = crate::fleet::files::example();
        let listed = |folder: &std::path::Path| -> Vec<String> {
            let files = flux_remote::local::LocalFolder::list(folder).unwrap();
            files.files().iter().map(|file| file.path.to_string()).collect()
        };
        let copy = unpack().unwrap();
        assert_eq!(listed(&copy), listed(&sources));
        std::fs::remove_dir_all(copy).unwrap();
    }
}
