//! Tokens of GitHub Apps for Providers whose Secret names one instead of a token, kept until shortly before they end.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use flux_api::secret::SecretString;
use flux_remote::git::github_app::{AppData, GithubApp};

use super::provider::Settings;

const ID: &str = "githubAppID";
const KEPT: usize = 256;
const SPARE: Duration = Duration::from_secs(300);

/// Tokens by everything that they were asked for with.
#[derive(Default)]
pub struct AppTokens(Mutex<HashMap<String, (SecretString, SystemTime)>>);

impl AppTokens {
    /// Gives the settings a token where they name an App and have none.
    pub async fn add(&self, settings: &mut Settings) -> Result<(), String> {
        let has_token = !settings.token.expose().is_empty() || !settings.password.expose().is_empty();
        if has_token || !settings.data.contains_key(ID) {
            return Ok(());
        }
        let text = |key: &str| settings.data.get(key).map(|value| value.expose().trim().to_owned());
        let data = AppData {
            app_id: text(ID),
            installation_owner: text("githubAppInstallationOwner"),
            installation_id: text("githubAppInstallationID"),
            private_key: settings.data.get("githubAppPrivateKey").cloned(),
            base_url: text("githubAppBaseURL"),
        };
        let who = format!(
            "{:?} {:?} {:?} {:?}",
            data.app_id, data.installation_owner, data.installation_id, data.base_url
        );
        let now = SystemTime::now();
        if let Some((token, expires)) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&who)
            && *expires > now + SPARE
        {
            settings.token = token.clone();
            return Ok(());
        }
        let app = GithubApp::new(&data).map_err(|error| error.to_string())?;
        let client = settings.transport.client().map_err(|error| error.to_string())?;
        let fresh = app.token(&client, now).await.map_err(|error| error.to_string())?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(who, (fresh.token.clone(), fresh.expires));
        settings.token = fresh.token;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_api::notification::ProviderType;

    #[tokio::test]
    async fn an_app_is_asked_only_where_there_is_no_token() {
        let tokens = AppTokens::default();
        let mut settings = Settings::new(ProviderType::GitHub);
        tokens.add(&mut settings).await.unwrap();
        settings.data.insert(ID.to_owned(), "1".to_owned().into());
        let error = tokens.add(&mut settings).await.unwrap_err();
        assert!(error.contains("installation owner or ID"), "{error}");
        settings.token = "t".to_owned().into();
        tokens.add(&mut settings).await.unwrap();
        assert_eq!(settings.token.expose(), "t");
    }
}
