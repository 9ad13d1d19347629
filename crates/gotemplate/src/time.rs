//! Go's `time.Time` and `time.Duration`.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Go's `time.Duration`: nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Duration(pub i64);

/// Go's `time.Time`: an instant and the zone it is shown in.
#[derive(Clone, Debug)]
pub struct Time {
    pub at: Timestamp,
    pub zone: TimeZone,
}

impl Time {
    /// As `encoding/json` writes it.
    pub fn rfc3339_nano(&self) -> String {
        self.at.to_zoned(self.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%.f%:z").to_string()
    }
}
