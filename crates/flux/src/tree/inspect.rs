//! Commands that build, compare, follow and explain. Rows only: what they do stands in `commands`.

use super::flag::*;
use super::value;
use super::{Args, Row, row};

pub(super) static ROWS: &[Row] = &[
    row("build", "Group: local builds").args(Args::Group),
    row("build artifact", "Pack a directory into a tgz").flags(&[
        strings(
            "ignore-paths",
            ".git/,.gitignore,.gitmodules,.gitattributes,*.jpg,*.jpeg,*.gif,*.png,*.wmv,*.flv,*.tar.gz,*.zip",
        ),
        string("output", "artifact.tgz").short('o'),
        string("path", "").short('p'),
        boolean("resolve-symlinks"),
    ]),
    row("build kustomization", "Render a Flux Kustomization from local files").aliases(&["ks"]).flags(&[
        boolean("dry-run"),
        strings("ignore-paths", ""),
        boolean("in-memory-build"),
        string("kustomization-file", ""),
        pairs("local-sources", ""),
        string("path", ""),
        boolean("recursive").short('r'),
        boolean("strict-substitute"),
    ]),
    row("diff", "Group: compare local against remote").args(Args::Group),
    row("diff artifact", "Compare local files with OCI artifact").flags(&[
        string("creds", ""),
        strings(
            "ignore-paths",
            ".git/,.gitignore,.gitmodules,.gitattributes,*.jpg,*.jpeg,*.gif,*.png,*.wmv,*.flv,*.tar.gz,*.zip",
        ),
        boolean("insecure-registry"),
        string("path", ""),
        checked("provider", "generic", value::oci_provider),
    ]),
    row("diff kustomization", "Server dry-run diff of local manifests").aliases(&["ks"]).flags(&[
        boolean("ignore-not-found"),
        strings("ignore-paths", ""),
        boolean("in-memory-build"),
        string("kustomization-file", ""),
        pairs("local-sources", ""),
        string("path", ""),
        boolean_on("progress-bar"),
        boolean("recursive").short('r'),
        boolean("strict-substitute"),
    ]),
    row("debug", "Group: troubleshooting views").args(Args::Group),
    row("debug helmrelease", "Show HelmRelease status, merged values or history")
        .aliases(&["hr"])
        .args(Args::Exactly(1))
        .flags(&[boolean("show-history"), boolean("show-status"), boolean("show-values")]),
    row("debug kustomization", "Show Kustomization status, variables or history")
        .aliases(&["ks"])
        .args(Args::Exactly(1))
        .flags(&[boolean("show-history"), boolean("show-status"), boolean("show-vars")]),
    row("tree", "Group: ownership trees").args(Args::Group),
    row("tree artifact", "Tree group for ArtifactGenerator").args(Args::Group),
    row("tree artifact generator", "Tree of artifacts made by generator")
        .args(Args::Exactly(1))
        .flags(&[string("output", "").short('o')]),
    row("tree kustomization", "Tree of objects applied by Kustomization")
        .aliases(&["ks", "kustomization"])
        .flags(&[boolean("compact"), string("output", "").short('o')]),
    row("trace", "Find the Flux owner of objects").flags(&[string("api-version", ""), string("kind", "")]),
    row("events", "List events of Flux kinds").flags(&[
        boolean("all-namespaces").short('A'),
        string("for", ""),
        strings("types", ""),
        boolean("watch").short('w'),
    ]),
    row("logs", "Print reformatted controller logs").args(Args::NoArgument).flags(&[
        boolean("all-namespaces").short('A'),
        string("flux-namespace", "flux-system"),
        boolean("follow").short('f'),
        string("kind", ""),
        checked("level", "", value::log_level),
        string("name", ""),
        duration("since", "0s"),
        string("since-time", ""),
        int("tail", "-1"),
    ]),
    row("stats", "Count objects, failures and artifact bytes")
        .args(Args::None)
        .persistent(&[boolean("all-namespaces").short('A')]),
    row("envsubst", "Substitute environment variables from stdin")
        .args(Args::None)
        .flags(&[boolean("strict")]),
    row("trigger", "Group: call Flux from outside").args(Args::Group),
    row("trigger receiver", "POST to a Receiver webhook").args(Args::Exactly(1)).flags(&[
        string("oidc-audience", ""),
        string("oidc-provider", ""),
        string("oidc-token", ""),
        string("payload", "{}"),
        int("retries", "10"),
        duration("retry-delay", "10s"),
        string("token", ""),
        string("type", "generic"),
        string("url", ""),
    ]),
    row("list", "Group: list remote artifacts").args(Args::Group),
    row("list artifacts", "List tags of an OCI repository").flags(&[
        string("creds", ""),
        string("filter-regex", ""),
        string("filter-semver", ""),
        boolean("insecure-registry"),
        checked("provider", "generic", value::oci_provider),
    ]),
    row("push", "Group: upload artifacts").args(Args::Group),
    row("push artifact", "Pack and upload files to OCI").flags(&[
        array("annotations", "").short('a'),
        string("creds", ""),
        boolean("debug"),
        strings(
            "ignore-paths",
            ".git/,.gitignore,.gitmodules,.gitattributes,*.jpg,*.jpeg,*.gif,*.png,*.wmv,*.flv,*.tar.gz,*.zip",
        ),
        boolean("insecure-registry"),
        string("output", "").short('o'),
        string("path", "").short('f'),
        checked("provider", "generic", value::oci_provider),
        boolean("reproducible"),
        boolean("resolve-symlinks"),
        string("revision", ""),
        string("source", ""),
    ]),
    row("pull", "Group: fetch artifacts").args(Args::Group),
    row("pull artifact", "Download and unpack an OCI artifact").flags(&[
        string("creds", ""),
        boolean("insecure-registry"),
        string("output", "").short('o'),
        checked("provider", "generic", value::oci_provider),
    ]),
    row("tag", "Group: tag artifacts").args(Args::Group),
    row("tag artifact", "Add tags to an OCI artifact").flags(&[
        string("creds", ""),
        checked("provider", "generic", value::oci_provider),
        strings("tag", ""),
    ]),
];
