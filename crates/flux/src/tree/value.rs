//! Values with rules of their own: closed sets, references to sources, key sizes, paths.

const PROVIDERS: &[&str] = &["generic", "aws", "azure", "gcp"];
const GIT_PROVIDERS: &[&str] = &["generic", "github", "aws", "azure"];
const VERIFY_PROVIDERS: &[&str] = &["cosign"];
const LOG_LEVELS: &[&str] = &["debug", "info", "error"];
const KEY_ALGORITHMS: &[&str] = &["rsa", "ecdsa", "ed25519"];
const CURVES: &[&str] = &["p256", "p384", "p521"];
const CRD_POLICIES: &[&str] = &["Skip", "Create", "CreateReplace"];
const DECRYPTION_PROVIDERS: &[&str] = &["sops"];
const KUSTOMIZATION_SOURCE_KINDS: &[&str] = &["OCIRepository", "GitRepository", "Bucket"];
const CHART_SOURCE_KINDS: &[&str] = &["HelmRepository", "GitRepository", "Bucket"];
const RECEIVER_TYPES: &[&str] = &[
    "generic",
    "generic-hmac",
    "github",
    "gitlab",
    "bitbucket",
    "harbor",
    "dockerhub",
    "quay",
    "gcr",
    "nexus",
    "acr",
    "cdevents",
];

type Checked = Result<String, String>;

/// One of `set`; `empty` is said when nothing is given, `unknown` when it is something else.
fn one_of(text: &str, set: &[&str], empty: impl Fn() -> String, unknown: impl Fn(&str) -> String) -> Checked {
    if text.trim().is_empty() {
        return Err(empty());
    }
    if set.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("{}, must be one of: {}", unknown(text), set.join(", ")))
}

pub(super) fn log_level(text: &str) -> Checked {
    let empty = || format!("no log level given, must be one of: {}", LOG_LEVELS.join(", "));
    one_of(text, LOG_LEVELS, empty, |text| format!("unsupported log level '{text}'"))
}

pub(super) fn key_algorithm(text: &str) -> Checked {
    let empty = || format!("no public key algorithm given, must be one of: {}", KEY_ALGORITHMS.join(", "));
    one_of(text, KEY_ALGORITHMS, empty, |text| format!("unsupported public key algorithm '{text}'"))
}

pub(super) fn ecdsa_curve(text: &str) -> Checked {
    if CURVES.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("unsupported curve '{text}', must be one of: {}", CURVES.join(", ")))
}

pub(super) fn rsa_bits(text: &str) -> Checked {
    if text.trim().is_empty() {
        return Ok("2048".to_owned());
    }
    let bits: i64 = text
        .parse()
        .map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", super::parse::quoted(text)))?;
    if bits < 1024 {
        return Err("RSA key bit size must be at least 1024".to_owned());
    }
    if bits % 8 != 0 {
        return Err("RSA key bit size must be a multiples of 8".to_owned());
    }
    Ok(bits.to_string())
}

pub(super) fn visibility(text: &str) -> Checked {
    if text.trim().is_empty() {
        return Ok("private".to_owned());
    }
    if matches!(text, "public" | "internal" | "private") {
        return Ok(text.to_owned());
    }
    Err(format!("unsupported visibility '{text}'"))
}

pub(super) fn crds(text: &str) -> Checked {
    let empty = || format!("no upgrade CRDs policy given, must be one of: {}", CRD_POLICIES.join(", "));
    one_of(text, CRD_POLICIES, empty, |text| format!("unsupported upgrade CRDs policy '{text}'"))
}

pub(super) fn decryption_provider(text: &str) -> Checked {
    let empty =
        || format!("no decryption provider given, must be one of: {}", DECRYPTION_PROVIDERS.join(", "));
    one_of(text, DECRYPTION_PROVIDERS, empty, |text| format!("unsupported decryption provider '{text}'"))
}

pub(super) fn verify_provider(text: &str) -> Checked {
    let empty = || {
        "no source OCI verify provider given, please specify the OCI verify provider name to use for signature verification, \
         available options are: (cosign)"
            .to_owned()
    };
    one_of(text, VERIFY_PROVIDERS, empty, |text| {
        format!("source OCI verify provider '{text}' is not supported")
    })
}

