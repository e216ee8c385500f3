//! The signer of a certificate.

use std::io;

use record::format::{CERTIFICATE_SLOT, Kind, Signature};

use super::reading::{ReadError, Recording};
use super::striped::Part;
use crate::carrier::identity::{Fingerprint, Identity, signer_of};

/// Whose signature a certificate has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// It has none.
    Nobody,
    /// It has one that is wrong: the certificate was changed since.
    Wrong,
    /// The owner of the key with this fingerprint.
    Known(Fingerprint),
}

impl Recording {
    /// Signs the certificate of the recording on these media with `identity`, and writes it again.
    /// A power cut in this moment may damage the certificate, and nothing else.
    ///
    /// # Errors
    /// See [`ReadError`]; also when there is no certificate, or the key is none of Ed25519.
    pub fn sign(parts: Vec<Part>, identity: &Identity) -> Result<(), ReadError> {
        Self::open_parts(parts)?.sign_certificate(identity)
    }

    fn sign_certificate(&mut self, identity: &Identity) -> Result<(), ReadError> {
        let name = self.survey.recording.unwrap_or_default();
        let certificate = self.survey.certificate_to_sign();
        let mut certificate =
            certificate.ok_or_else(|| io::Error::other("it has no certificate that could be signed"))?;
        let signed = identity.sign(&certificate.signed_bytes(name));
        let (key, signature) = signed.ok_or_else(|| io::Error::other("the key is not one of Ed25519"))?;
        certificate.signature = Some(Signature { key, signature });
        self.put(Kind::Certificate, CERTIFICATE_SLOT, |payload| certificate.emit(payload))?;
        self.store.sync()?;
        self.survey.certificate = Some(certificate);
        Ok(())
    }

    /// The signer of the certificate.
    pub fn signer(&self) -> Signer {
        let name = self.survey.recording.unwrap_or_default();
        let certificate = self.survey.certificate.as_ref();
        let Some((certificate, signed)) = certificate.and_then(|all| Some((all, all.signature?))) else {
            return Signer::Nobody;
        };
        let known = signer_of(&certificate.signed_bytes(name), &signed.key, &signed.signature);
        known.map_or(Signer::Wrong, Signer::Known)
    }
}
