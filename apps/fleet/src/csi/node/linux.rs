//! A Linux machine.

use std::fs;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};

use super::kernel::{Device, Machine, MachineError, Mount, Number, Used};
use super::program::run;
use super::{mountinfo, sysfs};
use crate::csi::capability::Filesystem;

/// How long a program may look at a device.
const LOOK: Duration = Duration::from_secs(60);
/// How long a program may change a file system.
const CHANGE: Duration = Duration::from_secs(1800);
/// What `blkid` returns if it has found nothing.
const NOTHING_FOUND: i32 = 2;
/// The most bits of e2fsck's status that still mean a good file system: errors were corrected.
const CORRECTED: i32 = 1;
/// How much of both ends of a device must be readable, before it counts as empty.
const ENDS_BYTES: u64 = 1 << 20;

/// A Linux machine, by its kernel's files.
#[derive(Clone, Debug)]
pub struct Linux {
    sys: PathBuf,
    proc: PathBuf,
    dev: PathBuf,
}

impl Default for Linux {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into() }
    }
}

impl Machine for Linux {
    fn device(&self, nqn: &str) -> Result<Option<Device>, MachineError> {
        sysfs::device(&self.sys, &self.dev, nqn).map_err(MachineError::at("reading /sys/class/nvme"))
    }

    fn device_with(&self, number: Number) -> Result<Option<Device>, MachineError> {
        Ok(sysfs::device_with(&self.sys, &self.dev, number))
    }

