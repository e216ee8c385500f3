//! The files with volumes' data: made once, made longer, and removed when their target has let go.
//!
//! A mark in the agent's folder says that a volume's file was made. A file that is gone although it
//! has a mark is never made anew: a pool that is not mounted would otherwise turn a full volume
//! into an empty one.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fleet::Name;

use super::super::files;
use super::file::{state_path, volume_path};

/// What sizes are rounded up to: blocks of all sizes fit.
const ROUNDED_TO: u64 = 4096;
/// Bytes of a block in the kernel's count of a file's blocks.
const BLOCK: u64 = 512;

/// The files with volumes' data.
#[derive(Debug)]
pub(super) struct Volumes {
    /// The folder with the marks.
    marks: PathBuf,
    /// Files that no process has had open since the target let them go.
    released: BTreeSet<PathBuf>,
}

impl Volumes {
    /// # Errors
    /// The system's.
    pub(super) fn open(marks: PathBuf) -> io::Result<Self> {
        files::make_folder(&marks)?;
        Ok(Self { marks, released: BTreeSet::new() })
    }

    fn mark(&self, volume: &Name, pool: &Name) -> PathBuf {
        // No name of an object has a dot.
        self.marks.join(format!("{volume}.{pool}"))
    }

    /// Makes a volume's file, or makes it longer. Returns its path and its length.
    ///
    /// # Errors
    /// When its data is lost, there is no space, or the system refuses.
    pub(super) fn prepare(
        &self,
        volume: &Name,
        (pool, folder): (&Name, &Path),
        bytes: u64,
    ) -> io::Result<(PathBuf, u64)> {
        let path = volume_path(folder, volume);
        let wanted = rounded(bytes);
        let no_size = || format!("{}: no file has {bytes} bytes", path.display());
        let wanted = wanted.ok_or_else(|| io::Error::new(ErrorKind::FileTooLarge, no_size()))?;
        let mark = self.mark(volume, pool);
        match std::fs::metadata(&path) {
            Ok(found) if !found.is_file() => {
                let text = format!("{} is no file: move it out of the pool", path.display());
                return Err(io::Error::new(ErrorKind::AlreadyExists, text));
            }
            Ok(found) => {
                if !mark.exists() {
                    tracing::info!(%volume, "{} was there already, and is used", path.display());
                    files::replace(&mark, b"")?;
                }
                let wanted = wanted.max(found.len().next_multiple_of(ROUNDED_TO));
                if found.len() < wanted {
                    self.lengthen(&path, found.len(), wanted)?;
                }
                return Ok((path, wanted));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if mark.exists() {
                    let text = format!(
                        "{} is gone: mount its pool, or put the file back; it is not made anew, as its data \
                         would be lost",
                        path.display()
                    );
                    return Err(io::Error::new(ErrorKind::NotFound, text));
                }
                self.make(&path, wanted)?;
                files::replace(&mark, b"")?;
            }
            Err(error) => return Err(files::at(&path, &error)),
        }
        Ok((path, wanted))
    }

    fn make(&self, path: &Path, bytes: u64) -> io::Result<()> {
        check_room(path, bytes)?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(path);
        let made = file.and_then(|file| file.set_len(bytes).and_then(|()| file.sync_all()));
        made.and_then(|()| files::sync_folder_of(path)).map_err(|error| {
            // An empty file would be taken for the volume.
            let _ = std::fs::remove_file(path);
            files::at(path, &error)
        })
    }

    fn lengthen(&self, path: &Path, bytes: u64, wanted: u64) -> io::Result<()> {
        check_room(path, wanted - bytes)?;
        let file = File::options().write(true).open(path);
        file.and_then(|file| file.set_len(wanted).and_then(|()| file.sync_all()))
            .map_err(|error| files::at(path, &error))
    }

    /// Whether a process still has the file open, such as a target that is carrying out the last
    /// requests of a host. Asks only until no process has.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn is_in_use(&mut self, path: &Path) -> io::Result<bool> {
        if self.released.contains(path) {
            return Ok(false);
        }
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(|error| files::at(path, &error))?,
        };
        match file.try_lock() {
            Ok(()) => {
                self.released.insert(path.to_owned());
                Ok(false)
            }
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(files::at(path, &error)),
        }
    }

    /// Takes note that the target has the file open, or is about to.
    pub(super) fn note_served(&mut self, path: &Path) {
        self.released.remove(path);
    }

    /// Removes a volume's file, if no process has it open. Returns whether there was one.
    ///
    /// # Errors
    /// When a process has, or the system refuses.
    pub(super) fn delete(&mut self, volume: &Name, (pool, folder): (&Name, &Path)) -> io::Result<bool> {
        let path = volume_path(folder, volume);
        let is_there = path.exists();
        self.released.remove(&path);
        if self.is_in_use(&path)? {
            let text = format!("{}: a process still uses the volume", path.display());
            return Err(io::Error::new(ErrorKind::ResourceBusy, text));
        }
        // The mark goes first: a mark without a file would stand against a new volume of the name.
        let mark = self.mark(volume, pool);
        files::remove(&mark)?;
        files::sync_folder_of(&mark)?;
        files::remove(&path)?;
        files::remove(&state_path(&path))?;
        self.released.remove(&path);
        files::sync_folder_of(&path)?;
        Ok(is_there)
    }
}

