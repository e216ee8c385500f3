//! How a volume is to be used: block or mount, and by how many.

use std::fmt;

use tonic::Status;

use super::check;
use super::proto::VolumeCapability;
use super::proto::volume_capability::access_mode::Mode as Access;
use super::proto::volume_capability::{AccessType, MountVolume};
use crate::wire::Mode;

/// The most capabilities of a request.
const CAPABILITIES_MAX: usize = 64;
/// The most mount options.
const OPTIONS_MAX: usize = 64;
/// The longest mount option in bytes.
const OPTION_BYTES_MAX: usize = 256;
/// Mount options that mean another kind of mount, or another device.
const FORBIDDEN: [&str; 17] = [
    "bind",
    "rbind",
    "move",
    "remount",
    "shared",
    "rshared",
    "private",
    "rprivate",
    "slave",
    "rslave",
    "unbindable",
    "runbindable",
    "loop",
    "journal_dev",
    "journal_path",
    "logdev",
    "rtdev",
];

/// A file system that volumes are formatted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
}

impl Filesystem {
    /// The name that kernel, `mkfs` and `blkid` have for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The form in which pods see a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A block device.
    Block,
    /// A directory.
    Mount {
        /// The file system of the volume.
        filesystem: Filesystem,
        /// Options of the mount.
        options: Vec<String>,
    },
}

/// How a volume is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// The form in which pods see it.
    pub(super) form: Form,
    access: Access,
}

impl Usage {
    /// The usage that a capability means.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there is none, or if it is not supported.
    pub(super) fn parse(capability: Option<&VolumeCapability>) -> Result<Self, Status> {
        let Some(capability) = capability else {
            return Err(Status::invalid_argument("volume_capability is missing"));
        };
        let number = capability.access_mode.map_or(0, |one| one.mode);
        let access = Access::try_from(number).unwrap_or(Access::Unknown);
        if access == Access::Unknown {
            return Err(Status::invalid_argument(format!("the access mode {number} is not known here")));
        }
        let form = match &capability.access_type {
            Some(AccessType::Block(_)) => Form::Block,
            Some(AccessType::Mount(mount)) => form_of(mount)?,
            None => {
                return Err(Status::invalid_argument("the access type is missing: expected block or mount"));
            }
        };
        let has_many_writers = matches!(access, Access::MultiNodeSingleWriter | Access::MultiNodeMultiWriter);
        if has_many_writers && form != Form::Block {
            return Err(Status::invalid_argument(format!(
                "a file system on several nodes would be destroyed by its writers: use {} with volumeMode Block",
                access.as_str_name()
            )));
        }
        Ok(Self { form, access })
    }

    /// What the host may do beside others.
    pub(super) const fn mode(&self, read_only: bool) -> Mode {
        match self.access {
            Access::SingleNodeReaderOnly | Access::MultiNodeReaderOnly => Mode::Read,
            _ if read_only => Mode::Read,
            Access::MultiNodeSingleWriter | Access::MultiNodeMultiWriter => Mode::Shared,
            _ => Mode::Exclusive,
        }
    }

    /// Whether nothing is written.
    pub(super) const fn is_read_only(&self) -> bool {
        matches!(self.mode(false), Mode::Read)
    }

    /// Whether one pod at most may have the volume.
    pub(super) fn has_one_writer(&self) -> bool {
        self.access == Access::SingleNodeSingleWriter
    }
}

/// The usages that capabilities mean.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is none, or if one is not supported.
pub(super) fn parse_all(capabilities: &[VolumeCapability]) -> Result<Vec<Usage>, Status> {
    check::count("volume_capabilities", capabilities, CAPABILITIES_MAX)?;
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("volume_capabilities are missing"));
    }
    capabilities.iter().map(|one| Usage::parse(Some(one))).collect()
}

