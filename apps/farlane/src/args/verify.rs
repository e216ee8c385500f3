//! The options of `farlane recording verify`.

use clap::Args;
use live::carrier::identity::Fingerprint;

use super::RecordingArgs;

/// The recording to prove, and its expected signature.
#[derive(Clone, Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
    /// Demand that the certificate is signed with the key that has this fingerprint.
    ///
    /// Example: --signed-by SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) signed_by: Option<Fingerprint>,
}
