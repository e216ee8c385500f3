//! Making files, and opening those that are there.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::{Errno, retry_on_intr};

use super::{Kind, Place, trust};

/// How often a name is tried again because another process makes and removes it meanwhile.
const TRIES_MAX: usize = 100;

/// Opens the file at `path` for writing from its beginning: a new one, or the one that is there,
/// emptied. A pipe and the like are opened as they are.
///
/// # Errors
/// The system's; `PermissionDenied` also where another user would choose or read the file.
pub fn write(path: &Path, kind: Kind) -> io::Result<File> {
    let file = write_on(path, kind)?;
    if is_regular(&fstat(&file)?) {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens the file at `path` like [`write()`], and keeps its contents.
///
/// # Errors
/// As of [`write()`].
pub fn write_on(path: &Path, kind: Kind) -> io::Result<File> {
    let place = Place::find(path)?;
    there_or_new(&place, kind, OFlags::WRONLY).map(|(file, _)| file)
}

/// Opens the file at `path` for reading and writing, and makes it if there is none. Returns also
/// its place if it was made.
///
/// # Errors
/// As of [`write()`].
pub(crate) fn open_or_make(path: &Path, kind: Kind) -> io::Result<(File, Option<Place>)> {
    let place = Place::find(path)?;
    let (file, is_new) = there_or_new(&place, kind, OFlags::RDWR)?;
    Ok((file, is_new.then_some(place)))
}

/// Opens the file at `path`, which must be there, for reading and writing.
///
/// # Errors
/// As of [`write()`].
pub fn change(path: &Path) -> io::Result<File> {
    open_there(&Place::find(path)?, OFlags::RDWR)
}

fn there_or_new(place: &Place, kind: Kind, flags: OFlags) -> io::Result<(File, bool)> {
    for _ in 0..TRIES_MAX {
        let opened = match place.look()? {
            Some(_) => open_there(place, flags).map(|file| (file, false)),
            None => make(place, kind).map(|file| (file, true)),
        };
        match opened {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {}
            Ok((file, is_new)) => {
                if kind == Kind::Private && is_regular(&fstat(&file)?) {
                    place.warn();
                }
                return Ok((file, is_new));
            }
            failed => return failed,
        }
    }
    Err(io::Error::other("another process makes and removes it again and again"))
}

/// Makes a file at a place where nothing is.
///
/// # Errors
/// The system's; `AlreadyExists` if there is something.
pub(crate) fn make(place: &Place, kind: Kind) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = trust::mode_at_first(kind);
    let file = retry_on_intr(|| openat(place.folder(), place.name(), flags, mode))?;
    trust::settle(&file, kind);
    Ok(file.into())
}

/// Opens the file at a place. If it is opened for writing, it must be one that another user can't
/// have put there.
///
/// # Errors
/// As of [`write()`]; `NotFound` if there is nothing.
pub(crate) fn open_there(place: &Place, flags: OFlags) -> io::Result<File> {
    let open = |flags| retry_on_intr(|| openat(place.folder(), place.name(), flags, Mode::empty()));
    if place.is_kernels() {
        return Ok(open(flags | OFlags::CLOEXEC)?.into());
    }
    let folder = fstat(place.folder())?;
    let is_written = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
    let check = |found: &Stat| if is_written { trust::check_file(found, &folder) } else { Ok(()) };
    // Before, because opening a pipe of another user waits for that user.
    check(&place.look()?.ok_or(Errno::NOENT)?)?;
    let file = open(flags | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
    // The open file is checked too: its name may have changed hands.
    check(&fstat(&file)?)?;
    Ok(file.into())
}

/// Opens the file that processes of this user make for themselves at a place, such as a lock, and
/// makes it if there is none. Another user's file there is removed.
///
/// # Errors
/// The system's, also when something there can't be removed.
pub(crate) fn open_ours(place: &Place, kind: Kind) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    for _ in 0..TRIES_MAX {
        match make(place, kind) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made,
        }
        match retry_on_intr(|| openat(place.folder(), place.name(), flags, Mode::empty())) {
            Ok(file) if trust::is_own(&fstat(&file)?) => return Ok(file.into()),
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => return Err(Errno::ISDIR.into()),
            _ => place.remove().map_err(|error| {
                let path = place.path().display();
                io::Error::new(
                    error.kind(),
                    format!("{path} is of another user and can't be removed: {error}"),
                )
            })?,
        }
    }
    Err(io::Error::other(format!("another user makes {} again and again", place.path().display())))
}

fn is_regular(file: &Stat) -> bool {
    FileType::from_raw_mode(file.st_mode) == FileType::RegularFile
}
