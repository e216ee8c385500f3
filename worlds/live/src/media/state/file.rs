//! The file of state on disk: locked, read, and replaced whole.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use toml::Table;

use super::error::{StateCause, StateError};
use super::text::sections_of;
use crate::media::file::survive_size_limits;
use crate::sys::lock::lock;

/// The most bytes of a file of state: room for two firmware images as text, and for everything else
/// that devices remember.
const BYTES_MAX: u64 = 64 << 20;
/// The mode of a file of state. Only its owner may read and write it, because it has the keys of
/// reservations.
const MODE: u32 = 0o600;
/// How often a file is opened again because another process has replaced it meanwhile.
const REOPENS_MAX: usize = 100;

/// A file of state that this process has for itself.
///
/// The lock is on whatever file is at the path: a replacement is locked before it takes the place
/// of the old file.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// The open file, which keeps the lock.
    locked: File,
    /// Nothing is at the path yet: `locked` is the file that will get that name.
    first: bool,
    /// The file at the path is damaged. It is put aside and does not become the last good
    /// generation.
    damaged: bool,
}

/// What was read from a file of state.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The text; `None` if there is no file yet.
    pub(super) text: Option<String>,
    pub(super) sections: Table,
    /// What the owner should know about the file.
    pub(super) note: Option<String>,
}

impl StateFile {
    /// Takes the file at `path` for this process and reads it. Where the file is damaged, the
    /// generation before it is read instead.
    pub(super) fn open(path: &Path) -> Result<(Self, Found), StateError> {
        survive_size_limits();
        let failed = |cause| StateError::new(path, cause);
        // A symbolic link stays one: the file that it points to is replaced.
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        for _ in 0..REOPENS_MAX {
            let Some((locked, bytes)) = try_open(&real).map_err(failed)? else { continue };
            let first = bytes.is_none();
            let mut damaged = false;
            let found = match bytes.map(parse) {
                None => Found::default(),
                Some(Ok(found)) => found,
                Some(Err(cause)) => {
                    damaged = true;
                    last_good(&real, &cause).ok_or_else(|| failed(cause))?
                }
            };
            return Ok((Self { path: real, locked, first, damaged }, found));
        }
        Err(failed(StateCause::InUse))
    }

    /// The path of the file, with symbolic links resolved.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file by one with `text`; the old file stays as the generation before. On
    /// failure both files stay.
    pub(super) fn replace(&mut self, text: &str) -> io::Result<()> {
        let new = beside(&self.path, NEW);
        if self.first {
            self.locked.set_len(0)?;
            self.locked.rewind()?;
            write_durably(&mut self.locked, text)?;
            // A file of an earlier life is not the generation before this one.
            remove_if_there(&beside(&self.path, OLD))?;
            std::fs::rename(&new, &self.path)?;
            self.first = false;
            return sync_directory(&self.path);
        }
        match write_new(&new, text) {
            Ok(file) => {
                self.keep_aside();
                std::fs::rename(&new, &self.path)?;
                self.locked = file;
                sync_directory(&self.path)
            }
            Err(error) => {
                // The room that the new file has taken may be what others need. The file may not
                // even exist.
                let _ = std::fs::remove_file(&new);
                Err(error)
            }
        }
    }

    /// Gives the file at the path a second name, because its first name is about to go to the
    /// replacement. A file system without hard links keeps no generation before the newest.
    fn keep_aside(&mut self) {
        let name = if std::mem::take(&mut self.damaged) { DAMAGED } else { OLD };
        let aside = beside(&self.path, name);
        // Earlier versions let everybody read the file.
        let _ = self.locked.set_permissions(Permissions::from_mode(MODE));
        let _ = remove_if_there(&aside).and_then(|()| std::fs::hard_link(&self.path, &aside));
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        if self.first {
            // Nothing was ever saved, so nothing is left behind.
            let _ = std::fs::remove_file(beside(&self.path, NEW));
        }
    }
}

/// The suffix of the name under which a replacement is written.
const NEW: &str = ".new";
/// The suffix of the name of the generation before the newest.
const OLD: &str = ".old";
/// The suffix of the name of a file that was found damaged.
const DAMAGED: &str = ".damaged";

