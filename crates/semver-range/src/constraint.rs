//! Constraint expressions: `||` between groups, spaces or commas between the comparisons of a group.
//!
//! Masterminds decides whether a pre-release may match for each group: only when one of its comparisons names a pre-release.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::quote::go_quote;
use crate::scan::{Parts, is_constraint_segment, is_space, skip_spaces, version_prefix};
use crate::version::{Version, compare_prereleases};

const MAX_LEN: usize = 512;
const MAX_GROUPS: usize = 32;

/// A parsed expression such as `>=1.2 <2 || ~3.1`.
#[derive(Clone, Debug)]
pub struct Constraint {
    groups: Vec<Group>,
    include_prerelease: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    #[error("constraint string is too long (max {MAX_LEN} bytes)")]
    TooLong,
    #[error("too many constraint groups (max {MAX_GROUPS})")]
    TooManyGroups,
    #[error("improper constraint: {}", go_quote(.0))]
    Improper(String),
    /// The shape is right but a segment is not a number, or a pre-release is malformed.
    #[error("constraint parser error")]
    Version,
}

#[derive(Clone, Debug)]
struct Group {
    comparisons: Vec<Comparison>,
    names_prerelease: bool,
}

#[derive(Clone, Debug)]
struct Comparison {
    operator: Operator,
    /// As written, since `Display` gives `=>` and `~>` back.
    operator_text: &'static str,
    version: Version,
    /// The version as written, for messages: `4.x`.
    written: String,
    wildcard: Wildcard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

/// From which segment on a version is a wildcard, written or by omission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wildcard {
    None,
    Patch,
    Minor,
    Major,
}

impl Constraint {
    pub fn parse(text: &str) -> Result<Constraint, ConstraintError> {
        if text.len() > MAX_LEN {
            return Err(ConstraintError::TooLong);
        }
        let text = rewrite_ranges(text);
        let groups: Vec<&str> = text.split("||").collect();
        if groups.len() > MAX_GROUPS {
            return Err(ConstraintError::TooManyGroups);
        }
        let groups = groups.into_iter().map(Group::parse).collect::<Result<_, _>>()?;
        Ok(Constraint { groups, include_prerelease: false })
    }

    /// The same constraint, letting pre-releases match even where no comparison names one.
    pub fn including_prereleases(self) -> Constraint {
        Constraint { include_prerelease: true, ..self }
    }

    pub fn check(&self, version: &Version) -> bool {
        self.groups.iter().any(|group| {
            let allowed =
                self.include_prerelease || group.names_prerelease || version.prerelease().is_empty();
            allowed && group.comparisons.iter().all(|c| c.check(version).is_ok())
        })
    }

    /// `Ok` when the version satisfies the constraint, else every reason why it does not.
    pub fn validate(&self, version: &Version) -> Result<(), Vec<String>> {
        let mut reasons = Vec::new();
        let mut named_prerelease = false;
        for group in &self.groups {
            if !self.include_prerelease && !group.names_prerelease && !version.prerelease().is_empty() {
                if !named_prerelease {
                    reasons.push(format!(
                        "{} is a prerelease version and the constraint is only looking for release versions",
                        go_quote(&version.to_string())
                    ));
                    named_prerelease = true;
                }
                continue;
            }
            let before = reasons.len();
            reasons.extend(
                group.comparisons.iter().filter_map(|c| c.check(version).err()).map(|r| r.say(version)),
            );
            if reasons.len() == before {
                return Ok(());
            }
        }
        Err(reasons)
    }
}

impl FromStr for Constraint {
    type Err = ConstraintError;

    fn from_str(text: &str) -> Result<Constraint, ConstraintError> {
        Constraint::parse(text)
    }
}

/// Normalised: one space between comparisons, ` || ` between groups.
impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (g, group) in self.groups.iter().enumerate() {
            f.write_str(if g == 0 { "" } else { " || " })?;
            for (c, comparison) in group.comparisons.iter().enumerate() {
                f.write_str(if c == 0 { "" } else { " " })?;
                write!(f, "{}{}", comparison.operator_text, comparison.written)?;
            }
        }
        Ok(())
    }
}

impl Group {
    fn parse(text: &str) -> Result<Group, ConstraintError> {
        let shapes = comparisons(text).ok_or_else(|| ConstraintError::Improper(text.to_owned()))?;
        let comparisons = shapes.into_iter().map(Comparison::new).collect::<Result<Vec<_>, _>>()?;
        let names_prerelease = comparisons.iter().any(|c| !c.version.prerelease().is_empty());
        Ok(Group { comparisons, names_prerelease })
    }
}

struct Shape<'a> {
    operator: Operator,
    operator_text: &'static str,
    written: &'a str,
    parts: Parts<'a>,
}

