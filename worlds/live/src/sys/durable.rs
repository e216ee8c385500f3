//! Names of files that outlast a power cut.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes the name of this file durable: durable contents are of no use without it.
///
/// # Errors
/// The system's.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // A folder that may be written need not be readable.
    let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) else { return Ok(()) };
    match folder.sync_all() {
        // Some file systems can't do this, and keep names in order by other means.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_found_however_its_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        sync_folder_of(&directory.path().join("file")).unwrap();
        sync_folder_of(Path::new("file")).unwrap();
        sync_folder_of(Path::new("/none/file")).unwrap();
        // The file system of processes syncs nothing.
        sync_folder_of(Path::new("/proc/self/fd/0")).unwrap();
    }
}
