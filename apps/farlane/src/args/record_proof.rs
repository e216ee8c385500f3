//! The options of recordings that concern their proof.

use clap::{Args, ValueEnum};

/// Which digest a certificate has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DigestArg {
    /// SHA-256 of each stream, on a thread of its own
    Sha256,
    /// None: the CRC32C of each chunk remains
    None,
}

/// How what was recorded is proved.
#[derive(Debug, Args)]
pub(crate) struct ProofArgs {
    /// Compute this digest of each stream for the certificate.
    ///
    /// SHA-256 takes about two thirds of the processor time of recording. None takes less and
    /// finds no deliberate change, e.g. --digest none
    #[arg(long, value_name = "DIGEST", default_value = "sha256")]
    pub(crate) digest: DigestArg,
}