/// `[spaces] op [spaces] version [spaces]`, with at least a space or one comma before each further one.
fn comparisons(text: &str) -> Option<Vec<Shape<'_>>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = skip_spaces(bytes, 0);
    loop {
        let (operator, operator_text) = operator_at(&text[at..]);
        let start = skip_spaces(bytes, at + operator_text.len());
        let parts = version_prefix(&text[start..], is_constraint_segment)?;
        let end = start + parts.len;
        found.push(Shape { operator, operator_text, written: &text[start..end], parts });
        let next = skip_spaces(bytes, end);
        match bytes.get(next) {
            None => return Some(found),
            Some(b',') => at = skip_spaces(bytes, next + 1),
            Some(_) if next > end => at = next,
            Some(_) => return None,
        }
    }
}

fn operator_at(text: &str) -> (Operator, &'static str) {
    const OPERATORS: [(Operator, &str); 11] = [
        (Operator::NotEqual, "!="),
        (Operator::GreaterOrEqual, ">="),
        (Operator::GreaterOrEqual, "=>"),
        (Operator::LessOrEqual, "<="),
        (Operator::LessOrEqual, "=<"),
        (Operator::Tilde, "~>"),
        (Operator::Greater, ">"),
        (Operator::Less, "<"),
        (Operator::Equal, "="),
        (Operator::Tilde, "~"),
        (Operator::Caret, "^"),
    ];
    OPERATORS.into_iter().find(|(_, symbol)| text.starts_with(symbol)).unwrap_or((Operator::Equal, ""))
}

/// `1.2 - 2.3` means `>= 1.2, <= 2.3`, wherever it stands. Masterminds rewrites the first occurrence of each match in the text
/// as rewritten so far, which shows when one range's text occurs inside another.
fn rewrite_ranges(text: &str) -> String {
    let mut out = text.to_owned();
    let mut at = 0;
    while at < text.len() {
        let Some((whole_end, low, high)) = range_at(text, at) else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        out = out.replacen(&text[at..whole_end], &format!(">= {low}, <= {high} "), 1);
        at = whole_end;
    }
    out
}

fn range_at(text: &str, at: usize) -> Option<(usize, &str, &str)> {
    let bytes = text.as_bytes();
    let version_at = |at: usize| version_prefix(&text[at..], is_constraint_segment).map(|p| at + p.len);
    let low_start = skip_spaces(bytes, at);
    let low_end = version_at(low_start)?;
    let dash = skip_spaces(bytes, low_end);
    if dash == low_end || bytes.get(dash) != Some(&b'-') || !bytes.get(dash + 1).is_some_and(|b| is_space(*b))
    {
        return None;
    }
    let high_start = skip_spaces(bytes, dash + 1);
    let high_end = version_at(high_start)?;
    Some((skip_spaces(bytes, high_end), &text[low_start..low_end], &text[high_start..high_end]))
}

impl Comparison {
    fn new(shape: Shape<'_>) -> Result<Comparison, ConstraintError> {
        let Parts { major, minor, patch, pre, .. } = shape.parts;
        let pre = if pre.is_empty() { String::new() } else { format!("-{pre}") };
        let (wildcard, spelled) = if is_wildcard(major) {
            (Wildcard::Major, format!("0.0.0{pre}"))
        } else if is_wildcard(minor) {
            (Wildcard::Minor, format!("{major}.0.0{pre}"))
        } else if is_wildcard(patch) {
            (Wildcard::Patch, format!("{major}.{minor}.0{pre}"))
        } else {
            (Wildcard::None, shape.written.to_owned())
        };
        let version = Version::parse(&spelled).map_err(|_| ConstraintError::Version)?;
        Ok(Comparison {
            operator: shape.operator,
            operator_text: shape.operator_text,
            version,
            written: shape.written.to_owned(),
            wildcard,
        })
    }

