//! The world as far as templates may ask about it: the time, chance, time zones, and names on the network.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Answers what sprig's impure functions ask. The caller decides; this crate reads no clock and no random source.
pub trait Host {
    fn now(&self) -> Timestamp;

    /// Fills the buffer with unpredictable bytes: keys, certificates and passwords are made of them.
    fn random(&self, buffer: &mut [u8]);

    /// The zone of `date`, `now` and `toDate`; Helm's `TZ`.
    fn local_zone(&self) -> TimeZone {
        TimeZone::UTC
    }

    /// A zone by its IANA name. The default knows those built into the program.
    fn zone(&self, name: &str) -> Option<TimeZone> {
        jiff::tz::TimeZoneDatabase::bundled().get(name).ok()
    }

    /// The addresses of a host name, for `getHostByName`. The default has no network.
    fn resolve(&self, name: &str) -> Vec<String> {
        let _ = name;
        Vec::new()
    }

    /// Whether to stop; asked every thousand steps.
    fn cancelled(&self) -> bool {
        false
    }
}
