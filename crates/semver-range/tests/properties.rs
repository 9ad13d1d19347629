//! Laws that hold for every version and every string.

use proptest::prelude::*;
use semver_range::{Constraint, Version};

fn version() -> impl Strategy<Value = String> {
    let number = prop_oneof![0..4_u64, any::<u64>()];
    let pre =
        prop_oneof![3 => Just(String::new()), 1 => "-(0|[1-9][0-9]?|[a-z]{1,2})(\\.(0|[1-9]|[a-z-]{1,3}))?"];
    (number.clone(), number.clone(), number, pre).prop_map(|(a, b, c, pre)| format!("{a}.{b}.{c}{pre}"))
}

proptest! {
    #[test]
    fn no_string_panics(text in "[ ,|<>=!~^v0-9xX*.+a-c-]{0,40}|\\PC{0,20}", v in version()) {
        let parsed = Version::parse(&text);
        let _ = Version::strict(&text);
        if let Ok(constraint) = Constraint::parse(&text) {
            let v = Version::parse(&v).unwrap();
            prop_assert_eq!(constraint.check(&v), constraint.validate(&v).is_ok());
            let again = Constraint::parse(&constraint.to_string()).unwrap();
            prop_assert_eq!(again.check(&v), constraint.check(&v));
            if let Ok(parsed) = parsed {
                let _ = constraint.check(&parsed);
            }
        }
    }

    #[test]
    fn a_strict_version_is_its_own_spelling(v in version()) {
        prop_assert_eq!(Version::strict(&v).unwrap().to_string(), v.clone());
        prop_assert_eq!(Version::parse(&v).unwrap(), Version::strict(&v).unwrap());
    }

    #[test]
    fn order_is_antisymmetric_and_transitive(a in version(), b in version(), c in version()) {
        let [a, b, c] = [a, b, c].map(|v| Version::parse(&v).unwrap());
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
    }

    #[test]
    fn a_comparison_and_its_opposite_exclude_each_other(a in version(), b in version()) {
        let v = Version::parse(&b).unwrap();
        let check = |op: &str| Constraint::parse(&format!("{op}{a}")).unwrap().including_prereleases().check(&v);
        prop_assert_ne!(check("="), check("!="));
        prop_assert_ne!(check(">"), check("<="));
        prop_assert_ne!(check("<"), check(">="));
    }

    #[test]
    fn caret_and_tilde_never_reach_the_next_major(a in version()) {
        let v = Version::parse(&a).unwrap();
        let caret = Constraint::parse(&format!("^{a}")).unwrap();
        prop_assert!(caret.check(&v));
        if let Some(next) = v.next_major() {
            prop_assert!(!caret.check(&next));
        }
    }
}
