//! Go's `time.Time` and `time.Duration`: their text forms, layouts and methods. The clock itself is the host's.

mod duration;
mod format;
mod layout;
mod method;
mod parse;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

pub use duration::Duration;
pub(crate) use method::{Named as CalendarName, call_duration, call_time, duration_method, time_method};
pub use parse::ParseError;

/// The zone a time is shown in.
#[derive(Clone, Debug)]
pub enum Zone {
    Utc,
    /// The host's own zone, which Go calls Local.
    Local(TimeZone),
    /// A zone by its IANA name.
    Named(String, TimeZone),
    /// An offset in seconds, with the abbreviation it was written with, if any.
    Fixed(String, i32),
}

impl Zone {
    /// Abbreviation and offset at an instant. An empty abbreviation prints as the offset.
    fn at(&self, at: Timestamp) -> (String, i32) {
        match self {
            Self::Utc => ("UTC".to_owned(), 0),
            Self::Local(zone) | Self::Named(_, zone) => {
                let info = zone.to_offset_info(at);
                (info.abbreviation().to_owned(), info.offset().seconds())
            }
            Self::Fixed(name, offset) => (name.clone(), *offset),
        }
    }
}

/// Go's `time.Time`: an instant and the zone it is shown in.
#[derive(Clone, Debug)]
pub struct Time {
    pub at: Timestamp,
    pub zone: Zone,
}

impl Time {
    /// Go's zero time: the first of January of the year 1.
    pub fn zero() -> Self {
        Self { at: Timestamp::from_second(-62_135_596_800).unwrap_or(Timestamp::MIN), zone: Zone::Utc }
    }

    pub fn utc(at: Timestamp) -> Self {
        Self { at, zone: Zone::Utc }
    }

    /// Seconds since 1970, saturating at the years this crate can show (-9999 to 9999).
    pub fn from_unix(seconds: i64, zone: Zone) -> Self {
        let edge = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Self { at: Timestamp::from_second(seconds).unwrap_or(edge), zone }
    }

    pub fn in_zone(&self, zone: Zone) -> Self {
        Self { at: self.at, zone }
    }

    /// This time plus a duration, saturating.
    pub fn add(&self, duration: Duration) -> Self {
        let nanoseconds = self.at.as_nanosecond() + i128::from(duration.0);
        let edge = if duration.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Self { at: Timestamp::from_nanosecond(nanoseconds).unwrap_or(edge), zone: self.zone.clone() }
    }

    /// How long after `earlier` this is, saturating.
    pub fn since(&self, earlier: &Time) -> Duration {
        let nanoseconds = self.at.as_nanosecond() - earlier.at.as_nanosecond();
        Duration(i64::try_from(nanoseconds).unwrap_or(if nanoseconds < 0 { i64::MIN } else { i64::MAX }))
    }

    /// As `encoding/json` writes it.
    pub fn rfc3339_nano(&self) -> String {
        self.format("2006-01-02T15:04:05.999999999Z07:00")
    }

    /// As Go prints it.
    pub(crate) fn string(&self) -> String {
        self.format("2006-01-02 15:04:05.999999999 -0700 MST")
    }

    /// As `%#v` prints it.
    pub(crate) fn go_string(&self) -> String {
        let civil = self.civil();
        let zone = match &self.zone {
            Zone::Utc => "time.UTC".to_owned(),
            Zone::Local(_) => "time.Local".to_owned(),
            Zone::Named(name, _) | Zone::Fixed(name, _) => format!("time.Location(\"{name}\")"),
        };
        format!(
            "time.Date({}, time.{}, {}, {}, {}, {}, {}, {zone})",
            civil.year(),
            layout::MONTHS[civil.month() as usize - 1],
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second(),
            civil.subsec_nanosecond(),
        )
    }

    /// Go's `==` on times: the instant and the zone.
    pub(crate) fn identical(&self, other: &Time) -> bool {
        self.at == other.at && self.zone.at(self.at) == other.zone.at(other.at)
    }

    pub(crate) fn civil(&self) -> DateTime {
        let offset = Offset::from_seconds(self.zone.at(self.at).1).unwrap_or(Offset::UTC);
        offset.to_datetime(self.at)
    }
}
