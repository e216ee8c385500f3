//! What was fetched: where QEMU, the kernel and the guest's programs are on this machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{Error, fetch};

/// The uncompressed kernel's name in the cache.
pub(crate) const KERNEL: &str = "vmlinux";

/// QEMU, a kernel and programs for guests, in the user's cache directory.
#[derive(Clone, Debug)]
pub struct Kit {
    place: PathBuf,
    kernel_version: String,
}

impl Kit {
    /// The machine's kit. It is fetched when it is not there yet (130 MB to download, a minute), once a machine;
    /// how that went is asked once a process.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there is none and it cannot be fetched: no network, no room, no Debian archive,
    /// another architecture.
    pub fn shared() -> Result<&'static Self, Error> {
        static KIT: OnceLock<Result<Kit, String>> = OnceLock::new();
        let kit = KIT.get_or_init(|| {
            fetch::fetch().map_err(|error| match error {
                Error::Unavailable { reason } => reason,
                other => other.to_string(),
            })
        });
        kit.as_ref().map_err(Error::unavailable)
    }

    /// The kit at `place`, if one is there.
    pub(crate) fn open(place: &Path) -> Result<Option<Self>, Error> {
        if !place.join(KERNEL).exists() {
            return Ok(None);
        }
        let kernel_version = kernel_version(&place.join("guest"))?;
        Ok(Some(Self { place: place.to_owned(), kernel_version }))
    }

    /// The packages that the kit is made of, `NAME VERSION` a line.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn packages(&self) -> Result<String, Error> {
        let path = self.place.join("packages.txt");
        fs::read_to_string(&path).map_err(Error::at("reading", &path))
    }

    /// The kernel's release, as `uname -r` in the guest says.
    #[must_use]
    pub fn kernel_version(&self) -> &str {
        &self.kernel_version
    }

    /// Where the kit is on this machine.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The uncompressed kernel.
    pub(crate) fn kernel(&self) -> PathBuf {
        self.place.join(KERNEL)
    }

    /// The tree of the guest's programs, libraries and modules.
    pub(crate) fn guest_tree(&self) -> PathBuf {
        self.place.join("guest")
    }

    /// The directory of `modules.dep`.
    pub(crate) fn modules(&self) -> PathBuf {
        self.guest_tree().join("usr/lib/modules").join(&self.kernel_version)
    }

    /// QEMU with the libraries and firmware that it was fetched with.
    #[must_use]
    pub fn qemu(&self) -> Command {
        let tree = self.place.join("qemu");
        let mut command = loaded(&tree, "usr/bin/qemu-system-x86_64");
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(tree.join(firmware));
        }
        command
    }
}

/// Where guests are kept: `$XDG_CACHE_HOME/farlane/guest`, or the same below `~/.cache`.
pub(crate) fn cache_directory() -> Result<PathBuf, Error> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("farlane").join("guest"))
        .ok_or_else(|| Error::unavailable("neither XDG_CACHE_HOME nor HOME says where to keep it"))
}

/// A program of a tree, run with the tree's own loader and libraries.
pub(crate) fn loaded(tree: &Path, program: &str) -> Command {
    let mut command = Command::new(tree.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(tree.join("usr/lib/x86_64-linux-gnu")).arg(tree.join(program));
    command
}

/// The release of the one kernel whose modules are in `tree`.
pub(crate) fn kernel_version(tree: &Path) -> Result<String, Error> {
    let modules = tree.join("usr/lib/modules");
    let mut entries = fs::read_dir(&modules).map_err(Error::at("reading", &modules))?;
    let entry = entries.next().ok_or_else(|| Error::Missing {
        what: "a kernel".to_owned(),
        looked_in: modules.display().to_string(),
    })?;
    let entry = entry.map_err(Error::at("reading", &modules))?;
    Ok(entry.file_name().to_string_lossy().into_owned())
}
