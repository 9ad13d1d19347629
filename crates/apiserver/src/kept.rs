//! What is made from the store once and kept until it is to be forgotten.

use std::sync::{Arc, PoisonError, RwLock};

/// The number counts how often it was forgotten: what was read before that must not be kept after it.
#[derive(Debug)]
pub struct Kept<T>(RwLock<(u64, Option<Arc<T>>)>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(RwLock::new((0, None)))
    }
}

impl<T> Kept<T> {
    pub fn get(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let forgotten = {
            let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = &kept.1 {
                return known.clone();
            }
            kept.0
        };
        // Made without the lock: it reads the store, whose writers come here to forget.
        let made = Arc::new(make());
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if kept.0 == forgotten {
            kept.1 = Some(made.clone());
        }
        made
    }

    pub fn forget(&self) {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *kept = (kept.0 + 1, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let kept = Kept::default();
        let stale = kept.get(|| {
            kept.forget();
            1
        });
        assert_eq!((*stale, *kept.get(|| 2)), (1, 2));
        assert_eq!(*kept.get(|| 3), 2, "until it is forgotten");
        kept.forget();
        assert_eq!(*kept.get(|| 4), 4);
    }
}
