//! The `sops` entry of a file: wrapped keys, rules, MAC.
//!
//! sops reads it with weak typing (a number for a text, a mapping for a list of one) and regardless of case, and
//! people's formatters rely on that; so does this. Unknown fields are ignored.

use std::collections::BTreeMap;

use ::yaml::resolve::Timestamp;

use crate::rules::Rules;
use crate::tree::{Branch, Item, Value, decimal};
use crate::{Error, KeyGroup, Recipient, time};

/// More keys than anybody wraps for; each costs a public-key operation.
const MAX_RECIPIENTS: usize = 1024;
const DEFAULT_UNENCRYPTED_SUFFIX: &str = "_unencrypted";

pub(crate) struct Metadata {
    pub groups: Vec<KeyGroup>,
    /// How many groups are needed.
    pub threshold: usize,
    pub rules: Rules,
    pub mac_only_encrypted: bool,
    /// Encrypted; empty when there is none.
    pub mac: Vec<u8>,
    pub last_modified: Timestamp,
    pub version: String,
}

impl Metadata {
    pub(crate) fn from_branch(branch: &Branch) -> Result<Self, Error> {
        let fields = Fields { branch, path: String::new() };
        let last_modified = fields.time("lastmodified")?;
        let groups = groups(&fields)?;
        if groups.iter().map(|group| group.recipients.len()).sum::<usize>() > MAX_RECIPIENTS {
            return Err(fields.problem("key_groups", format!("more than {MAX_RECIPIENTS} keys")));
        }
        let given = fields.int("shamir_threshold")?;
        // Without a threshold sops takes what it gets, and two parts are the least that combine.
        let threshold = if groups.len() == 1 { 1 } else { usize::try_from(given).unwrap_or(0).max(2) };
        Ok(Self {
            groups,
            threshold,
            rules: rules(&fields)?,
            mac_only_encrypted: fields.bool("mac_only_encrypted")?,
            mac: fields.text("mac")?.into_bytes(),
            last_modified,
            version: fields.text("version")?,
        })
    }
}

fn groups(fields: &Fields<'_>) -> Result<Vec<KeyGroup>, Error> {
    let group = group(fields)?;
    if !group.recipients.is_empty() {
        return Ok(vec![group]);
    }
    let groups = fields.each("key_groups", self::group)?;
    if groups.is_empty() {
        return Err(fields.problem("key_groups", "no keys found in the file"));
    }
    Ok(groups)
}

fn group(fields: &Fields<'_>) -> Result<KeyGroup, Error> {
    let mut recipients = fields.each("kms", |key| {
        key.time("created_at")?;
        Ok(Recipient::AwsKms {
            arn: key.text("arn")?,
            role: key.text("role")?,
            context: key.texts("context")?,
            profile: key.text("aws_profile")?,
            wrapped: key.text("enc")?,
        })
    })?;
    recipients.extend(fields.each("gcp_kms", |key| {
        key.time("created_at")?;
        Ok(Recipient::GcpKms { resource_id: key.text("resource_id")?, wrapped: key.text("enc")? })
    })?);
    recipients.extend(fields.each("hckms", |key| {
        key.time("created_at")?;
        Ok(Recipient::HuaweiKms { key_id: key.text("key_id")?, wrapped: key.text("enc")? })
    })?);
    recipients.extend(fields.each("azure_kv", |key| {
        key.time("created_at")?;
        Ok(Recipient::AzureKeyVault {
            vault_url: key.text("vault_url")?,
            name: key.text("name")?,
            version: key.text("version")?,
            wrapped: key.text("enc")?,
        })
    })?);
    recipients.extend(fields.each("hc_vault", |key| {
        key.time("created_at")?;
        Ok(Recipient::Vault {
            address: key.text("vault_address")?,
            engine_path: key.text("engine_path")?,
            key_name: key.text("key_name")?,
            wrapped: key.text("enc")?,
        })
    })?);
    recipients.extend(fields.each("pgp", |key| {
        key.time("created_at")?;
        Ok(Recipient::Pgp { fingerprint: key.text("fp")?, wrapped: key.text("enc")? })
    })?);
    recipients.extend(fields.each("age", |key| {
        Ok(Recipient::Age { recipient: key.text("recipient")?, wrapped: key.text("enc")? })
    })?);
    Ok(KeyGroup { recipients })
}

fn rules(fields: &Fields<'_>) -> Result<Rules, Error> {
    type Make = fn(String) -> Rules;
    let known: [(&str, Make); 6] = [
        ("unencrypted_suffix", Rules::UnencryptedSuffix),
        ("encrypted_suffix", Rules::EncryptedSuffix),
        ("unencrypted_regex", Rules::unencrypted_regex),
        ("encrypted_regex", Rules::encrypted_regex),
        ("unencrypted_comment_regex", Rules::unencrypted_comment_regex),
        ("encrypted_comment_regex", Rules::encrypted_comment_regex),
    ];
    let mut found = None;
    for (name, make) in known {
        let text = fields.text(name)?;
        if text.is_empty() {
            continue;
        }
        if found.replace(make(text)).is_some() {
            return Err(fields.problem(name, "only one rule (suffix or regex) may be given in a file"));
        }
    }
    Ok(found.unwrap_or_else(|| Rules::UnencryptedSuffix(DEFAULT_UNENCRYPTED_SUFFIX.to_owned())))
}

