//! The options for the rights that a serving process gives up.

use std::path::PathBuf;

use clap::Args;
use daemon::Confinement;
use live::carrier::identity::Identity;
use live::carrier::route::Way;
use live::client::Url;
use live::sys::sandbox::Needs;

use super::headings::PRIVILEGE;
use super::{MediumSpec, PoolSpec, Served};

/// The rights that a daemon gives up once it is set up.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Sandbox {
    /// Become this user once everything is open; only root may become another.
    ///
    /// State files and keys must be this user's
    #[arg(long, value_name = "NAME", help_heading = PRIVILEGE)]
    user: Option<String>,

    /// Leave this file or folder within reach; may be given again.
    ///
    /// The process reaches only files that its other options name (Landlock). A namespace that is
    /// added later must be in a folder of this option
    #[arg(long, value_name = "PATH", help_heading = PRIVILEGE)]
    allow_path: Vec<PathBuf>,
    /// Keep every file and every system call within reach
    #[arg(long, conflicts_with = "allow_path", help_heading = PRIVILEGE)]
    no_sandbox: bool,
}

impl Sandbox {
    /// The settings that the options select.
    pub(crate) fn confinement(&self) -> Confinement {
        Confinement { user: self.user.clone(), allowed: self.allow_path.clone(), is_on: !self.no_sandbox }
    }
}

/// Adds the files of an SSD to the files that the process needs.
pub(crate) fn need_served(needs: &mut Needs, served: &Served) {
    for namespace in &served.namespace {
        match namespace {
            MediumSpec::File(spec) => needs.files.push(spec.path.clone()),
            MediumSpec::Far(spec) => {
                need_far(needs, spec.secrets());
                needs.sends_frames |= matches!(&spec.url, Url::Far(far) if far.way() == Way::Eth);
            }
        }
    }
    if let Some(PoolSpec::File { path, .. }) = &served.pool {
        needs.files.push(path.clone());
    }
    served.state.iter().for_each(|path| needs.change_beside(path));
    if !served.vfio.is_empty() {
        // The function itself, and its settings.
        needs.folders.extend(["/dev/vfio", "/dev/iommu", "/sys/bus/pci", "/sys/devices"].map(PathBuf::from));
        needs.folders.push(PathBuf::from("/dev/hugepages"));
    }
}

/// Adds the files for reaching another device: this user's keys, and the files with secrets.
pub(crate) fn need_far(needs: &mut Needs, secrets: impl IntoIterator<Item = PathBuf>) {
    needs.dials = true;
    needs.change_beside(&Identity::default_path());
    secrets.into_iter().for_each(|path| needs.read_beside(&path));
}
