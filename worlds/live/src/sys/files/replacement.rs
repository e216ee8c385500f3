//! Files that take the place of others when they are whole.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Write};

use rustix::fs::{FileType, Gid, Mode, Uid, fchmod, fchown, fstat};
use rustix::rand::{GetRandomFlags, getrandom};

use super::making::make;
use super::place::sync;
use super::{Kind, Place, trust};

/// How many names are tried for a file beside another one.
const NAMES_MAX: usize = 16;

/// A file under a name of its own, in the folder of the place that it is to take. It is removed
/// unless it is kept.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    /// Where it is until it is kept.
    beside: Place,
    place: Place,
    is_kept: bool,
}

impl Replacement {
    /// Makes a file that is to take `place`. It has the mode and owner of the file that is there;
    /// without one, those of its `kind`.
    ///
    /// # Errors
    /// The system's; `PermissionDenied` also where another user would read the file.
    pub fn begin(place: Place, kind: Kind) -> io::Result<Self> {
        let known =
            place.look()?.filter(|known| FileType::from_raw_mode(known.st_mode) == FileType::RegularFile);
        if let Some(known) = &known {
            trust::check_file(known, &fstat(place.folder())?)?;
        }
        let made = Self::make(place, kind)?;
        if let Some(known) = known {
            // Only root can give a file to its former owner.
            let _ = fchown(&made.file, Some(Uid::from_raw(known.st_uid)), Some(Gid::from_raw(known.st_gid)));
            fchmod(&made.file, Mode::from_raw_mode(known.st_mode & 0o777))?;
        }
        Ok(made)
    }

    /// Makes a file with the mode and owner of its `kind`, in any case.
    fn make(place: Place, kind: Kind) -> io::Result<Self> {
        for _ in 0..NAMES_MAX {
            let beside = place.beside(new_name())?;
            match make(&beside, kind) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    if kind == Kind::Private {
                        place.warn();
                    }
                    return Ok(Self { file: made?, beside, place, is_kept: false });
                }
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Makes a private file that is to take `place`, under the name `name` if possible: a file of
    /// that name is removed, but no folder.
    ///
    /// # Errors
    /// The system's, also for a folder of that name.
    pub(crate) fn begin_as(place: &Place, name: OsString) -> io::Result<Self> {
        let beside = place.beside(name)?;
        let place = place.beside(place.name().to_owned())?;
        match beside.remove() {
            // In a sticky folder, other users' files stay.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Self::make(place, Kind::Private);
            }
            removed => removed?,
        }
        match make(&beside, Kind::Private) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::make(place, Kind::Private),
            made => Ok(Self { file: made?, beside, place, is_kept: false }),
        }
    }

    /// The file.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Puts the file in its place, and makes its name durable. Its contents must be durable
    /// already.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn put(mut self) -> io::Result<File> {
        let file = self.file.try_clone()?;
        self.beside.rename_to(&self.place)?;
        self.is_kept = true;
        // In a folder that is not sticky, other users can move files.
        if trust::is_shared(&fstat(self.place.folder())?) && !self.place.has(&file) {
            return Err(io::Error::other("another user has put another file there meanwhile"));
        }
        self.place.sync_folder()?;
        Ok(file)
    }

    /// Makes the written bytes durable, and puts the file in its place.
    ///
    /// # Errors
    /// The system's.
    pub fn keep(self) -> io::Result<()> {
        // A name may become durable sooner than its file.
        sync(&self.file)?;
        self.put().map(drop)
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_kept {
            // The first error counts.
            let _ = self.beside.remove();
        }
    }
}

/// A name that no other process can foresee.
fn new_name() -> OsString {
    let mut bytes = [0; 8];
    // Linux has had it since 3.17, and it does not fail. A name that is taken is not used either.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    format!(".farlane-{:016x}", u64::from_le_bytes(bytes)).into()
}