pub(super) fn bucket_provider(text: &str) -> Checked {
    let empty = || {
        "no source bucket provider given, please specify the S3 compatible storage provider name".to_owned()
    };
    one_of(text, PROVIDERS, empty, |text| format!("source bucket provider '{text}' is not supported"))
}

pub(super) fn oci_provider(text: &str) -> Checked {
    let empty = || "no source OCI provider given, please specify the OCI provider name".to_owned();
    one_of(text, PROVIDERS, empty, |text| format!("source OCI provider '{text}' is not supported"))
}

pub(super) fn git_provider(text: &str) -> Checked {
    let empty = || "no source Git provider given, please specify the Git provider name".to_owned();
    // The one list that upstream writes with bars.
    one_of(text, GIT_PROVIDERS, empty, |text| format!("source Git provider '{text}' is not supported"))
        .map_err(|problem| problem.replace(&GIT_PROVIDERS.join(", "), &GIT_PROVIDERS.join("|")))
}

pub(super) fn receiver_type(text: &str) -> Checked {
    let empty = || "no receiver type given, please specify the receiver type".to_owned();
    one_of(text, RECEIVER_TYPES, empty, |text| format!("receiver type '{text}' is not supported"))
}

/// `Kind/name.namespace` in its parts; kind and namespace may be empty.
pub(crate) fn kind_name_namespace(text: &str) -> (String, String, String) {
    let (kind, rest) = text.split_once('/').unwrap_or(("", text));
    let (name, namespace) = rest.rsplit_once('.').unwrap_or((rest, ""));
    (kind.to_owned(), name.to_owned(), namespace.to_owned())
}

/// The spelling of a kind in `set`, whatever case it is written in.
fn canonical_kind(kind: &str, set: &[&'static str]) -> Result<&'static str, String> {
    set.iter()
        .find(|known| known.eq_ignore_ascii_case(kind))
        .copied()
        .ok_or_else(|| format!("source kind '{kind}' is not supported, must be one of: {}", set.join(", ")))
}

fn reference(kind: &str, name: &str, namespace: &str) -> String {
    let namespace = if namespace.is_empty() { String::new() } else { format!(".{namespace}") };
    format!("{kind}/{name}{namespace}")
}

pub(super) fn kustomization_source(text: &str) -> Checked {
    let kinds = KUSTOMIZATION_SOURCE_KINDS;
    if text.trim().is_empty() {
        return Err(format!(
            "no Kustomization source given, please specify source that contains the Kubernetes manifests in the format \
             '[<kind>/]<name>.<namespace>', where kind must be one of: ({}), if kind is not specified it defaults to GitRepository",
            kinds.join(", ")
        ));
    }
    let (kind, name, namespace) = kind_name_namespace(text);
    if name.is_empty() {
        return Err(format!("no name given for source of kind '{kind}'"));
    }
    if kind.is_empty() {
        if kinds.contains(&name.as_str()) {
            return Err(format!("no kind specified for source '{name}'"));
        }
        return Ok(reference("GitRepository", &name, &namespace));
    }
    canonical_kind(&kind, kinds).map(|kind| reference(kind, &name, &namespace))
}

fn source_of_chart(text: &str, form: &str) -> Checked {
    if text.trim().is_empty() {
        return Err(format!(
            "no helm chart source given, please specify source that contains the chart in the format '{form}', where kind must be \
             one of: ({})",
            CHART_SOURCE_KINDS.join(", ")
        ));
    }
    let (kind, name, namespace) = kind_name_namespace(text);
    if kind.is_empty() || name.is_empty() {
        return Err(format!("invalid helm chart source '{text}', must be in format <kind>/<name>"));
    }
    canonical_kind(&kind, CHART_SOURCE_KINDS).map(|kind| reference(kind, &name, &namespace))
}

pub(super) fn release_source(text: &str) -> Checked {
    source_of_chart(text, "<kind>/<name>.<namespace>")
}

pub(super) fn chart_source(text: &str) -> Checked {
    source_of_chart(text, "<kind>/<name>")
}

/// A path below the root of a repository: `../x` and `/x` both become `./x`.
pub(super) fn safe_path(text: &str) -> Checked {
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Ok(format!("./{}", parts.join("/")))
}
