//! Replaces a file by another text: a reader finds the old text or the new one.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use live::sys::files::{Kind, Place, Replacement};

/// Gives the file at `path` this text, and the owner and mode of the file `like`. Replaces the file
/// that a symbolic link at `path` leads to, not the link.
pub(super) fn replace(path: &Path, like: &Path, text: &str) -> io::Result<()> {
    let mut new = Replacement::begin(Place::find(path)?, Kind::Private)?;
    new.write_all(text.as_bytes())?;
    let known = fs::metadata(like)?;
    let made = new.file().metadata()?;
    if (made.uid(), made.gid()) != (known.uid(), known.gid()) {
        fchown(new.file(), Some(known.uid()), Some(known.gid()))?;
    }
    // Last, because a change of the owner may take bits away.
    new.file().set_permissions(known.permissions())?;
    new.keep()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_behind_a_link_is_replaced_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, other] = ["file", "link", "other"].map(|name| folder.path().join(name));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, &link, "after").unwrap();
        replace(&other, &file, "a copy").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert_eq!(fs::read_to_string(&other).unwrap(), "a copy");
        for path in [file, other] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o640);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left beside");
    }
}
