//! For whom the data key of a file was wrapped, with all that a client of the key service needs.

use std::collections::BTreeMap;
use std::fmt;

/// Keys of which any one gives the same part of the data key: all of it when the file has one group only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyGroup {
    pub recipients: Vec<Recipient>,
}

/// One wrapped data key, or one wrapped part of it.
///
/// Each `wrapped` is what sops stores under `enc`; its encoding is that of the key service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipient {
    Age {
        /// `age1…`, `ssh-ed25519 …` or `ssh-rsa …`.
        recipient: String,
        /// An armored age file.
        wrapped: String,
    },
    Pgp {
        fingerprint: String,
        /// An armored OpenPGP message.
        wrapped: String,
    },
    AwsKms {
        arn: String,
        /// A role to assume for the call; empty means none.
        role: String,
        context: BTreeMap<String, String>,
        profile: String,
        /// Base64 of the `CiphertextBlob`.
        wrapped: String,
    },
    GcpKms {
        /// `projects/…/locations/…/keyRings/…/cryptoKeys/…`
        resource_id: String,
        /// Base64 of the `ciphertext`.
        wrapped: String,
    },
    AzureKeyVault {
        vault_url: String,
        name: String,
        version: String,
        /// Base64 (URL alphabet, no padding) of the value of an `RSA-OAEP-256` encryption.
        wrapped: String,
    },
    /// The transit engine of HashiCorp Vault or OpenBao.
    Vault {
        address: String,
        engine_path: String,
        key_name: String,
        /// `vault:v1:…`, as the engine takes it.
        wrapped: String,
    },
    HuaweiKms {
        /// `region:key`
        key_id: String,
        wrapped: String,
    },
}

impl Recipient {
    /// The wrapped key itself, which tells one request to a key service from another.
    pub fn wrapped(&self) -> &str {
        match self {
            Self::Age { wrapped, .. }
            | Self::Pgp { wrapped, .. }
            | Self::AwsKms { wrapped, .. }
            | Self::GcpKms { wrapped, .. }
            | Self::AzureKeyVault { wrapped, .. }
            | Self::Vault { wrapped, .. }
            | Self::HuaweiKms { wrapped, .. } => wrapped,
        }
    }

    /// Whether a key service has to be asked; the others open with keys at hand.
    pub fn is_kept_by_a_service(&self) -> bool {
        self.rank() == 2
    }

    /// Keys at hand are tried before key services are asked, as sops does by default.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Age { .. } => 0,
            Self::Pgp { .. } => 1,
            Self::AwsKms { .. }
            | Self::GcpKms { .. }
            | Self::AzureKeyVault { .. }
            | Self::Vault { .. }
            | Self::HuaweiKms { .. } => 2,
        }
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Age { recipient, .. } => write!(f, "age {}", shortened(recipient)),
            Self::Pgp { fingerprint, .. } => write!(f, "PGP {fingerprint}"),
            Self::AwsKms { arn, .. } => write!(f, "AWS KMS {arn}"),
            Self::GcpKms { resource_id, .. } => write!(f, "GCP KMS {resource_id}"),
            Self::AzureKeyVault { vault_url, name, version, .. } => {
                write!(f, "Azure Key Vault {vault_url}/keys/{name}/{version}")
            }
            Self::Vault { address, engine_path, key_name, .. } => {
                write!(f, "Vault {address}/v1/{engine_path}/keys/{key_name}")
            }
            Self::HuaweiKms { key_id, .. } => write!(f, "Huawei Cloud KMS {key_id}"),
        }
    }
}

/// A name for people: post-quantum recipients have two thousand characters, RSA keys of SSH four hundred.
pub(crate) fn shortened(name: &str) -> String {
    const SHOWN: usize = 100;
    if name.len() <= SHOWN || !name.is_ascii() {
        return name.to_owned();
    }
    format!("{}…{}", &name[..24], &name[name.len() - 24..])
}
