//! As whom a Bucket's store is asked: with what a Secret holds, as a ServiceAccount, as this pod, or as nobody.

use flux_api::Object;
use flux_api::secret::SecretString;
use flux_api::source::{BucketProvider, BucketSTS, BucketSpec, STSProvider};
use flux_remote::bucket::{Azure, AzureAccess, Google, Keys, S3, SharedKey, Store, azure_account};
use flux_remote::cloud::{self, AzureLogin, GoogleKey, Provider};
use flux_remote::transport::Transport;
use k8s_openapi::jiff::Timestamp;

use super::access::{Data, Secrets};
use super::bucket::Buckets;
use super::cloud::Asker;
use super::skeleton::{Failure, Job};

const AZURE_SCOPE: &str = "https://storage.azure.com/.default";
const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_only";

/// The store of a Bucket, with whatever opens it.
pub(super) async fn connect(job: &Job<'_, Buckets>) -> Result<Store, Failure> {
    let spec = &job.object.spec;
    if spec.service_account_name.is_some() && !job.ctx.identity.object_level {
        let message = "to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller";
        return Err(Failure::fetch("FeatureGateDisabled", message).stalled());
    }
    if let Some(problem) = unsupported_sts(spec) {
        return Err(Failure::fetch("InvalidSTSConfiguration", problem).stalled());
    }
    let secrets = Secrets { client: &job.ctx.client, namespace: Object::namespace(job.object) };
    let secret = match &spec.secret_ref {
        Some(reference) => Some(secrets.get(&reference.name).await.map_err(refused)?),
        None => None,
    };
    let proxy = secrets.transport(None, spec.proxy_secret_ref.as_ref()).await;
    let proxy = proxy.map_err(|error| refused(format!("failed to get proxy URL: {error}")))?.proxy;
    let certificates = secrets.transport(spec.cert_secret_ref.as_ref(), None).await;
    let certificates = certificates.map_err(|error| refused(format!("failed to get TLS config: {error}")))?;
    // Certificates are for stores of one's own; clouds have those that everybody knows.
    let plain = Transport { proxy, ..Transport::default() };
    let login = Login { job, spec, secret: secret.as_ref(), transport: &plain };
    match spec.provider() {
        BucketProvider::Generic | BucketProvider::Aws => {
            let transport = Transport { proxy: plain.proxy.clone(), ..certificates };
            let keys = login.keys().await?;
            S3::new(&spec.endpoint, spec.insecure, spec.region.as_deref(), keys, &transport)
                .map(Store::S3)
                .map_err(refused)
        }
        BucketProvider::Gcp => {
            let token = login.google().await?;
            let address = job.ctx.identity.cloud.google_storage();
            Google::new(&address, token, &plain).map(Store::Google).map_err(refused)
        }
        BucketProvider::Azure => {
            let access = login.azure().await?;
            Azure::new(&spec.endpoint, access, &plain).map(Store::Azure).map_err(refused)
        }
    }
}

fn refused(message: impl ToString) -> Failure {
    Failure::fetch("AuthenticationFailed", message.to_string())
}

/// All that decides as whom a store is asked.
struct Login<'a, 'j> {
    job: &'a Job<'j, Buckets>,
    spec: &'a BucketSpec,
    secret: Option<&'a Data>,
    transport: &'a Transport,
}

impl Login<'_, '_> {
    fn secret_name(&self) -> &str {
        self.spec.secret_ref.as_ref().map_or("", |reference| reference.name.as_str())
    }

    fn invalid(&self, fields: &str) -> Failure {
        refused(format!("invalid '{}' secret data: {fields}", self.secret_name()))
    }

    /// Keys for S3. Without a Secret: nobody at a generic store, the identity we or the object have at Amazon.
    async fn keys(&self) -> Result<Option<Keys>, Failure> {
        if let Some(secret) = self.secret {
            let incomplete = || self.invalid("required fields 'accesskey' and 'secretkey'");
            let access_key = secret.text("accesskey").map_err(refused)?.ok_or_else(incomplete)?;
            let secret_key = secret.secret_text("secretkey").map_err(|_| incomplete())?;
            return Ok(Some(Keys { access_key, secret_key, session_token: None }));
        }
        match (self.spec.provider(), &self.spec.sts) {
            (BucketProvider::Aws, _) => self.aws().await.map(Some),
            (_, Some(sts)) => self.ldap(sts).await.map(Some),
            (_, None) => Ok(None),
        }
    }

