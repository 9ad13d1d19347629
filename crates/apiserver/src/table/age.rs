//! How long ago, as kubectl says it: `12s`, `5m3s`, `2d4h`, `3y12d`.

use jiff::Timestamp;
use serde_json::Value;

use crate::object;

pub fn of_object(object: &Value, now: Timestamp) -> String {
    since(object::meta_str(object, "creationTimestamp"), now)
}

/// The time since then; `<unknown>` when it is no time.
pub fn since(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(then) => duration(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".into(),
    }
}

/// Two units at most, fewer as it grows.
pub fn duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".into();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let with = |large: i64, unit: &str, rest: i64, small: &str| match rest {
        0 => format!("{large}{unit}"),
        rest => format!("{large}{unit}{rest}{small}"),
    };
    match () {
        () if seconds < 0 => "0s".into(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => with(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => with(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => with(hours / 24, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        () if hours < 24 * 365 * 8 => with(hours / 24 / 365, "y", (hours / 24) % 365, "d"),
        () => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (303, "5m3s"),
            (600, "10m"),
            (10799, "179m"),
            (10800, "3h"),
            (11100, "3h5m"),
            (28800, "8h"),
            (172800, "2d"),
            (187200, "2d4h"),
            (700000, "8d"),
            (63072000, "2y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(super::duration(seconds), expected);
        }
    }
}
