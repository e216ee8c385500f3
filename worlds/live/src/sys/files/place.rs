//! Finding the folder that a path leads to.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, fsync, linkat, openat,
    readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::trust;

/// The most symbolic links of a path, as in the kernel.
const LINKS_MAX: usize = 40;

/// A name in a folder that is held open. This name is looked up in that folder even if the folder
/// is renamed.
#[derive(Debug)]
pub struct Place {
    folder: OwnedFd,
    name: OsString,
    path: PathBuf,
    /// The name is a link of the kernel's to an open file, such as `/dev/stdout` leads to.
    is_kernels: bool,
}

impl Place {
    /// Finds the place that `path` leads to; there may be nothing yet. Symbolic links are followed
    /// as far as their owners are trusted.
    ///
    /// # Errors
    /// The system's; `PermissionDenied` for a link that is not followed, `IsADirectory` for a path
    /// that has no last name.
    pub fn find(path: &Path) -> io::Result<Self> {
        Self::walk(path, true)
    }

    /// Finds the place of a name that this program has chosen: a symbolic link of that name is not
    /// followed.
    ///
    /// # Errors
    /// As of [`Place::find`].
    pub(crate) fn of_name(path: &Path) -> io::Result<Self> {
        Self::walk(path, false)
    }

    fn walk(path: &Path, follows_last: bool) -> io::Result<Self> {
        if path.as_os_str().is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(Errno::ISDIR.into());
        }
        let mut walk = Walk::begin(path.is_absolute(), follows_last)?;
        walk.add(path);
        walk.run()
    }

    /// The place's path without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    pub(super) const fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// Whether it is a link of the kernel's to an open file, which can't be replaced.
    pub const fn is_kernels(&self) -> bool {
        self.is_kernels
    }

    /// The place of another name in the same folder.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub(crate) fn beside(&self, name: OsString) -> io::Result<Self> {
        let folder = self.folder.try_clone()?;
        let path = self.path.with_file_name(&name);
        Ok(Self { folder, name, path, is_kernels: false })
    }

    /// The state of the file there, links not followed; `None` if there is none.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn look(&self) -> io::Result<Option<Stat>> {
        let flags = if self.is_kernels { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        match statat(&self.folder, &self.name, flags) {
            Err(Errno::NOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Whether `file` is the file there.
    pub(crate) fn has(&self, file: &File) -> bool {
        let (Ok(Some(there)), Ok(own)) = (self.look(), fstat(file)) else { return false };
        (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)
    }

    /// Removes the name, if there is something that is no folder.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Gives the file there the name `other` instead, and replaces the file of that name.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn rename_to(&self, other: &Self) -> io::Result<()> {
        Ok(renameat(&self.folder, &self.name, &other.folder, &other.name)?)
    }

    /// Gives the file there the name `other` as well.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn link_to(&self, other: &Self) -> io::Result<()> {
        Ok(linkat(&self.folder, &self.name, &other.folder, &other.name, AtFlags::empty())?)
    }

    /// Makes durable which files the folder has, where the file system can.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn sync_folder(&self) -> io::Result<()> {
        // A folder that may be written need not be readable.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = openat(&self.folder, ".", flags, Mode::empty()) else { return Ok(()) };
        sync(folder)
    }

    /// Warns, once for each folder, if other users may write the folder.
    pub(crate) fn warn(&self) {
        if let (Ok(folder), Some(name), false) = (fstat(&self.folder), self.path.parent(), self.is_kernels) {
            trust::warn_of(&folder, name);
        }
    }
}

/// Makes written bytes durable, where the file system can.
///
/// # Errors
/// The system's.
pub(super) fn sync(file: impl AsFd) -> io::Result<()> {
    match fsync(file) {
        // Some file systems can't do this, or have nothing to do.
        Err(Errno::INVAL | Errno::ROFS | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        synced => Ok(synced?),
    }
}

/// A path that is walked.
struct Walk {
    folder: OwnedFd,
    /// The folder's path without symbolic links.
    shown: PathBuf,
    /// The names that are left, the next one last.
    left: Vec<OsString>,
    links: usize,
    /// Whether the last name is followed if it is a link.
    follows_last: bool,
}

impl Walk {
    /// Begins at the root, or where this process works.
    fn begin(is_absolute: bool, follows_last: bool) -> io::Result<Self> {
        let (start, shown) = match is_absolute {
            true => ("/", PathBuf::from("/")),
            false => (".", std::env::current_dir().unwrap_or_default()),
        };
        let folder = folder_at(CWD, OsStr::new(start))?;
        Ok(Self { folder, shown, left: Vec::new(), links: 0, follows_last })
    }

    /// Walks `path` before the rest.
    fn add(&mut self, path: &Path) {
        let names = path.components().map(|component| component.as_os_str().to_owned());
        let at = self.left.len();
        self.left.extend(names);
        self.left[at..].reverse();
    }

    fn run(mut self) -> io::Result<Place> {
        while let Some(name) = self.left.pop() {
            match Path::new(&name).components().next() {
                Some(Component::RootDir) => {
                    (self.folder, self.shown) = (folder_at(CWD, OsStr::new("/"))?, PathBuf::from("/"));
                }
                Some(Component::ParentDir) => {
                    self.folder = folder_at(&self.folder, &name)?;
                    self.shown.pop();
                }
                Some(Component::Normal(_)) => {
                    if let Some(is_kernels) = self.step(&name)? {
                        let path = self.shown.join(&name);
                        return Ok(Place { folder: self.folder, name, path, is_kernels });
                    }
                }
                _ => {}
            }
        }
        Err(Errno::ISDIR.into())
    }

    /// Takes one name. Returns, if it is the last one, whether it is a link of the kernel's.
    fn step(&mut self, name: &OsStr) -> io::Result<Option<bool>> {
        let is_last = self.left.is_empty();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // An automount happens only when a path is opened as a folder.
        if !is_last && let Ok(found) = openat(&self.folder, name, flags | OFlags::DIRECTORY, Mode::empty()) {
            self.folder = found;
            self.shown.push(name);
            return Ok(None);
        }
        let found = match openat(&self.folder, name, flags, Mode::empty()) {
            Err(Errno::NOENT) if is_last => return Ok(Some(false)),
            found => found?,
        };
        let stat = fstat(&found)?;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if is_link && (self.follows_last || !is_last) {
            self.links += 1;
            if self.links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            return self.follow(name, &found, &stat, is_last);
        }
        if is_last { Ok(Some(false)) } else { Err(Errno::NOTDIR.into()) }
    }

    /// Takes a symbolic link.
    fn follow(
        &mut self,
        name: &OsStr,
        link: &OwnedFd,
        stat: &Stat,
        is_last: bool,
    ) -> io::Result<Option<bool>> {
        if fstatfs(&self.folder)?.f_type == PROC_SUPER_MAGIC {
            // These are the kernel's own, and may lead to objects without a path.
            if is_last {
                return Ok(Some(true));
            }
            self.folder = folder_at(&self.folder, name)?;
            self.shown.push(name);
            return Ok(None);
        }
        trust::check_link(stat, &fstat(&self.folder)?).map_err(|error| {
            let path = self.shown.join(name);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let target = readlinkat(link, c"", Vec::new())?;
        self.add(Path::new(&OsString::from_vec(target.into_bytes())));
        Ok(None)
    }
}

/// Opens a folder, only to look up names in it.
fn folder_at(folder: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    Ok(openat(folder, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}
