//! The options for secrets of NVMe/TCP: in-band authentication, and TLS.

use std::path::PathBuf;

use clap::Args;
use live::client::{self, Url};

use super::headings::AUTHENTICATION;
use crate::error::Error;

/// The secrets by which host and controller of NVMe/TCP prove who they are. Secrets come from files
/// alone: every user of a machine sees the arguments of its processes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Secrets {
    /// Authenticate the host by the secret in this file (DH-HMAC-CHAP).
    ///
    /// The file holds the output of nvme gen-dhchap-key, DHHC-1:hh:BASE64:, and only its owner may
    /// read it
    #[arg(long, value_name = "FILE", help_heading = AUTHENTICATION)]
    pub(crate) dhchap_secret_file: Option<PathBuf>,
    /// Authenticate the controller by the secret in this file (DH-HMAC-CHAP).
    ///
    /// A host with this secret uses no controller that cannot prove that it has the same one
    #[arg(long, value_name = "FILE", requires = "dhchap_secret_file", help_heading = AUTHENTICATION)]
    pub(crate) dhchap_controller_secret_file: Option<PathBuf>,

    /// Encrypt by the key in this file (TLS 1.3), and use no target that has another key.
    ///
    /// The file holds the output of farlane setup key tls or nvme gen-tls-key,
    /// NVMeTLSkey-1:hh:BASE64:, and only its owner may read it
    #[arg(long, value_name = "FILE", help_heading = AUTHENTICATION)]
    pub(crate) tls_key_file: Option<PathBuf>,
}

impl Secrets {
    /// Checks that the device at `url` supports such secrets, if any were given.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn check(&self, url: &Url) -> Result<(), Error> {
        let is_wanted = self.dhchap_secret_file.is_some() || self.tls_key_file.is_some();
        if is_wanted && !matches!(url, Url::Subsystem(_)) { Err(Error::NoSecrets) } else { Ok(()) }
    }

    /// The files, for a host.
    pub(crate) fn files(&self) -> client::SecretFiles {
        client::SecretFiles {
            host: self.dhchap_secret_file.clone(),
            controller: self.dhchap_controller_secret_file.clone(),
            tls: self.tls_key_file.clone(),
        }
    }
}

/// The secrets of the hosts of a target that is not described by a file.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TargetSecrets {
    /// Let in only hosts that authenticate by the secret in this file (DH-HMAC-CHAP).
    ///
    /// Every --host has this secret; --config gives each host its own. The file holds the output of
    /// nvme gen-dhchap-key, DHHC-1:hh:BASE64:, and only its owner may read it
    #[arg(long, value_name = "FILE", requires = "host", help_heading = AUTHENTICATION)]
    dhchap_secret_file: Option<PathBuf>,
    /// Authenticate the controllers by the secret in this file, to hosts that ask for it
    #[arg(long, value_name = "FILE", requires = "dhchap_secret_file", help_heading = AUTHENTICATION)]
    dhchap_controller_secret_file: Option<PathBuf>,

    /// Let in only hosts that encrypt by the key in this file (TLS 1.3).
    ///
    /// Every --host has this key; --config gives each host its own. The file holds the output of
    /// farlane setup key tls or nvme gen-tls-key, NVMeTLSkey-1:hh:BASE64:, and only its owner may
    /// read it
    #[arg(long, value_name = "FILE", requires = "host", help_heading = AUTHENTICATION)]
    tls_key_file: Option<PathBuf>,
}

impl TargetSecrets {
    /// The files.
    pub(crate) fn files(&self) -> client::SecretFiles {
        client::SecretFiles {
            host: self.dhchap_secret_file.clone(),
            controller: self.dhchap_controller_secret_file.clone(),
            tls: self.tls_key_file.clone(),
        }
    }
}
