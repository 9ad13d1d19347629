//! Shamir's secret sharing over the field of AES, as HashiCorp's library lays out its shares: the values of the
//! polynomials, one per byte, and the point in the last byte.

use crate::Error;

/// The secret of which `parts` are shares. All that are given are used, as sops does.
pub(crate) fn combine(parts: &[&[u8]]) -> Result<Vec<u8>, Error> {
    let [first, rest @ ..] = parts else { return Err(Error::Shamir("there are none")) };
    if rest.is_empty() {
        return Err(Error::Shamir("one part is not enough"));
    }
    if first.len() < 2 {
        return Err(Error::Shamir("a part is too short"));
    }
    if rest.iter().any(|part| part.len() != first.len()) {
        return Err(Error::Shamir("they differ in length"));
    }
    let length = first.len() - 1;
    let points: Vec<u8> = parts.iter().map(|part| part[length]).collect();
    if points.iter().enumerate().any(|(index, point)| points[..index].contains(point)) {
        return Err(Error::Shamir("two parts are the same"));
    }
    // The weight of each share at zero; the same for every byte.
    let weights: Vec<u8> = (0..points.len())
        .map(|i| {
            let others = (0..points.len()).filter(|j| *j != i);
            others.fold(1, |weight, j| multiply(weight, divide(points[j], points[i] ^ points[j])))
        })
        .collect();
    Ok((0..length)
        .map(|at| parts.iter().zip(&weights).fold(0, |sum, (part, weight)| sum ^ multiply(part[at], *weight)))
        .collect())
}

/// In the field of AES, without branches on the operands.
fn multiply(a: u8, b: u8) -> u8 {
    (0..8).rev().fold(0u8, |product, bit| {
        let doubled = (product << 1) ^ ((product >> 7).wrapping_neg() & 0x1b);
        doubled ^ ((b >> bit & 1).wrapping_neg() & a)
    })
}

fn divide(a: u8, b: u8) -> u8 {
    // The inverse is the 254th power.
    let inverse = (0..253).fold(b, |power, _| multiply(power, b));
    multiply(a, inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_undoes_multiplication() {
        for a in 0..=255 {
            for b in 1..=255 {
                assert_eq!(divide(multiply(a, b), b), a);
            }
        }
    }

    /// A line through (0, secret): share(x) = secret + x·slope.
    #[test]
    fn two_points_give_the_secret() {
        let share = |x: u8| vec![0x41 ^ multiply(x, 0x77), 0xfe ^ multiply(x, 0x03), x];
        let (one, three, five) = (share(1), share(3), share(5));
        assert_eq!(combine(&[&one, &three]), Ok(vec![0x41, 0xfe]));
        assert_eq!(combine(&[&five, &three, &one]), Ok(vec![0x41, 0xfe]));
    }

    #[test]
    fn misfits_are_refused() {
        assert!(combine(&[]).is_err());
        assert!(combine(&[&[1, 2]]).is_err());
        assert!(combine(&[&[1], &[2]]).is_err());
        assert!(combine(&[&[1, 2], &[1, 2, 3]]).is_err());
        assert!(combine(&[&[9, 2], &[1, 2]]).is_err());
    }
}