/// The path whose name is that of `path` with the suffix `end`.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads the bytes of a file.
fn parse(bytes: Vec<u8>) -> Result<Found, StateCause> {
    let text = String::from_utf8(bytes).map_err(|_| StateCause::NotOurs)?;
    let parsed = sections_of(&text)?;
    let edited = "has no digest: it is taken as people have changed it";
    let note = parsed.is_edited.then(|| edited.to_owned());
    Ok(Found { text: Some(text), sections: parsed.sections, note })
}

/// The generation before the one at `path`, if it exists and is sound. `cause` is the damage found
/// at `path`.
fn last_good(path: &Path, cause: &StateCause) -> Option<Found> {
    if !cause.may_be_damage() {
        return None;
    }
    let old = beside(path, OLD);
    let file = File::open(&old).ok().filter(|file| file.metadata().is_ok_and(|it| it.is_file()))?;
    let found = parse(read(&file).ok()?).ok()?;
    let (old, damaged) = (old.display(), beside(path, DAMAGED));
    let damaged = damaged.display();
    let hint = match cause {
        StateCause::NotAsWritten => " (people who change it make `# end` its last line)",
        _ => "",
    };
    let note = format!(
        "{cause}{hint}. The generation before it, {old}, is used: the last change may be missing. What was found is put aside \
         as {damaged}"
    );
    Some(Found { note: Some(note), ..found })
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A locked file, and its bytes if it existed already.
type Opened = (File, Option<Vec<u8>>);

/// Opens and locks the file and reads its bytes; `None` if it was replaced meanwhile.
fn try_open(path: &Path) -> Result<Option<Opened>, StateCause> {
    let io = |doing| move |error| StateCause::Io { doing, error };
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return begin(path),
        Err(error) if error.kind() == ErrorKind::IsADirectory => return Err(StateCause::NotAFile),
        Err(error) => return Err(io("open it")(error)),
    };
    let metadata = file.metadata().map_err(io("look at it"))?;
    if !metadata.is_file() {
        return Err(StateCause::NotAFile);
    }
    take(&file)?;
    if !is_at(&file, path) {
        return Ok(None);
    }
    if metadata.len() > BYTES_MAX {
        return Err(StateCause::NotOurs);
    }
    let bytes = read(&file).map_err(io("read it"))?;
    Ok(Some((file, Some(bytes))))
}

/// Begins a file, as there is none yet. Whoever has the lock of the file that will get the name
/// makes the first generation.
fn begin(path: &Path) -> Result<Option<Opened>, StateCause> {
    let new = beside(path, NEW);
    let io = |doing| move |error| StateCause::Io { doing, error };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(MODE);
    let file = options.open(&new).map_err(io("make it"))?;
    take(&file)?;
    file.set_permissions(Permissions::from_mode(MODE)).map_err(io("make it its owner's alone"))?;
    let ours = is_at(&file, &new) && !path.exists();
    Ok(ours.then_some((file, None)))
}

fn take(file: &File) -> Result<(), StateCause> {
    match lock(file, false) {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StateCause::InUse),
        // On a file system without locks nothing keeps two processes apart.
        Err(TryLockError::Error(error)) if error.raw_os_error() == Some(libc::ENOLCK) => Ok(()),
        Err(TryLockError::Error(error)) => Err(StateCause::Io { doing: "lock it", error }),
    }
}

/// Whether `file` is the file at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let there = std::fs::metadata(path);
    let ours = file.metadata();
    matches!((there, ours), (Ok(there), Ok(ours)) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
}

/// Makes a file with `text`, locked and durable.
fn write_new(path: &Path, text: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(MODE).open(path)?;
    // A file that was left here may be open to everybody.
    file.set_permissions(Permissions::from_mode(MODE))?;
    match take(&file) {
        Ok(()) => {}
        Err(StateCause::Io { error, .. }) => return Err(error),
        Err(_) => return Err(ErrorKind::WouldBlock.into()),
    }
    write_durably(&mut file, text)?;
    Ok(file)
}

fn write_durably(file: &mut File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Makes the name of `path` durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match File::open(parent.unwrap_or(Path::new(".")))?.sync_all() {
        // Some file systems can't do this, and keep names in order by other means.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result,
    }
}
