//! A volume is staged: its device is there, has a file system, and is mounted once.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tonic::Status;

use super::kernel::{Device, Machine, Mount};
use super::paths::{make_folder, mount_at, mounts_of, unmount_all};
use crate::csi::capability::{Filesystem, Form, Usage};

/// How often the kernel is asked for a device.
const EVERY: Duration = Duration::from_millis(50);

/// The device of a subsystem, once the kernel has it and reaches it.
pub(super) fn device(machine: &impl Machine, nqn: &str, patience: Duration) -> Result<Device, Status> {
    let begun = Instant::now();
    loop {
        let found = machine.device(nqn)?;
        if let Some(device) = found.as_ref().filter(|one| one.reached) {
            return Ok(device.clone());
        }
        if begun.elapsed() >= patience {
            let shown = nqn.escape_debug();
            return Err(Status::unavailable(match found {
                Some(device) => format!(
                    "no path of {} leads to the subsystem {shown} after {patience:?}: see `nvme list-subsys`, and \
                     whether the machine that owns the volume is up",
                    device.path.display()
                ),
                None => format!(
                    "this machine has no device of the subsystem {shown} after {patience:?}: the fleet's agent of \
                     this machine connects it (`farlane fleet node list` says whether it runs)"
                ),
            }));
        }
        thread::sleep(EVERY);
    }
}

/// Stages a volume. A block device has nothing to stage but its presence.
pub(super) fn stage(
    machine: &impl Machine,
    nqn: &str,
    point: &Path,
    usage: &Usage,
    patience: Duration,
) -> Result<(), Status> {
    let device = device(machine, nqn, patience)?;
    let Form::Mount { filesystem, options } = &usage.form else { return Ok(()) };
    let is_read_only = usage.is_read_only() || device.read_only || options.iter().any(|one| one == "ro");
    if let Some(mount) = mount_at(machine, point)? {
        return is_same(&mount, &device, is_read_only, *filesystem);
    }
    make_folder(point)?;
    let name = device.path.display();
    match machine.signature(&device)? {
        None if is_read_only => {
            return Err(Status::failed_precondition(format!(
                "{name} has no file system, and is to be read only: write to the volume first"
            )));
        }
        None => machine.make(&device, *filesystem)?,
        Some(found) if found != filesystem.word() => {
            return Err(Status::failed_precondition(format!(
                "{name} has {}, and {filesystem} is wanted: nothing was changed; change the StorageClass, or empty \
                 the device (`wipefs`)",
                found.escape_debug()
            )));
        }
        Some(_) if is_read_only => (),
        Some(_) => machine.repair(&device, *filesystem)?,
    }
    let mut options = options.clone();
    if is_read_only {
        options.push("ro".to_owned());
    }
    machine.mount(&device, point, *filesystem, &options)?;
    match mount_at(machine, point)? {
        Some(mount) => is_same(&mount, &device, is_read_only, *filesystem),
        None => Err(Status::internal(format!(
            "{name} was mounted at {}, and is there no longer",
            point.display()
        ))),
    }
}

/// Checks that a mount at the staging path is the wanted one.
fn is_same(mount: &Mount, device: &Device, read_only: bool, filesystem: Filesystem) -> Result<(), Status> {
    let point = mount.point.display();
    if mount.number != device.number {
        return Err(Status::failed_precondition(format!(
            "{point} has another device, {}:{}, and not {}: unstage it first",
            mount.number.0,
            mount.number.1,
            device.path.display()
        )));
    }
    if mount.filesystem != filesystem.word() || mount.read_only != read_only {
        let how = if mount.read_only { "read-only" } else { "writable" };
        return Err(Status::already_exists(format!(
            "{point} is staged already, {how} with {}",
            mount.filesystem
        )));
    }
    Ok(())
}

/// Undoes [`stage`], and checks that nothing else has the device mounted.
pub(super) fn unstage(machine: &impl Machine, point: &Path) -> Result<(), Status> {
    let Some(mount) = mount_at(machine, point)? else { return Ok(()) };
    let is_elsewhere = |mounts: Vec<Mount>| mounts.into_iter().find(|one| one.point != point);
    if let Some(other) = is_elsewhere(mounts_of(machine, mount.number)?) {
        return Err(Status::failed_precondition(format!(
            "the volume is published at {} still: unpublish it first",
            other.point.display()
        )));
    }
    unmount_all(machine, point)?;
    // Only now is everything written that was in the kernel's memory.
    match mounts_of(machine, mount.number)?.first() {
        None => Ok(()),
        Some(other) => Err(Status::failed_precondition(format!(
            "the volume was mounted at {} meanwhile: unpublish it first",
            other.point.display()
        ))),
    }
}
