//! Small files of an agent: private, durable, and read within a limit.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use live::sys::files::{Kind, Place, Replacement};

/// The mode of files that their owner alone may use.
const PRIVATE: u32 = 0o600;

/// Puts a private file with these bytes in the place of `path`. It outlasts a power cut, and after
/// one, the file has either these bytes or those that it had before.
///
/// # Errors
/// The system's, with the path.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = || {
        let mut file = Replacement::begin(Place::find(path)?, Kind::Private)?;
        file.file().set_permissions(Permissions::from_mode(PRIVATE))?;
        file.write_all(bytes)?;
        file.keep()
    };
    written().map_err(|error| at(path, &error))
}

/// The bytes of the file at `path`; `None` if there is no such file.
///
/// # Errors
/// The system's, and for a file of more than `most` bytes, each with the path.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| at(path, &error))?,
    };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| at(path, &error))?;
    if bytes.len() as u64 > most {
        let text = format!("{}: expected at most {most} bytes", path.display());
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(Some(bytes))
}

/// Removes the file at `path`, if there is one.
///
/// # Errors
/// The system's, with the path.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| at(path, &error)),
    }
}

/// Makes a folder that only this user may enter, unless it is there.
///
/// # Errors
/// The system's, with the path.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| at(path, &error))
}

/// Makes the names in the folder of `path` durable.
///
/// # Errors
/// The system's, with the path.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems keep names in order by other means.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced.map_err(|error| at(folder, &error)),
    }
}

/// An error with the path that it concerns.
pub(crate) fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The names of the files in `folder`; none if there is no such folder.
///
/// # Errors
/// The system's, with the path.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| at(folder, &error))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| at(folder, &error))?;
        // This agent makes no other names.
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}
