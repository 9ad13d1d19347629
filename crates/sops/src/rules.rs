//! Which values of a file are encrypted.

use crate::regex::Pattern;

/// The one rule of a file. Suffixes and patterns look at every key on the way to a value, patterns for comments
/// at the comments before it and before what it is in.
pub(crate) enum Rules {
    UnencryptedSuffix(String),
    EncryptedSuffix(String),
    UnencryptedRegex(Pattern),
    EncryptedRegex(Pattern),
    UnencryptedCommentRegex(Pattern),
    EncryptedCommentRegex(Pattern),
}

/// What the rule found on the way to a value.
#[derive(Clone, Copy, Default)]
pub(crate) struct Matched {
    /// A key of the path.
    pub key: bool,
    /// A comment that counts for the value.
    pub comment: bool,
    /// The same without the comment that is itself looked at.
    pub earlier_comment: bool,
}

impl Rules {
    pub(crate) fn unencrypted_regex(pattern: String) -> Self {
        Self::UnencryptedRegex(Pattern::new(&pattern))
    }

    pub(crate) fn encrypted_regex(pattern: String) -> Self {
        Self::EncryptedRegex(Pattern::new(&pattern))
    }

    pub(crate) fn unencrypted_comment_regex(pattern: String) -> Self {
        Self::UnencryptedCommentRegex(Pattern::new(&pattern))
    }

    pub(crate) fn encrypted_comment_regex(pattern: String) -> Self {
        Self::EncryptedCommentRegex(Pattern::new(&pattern))
    }

    pub(crate) fn matches_key(&self, key: &[u8]) -> bool {
        match self {
            Self::UnencryptedSuffix(suffix) | Self::EncryptedSuffix(suffix) => {
                key.ends_with(suffix.as_bytes())
            }
            Self::UnencryptedRegex(pattern) | Self::EncryptedRegex(pattern) => pattern.is_match(key),
            Self::UnencryptedCommentRegex(_) | Self::EncryptedCommentRegex(_) => false,
        }
    }

    /// Comments are looked at as the file has them: an encrypted one in its encrypted form.
    pub(crate) fn matches_comment(&self, comment: &[u8]) -> bool {
        match self {
            Self::UnencryptedCommentRegex(pattern) | Self::EncryptedCommentRegex(pattern) => {
                pattern.is_match(comment)
            }
            Self::UnencryptedSuffix(_)
            | Self::EncryptedSuffix(_)
            | Self::UnencryptedRegex(_)
            | Self::EncryptedRegex(_) => false,
        }
    }

    pub(crate) fn is_encrypted(&self, matched: Matched, is_comment: bool) -> bool {
        match self {
            Self::UnencryptedSuffix(_) | Self::UnencryptedRegex(_) => !matched.key,
            Self::EncryptedSuffix(_) | Self::EncryptedRegex(_) => matched.key,
            Self::UnencryptedCommentRegex(_) => !matched.comment,
            // The comment that asks for encryption stays readable itself.
            Self::EncryptedCommentRegex(_) if is_comment => matched.earlier_comment,
            Self::EncryptedCommentRegex(_) => matched.comment,
        }
    }
}
