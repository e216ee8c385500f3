//! Mounts at paths, and the files and folders below them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tonic::Status;

use super::kernel::{Machine, MachineError, Mount, Number};

/// The most mounts that lie on each other at one path.
const STACK_MAX: usize = 16;

/// The path as the kernel has it: links in its folder are followed, its last part is not.
pub(super) fn canonical(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| fs::canonicalize(folder).ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// The mount at a path: the uppermost one.
pub(super) fn mount_at(machine: &impl Machine, path: &Path) -> Result<Option<Mount>, Status> {
    Ok(machine.mounts()?.into_iter().rfind(|one| one.point == path))
}

/// The mounts of whole file systems of a device, and of the device's file.
pub(super) fn mounts_of(machine: &impl Machine, number: Number) -> Result<Vec<Mount>, Status> {
    let mut found = Vec::new();
    for one in machine.mounts()? {
        let is_whole = one.number == number && one.root == Path::new("/");
        // A device's own file is mounted from another file system.
        let is_file = one.root != Path::new("/")
            && one.filesystem == "devtmpfs"
            && machine.block_device_at(&one.point)? == Some(number);
        if is_whole || is_file {
            found.push(one);
        }
    }
    Ok(found)
}

/// Ends all mounts at a path, and checks that there is none left.
pub(super) fn unmount_all(machine: &impl Machine, path: &Path) -> Result<(), Status> {
    for _ in 0..STACK_MAX {
        if mount_at(machine, path)?.is_none() {
            return Ok(());
        }
        machine.unmount(path)?;
    }
    match mount_at(machine, path)? {
        None => Ok(()),
        Some(_) => {
            let reason = format!("{} has more than {STACK_MAX} mounts on each other", path.display());
            Err(Status::internal(reason))
        }
    }
}

/// Makes a folder, unless it is there.
pub(super) fn make_folder(path: &Path) -> Result<(), Status> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => Ok(made.map_err(MachineError::at(format!("making the folder {}", path.display())))?),
    }
}

/// Makes an empty file, unless a file is there.
pub(super) fn make_file(path: &Path) -> Result<(), Status> {
    let made = fs::OpenOptions::new().write(true).create_new(true).open(path);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_dir() => Ok(()),
        made => {
            made.map_err(MachineError::at(format!("making the file {}", path.display())))?;
            Ok(())
        }
    }
}

/// Removes an empty folder, or a file, that was made for a mount.
pub(super) fn remove(path: &Path) -> Result<(), Status> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(error) => return Err(MachineError::at(format!("looking at {}", path.display()))(error).into()),
    };
    if found.is_file() && found.len() > 0 {
        return Err(Status::internal(format!("{} is a file with data: remove it by hand", path.display())));
    }
    let removed = if found.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    Ok(removed.map_err(MachineError::at(format!("removing {}", path.display())))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_with_data_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, inner) = (folder.path().join("file"), folder.path().join("folder"));
        make_file(&file).unwrap();
        make_file(&file).unwrap();
        make_folder(&inner).unwrap();
        make_folder(&inner).unwrap();
        assert!(make_folder(&file).is_err() && make_file(&inner).is_err());
        fs::write(&file, "data").unwrap();
        fs::write(inner.join("data"), "").unwrap();
        assert!(remove(&file).is_err() && remove(&inner).is_err());
        fs::write(&file, "").unwrap();
        fs::remove_file(inner.join("data")).unwrap();
        remove(&file).unwrap();
        remove(&inner).unwrap();
        remove(&inner).unwrap();
        assert!(!file.exists() && !inner.exists());
    }

    #[test]
    fn links_in_folders_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(folder.path()).unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        assert_eq!(canonical(&real.join("link/target")), real.join("target"));
        assert_eq!(canonical(Path::new("/nonexistent/a")), Path::new("/nonexistent/a"));
    }
}