fn form_of(mount: &MountVolume) -> Result<Form, Status> {
    let filesystem = match mount.fs_type.as_str() {
        "" | "ext4" => Filesystem::Ext4,
        "xfs" => Filesystem::Xfs,
        other => {
            let shown: String = other.chars().take(OPTION_BYTES_MAX).collect();
            return Err(Status::invalid_argument(format!(
                "the file system \"{}\" is not supported: expected ext4 or xfs",
                shown.escape_debug()
            )));
        }
    };
    if !mount.volume_mount_group.is_empty() {
        return Err(Status::invalid_argument(
            "volume_mount_group is not supported: leave the group to the kubelet",
        ));
    }
    check::count("mount_flags", &mount.mount_flags, OPTIONS_MAX)?;
    let options: Vec<String> =
        mount.mount_flags.iter().flat_map(|one| one.split(',')).map(|one| one.trim().to_owned()).collect();
    check::count("mount_flags", &options, OPTIONS_MAX)?;
    for option in &options {
        let word = option.split('=').next().unwrap_or_default();
        let is_plain = option.bytes().all(|byte| byte.is_ascii_graphic());
        if option.is_empty() || option.len() > OPTION_BYTES_MAX || !is_plain || FORBIDDEN.contains(&word) {
            let shown: String = option.chars().take(OPTION_BYTES_MAX).collect();
            return Err(Status::invalid_argument(format!(
                "the mount option \"{}\" is not allowed: expected options of the file system alone",
                shown.escape_debug()
            )));
        }
    }
    Ok(Form::Mount { filesystem, options })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::proto::volume_capability::{AccessMode, BlockVolume};

    fn capability(mode: Access, fs_type: &str, flags: &[&str]) -> VolumeCapability {
        let mount_flags = flags.iter().map(|&one| one.to_owned()).collect();
        let mount =
            MountVolume { fs_type: fs_type.to_owned(), mount_flags, volume_mount_group: String::new() };
        let access_type = Some(AccessType::Mount(mount));
        VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type }
    }

    fn block(mode: Access) -> VolumeCapability {
        let access_type = Some(AccessType::Block(BlockVolume {}));
        VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type }
    }

    #[test]
    fn access_modes_become_modes() {
        for (access, mode) in [
            (Access::SingleNodeWriter, Mode::Exclusive),
            (Access::SingleNodeSingleWriter, Mode::Exclusive),
            (Access::SingleNodeMultiWriter, Mode::Exclusive),
            (Access::SingleNodeReaderOnly, Mode::Read),
            (Access::MultiNodeReaderOnly, Mode::Read),
            (Access::MultiNodeSingleWriter, Mode::Shared),
            (Access::MultiNodeMultiWriter, Mode::Shared),
        ] {
            let usage = Usage::parse(Some(&block(access))).unwrap();
            assert_eq!(usage.mode(false), mode, "{access:?}");
            assert_eq!(usage.mode(true), Mode::Read, "{access:?}");
            let is_shared = mode == Mode::Shared;
            assert_eq!(Usage::parse(Some(&capability(access, "", &[]))).is_err(), is_shared, "{access:?}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        let of = |fs_type, flags: &[&str]| {
            Usage::parse(Some(&capability(Access::SingleNodeWriter, fs_type, flags)))
        };
        let options = vec!["noatime".to_owned(), "discard".to_owned()];
        let form = Form::Mount { filesystem: Filesystem::Xfs, options };
        assert_eq!(of("xfs", &["noatime,discard"]).unwrap().form, form);
        for (fs_type, flags) in [
            ("btrfs", &[][..]),
            ("ext4 -F", &[]),
            ("", &["remount"]),
            ("", &["journal_path=/etc/passwd"]),
            ("", &["a\nb"]),
            ("", &[""]),
            ("", &[&"x".repeat(257)[..]]),
            ("", &["x"; 65]),
        ] {
            assert_eq!(
                of(fs_type, flags).unwrap_err().code(),
                tonic::Code::InvalidArgument,
                "{fs_type} {flags:?}"
            );
        }
        assert!(Usage::parse(None).is_err());
        assert!(Usage::parse(Some(&block(Access::Unknown))).is_err());
        assert!(parse_all(&[]).is_err());
        assert!(parse_all(&vec![block(Access::SingleNodeWriter); 65]).is_err());
    }
}
