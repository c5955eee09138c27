//! TLS by rustls, with the meaning of libpq's `sslmode` and `sslrootcert`:
//! - `require` encrypts, but does not check the server's identity. If there is a root certificate,
//!   `require` is the same as `verify-ca`, as in libpq.
//! - `verify-ca` requires a certificate that is signed by the root.
//! - `verify-full` also requires that the certificate is issued for the host in the URL.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::TlsMode;
use crate::error::{Error, Result};

/// Value of `sslrootcert` that selects the root certificates of the system.
pub(super) const SYSTEM: &str = "system";

/// Returns the connector that encrypts a connection. `root` is the value of `sslrootcert`; `None`
/// selects libpq's default file if it exists.
pub(super) fn connector(mode: TlsMode, root: Option<&str>) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = match root {
        Some(SYSTEM) => Some(of_system()?),
        Some(path) => Some(of_file(Path::new(path))?),
        None => match default_file().filter(|path| path.exists()) {
            Some(path) => Some(of_file(&path)?),
            None => None,
        },
    };
    let verifier: Arc<dyn ServerCertVerifier> = match (mode, roots) {
        (TlsMode::VerifyFull, Some(roots)) => with_roots(roots, &provider)?,
        (TlsMode::VerifyCa | TlsMode::Require, Some(roots)) => {
            Arc::new(AnyName(with_roots(roots, &provider)?))
        }
        (TlsMode::VerifyFull | TlsMode::VerifyCa, None) => {
            return Err(Error::cant_open(
                "sslmode requires verification of the server's certificate, and there is no root \
                certificate: name a file by sslrootcert=FILE, put one at ~/.postgresql/root.crt, or \
                use those of the system by sslrootcert=system",
            ));
        }
        (TlsMode::Disable | TlsMode::Prefer, _) | (TlsMode::Require, None) => {
            Arc::new(Anyone(Arc::clone(&provider)))
        }
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::cant_open(format!("TLS cannot be initialised ({e})")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn with_roots(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|e| Error::cant_open(format!("the root certificates (sslrootcert) cannot be used: {e}")))
}

/// Returns the path of the root certificate that libpq uses by default.
fn default_file() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(".postgresql/root.crt"))
}

fn of_file(path: &Path) -> Result<RootCertStore> {
    let unusable = |what: String| Error::cant_open(format!("root certificate {}: {what}", path.display()));
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(path).map_err(|e| unusable(e.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|e| unusable(e.to_string()))?;
        roots.add(certificate).map_err(|e| unusable(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("the file contains no certificate in PEM form".to_owned()));
    }
    Ok(roots)
}

fn of_system() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Error::cant_open("sslrootcert=system: this system has no root certificates"));
    }
    Ok(roots)
}

/// Verifier that requires a certificate that is signed by one of the roots, but may be issued for
/// any host.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // webpki checks the name last, after the chain, the dates and the purpose.
        match self.0.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            done => done,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Verifier that accepts every certificate. It only requires that the server has the private key of
/// the certificate.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