    async fn aws(&self) -> Result<Keys, Failure> {
        let identity = &self.job.ctx.identity;
        let account = self.account(Provider::Aws).await?;
        let (region, sts) =
            (self.spec.region.as_deref(), self.spec.sts.as_ref().map(|sts| sts.endpoint.as_str()));
        let keys = identity.cloud.aws_keys(region, sts, account.as_ref(), self.transport, Timestamp::now());
        let (keys, event) = keys.await.map_err(refused)?;
        self.count(event);
        Ok(keys)
    }

    /// Keys that a store gives to somebody its directory knows.
    async fn ldap(&self, sts: &BucketSTS) -> Result<Keys, Failure> {
        let secrets = Secrets { client: &self.job.ctx.client, namespace: Object::namespace(self.job.object) };
        let (mut username, mut password) = (String::new(), SecretString::default());
        if let Some(reference) = &sts.secret_ref {
            let data = secrets
                .get(&reference.name)
                .await
                .map_err(|error| refused(format!("failed to get STS secret: {error}")))?;
            let incomplete = || {
                let name = &reference.name;
                refused(format!(
                    "invalid '{name}' secret data for 'ldap' STS provider: required fields username, password"
                ))
            };
            let text = data.text("username").map_err(refused)?;
            username = text.filter(|text| !text.is_empty()).ok_or_else(incomplete)?;
            password = data.secret_text("password").map_err(|_| incomplete())?;
        }
        let own = secrets
            .transport(sts.cert_secret_ref.as_ref(), None)
            .await
            .map_err(|error| refused(format!("failed to get STS TLS config: {error}")))?;
        let transport = Transport { proxy: self.transport.proxy.clone(), ..own };
        let keys = cloud::ldap_keys(&sts.endpoint, &username, &password, &transport, Timestamp::now());
        keys.await.map_err(refused)
    }

    /// A token for Google's storage.
    async fn google(&self) -> Result<SecretString, Failure> {
        let Some(secret) = self.secret else {
            let account = self.account(Provider::Gcp).await?;
            return self.token(Provider::Gcp, GOOGLE_SCOPE, account.as_ref()).await.map_err(refused);
        };
        let file =
            secret.bytes("serviceaccount").ok_or_else(|| self.invalid("required fields 'serviceaccount'"))?;
        let wrong = |error: cloud::Error| {
            refused(format!("failed to create Google credentials from secret: {error}"))
        };
        let key = GoogleKey::read(file).map_err(wrong)?;
        // What proves who we are is for the one it is sent to.
        let direct = Transport { no_redirects: true, ..self.transport.clone() };
        let client = direct.client().map_err(refused)?;
        key.token(&client, GOOGLE_SCOPE, Timestamp::now()).await.map_err(wrong)
    }

    /// In the order of upstream: an application, an identity of the machine, the account's key, a signature.
    async fn azure(&self) -> Result<AzureAccess, Failure> {
        let Some(secret) = self.secret else { return self.azure_identity().await };
        let text = |key| secret.text(key).map_err(refused);
        let wrong = |error: cloud::Error| {
            let name = self.secret_name();
            refused(format!("failed to create token credential from '{name}' Secret: {error}"))
        };
        if let Some(login) = azure_login(secret).map_err(refused)? {
            let login = login.map_err(wrong)?.at(text("authorityHost")?);
            let cloud = &self.job.ctx.identity.cloud;
            let token = cloud.azure_token(&login, AZURE_SCOPE, self.transport, Timestamp::now()).await;
            return token.map(AzureAccess::Token).map_err(wrong);
        }
        if let Some(key) = text("accountKey")? {
            let wrong = |problem: String| {
                let name = self.secret_name();
                refused(format!("failed to create shared credential from '{name}' Secret data: {problem}"))
            };
            let account = azure_account(&self.spec.endpoint).map_err(|error| wrong(error.to_string()))?;
            let key = SharedKey::new(&account, &key)
                .ok_or_else(|| wrong("accountKey is no key in base64".to_owned()))?;
            return Ok(AzureAccess::SharedKey(key));
        }
        if let Some(query) = text("sasKey")? {
            return Ok(AzureAccess::Sas(SecretString::new(query)));
        }
        Err(self.invalid(
            "requires a 'clientId' or 'accountKey' field, a combination of 'tenantId', 'clientId' and 'clientSecret', or 'tenantId', 'clientId' and 'clientCertificate'",
        ))
    }

