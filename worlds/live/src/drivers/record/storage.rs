//! Properties of the medium of a recording before anything is written to it.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

/// A file system or a block device that takes a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Its name, which stays the same after a restart of the machine.
    pub id: String,
    /// The directory in which the recording's file is to be; `None` for a block device.
    pub directory: Option<PathBuf>,
    /// Number of bytes that a new recording has room for.
    pub room: u64,
}

impl Storage {
    /// The medium of a recording at `path`, where a file need not be yet. `path` may be a
    /// directory, too. A file that is there is overwritten, so that its bytes count as room.
    ///
    /// # Errors
    /// The system's; `NotFound` if there is not even the directory, `Unsupported` if it can hold no
    /// recording.
    pub fn of(path: &Path) -> io::Result<Self> {
        media(path)?;
        let found = fs::metadata(path);
        if let Ok(found) = &found
            && found.file_type().is_block_device()
        {
            let room = File::open(path)?.seek(SeekFrom::End(0))?;
            return Ok(Self { id: block_device(found.rdev()), directory: None, room });
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let (directory, used) = match &found {
            Ok(found) if found.is_dir() => (path, 0),
            // Space is counted in blocks of 512 bytes.
            Ok(found) => (parent.unwrap_or(Path::new(".")), found.blocks() * 512),
            Err(_) => (parent.unwrap_or(Path::new(".")), 0),
        };
        let system = statvfs(directory)?;
        let room = system.f_bavail.saturating_mul(system.f_frsize).saturating_add(used);
        let id = match system.f_fsid {
            0 => format!("filesystem on device {}", fs::metadata(directory)?.dev()),
            id => format!("filesystem {id:x}"),
        };
        Ok(Self { id, directory: Some(directory.to_owned()), room })
    }
}

/// Refuses a place that can't hold a recording, before it is opened: a named pipe would wait
/// without end.
pub(super) fn media(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let kind = metadata.file_type();
    let what = match kind {
        _ if kind.is_fifo() => "a named pipe",
        _ if kind.is_char_device() => "a character device",
        _ if kind.is_socket() => "a socket",
        _ => return Ok(()),
    };
    let why = format!("it is {what}; expected a file or a block device");
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// The name of a block device that outlasts a restart, if it has one, or else its numbers.
fn block_device(number: u64) -> String {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let known = ["wwid", "device/wwid", "uuid", "device/serial", "loop/backing_file", "../wwid"];
    let names = known.into_iter().filter_map(|name| fs::read_to_string(folder.join(name)).ok());
    let name = names.map(|name| name.trim().to_owned()).find(|name| !name.is_empty());
    // A partition has no name of its own.
    let partition = fs::read_to_string(folder.join("partition")).unwrap_or_default();
    match name {
        Some(name) => format!("block device {name} {}", partition.trim()).trim_end().to_owned(),
        None => format!("block device {major}:{minor}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_directory_are_on_one_medium_whether_they_are_there_or_not() {
        let directory = tempfile::tempdir().unwrap();
        let (there, missing) = (directory.path().join("there"), directory.path().join("missing"));
        fs::write(&there, vec![1; 1 << 20]).unwrap();
        let media = [directory.path(), &there, &missing].map(|path| Storage::of(path).unwrap());
        assert!(media.iter().all(|medium| medium.id == media[0].id && medium.room > 0), "{media:?}");
        assert!(media.iter().all(|medium| medium.directory.as_deref() == Some(directory.path())));
        assert_ne!(Storage::of(Path::new("/proc")).unwrap().id, media[0].id);
        let error = Storage::of(&directory.path().join("none/file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
