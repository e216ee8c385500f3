//! The options of recordings that concern their proof.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use record::Algorithm;

/// Which digest a certificate has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DigestArg {
    /// SHA-256 of each stream, on a thread of its own
    Sha256,
    /// BLAKE3 of each stream, on a thread of its own
    Blake3,
    /// None: the CRC32C of each chunk remains
    None,
}

impl From<DigestArg> for Algorithm {
    fn from(digest: DigestArg) -> Self {
        match digest {
            DigestArg::Sha256 => Self::Sha256,
            DigestArg::Blake3 => Self::Blake3,
            DigestArg::None => Self::None,
        }
    }
}

/// The proof of recorded data.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProofArgs {
    /// Compute this digest of each stream for the certificate.
    ///
    /// One processor computes SHA-256 of 1 to 2 GB a second, and BLAKE3 of several times as much.
    /// With none, a deliberate change is not found. Example: --digest blake3
    #[arg(long, value_name = "DIGEST", default_value = "sha256")]
    pub(crate) digest: DigestArg,
    /// Sign the certificate with the key in this file, which farlane setup key new makes, e.g.
    /// --sign recorder.pem
    #[arg(long, value_name = "KEYFILE")]
    pub(crate) sign: Option<PathBuf>,
}
