//! Decimal arithmetic as shopspring/decimal does it, for `addf` and its kin: 0.1 plus 0.2 is 0.3.

use num_bigint::{BigInt, Sign};

use crate::context::Failure;

/// Digits after the point of a quotient.
const DIVISION_DIGITS: i64 = 16;
/// Beyond this the digits of a product would fill memory; a float64 has no use for them.
const MAX_EXPONENT: i64 = 20_000;

/// `coefficient` × 10^`exponent`
pub struct Decimal {
    coefficient: BigInt,
    exponent: i64,
}

impl Decimal {
    /// The shortest decimal that reads back as the float.
    pub fn from_float(value: f64) -> Result<Self, Failure> {
        if !value.is_finite() {
            let shown = crate::strconv::format_float(value, b'g', -1);
            return Err(Failure::new(format!("Cannot create a Decimal from {shown}")));
        }
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i64);
        let exponent: i64 = exponent.parse().unwrap_or(0);
        let coefficient = mantissa.replace('.', "").parse().unwrap_or_default();
        Ok(Self { coefficient, exponent: exponent - decimals })
    }

    pub fn to_float(&self) -> f64 {
        format!("{}e{}", self.coefficient, self.exponent).parse().unwrap_or(0.0)
    }

    pub fn add(&self, other: &Self) -> Result<Self, Failure> {
        let (a, b, exponent) = aligned(self, other);
        Self { coefficient: a + b, exponent }.checked()
    }

    pub fn sub(&self, other: &Self) -> Result<Self, Failure> {
        let (a, b, exponent) = aligned(self, other);
        Self { coefficient: a - b, exponent }.checked()
    }

    pub fn mul(&self, other: &Self) -> Result<Self, Failure> {
        let coefficient = &self.coefficient * &other.coefficient;
        Self { coefficient, exponent: self.exponent + other.exponent }.checked()
    }

    /// Rounded to 16 digits after the point, halves away from zero.
    pub fn div(&self, other: &Self) -> Result<Self, Failure> {
        if other.coefficient.sign() == Sign::NoSign {
            return Err(Failure::new("decimal division by 0"));
        }
        let shift = self.exponent - other.exponent + DIVISION_DIGITS;
        let (numerator, denominator) = match u32::try_from(shift) {
            Ok(shift) => (&self.coefficient * BigInt::from(10).pow(shift), other.coefficient.clone()),
            Err(_) => {
                let shift = u32::try_from(-shift).unwrap_or(u32::MAX);
                (self.coefficient.clone(), &other.coefficient * BigInt::from(10).pow(shift))
            }
        };
        let mut quotient = &numerator / &denominator;
        let rest = &numerator % &denominator;
        if rest.magnitude() * 2u32 >= *denominator.magnitude() {
            let negative = (numerator.sign() == Sign::Minus) != (denominator.sign() == Sign::Minus);
            quotient += if negative { -1 } else { 1 };
        }
        Self { coefficient: quotient, exponent: -DIVISION_DIGITS }.checked()
    }

    fn checked(self) -> Result<Self, Failure> {
        let digits = self.coefficient.bits() as i64 / 3;
        if self.exponent.abs() > MAX_EXPONENT || digits > MAX_EXPONENT {
            return Err(Failure::new("decimal out of range"));
        }
        Ok(self)
    }
}

/// Both coefficients at the smaller exponent.
fn aligned(a: &Decimal, b: &Decimal) -> (BigInt, BigInt, i64) {
    let exponent = a.exponent.min(b.exponent);
    let at = |decimal: &Decimal| {
        let shift = u32::try_from(decimal.exponent - exponent).expect("the smaller exponent is not larger");
        &decimal.coefficient * BigInt::from(10).pow(shift)
    };
    (at(a), at(b), exponent)
}