    fn check(&self, version: &Version) -> Result<(), Mismatch<'_>> {
        match self.operator {
            Operator::Equal => self.equal(version),
            Operator::NotEqual => self.not_equal(version),
            Operator::Greater => self.greater(version),
            Operator::Less => self.unless(*version >= self.version, Reason::GreaterOrEqual),
            Operator::GreaterOrEqual => self.unless(*version < self.version, Reason::Less),
            Operator::LessOrEqual => self.less_or_equal(version),
            Operator::Tilde => self.tilde(version),
            Operator::Caret => self.caret(version),
        }
    }

    fn equal(&self, v: &Version) -> Result<(), Mismatch<'_>> {
        if self.wildcard != Wildcard::None {
            return self.tilde(v);
        }
        self.unless(*v != self.version, Reason::NotEqual)
    }

    fn not_equal(&self, v: &Version) -> Result<(), Mismatch<'_>> {
        let c = &self.version;
        let same_minor = c.major() == v.major() && c.minor() == v.minor();
        let equal = match self.wildcard {
            Wildcard::Minor => c.major() == v.major(),
            Wildcard::Patch => {
                same_minor && compare_prereleases(v.prerelease(), c.prerelease()) == Ordering::Equal
            }
            // `!=*` is a comparison with 0.0.0 in Masterminds, not "matches nothing".
            Wildcard::Major | Wildcard::None => v == c,
        };
        self.unless(equal, Reason::Equal)
    }

    fn greater(&self, v: &Version) -> Result<(), Mismatch<'_>> {
        let c = &self.version;
        let greater = match self.wildcard {
            Wildcard::Minor => v.major() > c.major(),
            Wildcard::Patch => (v.major(), v.minor()) > (c.major(), c.minor()),
            Wildcard::Major => v.major() > c.major() || v > c,
            Wildcard::None => v > c,
        };
        self.unless(!greater, Reason::LessOrEqual)
    }

    fn less_or_equal(&self, v: &Version) -> Result<(), Mismatch<'_>> {
        let c = &self.version;
        let greater = match self.wildcard {
            Wildcard::None => v > c,
            Wildcard::Minor => v.major() > c.major(),
            // Masterminds does not look at the patch (nor the pre-release) of `<=*` and `<=1.2`.
            Wildcard::Major | Wildcard::Patch => (v.major(), v.minor()) > (c.major(), c.minor()),
        };
        self.unless(greater, Reason::Greater)
    }

    fn tilde(&self, v: &Version) -> Result<(), Mismatch<'_>> {
        let c = &self.version;
        self.unless(v < c, Reason::Less)?;
        let any = matches!(self.wildcard, Wildcard::None | Wildcard::Major);
        if any && (c.major(), c.minor(), c.patch()) == (0, 0, 0) {
            return Ok(());
        }
        self.unless(v.major() != c.major(), Reason::OtherMajor)?;
        self.unless(v.minor() != c.minor() && self.wildcard != Wildcard::Minor, Reason::OtherMajorMinor)
    }

    fn caret(&self, v: &Version) -> Result<(), Mismatch<'_>> {
        let c = &self.version;
        self.unless(v < c, Reason::Less)?;
        self.unless(v.major() != c.major(), Reason::OtherMajor)?;
        if c.major() > 0 || self.wildcard == Wildcard::Minor {
            return Ok(());
        }
        if c.minor() > 0 || self.wildcard == Wildcard::Patch {
            return self.unless(v.minor() != c.minor(), Reason::OtherMinorOfZero);
        }
        self.unless(v.minor() > 0, Reason::OtherMinor)?;
        // `^*` ends here too and so matches only 0.0.0.
        self.unless(v.patch() != c.patch(), Reason::OtherPatchOfZero)
    }

    fn unless(&self, fails: bool, reason: Reason) -> Result<(), Mismatch<'_>> {
        if fails { Err(Mismatch { reason, written: &self.written }) } else { Ok(()) }
    }
}

fn is_wildcard(segment: &str) -> bool {
    matches!(segment, "" | "x" | "X" | "*")
}

/// Why one comparison failed; put into words only when somebody asks, since `check` runs over thousands of tags.
struct Mismatch<'a> {
    reason: Reason,
    written: &'a str,
}

enum Reason {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    OtherMajor,
    OtherMajorMinor,
    OtherMinor,
    OtherMinorOfZero,
    OtherPatchOfZero,
}

impl Mismatch<'_> {
    fn say(&self, version: &Version) -> String {
        let (middle, end) = match self.reason {
            Reason::Equal => ("is equal to", ""),
            Reason::NotEqual => ("is not equal to", ""),
            Reason::Less => ("is less than", ""),
            Reason::LessOrEqual => ("is less than or equal to", ""),
            Reason::Greater => ("is greater than", ""),
            Reason::GreaterOrEqual => ("is greater than or equal to", ""),
            Reason::OtherMajor => ("does not have same major version as", ""),
            Reason::OtherMajorMinor => ("does not have same major and minor version as", ""),
            Reason::OtherMinor => ("does not have same minor version as", ""),
            Reason::OtherMinorOfZero => (
                "does not have same minor version as",
                ". Expected minor versions to match when constraint major version is 0",
            ),
            Reason::OtherPatchOfZero => (
                "does not equal",
                ". Expect version and constraint to equal when major and minor versions are 0",
            ),
        };
        format!("{} {middle} {}{end}", go_quote(&version.to_string()), go_quote(self.written))
    }
}
