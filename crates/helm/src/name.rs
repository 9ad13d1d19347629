//! What a release may be called.

/// Longer names leave no room for what charts append to them.
const MAX_RELEASE_NAME: usize = 53;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("no name provided")]
    Missing,
    #[error(
        "invalid release name, must match regex ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$ and the length must not be longer than {MAX_RELEASE_NAME}"
    )]
    Invalid,
}

pub fn validate_release_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Missing);
    }
    if name.len() > MAX_RELEASE_NAME || !name.split('.').all(is_label) {
        return Err(NameError::Invalid);
    }
    Ok(())
}

fn is_label(label: &str) -> bool {
    let alphanumeric = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = label.as_bytes();
    alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels_with_dots() {
        for name in ["a", "a-b", "a.b", "0a", "x1-2.y"] {
            assert_eq!(validate_release_name(name), Ok(()), "{name}");
        }
        for name in ["A", "-a", "a-", "a..b", ".a", "a_b", &"a".repeat(54)] {
            assert_eq!(validate_release_name(name), Err(NameError::Invalid), "{name}");
        }
        assert_eq!(validate_release_name(""), Err(NameError::Missing));
    }
}