    fn block_device_at(&self, path: &Path) -> Result<Option<Number>, MachineError> {
        match fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => {
                let number = found.rdev();
                Ok(Some(Number(rustix::fs::major(number), rustix::fs::minor(number))))
            }
            Ok(_) => Ok(None),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(MachineError::at(format!("looking at {}", path.display()))(error)),
        }
    }

    fn mounts(&self) -> Result<Vec<Mount>, MachineError> {
        let file = self.proc.join("self/mountinfo");
        let tried = || MachineError::at(format!("reading {}", file.display()));
        let text = fs::read(&file).map_err(tried())?;
        mountinfo::parse(&text).ok_or_else(|| {
            let reason = "a line is in no form that proc_pid_mountinfo(5) describes";
            tried()(io::Error::new(io::ErrorKind::InvalidData, reason))
        })
    }

    fn signature(&self, device: &Device) -> Result<Option<String>, MachineError> {
        // blkid finds nothing on a device that cannot be read, either.
        read_ends(device).map_err(MachineError::at(format!("reading {}", device.path.display())))?;
        let path = device.path.to_string_lossy();
        let arguments =
            ["--probe", "--output", "export", "--match-tag", "TYPE", "--match-tag", "PTTYPE", &path];
        let ended = run("blkid", &arguments, LOOK)?;
        match ended.status.code() {
            Some(NOTHING_FOUND) => Ok(None),
            Some(0) => {
                let value = |key: &str| {
                    ended
                        .said
                        .lines()
                        .find_map(|line| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
                };
                let other = || Some("something unknown".to_owned());
                Ok(value("TYPE").or_else(|| value("PTTYPE")).or_else(other))
            }
            _ => Err(ended.failed(&format!("looking for what {path} has, by blkid"))),
        }
    }

    fn make(&self, device: &Device, filesystem: Filesystem) -> Result<(), MachineError> {
        // Both programs open the device for themselves alone, and end if another one has it.
        let path = device.path.to_string_lossy();
        let (program, arguments) = match filesystem {
            Filesystem::Ext4 => ("mkfs.ext4", vec!["-q", "-m", "0", &*path]),
            Filesystem::Xfs => ("mkfs.xfs", vec!["-q", &*path]),
        };
        let ended = run(program, &arguments, CHANGE)?;
        if !ended.status.success() {
            return Err(ended.failed(&format!("making {filesystem} on {path}, by {program}")));
        }
        Ok(())
    }

    fn repair(&self, device: &Device, filesystem: Filesystem) -> Result<(), MachineError> {
        if filesystem != Filesystem::Ext4 {
            return Ok(()); // The kernel replays XFS's log, and there is nothing else to do.
        }
        let path = device.path.to_string_lossy();
        let ended = run("e2fsck", &["-p", &*path], CHANGE)?;
        if ended.status.code().is_none_or(|code| code & !CORRECTED != 0) {
            return Err(ended.failed(&format!("checking the file system of {path}, by e2fsck")));
        }
        Ok(())
    }

    fn mount(
        &self,
        device: &Device,
        point: &Path,
        filesystem: Filesystem,
        options: &[String],
    ) -> Result<(), MachineError> {
        let (flags, data) = flags_of(options);
        let what = format!("mounting {} at {}", device.path.display(), point.display());
        let tried = MachineError::at(what.clone());
        let data = std::ffi::CString::new(data).map_err(|error| tried(io::Error::other(error)))?;
        let data = (!data.is_empty()).then_some(data);
        rustix::mount::mount(&device.path, point, filesystem.word(), flags, data.as_deref())
            .map_err(|error| MachineError::at(what)(error.into()))
    }

    fn bind(&self, source: &Path, point: &Path) -> Result<(), MachineError> {
        let what = format!("mounting {} at {}", source.display(), point.display());
        rustix::mount::mount_bind(source, point).map_err(|error| MachineError::at(what)(error.into()))
    }

    fn make_read_only(&self, mount: &Mount) -> Result<(), MachineError> {
        let what = format!("making {} read-only", mount.point.display());
        // The kernel takes all flags anew: those that the mount has stay.
        let flags = flags_of(&mount.options).0 | MountFlags::BIND | MountFlags::RDONLY;
        rustix::mount::mount_remount(&mount.point, flags, c"")
            .map_err(|error| MachineError::at(what)(error.into()))
    }

    fn unmount(&self, point: &Path) -> Result<(), MachineError> {
        let what = format!("ending the mount at {}", point.display());
        rustix::mount::unmount(point, UnmountFlags::NOFOLLOW)
            .map_err(|error| MachineError::at(what)(error.into()))
    }

    fn grow(&self, device: &Device, point: &Path, filesystem: Filesystem) -> Result<(), MachineError> {
        let (path, point) = (device.path.to_string_lossy(), point.to_string_lossy());
        let (program, argument) = match filesystem {
            Filesystem::Ext4 => ("resize2fs", &path),
            Filesystem::Xfs => ("xfs_growfs", &point),
        };
        let ended = run(program, &[&**argument], CHANGE)?;
        if !ended.status.success() {
            return Err(ended.failed(&format!("extending the file system of {path}, by {program}")));
        }
        Ok(())
    }

    fn used(&self, point: &Path) -> Result<Used, MachineError> {
        let what = format!("asking for the space at {}", point.display());
        let found = rustix::fs::statvfs(point).map_err(|error| MachineError::at(what)(error.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Used {
            bytes: bytes(found.f_blocks),
            bytes_free: bytes(found.f_bavail),
            bytes_used: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
            inodes: found.f_files,
            inodes_free: found.f_ffree,
        })
    }

    fn has_initiator(&self) -> bool {
        sysfs::has_initiator(&self.sys)
    }
}

/// Reads both ends of a device.
fn read_ends(device: &Device) -> io::Result<()> {
    let mut file = fs::File::open(&device.path)?;
    let length = device.bytes.min(ENDS_BYTES);
    for begin in [0, device.bytes - length] {
        file.seek(io::SeekFrom::Start(begin))?;
        let read = io::copy(&mut file.by_ref().take(length), &mut io::sink())?;
        if read < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Mount options, as the flags that mount(2) has for some, and as text for the file system.
fn flags_of(options: &[String]) -> (MountFlags, String) {
    let (mut flags, mut data) = (MountFlags::empty(), Vec::new());
    for option in options {
        let flag = match option.as_str() {
            "ro" => MountFlags::RDONLY,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            "strictatime" => MountFlags::STRICTATIME,
            "lazytime" => MountFlags::LAZYTIME,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "nosuid" => MountFlags::NOSUID,
            "sync" => MountFlags::SYNCHRONOUS,
            "dirsync" => MountFlags::DIRSYNC,
            // What the kernel does without a flag.
            "defaults" | "rw" | "atime" | "diratime" | "dev" | "exec" | "suid" | "async" => continue,
            other => {
                data.push(other);
                continue;
            }
        };
        flags |= flag;
    }
    (flags, data.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_flags_or_text() {
        let options = ["noatime", "discard", "ro", "rw", "commit=30"].map(str::to_owned);
        let (flags, data) = flags_of(&options);
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::RDONLY);
        assert_eq!(data, "discard,commit=30");
    }

    #[test]
    fn what_is_shorter_than_it_says_is_not_empty() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(3 << 20).unwrap();
        let path = file.path().to_owned();
        let device = |bytes| Device {
            path: path.clone(),
            number: Number(7, 0),
            bytes,
            read_only: false,
            reached: true,
        };
        assert!(read_ends(&device(3 << 20)).is_ok());
        assert!(read_ends(&device(100)).is_ok());
        assert!(read_ends(&device(4 << 20)).is_err());
        let machine = Linux::default();
        assert_eq!(machine.block_device_at(file.path()).unwrap(), None);
        assert_eq!(machine.block_device_at(Path::new("/nonexistent/a")).unwrap(), None);
    }

    #[test]
    fn signatures_are_found() {
        if run("blkid", &["--version"], LOOK).is_err() || run("mkfs.ext4", &["-V"], LOOK).is_err() {
            eprintln!("SKIPPED: signatures: blkid and mkfs.ext4 are needed");
            return;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = 16 << 20;
        file.as_file().set_len(bytes).unwrap();
        let path = file.path().to_owned();
        let device = Device { path, number: Number(7, 0), bytes, read_only: false, reached: true };
        let machine = Linux::default();
        assert_eq!(machine.signature(&device).unwrap(), None);
        machine.make(&device, Filesystem::Ext4).unwrap();
        assert_eq!(machine.signature(&device).unwrap().as_deref(), Some("ext4"));
        machine.repair(&device, Filesystem::Ext4).unwrap();
        // What no person has checked is not mounted: the number of the first block is nonsense.
        use std::io::Write as _;
        let mut image = fs::OpenOptions::new().write(true).open(&device.path).unwrap();
        image.seek(io::SeekFrom::Start(1024 + 0x14)).unwrap();
        image.write_all(&[0xff; 4]).unwrap();
        let error = machine.repair(&device, Filesystem::Ext4).unwrap_err().to_string();
        assert!(error.contains("by e2fsck"), "{error}");
    }
}
