//! Values that must not be shown. A [`Secret`] has neither `Debug` nor `Display` nor `Serialize`: to print one, somebody has to write `expose`.
//!
//! ```compile_fail
//! println!("{:?}", flux_api::secret::SecretString::new("hunter2".to_owned()));
//! ```
//! ```compile_fail
//! println!("{}", flux_api::secret::SecretString::new("hunter2".to_owned()));
//! ```

/// Something that must not reach a log, an event or an error. Compared by nobody: use a constant-time comparison on what `expose` returns.
#[derive(Clone, Default)]
pub struct Secret<T>(T);

/// A secret text: a token, a password.
pub type SecretString = Secret<String>;

impl<T> Secret<T> {
    /// Hides `value`.
    pub const fn new(value: T) -> Self {
        Secret(value)
    }

    /// The value itself, for the one place that needs it.
    pub const fn expose(&self) -> &T {
        &self.0
    }

    /// The value, no longer hidden.
    pub fn into_exposed(self) -> T {
        self.0
    }

    /// Another secret made from this one.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Secret<U> {
        Secret(make(self.0))
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Secret(value)
    }
}
