//! The order go-yaml writes the keys of a map in: letters after everything else, digits by their number.

use std::cmp::Ordering;

use crate::Dialect;

/// How go-yaml orders two string keys.
pub fn key_order(a: &str, b: &str, dialect: Dialect) -> Ordering {
    if a == b {
        Ordering::Equal
    } else if less(a, b, dialect) {
        Ordering::Less
    } else {
        Ordering::Greater
    }
}

/// Sorts by `key_order`. A merge sort of its own: Go's order is not transitive for some odd keys, and the
/// standard library may panic on such an order.
pub fn sort_keys<T>(items: &mut Vec<T>, key: impl Fn(&T) -> &str + Copy, dialect: Dialect) {
    let in_order = items.is_sorted_by(|a, b| !less(key(b), key(a), dialect));
    if !in_order {
        *items = merge_sorted(std::mem::take(items), key, dialect);
    }
}

fn merge_sorted<T>(mut items: Vec<T>, key: impl Fn(&T) -> &str + Copy, dialect: Dialect) -> Vec<T> {
    if items.len() < 2 {
        return items;
    }
    let right = merge_sorted(items.split_off(items.len() / 2), key, dialect);
    let left = merge_sorted(items, key, dialect);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let next = if less(key(b), key(a), dialect) { right.next() } else { left.next() };
        merged.extend(next);
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

fn less(a: &str, b: &str, dialect: Dialect) -> bool {
    let common = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    // The first difference may stand inside a character.
    let mut at = common;
    while !a.is_char_boundary(at) || !b.is_char_boundary(at) {
        at -= 1;
    }
    match (a[at..].chars().next(), b[at..].chars().next()) {
        (Some(left), Some(right)) => less_at(a, b, at, left, right, dialect),
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

/// `a` and `b` are the same up to `at`, where they have `left` and `right`.
fn less_at(a: &str, b: &str, at: usize, left: char, right: char, dialect: Dialect) -> bool {
    match (is_letter(left), is_letter(right)) {
        (true, true) => return left < right,
        (false, false) => {}
        (left_letter, right_letter) => {
            // v3 puts a number that ends before one that goes on: `a1` and `a1b` around `a1.`.
            let after_digit = a[..at].chars().next_back().is_some_and(is_digit);
            return if after_digit && dialect == Dialect::V3 { left_letter } else { right_letter };
        }
    }
    let mut lead = 0i64;
    if left == '0' || right == '0' {
        let digits_before = a[..at].chars().rev().take_while(|c| is_digit(*c));
        lead = i64::from(digits_before.into_iter().any(|c| c != '0'));
    }
    let (left_number, left_digits) = number_at(&a[at..], lead);
    let (right_number, right_digits) = number_at(&b[at..], lead);
    if left_number != right_number {
        return left_number < right_number;
    }
    if left_digits != right_digits {
        return left_digits < right_digits;
    }
    left < right
}

fn number_at(text: &str, lead: i64) -> (i64, usize) {
    text.chars().take_while(|c| is_digit(*c)).fold((lead, 0), |(number, count), digit| {
        let value = i64::from(u32::from(digit)) - i64::from(u32::from('0'));
        (number.wrapping_mul(10).wrapping_add(value), count + 1)
    })
}

fn is_letter(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphabetic() } else { c.is_alphabetic() }
}

fn is_digit(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_digit() } else { c.is_numeric() && !c.is_alphabetic() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(keys: &[&'static str], dialect: Dialect) -> Vec<&'static str> {
        let mut keys = keys.to_vec();
        sort_keys(&mut keys, |key| key, dialect);
        keys
    }

    #[test]
    fn numbers_inside_keys_count() {
        assert_eq!(sorted(&["a10", "a9", "a1"], Dialect::V2), ["a1", "a9", "a10"]);
        assert_eq!(sorted(&["b", "a", "B", "_", "1"], Dialect::V2), ["_", "1", "B", "a", "b"]);
        assert_eq!(sorted(&["a01", "a1", "a001"], Dialect::V2), ["a1", "a01", "a001"]);
    }
}
