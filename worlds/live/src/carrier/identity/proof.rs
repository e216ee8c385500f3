//! Which far end a near end trusts, and how either end checks that the other has its key.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, SignatureScheme,
};
use tunnel::Fingerprint;

use super::key::fingerprint_of;

/// How either end may sign, as it is offered. The list is here, so that hosts and far ends of any
/// version offer the same.
pub(super) const SCHEMES: [SignatureScheme; 9] = [
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA256,
];

/// Which far end a near end trusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The far end with this key.
    Key(Fingerprint),
    /// Any far end that answers.
    Any,
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(fingerprint) => fingerprint.fmt(f),
            Self::Any => f.write_str("any"),
        }
    }
}

/// At a near end: compares the far end's key with the pin. The signature of the handshake proves
/// that the far end has the key.
#[derive(Debug)]
pub struct Verifier {
    pin: Pin,
    provider: Arc<CryptoProvider>,
    /// The key that was shown.
    shown: OnceLock<Fingerprint>,
}

impl Verifier {
    pub(super) const fn new(pin: Pin, provider: Arc<CryptoProvider>) -> Self {
        Self { pin, provider, shown: OnceLock::new() }
    }

    /// The message for users if the peer showed another key than the expected one.
    pub fn mismatch(&self) -> Option<String> {
        match (self.pin, self.shown.get()) {
            (Pin::Key(expected), Some(shown)) if *shown != expected => Some(format!(
                "its key is {shown} and not {expected}: another machine answers there, or the far end has made a new key; \
                 ask its owner, who sees the key with farlane setup key show"
            )),
            _ => None,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        public: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let _ = self.shown.set(fingerprint_of(public));
        match self.mismatch() {
            None => Ok(ServerCertVerified::assertion()),
            Some(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        public: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(&self.provider, message, public, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// At a far end: takes any key that the near end proves. The far end decides whether the key is
/// admitted when the near end has sent Hello, and answers in words.
#[derive(Debug)]
pub(super) struct AnyKey(pub(super) Arc<CryptoProvider>);

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        public: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(&self.0, message, public, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn verify(
    provider: &CryptoProvider,
    message: &[u8],
    public: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    if !SCHEMES.contains(&signature.scheme) {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    }
    let algorithms = &provider.signature_verification_algorithms;
    let public = SubjectPublicKeyInfoDer::from(public.as_ref());
    verify_tls13_signature_with_raw_key(message, &public, signature, algorithms)
}

fn only_tls13() -> Error {
    Error::General("only TLS 1.3 is supported".to_owned())
}
