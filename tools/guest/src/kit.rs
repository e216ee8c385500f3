//! Where QEMU, the kernel and the guest's programs are on this machine, once they were fetched.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{Error, fetch};

/// The file name of the uncompressed kernel in the cache.
pub(crate) const KERNEL: &str = "vmlinux";
/// Where a tree keeps its kernel's modules.
pub(crate) const MODULES: &str = "usr/lib/modules";

/// QEMU, a kernel and programs for guests, in the user's cache directory.
#[derive(Clone, Debug)]
pub struct Kit {
    place: PathBuf,
    kernel: Kernel,
}

/// A kernel that QEMU can enter.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    image: PathBuf,
    /// The directory that holds `modules.dep`.
    modules: PathBuf,
    version: String,
}

impl Kernel {
    /// The kernel with its image in `place` and its modules in `tree`, if there is one.
    pub(crate) fn open(place: &Path, tree: &Path) -> Result<Option<Self>, Error> {
        let image = place.join(KERNEL);
        if !image.exists() {
            return Ok(None);
        }
        let version = kernel_version(tree)?;
        Ok(Some(Self { image, modules: tree.join(MODULES).join(&version), version }))
    }
}

impl Kit {
    /// The machine's kit. If there is none, it is fetched, once a machine (140 MB to download, a
    /// minute). A process tries this only once.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there is no kit and it cannot be fetched: no network, no room,
    /// no Debian archive, or another architecture.
    pub fn shared() -> Result<&'static Self, Error> {
        static KIT: OnceLock<Result<Kit, String>> = OnceLock::new();
        once(&KIT, fetch::fetch)
    }

    /// The kit of [`Kit::shared`] with the newest kernel that Debian's backports have for the
    /// release. That kernel has features that the release's own lacks, such as peer-to-peer DMA
    /// (`CONFIG_PCI_P2PDMA`). If the kernel is not there, it is fetched (37 MB to download, ten
    /// seconds).
    ///
    /// # Errors
    /// The errors of [`Kit::shared`].
    pub fn newer() -> Result<&'static Self, Error> {
        static KIT: OnceLock<Result<Kit, String>> = OnceLock::new();
        once(&KIT, || Ok(Self { kernel: fetch::newer_kernel()?, ..Self::shared()?.clone() }))
    }

    /// The kit of [`Kit::shared`] with the kernel of the release that has every driver, such as
    /// those of RDMA over Ethernet (`CONFIG_RDMA_SIW`, `CONFIG_RDMA_RXE`). If the kernel is not
    /// there, it is fetched (110 MB to download, half a minute).
    ///
    /// # Errors
    /// The errors of [`Kit::shared`].
    pub fn full() -> Result<&'static Self, Error> {
        static KIT: OnceLock<Result<Kit, String>> = OnceLock::new();
        once(&KIT, || Ok(Self { kernel: fetch::full_kernel()?, ..Self::shared()?.clone() }))
    }

    /// The kit of [`Kit::shared`] with a kernel that was built here, because none of Debian's
    /// kernels has iommufd (`CONFIG_IOMMUFD`) or RDMA over TCP (`CONFIG_RDMA_SIW`). [`Kit::build`]
    /// builds it; this function does not.
    ///
    /// # Errors
    /// The errors of [`Kit::shared`], and when the kernel has not been built.
    pub fn built() -> Result<&'static Self, Error> {
        static KIT: OnceLock<Result<Kit, String>> = OnceLock::new();
        once(&KIT, || Ok(Self { kernel: fetch::built_kernel()?, ..Self::shared()?.clone() }))
    }

    /// The kit of [`Kit::built`]. Builds the kernel if that has not been done: 150 MB to download,
    /// 2 GB of room meanwhile, some minutes.
    ///
    /// # Errors
    /// The errors of [`Kit::shared`], and when the build fails or something is missing for it.
    pub fn build() -> Result<Self, Error> {
        Ok(Self { kernel: fetch::build_kernel()?, ..Self::shared()?.clone() })
    }

    /// The kit in `place`, if there is one.
    pub(crate) fn open(place: &Path) -> Result<Option<Self>, Error> {
        let kernel = Kernel::open(place, &place.join("guest"))?;
        Ok(kernel.map(|kernel| Self { place: place.to_owned(), kernel }))
    }

    /// The packages that the kit consists of, a line `NAME VERSION` for each.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn packages(&self) -> Result<String, Error> {
        let path = self.place.join("packages.txt");
        fs::read_to_string(&path).map_err(Error::at("reading", &path))
    }

    /// The release of the kernel, as printed by `uname -r` in the guest.
    #[must_use]
    pub fn kernel_version(&self) -> &str {
        &self.kernel.version
    }

    /// The kit's directory on this machine.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The path of the uncompressed kernel.
    pub(crate) fn kernel(&self) -> &Path {
        &self.kernel.image
    }

    /// The tree with the guest's programs, libraries and modules.
    pub(crate) fn guest_tree(&self) -> PathBuf {
        self.place.join("guest")
    }

    /// The directory that holds `modules.dep`.
    pub(crate) fn modules(&self) -> &Path {
        &self.kernel.modules
    }

    /// The path of a file of EDK2's firmware.
    pub(crate) fn edk2(&self, name: &str) -> PathBuf {
        self.place.join("qemu/usr/share/OVMF").join(name)
    }

    /// A command that runs QEMU with the libraries and firmware that were fetched with it.
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

/// Calls `make` at most once a process, and returns its result every time.
fn once(
    kit: &'static OnceLock<Result<Kit, String>>,
    make: impl FnOnce() -> Result<Kit, Error>,
) -> Result<&'static Kit, Error> {
    let kit = kit.get_or_init(|| {
        make().map_err(|error| match error {
            Error::Unavailable { reason } => reason,
            other => other.to_string(),
        })
    });
    kit.as_ref().map_err(Error::unavailable)
}

/// The directory for guests: `$XDG_CACHE_HOME/farlane/guest`, or `~/.cache/farlane/guest`.
pub(crate) fn cache_directory() -> Result<PathBuf, Error> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("farlane").join("guest")).ok_or_else(|| {
        Error::unavailable("neither XDG_CACHE_HOME nor HOME is set, so there is no cache directory")
    })
}

/// A command that runs a program of a tree with the tree's own loader and libraries.
pub(crate) fn loaded(tree: &Path, program: &str) -> Command {
    let mut command = Command::new(tree.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(tree.join("usr/lib/x86_64-linux-gnu")).arg(tree.join(program));
    command
}

/// The release of the one kernel whose modules are in `tree`.
pub(crate) fn kernel_version(tree: &Path) -> Result<String, Error> {
    let modules = tree.join(MODULES);
    let mut entries = fs::read_dir(&modules).map_err(Error::at("reading", &modules))?;
    let entry = entries.next().ok_or_else(|| Error::Missing {
        what: "a kernel".to_owned(),
        looked_in: modules.display().to_string(),
    })?;
    let entry = entry.map_err(Error::at("reading", &modules))?;
    Ok(entry.file_name().to_string_lossy().into_owned())
}
