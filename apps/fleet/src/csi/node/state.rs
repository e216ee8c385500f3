//! Volumes that are published: how full they are, how well, how large.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tonic::Status;

use super::kernel::{Device, Machine, Mount};
use super::paths::mount_at;
use crate::csi::capability::Filesystem;
use crate::csi::proto::node_get_storage_health_response::StorageBackendHealth;
use crate::csi::proto::volume_health::VolumeHealthEntry;
use crate::csi::proto::volume_usage::Unit;
use crate::csi::proto::{
    NodeGetVolumeHealthResponse, StorageHealthErrorType, VolumeHealth, VolumeHealthErrorType, VolumeUsage,
};

/// How often the kernel is asked for a device's size.
const EVERY: Duration = Duration::from_millis(50);

/// The thing that is published at a path.
enum Published {
    /// A block device.
    Block(Device),
    /// A file system.
    Mount(Mount, Option<Device>),
}

impl Published {
    fn device(&self) -> Option<&Device> {
        match self {
            Self::Block(device) => Some(device),
            Self::Mount(_, device) => device.as_ref(),
        }
    }
}

fn published(machine: &impl Machine, path: &Path) -> Result<Published, Status> {
    let missing = || Status::not_found(format!("no volume is at {}", path.display()));
    let mount = mount_at(machine, path)?.ok_or_else(missing)?;
    match machine.block_device_at(path)? {
        Some(number) => Ok(Published::Block(machine.device_with(number)?.ok_or_else(missing)?)),
        None => {
            let device = machine.device_with(mount.number)?;
            Ok(Published::Mount(mount, device))
        }
    }
}

/// How full a volume is.
pub(super) fn usage(machine: &impl Machine, path: &Path) -> Result<Vec<VolumeUsage>, Status> {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    if let Published::Block(device) = published(machine, path)? {
        let unit = Unit::Bytes.into();
        return Ok(vec![VolumeUsage { total: signed(device.bytes), unit, ..Default::default() }]);
    }
    let used = machine.used(path)?;
    Ok(vec![
        VolumeUsage {
            available: signed(used.bytes_free),
            total: signed(used.bytes),
            used: signed(used.bytes_used),
            unit: Unit::Bytes.into(),
        },
        VolumeUsage {
            available: signed(used.inodes_free),
            total: signed(used.inodes),
            used: signed(used.inodes.saturating_sub(used.inodes_free)),
            unit: Unit::Inodes.into(),
        },
    ])
}

/// What ails a volume, as far as this machine sees it at these paths.
pub(super) fn health(machine: &impl Machine, paths: &[PathBuf]) -> Result<Vec<VolumeHealthEntry>, Status> {
    let mut entries: Vec<VolumeHealthEntry> = Vec::new();
    let mut add = |status: VolumeHealthErrorType, reason: &str, message: String| {
        if entries.iter().all(|one| one.reason != reason) {
            entries.push(VolumeHealthEntry { status: status.into(), reason: reason.to_owned(), message });
        }
    };
    for path in paths {
        let shown = path.display();
        let found = match published(machine, path) {
            Ok(found) => found,
            // A block device is not mounted at its staging path.
            Err(error) if error.code() == tonic::Code::NotFound => continue,
            Err(error) => return Err(error),
        };
        match found.device() {
            Some(device) if device.reached => (),
            Some(device) => {
                let message = format!("no path of {} leads to the volume", device.path.display());
                add(VolumeHealthErrorType::Inaccessible, "NoPath", message);
            }
            None => {
                add(VolumeHealthErrorType::Inaccessible, "NoDevice", format!("the device of {shown} is gone"))
            }
        }
        if let Published::Mount(mount, _) = &found
            && mount.frozen
            && !mount.read_only
        {
            let message = format!("the kernel has made the file system at {shown} read-only after an error");
            add(VolumeHealthErrorType::Degraded, "ReadOnlyFileSystem", message);
        }
    }
    Ok(entries)
}

/// The answer about a volume's health.
pub(super) fn health_of(
    volume_id: String,
    health_statuses: Vec<VolumeHealthEntry>,
) -> NodeGetVolumeHealthResponse {
    NodeGetVolumeHealthResponse { volume_health: Some(VolumeHealth { volume_id, health_statuses }) }
}

/// What ails the machine.
pub(super) fn storage_health(machine: &impl Machine) -> Vec<StorageBackendHealth> {
    if machine.has_initiator() {
        return Vec::new();
    }
    let message = "the kernel has neither NVMe over Fabrics nor ublk: load the module nvme-tcp";
    vec![StorageBackendHealth {
        status: StorageHealthErrorType::StorageUnreachable.into(),
        reason: "NoInitiator".to_owned(),
        message: message.to_owned(),
        volume_capability: None,
    }]
}

/// Waits until a volume has its new size on this machine, and extends its file system to that.
/// Returns the size.
pub(super) fn grow(
    machine: &impl Machine,
    path: &Path,
    required: u64,
    patience: Duration,
) -> Result<i64, Status> {
    let begun = Instant::now();
    let found = loop {
        let found = published(machine, path)?;
        let Some(device) = found.device() else {
            return Err(Status::unavailable(format!("the device of {} is gone", path.display())));
        };
        if device.bytes >= required {
            break found;
        }
        if begun.elapsed() >= patience {
            return Err(Status::unavailable(format!(
                "{} has {} bytes after {patience:?}, and {required} are wanted: expand the volume in the fleet first",
                device.path.display(),
                device.bytes
            )));
        }
        thread::sleep(EVERY);
    };
    if let Published::Mount(mount, Some(device)) = &found {
        let filesystem =
            [Filesystem::Ext4, Filesystem::Xfs].into_iter().find(|one| one.word() == mount.filesystem);
        let Some(filesystem) = filesystem else {
            let reason = format!("{} has {}, which cannot be extended", path.display(), mount.filesystem);
            return Err(Status::failed_precondition(reason));
        };
        if mount.read_only || mount.frozen {
            let reason = format!("{} is read-only, and cannot be extended", path.display());
            return Err(Status::failed_precondition(reason));
        }
        machine.grow(device, path, filesystem)?;
    }
    Ok(found.device().map_or(0, |device| i64::try_from(device.bytes).unwrap_or(i64::MAX)))
}