/// A mapping of the metadata and where it stands.
struct Fields<'a> {
    branch: &'a [Item],
    path: String,
}

impl<'a> Fields<'a> {
    /// The value of a field; of several with one name the last counts, and one of exactly this case wins.
    fn get(&self, name: &str) -> Option<&'a Value> {
        let entries = || {
            self.branch.iter().rev().filter_map(|item| match item {
                Item::Entry(key, value) => Some((key, value)),
                Item::Comment(_) => None,
            })
        };
        entries()
            .find(|(key, _)| *key == name.as_bytes())
            .or_else(|| entries().find(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes())))
            .map(|(_, value)| value)
    }

    fn problem(&self, name: &str, problem: impl Into<String>) -> Error {
        Error::Metadata { field: format!("{}{name}", self.path), problem: problem.into() }
    }

    fn mistyped(&self, name: &str, value: &Value, wanted: &str) -> Error {
        self.problem(name, format!("{} where {wanted} is expected", value.kind()))
    }

    fn text(&self, name: &str) -> Result<String, Error> {
        self.get(name).map_or_else(|| Ok(String::new()), |value| self.as_text(name, value))
    }

    fn as_text(&self, name: &str, value: &Value) -> Result<String, Error> {
        Ok(match value {
            Value::Null => String::new(),
            Value::Str(text) => {
                String::from_utf8(text.clone()).map_err(|_| self.problem(name, "not UTF-8"))?
            }
            Value::Int(number) => number.to_string(),
            Value::Float(number) => decimal(*number),
            Value::Bool(flag) => u8::from(*flag).to_string(),
            Value::Time(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) | Value::Comment(_) => {
                return Err(self.mistyped(name, value, "a string"));
            }
        })
    }

    fn int(&self, name: &str) -> Result<i64, Error> {
        let Some(value) = self.get(name) else { return Ok(0) };
        match value {
            Value::Null => Ok(0),
            Value::Int(number) => Ok(*number),
            Value::Bool(flag) => Ok(i64::from(*flag)),
            #[expect(clippy::cast_possible_truncation, reason = "a cast in sops, too; it saturates")]
            Value::Float(number) => Ok(*number as i64),
            Value::Str(text) if text.is_empty() => Ok(0),
            Value::Str(text) => std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| self.problem(name, "not a number")),
            _ => Err(self.mistyped(name, value, "a number")),
        }
    }

    fn bool(&self, name: &str) -> Result<bool, Error> {
        let Some(value) = self.get(name) else { return Ok(false) };
        match value {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            Value::Int(number) => Ok(*number != 0),
            Value::Float(number) => Ok(*number != 0.0),
            Value::Str(text) if text.is_empty() => Ok(false),
            Value::Str(text) => {
                crate::cipher::parse_bool(text).ok_or_else(|| self.problem(name, "not a boolean"))
            }
            _ => Err(self.mistyped(name, value, "a boolean")),
        }
    }

    fn time(&self, name: &str) -> Result<Timestamp, Error> {
        time::parse(&self.text(name)?)
            .ok_or_else(|| self.problem(name, "missing, or not a time like 2006-01-02T15:04:05Z"))
    }

    /// A mapping of texts: the context of AWS KMS.
    fn texts(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(BTreeMap::new()),
            Some(Value::Map(branch)) => branch
                .iter()
                .filter_map(|item| match item {
                    Item::Entry(key, value) => Some((key, value)),
                    Item::Comment(_) => None,
                })
                .map(|(key, value)| {
                    Ok((String::from_utf8_lossy(key).into_owned(), self.as_text(name, value)?))
                })
                .collect(),
            Some(value) => Err(self.mistyped(name, value, "a mapping")),
        }
    }

    /// What `read` makes of each mapping of a list.
    fn each<T>(&self, name: &str, read: impl Fn(&Fields<'_>) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let read_at = |index: usize, branch: &[Item]| {
            read(&Fields { branch, path: format!("{}{name}[{index}].", self.path) })
        };
        match self.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Map(branch)) if branch.is_empty() => Ok(Vec::new()),
            Some(Value::Map(branch)) => Ok(vec![read_at(0, branch)?]),
            Some(Value::List(items)) => items
                .iter()
                .filter(|item| !matches!(item, Value::Comment(_)))
                .enumerate()
                .map(|(index, item)| match item {
                    Value::Map(branch) => read_at(index, branch),
                    Value::Null => read_at(index, &[]),
                    _ => Err(self.mistyped(&format!("{name}[{index}]"), item, "a mapping")),
                })
                .collect(),
            Some(value) => Err(self.mistyped(name, value, "a list")),
        }
    }
}
