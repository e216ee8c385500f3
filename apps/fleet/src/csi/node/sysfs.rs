//! The kernel's block devices, as sysfs shows them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::kernel::{Device, Number};

/// The size of the sectors in which sysfs counts.
const SECTOR_BYTES: u64 = 512;

/// The device of a subsystem with this NVMe Qualified Name.
///
/// With multipathing, the kernel has one device for all paths, below the subsystem. Without, it has
/// one below each controller.
pub(super) fn device(sys: &Path, dev: &Path, nqn: &str) -> io::Result<Option<Device>> {
    let controllers = named(&sys.join("class/nvme"), nqn)?;
    let reached = controllers.iter().any(|one| text(&one.join("state")).is_some_and(|state| state == "live"));
    let subsystems = named(&sys.join("class/nvme-subsystem"), nqn)?;
    for above in subsystems.iter().chain(&controllers) {
        for name in entries(above)? {
            if is_namespace(&name)
                && let Some(found) = block(&above.join(&name), dev)
                && found.bytes > 0
            {
                return Ok(Some(Device { reached, ..found }));
            }
        }
    }
    Ok(None)
}

/// The device with a number.
pub(super) fn device_with(sys: &Path, dev: &Path, number: Number) -> Option<Device> {
    let Number(major, minor) = number;
    let link = fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
    let found = block(&link, dev)?;
    let above = link.join("device");
    let states: Vec<_> = match text(&above.join("state")) {
        Some(state) => vec![state],
        None => {
            let controllers =
                entries(&above).unwrap_or_default().into_iter().filter(|one| is_controller(one));
            controllers.filter_map(|one| text(&above.join(one).join("state"))).collect()
        }
    };
    let reached = states.is_empty() || states.iter().any(|state| state == "live");
    Some(Device { reached, ..found })
}

/// Whether the kernel can connect to far SSDs.
pub(super) fn has_initiator(sys: &Path) -> bool {
    sys.join("class/nvme-fabrics").exists() || sys.join("class/ublk-char").exists()
}

/// The block device of a folder of sysfs.
fn block(folder: &Path, dev: &Path) -> Option<Device> {
    let number = text(&folder.join("dev"))?;
    let (major, minor) = number.split_once(':')?;
    let number = Number(major.parse().ok()?, minor.parse().ok()?);
    let sectors: u64 = text(&folder.join("size"))?.parse().ok()?;
    let read_only = text(&folder.join("ro")).is_some_and(|ro| ro != "0");
    let path = dev.join(folder.file_name()?);
    Some(Device { path, number, bytes: sectors.checked_mul(SECTOR_BYTES)?, read_only, reached: true })
}

/// The folders of a class whose subsystem has this name.
fn named(class: &Path, nqn: &str) -> io::Result<Vec<PathBuf>> {
    let all = entries(class)?.into_iter().map(|name| class.join(name));
    Ok(all.filter(|one| text(&one.join("subsysnqn")).is_some_and(|found| found == nqn)).collect())
}

/// The names in a folder, in order; none if there is no such folder.
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let found = match fs::read_dir(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in found {
        names.extend(entry?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// The first line of a file; `None` if it cannot be read, as when the device goes meanwhile.
fn text(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim_end().to_owned())
}

/// Whether a name is that of a namespace: `nvme0n1`, but not `nvme0c1n1`, which is one path to it.
fn is_namespace(name: &str) -> bool {
    let numbers = name.strip_prefix("nvme").and_then(|rest| rest.split_once('n'));
    numbers.is_some_and(|(one, other)| is_number(one) && is_number(other))
}

/// Whether a name is that of a controller: `nvme0`.
fn is_controller(name: &str) -> bool {
    name.strip_prefix("nvme").is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    /// What Linux 6.12 shows of one volume with two paths, and of one beside it.
    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        let subsystem = sys.join("class/nvme-subsystem/nvme-subsys0");
        write(&subsystem, &[("subsysnqn", "nqn:one\n")]);
        for (controller, state) in [("nvme0", "connecting\n"), ("nvme1", "live\n")] {
            write(&sys.join("class/nvme").join(controller), &[("subsysnqn", "nqn:one\n"), ("state", state)]);
            write(&subsystem.join(controller), &[("state", state)]);
        }
        write(&subsystem.join("nvme0c0n1"), &[("dev", "259:9\n"), ("size", "1\n")]);
        write(&subsystem.join("nvme0n1"), &[("dev", "259:1\n"), ("size", "2048\n"), ("ro", "0\n")]);
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        std::os::unix::fs::symlink(subsystem.join("nvme0n1"), sys.join("dev/block/259:1")).unwrap();
        std::os::unix::fs::symlink(&subsystem, subsystem.join("nvme0n1/device")).unwrap();
        // Without multipathing.
        let other = sys.join("class/nvme/nvme2");
        write(&other, &[("subsysnqn", "nqn:two\n"), ("state", "live\n")]);
        write(&other.join("nvme2n1"), &[("dev", "259:2\n"), ("size", "8\n"), ("ro", "1\n")]);
        folder
    }

    #[test]
    fn devices_are_found_by_name_and_by_number() {
        let (folder, dev) = (tree(), Path::new("/dev"));
        let sys = folder.path();
        let path = "/dev/nvme0n1".into();
        let one = Device { path, number: Number(259, 1), bytes: 1 << 20, read_only: false, reached: true };
        assert_eq!(device(sys, dev, "nqn:one").unwrap(), Some(one.clone()));
        assert_eq!(device_with(sys, dev, Number(259, 1)), Some(one));
        let two = device(sys, dev, "nqn:two").unwrap().unwrap();
        assert!(two.read_only && two.bytes == 4096, "{two:?}");
        assert_eq!(device(sys, dev, "nqn:three").unwrap(), None);
        assert_eq!(device_with(sys, dev, Number(259, 3)), None);
    }

    #[test]
    fn a_device_without_a_live_path_is_not_reached() {
        let folder = tree();
        for file in ["class/nvme/nvme1/state", "class/nvme-subsystem/nvme-subsys0/nvme1/state"] {
            fs::write(folder.path().join(file), "connecting\n").unwrap();
        }
        let dev = Path::new("/dev");
        assert!(!device(folder.path(), dev, "nqn:one").unwrap().unwrap().reached);
        assert!(!device_with(folder.path(), dev, Number(259, 1)).unwrap().reached);
    }

    #[test]
    fn a_machine_without_nvme_has_no_devices() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(device(folder.path(), Path::new("/dev"), "nqn:one").unwrap(), None);
        assert!(!has_initiator(folder.path()));
    }
}