    /// Where nobody can be asked who we are, the container may still be open to everybody.
    async fn azure_identity(&self) -> Result<AzureAccess, Failure> {
        let account = self.account(Provider::Azure).await?;
        match self.token(Provider::Azure, AZURE_SCOPE, account.as_ref()).await {
            Ok(token) => Ok(AzureAccess::Token(token)),
            Err(cloud::Error::Unreachable { what, cause }) if account.is_none() => {
                tracing::info!(what, cause, "no identity at Azure, asking as nobody");
                Ok(AzureAccess::Anonymous)
            }
            Err(error) => Err(refused(error)),
        }
    }

    async fn account(&self, provider: Provider) -> Result<Option<cloud::Account>, Failure> {
        let (name, namespace) =
            (self.spec.service_account_name.as_deref(), Object::namespace(self.job.object));
        self.job.ctx.identity.account(namespace, provider, name, self.transport).await.map_err(refused)
    }

    async fn token(
        &self,
        provider: Provider,
        scope: &str,
        account: Option<&cloud::Account>,
    ) -> Result<SecretString, cloud::Error> {
        let cloud = &self.job.ctx.identity.cloud;
        let token = cloud.token_with_event(provider, scope, account, self.transport, Timestamp::now());
        let (token, event) = token.await?;
        self.count(event);
        Ok(token)
    }

    fn count(&self, event: cloud::CacheEvent) {
        let (namespace, key) = (Object::namespace(self.job.object), self.job.key());
        self.job.ctx.identity.count(Asker { kind: "Bucket", namespace, name: &key.name }, event);
    }
}

/// The login that a Secret holds, if it holds one; what may be wrong with it comes inside.
fn azure_login(secret: &Data) -> Result<Option<Result<AzureLogin, cloud::Error>>, super::access::Error> {
    let Some(client) = secret.text("clientId")? else { return Ok(None) };
    let Some(tenant) = secret.text("tenantId")? else {
        return Ok(Some(Ok(AzureLogin::of_the_machine(client))));
    };
    if let Some(password) = secret.text("clientSecret")?.filter(|text| !text.is_empty()) {
        return Ok(Some(Ok(AzureLogin::with_password(tenant, client, SecretString::new(password)))));
    }
    let Some(certificate) = secret.bytes("clientCertificate").filter(|bytes| !bytes.is_empty()) else {
        return Ok(Some(Ok(AzureLogin::of_the_machine(client))));
    };
    let sends_chain = secret.text("clientCertificateSendChain")?;
    let sends_chain = sends_chain.is_some_and(|text| text == "1" || text.eq_ignore_ascii_case("true"));
    Ok(Some(AzureLogin::with_certificate(tenant, client, certificate, sends_chain)))
}

fn unsupported_sts(spec: &BucketSpec) -> Option<String> {
    let sts = spec.sts.as_ref()?;
    let sts_provider = match sts.provider {
        STSProvider::Aws => "aws",
        STSProvider::Ldap => "ldap",
    };
    let not_required =
        |field: &str| Some(format!("spec.sts.{field} is not required for the '{sts_provider}' STS provider"));
    match (spec.provider(), sts.provider) {
        (BucketProvider::Aws, STSProvider::Aws) if sts.secret_ref.is_some() => not_required("secretRef"),
        (BucketProvider::Aws, STSProvider::Aws) if sts.cert_secret_ref.is_some() => {
            not_required("certSecretRef")
        }
        (BucketProvider::Aws, STSProvider::Aws) | (BucketProvider::Generic, STSProvider::Ldap) => None,
        (provider @ (BucketProvider::Aws | BucketProvider::Generic), _) => {
            Some(format!("STS provider '{sts_provider}' is not supported for '{provider}' bucket provider"))
        }
        (provider, _) => Some(format!("STS configuration is not supported for '{provider}' bucket provider")),
    }
}
