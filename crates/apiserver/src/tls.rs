//! The cluster's certificate authority: the server's own certificate, client certificates, files only their owner reads.

use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::auth::User;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("certificate authority: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
    #[error("TLS client certificates: {0}")]
    Verifier(String),
    #[error("{path}: {problem}")]
    File { path: String, problem: String },
}

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
}

impl Authority {
    pub fn generate() -> Result<Authority, Error> {
        let key = KeyPair::generate()?;
        let params = Authority::params();
        let certificate_pem = params.self_signed(&key)?.pem();
        Ok(Authority { issuer: Issuer::new(params, key), certificate_pem })
    }

    fn params() -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params
    }

    /// The authority whose key lies in `folder`, made when it is not there.
    pub fn kept(folder: &Path) -> Result<Authority, Error> {
        let (key_path, certificate_path) = (folder.join("ca.key"), folder.join("ca.crt"));
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |error: std::io::Error| Error::File { path, problem: error.to_string() }
        };
        if key_path.exists() && certificate_path.exists() {
            let key = std::fs::read_to_string(&key_path).map_err(failed(&key_path))?;
            let certificate_pem =
                std::fs::read_to_string(&certificate_path).map_err(failed(&certificate_path))?;
            // The name and the key are what a chain is checked by, so the kept certificate need not be read.
            let issuer = Issuer::new(Authority::params(), KeyPair::from_pem(&key)?);
            return Ok(Authority { issuer, certificate_pem });
        }
        let made = Authority::generate()?;
        write_private(&key_path, made.issuer.key().serialize_pem().as_bytes()).map_err(failed(&key_path))?;
        write_private(&certificate_path, made.certificate_pem.as_bytes())
            .map_err(failed(&certificate_path))?;
        Ok(made)
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A client certificate and its key for `user`, as PEM.
    pub fn client_certificate(&self, user: &User) -> Result<(String, String), Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user.name.as_str());
        for group in &user.groups {
            params.distinguished_name.push(DnType::OrganizationName, group.as_str());
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }

    /// TLS as the server speaks it: client certificates are welcome but not needed.
    pub fn server_config(&self, names: &[String]) -> Result<rustls::ServerConfig, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let mut roots = rustls::RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())
            .map_err(|error| Error::Verifier(error.to_string()))?;
        roots.add(authority)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()
                .map_err(|error| Error::Verifier(error.to_string()))?;
        let private = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|error| Error::Verifier(error.to_owned()))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], private)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The user a client certificate names: CN is the name, each O a group.
pub fn certificate_user(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> = parsed
        .subject()
        .iter_organization()
        .filter_map(|group| group.as_str().ok())
        .map(str::to_owned)
        .collect();
    if !groups.iter().any(|group| group == "system:authenticated") {
        groups.push("system:authenticated".into());
    }
    Some(User { name, groups, ..User::default() })
}

/// Writes a file only its owner may read.
pub fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Written beside and renamed: whoever waits for the file never sees half of it.
    let draft = path.with_extension("draft");
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}
