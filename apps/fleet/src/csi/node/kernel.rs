//! What the Node service needs of its machine.

use std::io;
use std::path::{Path, PathBuf};

use tonic::Status;

use crate::csi::capability::Filesystem;

/// Major and minor number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u32, pub u32);

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its file.
    pub path: PathBuf,
    /// Its number.
    pub number: Number,
    /// Its size.
    pub bytes: u64,
    /// Whether the kernel refuses writes.
    pub read_only: bool,
    /// Whether one of its paths leads to the volume.
    pub reached: bool,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device of its file system.
    pub number: Number,
    /// What of the file system is mounted.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Whether this mount refuses writes.
    pub read_only: bool,
    /// Whether its file system refuses writes everywhere.
    pub frozen: bool,
    /// The kind of file system.
    pub filesystem: String,
    /// The options of this mount.
    pub options: Vec<String>,
}

/// How much of a file system is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// All bytes.
    pub bytes: u64,
    /// Bytes that any user may take.
    pub bytes_free: u64,
    /// Bytes that are taken.
    pub bytes_used: u64,
    /// All inodes.
    pub inodes: u64,
    /// Inodes that are not taken.
    pub inodes_free: u64,
}

/// A failure of the machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The kernel refuses.
    #[error("{what}: {source}")]
    Kernel {
        /// What was tried.
        what: String,
        /// Its reason.
        source: io::Error,
    },
    /// A program fails.
    #[error("{what}: {said}")]
    Program {
        /// The program and what it was to do.
        what: String,
        /// Its last words.
        said: String,
    },
}

impl MachineError {
    /// Puts what was tried before an error of the kernel.
    pub fn at(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Kernel { what, source }
    }
}

impl From<MachineError> for Status {
    fn from(error: MachineError) -> Self {
        Self::internal(error.to_string())
    }
}

/// The machine of a Node service: its devices, its mounts, its programs for file systems. Calls
/// block.
pub trait Machine: Send + Sync + 'static {
    /// The device of a subsystem with this NVMe Qualified Name; `None` if there is none yet.
    ///
    /// # Errors
    /// When the kernel's files cannot be read.
    fn device(&self, nqn: &str) -> Result<Option<Device>, MachineError>;

    /// The device with a number.
    ///
    /// # Errors
    /// When the kernel's files cannot be read.
    fn device_with(&self, number: Number) -> Result<Option<Device>, MachineError>;

    /// The number of the block device whose file this is; `None` if it is something else, or
    /// nothing.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    fn block_device_at(&self, path: &Path) -> Result<Option<Number>, MachineError>;

    /// All mounts, in the order in which the kernel has them.
    ///
    /// # Errors
    /// When the kernel's file cannot be read, or is in no known form.
    fn mounts(&self) -> Result<Vec<Mount>, MachineError>;

    /// What a device has: the name of a file system, of a partition table, of anything else.
    ///
    /// # Errors
    /// When the device cannot be read.
    fn signature(&self, device: &Device) -> Result<Option<String>, MachineError>;

    /// Makes a file system on a device that has no signature.
    ///
    /// # Errors
    /// When the program fails.
    fn make(&self, device: &Device, filesystem: Filesystem) -> Result<(), MachineError>;

    /// Repairs what can be repaired without asking.
    ///
    /// # Errors
    /// When a person must decide.
    fn repair(&self, device: &Device, filesystem: Filesystem) -> Result<(), MachineError>;

    /// Mounts a device.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn mount(
        &self,
        device: &Device,
        point: &Path,
        filesystem: Filesystem,
        options: &[String],
    ) -> Result<(), MachineError>;

    /// Mounts a file or a directory at a second place.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn bind(&self, source: &Path, point: &Path) -> Result<(), MachineError>;

    /// Has a second mount refuse writes.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn make_read_only(&self, mount: &Mount) -> Result<(), MachineError>;

    /// Ends a mount.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn unmount(&self, point: &Path) -> Result<(), MachineError>;

    /// Extends a mounted file system to the size of its device.
    ///
    /// # Errors
    /// When the program fails.
    fn grow(&self, device: &Device, point: &Path, filesystem: Filesystem) -> Result<(), MachineError>;

    /// How much of a mounted file system is used.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    fn used(&self, point: &Path) -> Result<Used, MachineError>;

    /// Whether the machine can connect to far SSDs at all.
    fn has_initiator(&self) -> bool;
}
