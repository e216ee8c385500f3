//! A staged volume is published: at the path of a pod.

use std::path::Path;
use std::time::Duration;

use tonic::Status;

use super::kernel::{Machine, Mount, Number};
use super::paths::{make_file, make_folder, mount_at, mounts_of, remove, unmount_all};
use super::stage;
use crate::csi::capability::{Form, Usage};

/// A volume that is to be published.
pub(super) struct Publication<'a> {
    /// The subsystem of the volume.
    pub(super) nqn: &'a str,
    /// Where it is staged.
    pub(super) staging: &'a Path,
    /// Where the pod sees it.
    pub(super) target: &'a Path,
    /// How it is to be used.
    pub(super) usage: &'a Usage,
    /// Whether the pod only reads.
    pub(super) read_only: bool,
}

/// Publishes a volume.
pub(super) fn publish(
    machine: &impl Machine,
    one: &Publication<'_>,
    patience: Duration,
) -> Result<(), Status> {
    match one.usage.form {
        Form::Block => publish_block(machine, one, patience),
        Form::Mount { .. } => publish_mount(machine, one),
    }
}

fn publish_block(machine: &impl Machine, one: &Publication<'_>, patience: Duration) -> Result<(), Status> {
    let device = stage::device(machine, one.nqn, patience)?;
    if one.read_only && !device.read_only {
        // A second mount of a device's file refuses nothing.
        return Err(Status::failed_precondition(format!(
            "{} is writable, and is to be read only: have the PersistentVolume itself read-only",
            device.path.display()
        )));
    }
    if mount_at(machine, one.target)?.is_some() {
        return match machine.block_device_at(one.target)? {
            Some(number) if number == device.number => Ok(()),
            _ => Err(occupied(one.target)),
        };
    }
    is_alone(machine, one, device.number)?;
    make_file(one.target)?;
    machine.bind(&device.path, one.target)?;
    match machine.block_device_at(one.target)? {
        Some(number) if number == device.number => Ok(()),
        _ => Err(Status::internal(format!("{} was mounted, and is there no longer", one.target.display()))),
    }
}

fn publish_mount(machine: &impl Machine, one: &Publication<'_>) -> Result<(), Status> {
    let Some(staged) = mount_at(machine, one.staging)? else {
        return Err(Status::failed_precondition(format!(
            "nothing is mounted at {}: stage the volume first",
            one.staging.display()
        )));
    };
    let read_only = one.read_only || staged.read_only || one.usage.is_read_only();
    let mounted = match mount_at(machine, one.target)? {
        Some(mounted) if mounted.number != staged.number => return Err(occupied(one.target)),
        Some(mounted) => mounted,
        None => {
            is_alone(machine, one, staged.number)?;
            make_folder(one.target)?;
            machine.bind(one.staging, one.target)?;
            seen(machine, one.target)?
        }
    };
    if mounted.read_only == read_only {
        return Ok(());
    }
    if !read_only {
        let reason = format!("the volume is published at {} already, read-only", one.target.display());
        return Err(Status::already_exists(reason));
    }
    // The second of two steps, of which an earlier call may have taken only the first.
    machine.make_read_only(&mounted)?;
    if !seen(machine, one.target)?.read_only {
        return Err(Status::internal(format!("{} does not become read-only", one.target.display())));
    }
    Ok(())
}

fn seen(machine: &impl Machine, target: &Path) -> Result<Mount, Status> {
    let missing = || Status::internal(format!("{} was mounted, and is there no longer", target.display()));
    mount_at(machine, target)?.ok_or_else(missing)
}

fn occupied(target: &Path) -> Status {
    Status::already_exists(format!("{} has another volume: unpublish that first", target.display()))
}

/// Checks that no other pod has a volume that is for one pod.
fn is_alone(machine: &impl Machine, one: &Publication<'_>, number: Number) -> Result<(), Status> {
    if !one.usage.has_one_writer() {
        return Ok(());
    }
    let mounts = mounts_of(machine, number)?;
    let other = mounts.iter().find(|found| found.point != one.staging && found.point != one.target);
    match other {
        None => Ok(()),
        Some(other) => Err(Status::failed_precondition(format!(
            "the volume is for one pod, and is published at {} already",
            other.point.display()
        ))),
    }
}

/// Undoes [`publish`], and removes what was made for it.
pub(super) fn unpublish(machine: &impl Machine, target: &Path) -> Result<(), Status> {
    unmount_all(machine, target)?;
    remove(target)
}