/// The length of a file with so many bytes of data; `None` if no file is so long.
pub(super) fn rounded(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(ROUNDED_TO).filter(|bytes| i64::try_from(*bytes).is_ok())
}

/// Checks that a file system has room for `bytes` more, after all that its volumes in this pool may
/// still take. A write would otherwise find no space later.
pub(super) fn check_room(path: &Path, bytes: u64) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let space = rustix::fs::statvfs(folder).map_err(|error| files::at(folder, &error.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let mut promised = 0u64;
    for name in files::names(folder)? {
        if let Ok(found) = std::fs::metadata(folder.join(name))
            && found.is_file()
        {
            let unwritten = found.len().saturating_sub(found.blocks().saturating_mul(BLOCK));
            promised = promised.saturating_add(unwritten);
        }
    }
    let room = free.saturating_sub(promised);
    if room >= bytes {
        return Ok(());
    }
    let text = format!(
        "{}: {bytes} bytes are wanted, and {room} are free after all that other volumes may take: free some, \
         or delete a volume",
        path.display()
    );
    Err(io::Error::new(ErrorKind::StorageFull, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        _directory: tempfile::TempDir,
        pool: PathBuf,
        volumes: Volumes,
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    impl Bench {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let pool = directory.path().join("pool");
            std::fs::create_dir(&pool).unwrap();
            let volumes = Volumes::open(directory.path().join("volumes")).unwrap();
            Self { _directory: directory, pool, volumes }
        }

        fn prepare(&self, bytes: u64) -> io::Result<(PathBuf, u64)> {
            self.volumes.prepare(&name("v"), (&name("p"), &self.pool), bytes)
        }

        fn delete(&mut self) -> io::Result<bool> {
            self.volumes.delete(&name("v"), (&name("p"), &self.pool))
        }
    }

    #[test]
    fn a_volume_grows_and_never_shrinks() {
        let bench = Bench::new();
        let (path, bytes) = bench.prepare(10_000).unwrap();
        assert_eq!((bytes, std::fs::metadata(&path).unwrap().len()), (12_288, 12_288));
        assert_eq!(bench.prepare(4096).unwrap(), (path.clone(), 12_288));
        assert_eq!(bench.prepare(1 << 20).unwrap(), (path.clone(), 1 << 20));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn lost_data_is_not_made_anew() {
        let mut bench = Bench::new();
        let (path, _) = bench.prepare(4096).unwrap();
        std::fs::remove_file(&path).unwrap();
        let error = bench.prepare(4096).unwrap_err().to_string();
        assert!(error.contains("v.raw is gone: mount its pool"), "{error}");
        bench.delete().unwrap();
        bench.prepare(4096).unwrap();
    }

    #[test]
    fn data_without_a_mark_is_adopted() {
        let bench = Bench::new();
        let path = bench.pool.join("v.raw");
        std::fs::write(&path, "data").unwrap();
        bench.prepare(4096).unwrap();
        assert_eq!(&std::fs::read(&path).unwrap()[..5], b"data\0");
        std::fs::remove_file(&path).unwrap();
        bench.prepare(4096).unwrap_err();
    }

    #[test]
    fn a_volume_that_is_in_use_is_not_deleted() {
        let mut bench = Bench::new();
        let (path, _) = bench.prepare(4096).unwrap();
        let user = File::open(&path).unwrap();
        user.lock().unwrap();
        assert!(bench.volumes.is_in_use(&path).unwrap());
        assert_eq!(bench.delete().unwrap_err().kind(), ErrorKind::ResourceBusy);
        drop(user);
        assert!(!bench.volumes.is_in_use(&path).unwrap());
        assert!(bench.delete().unwrap());
        assert!(!path.exists());
        assert!(!bench.delete().unwrap());
    }

    #[test]
    fn a_pool_without_room_is_named() {
        let bench = Bench::new();
        let error = bench.prepare(1 << 60).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        assert!(error.to_string().contains("v.raw: 1152921504606846976 bytes are wanted"), "{error}");
        assert_eq!(bench.prepare(u64::MAX).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert!(!bench.pool.join("v.raw").exists());
        bench.prepare(4096).unwrap();
    }
}
