//! Version constraints with the semantics of Masterminds/semver.
