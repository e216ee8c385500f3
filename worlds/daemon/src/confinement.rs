//! The rights that a daemon gives up.

use std::path::PathBuf;

use live::sys::files;
use live::sys::sandbox::{self, Enforced, Needs};

use crate::Failure;

/// The rights that a daemon gives up before it opens anything, and once everything is open.
#[derive(Clone, Debug)]
pub struct Confinement {
    /// The user that the process becomes; only root may become another.
    pub user: Option<String>,
    /// Files and folders that stay within reach beside those that the daemon needs.
    pub allowed: Vec<PathBuf>,
    /// Whether anything is taken from the process but its user.
    pub is_on: bool,
}

impl Confinement {
    /// Leaves only `needs` within reach of this process. No thread may be started yet.
    ///
    /// # Errors
    /// When the system refuses, or a path that is allowed does not exist.
    pub(crate) fn confine(&self, mut needs: Needs) -> Result<(), Failure> {
        self.user.iter().for_each(|user| files::make_for(user));
        if !self.is_on {
            return Ok(());
        }
        if let Some(missing) = self.allowed.iter().find(|path| !path.exists()) {
            return Err(Failure::NothingToAllow { path: missing.clone() });
        }
        needs.folders.extend(self.allowed.iter().cloned());
        needs.changes_user = self.user.is_some();
        match sandbox::confine(&needs).map_err(Failure::Sandbox)? {
            Enforced::Whole => debug!("this process is confined to its needs"),
            Enforced::Part => warn!("this kernel's Landlock is old: it confines in part"),
            Enforced::Nothing => {
                warn!("this kernel has no Landlock: every file of the user is within reach");
            }
        }
        Ok(())
    }

    /// Becomes another user, if one is given, and gives up system calls. Everything is open.
    ///
    /// # Errors
    /// When the system refuses, or there is no such user.
    pub(crate) fn renounce(&self) -> Result<(), Failure> {
        match &self.user {
            None if !self.is_on => Ok(()),
            user => sandbox::renounce(user.as_deref(), self.is_on)
                .map_err(|error| Failure::Renounce { user: user.clone(), error }),
        }
    }
}
