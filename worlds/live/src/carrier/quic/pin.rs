//! Which far end a near end trusts: the one with the certificate that the near end was told of.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::identity::Fingerprint;

/// Which far end a near end trusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The far end with this certificate.
    Certificate(Fingerprint),
    /// Any far end that answers.
    Any,
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(fingerprint) => fingerprint.fmt(f),
            Self::Any => f.write_str("any"),
        }
    }
}

/// Compares the certificate of the peer with the pin. The signature of the handshake proves that
/// the peer has the certificate's key.
#[derive(Debug)]
pub(super) struct Verifier {
    pin: Pin,
    provider: Arc<CryptoProvider>,
    /// The certificate that was shown.
    shown: OnceLock<Fingerprint>,
}

impl Verifier {
    pub(super) const fn new(pin: Pin, provider: Arc<CryptoProvider>) -> Self {
        Self { pin, provider, shown: OnceLock::new() }
    }

    /// The expected certificate and the one that was shown, if they differ.
    pub(super) fn mismatch(&self) -> Option<(Fingerprint, Fingerprint)> {
        match (self.pin, self.shown.get()) {
            (Pin::Certificate(expected), Some(shown)) if *shown != expected => Some((expected, *shown)),
            _ => None,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let _ = self.shown.set(Fingerprint::of(end_entity));
        match self.mismatch() {
            None => Ok(ServerCertVerified::assertion()),
            Some(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
