//! The file of state on disk: locked, read, and replaced whole.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::Path;

use rustix::fs::OFlags;
use toml::Table;

use super::error::{StateCause, StateError};
use super::text::sections_of;
use crate::media::file::survive_size_limits;
use crate::sys::files::{Kind, Place, Replacement, make_private, open_ours, open_there};
use crate::sys::lock::lock;

/// The most bytes of a file of state: room for two firmware images as text, and for all other state
/// of devices.
const BYTES_MAX: u64 = 64 << 20;
/// How often a file is opened again because another process has replaced it meanwhile.
const REOPENS_MAX: usize = 100;

/// A file of state that this process has for itself. It is private, because it has the keys of
/// reservations.
///
/// The lock is on the file that is at the place: a replacement is locked before it takes the place
/// of the old file.
#[derive(Debug)]
pub(super) struct StateFile {
    place: Place,
    /// The open file, which keeps the lock.
    locked: File,
    /// Where the first generation is until it is saved: `locked` is the file there, and nothing is
    /// at the place yet.
    first: Option<Place>,
    /// The file at the place is damaged. It is put aside and does not become the last good
    /// generation.
    damaged: bool,
}

/// The text read from a file of state.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The text; `None` if there is no file yet.
    pub(super) text: Option<String>,
    pub(super) sections: Table,
    /// A note on the file for its owner.
    pub(super) note: Option<String>,
}

impl StateFile {
    /// Takes the file at `path` for this process and reads it. Where the file is damaged, the
    /// generation before it is read instead. A symbolic link stays one: the file that it points to
    /// is replaced.
    pub(super) fn open(path: &Path) -> Result<(Self, Found), StateError> {
        survive_size_limits();
        let failed = |cause| StateError::new(path, cause);
        let place = Place::find(path).map_err(|error| {
            failed(match error.kind() {
                ErrorKind::IsADirectory => StateCause::NotAFile,
                ErrorKind::NotFound => cause_of("make it", error),
                _ => cause_of("open it", error),
            })
        })?;
        for _ in 0..REOPENS_MAX {
            let Some((locked, bytes)) = try_open(&place).map_err(failed)? else { continue };
            let begun = || beside(&place, NEW).map_err(|error| failed(cause_of("make it", error)));
            let first = if bytes.is_none() { Some(begun()?) } else { None };
            let mut damaged = false;
            let found = match bytes.map(parse) {
                None => Found::default(),
                Some(Ok(found)) => found,
                Some(Err(cause)) => {
                    damaged = true;
                    last_good(&place, &cause).ok_or_else(|| failed(cause))?
                }
            };
            place.warn();
            return Ok((Self { place, locked, first, damaged }, found));
        }
        Err(failed(StateCause::InUse))
    }

    /// The path of the file, with symbolic links resolved.
    pub(super) fn path(&self) -> &Path {
        self.place.path()
    }

    /// Replaces the file by one with `text`; the old file stays as the generation before. On
    /// failure both files stay.
    pub(super) fn replace(&mut self, text: &str) -> io::Result<()> {
        if let Some(begun) = &self.first {
            self.locked.set_len(0)?;
            self.locked.rewind()?;
            write_durably(&self.locked, text)?;
            // A file of an earlier life is not the generation before this one.
            beside(&self.place, OLD)?.remove()?;
            begun.rename_to(&self.place)?;
            self.first = None;
            return self.place.sync_folder();
        }
        // Other files may need the room of a new file: on failure it is removed.
        let new = Replacement::begin_as(&self.place, name_beside(&self.place, NEW))?;
        match take(new.file()) {
            Ok(()) => {}
            Err(StateCause::Io { error, .. }) => return Err(error),
            Err(_) => return Err(ErrorKind::WouldBlock.into()),
        }
        write_durably(new.file(), text)?;
        self.keep_aside();
        self.locked = new.put()?;
        Ok(())
    }

    /// Gives the file at the place a second name, because its first name is about to go to the
    /// replacement. A file system without hard links keeps no generation before the newest.
    fn keep_aside(&mut self) {
        let name = if std::mem::take(&mut self.damaged) { DAMAGED } else { OLD };
        // Earlier versions let all users read the file.
        let _ = make_private(&self.locked);
        let Ok(aside) = beside(&self.place, name) else { return };
        let _ = aside.remove().and_then(|()| self.place.link_to(&aside));
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        if let Some(begun) = &self.first {
            // Nothing was ever saved, so nothing is left behind.
            let _ = begun.remove();
        }
    }
}

/// The suffix of the name under which a replacement is written.
const NEW: &str = ".new";
/// The suffix of the name of the generation before the newest.
const OLD: &str = ".old";
/// The suffix of the name of a file that was found damaged.
const DAMAGED: &str = ".damaged";

/// The place whose name is that of `place` with the suffix `end`.
fn beside(place: &Place, end: &str) -> io::Result<Place> {
    place.beside(name_beside(place, end))
}

fn name_beside(place: &Place, end: &str) -> OsString {
    let mut name = place.name().to_owned();
    name.push(end);
    name
}

/// Reads the bytes of a file.
fn parse(bytes: Vec<u8>) -> Result<Found, StateCause> {
    let text = String::from_utf8(bytes).map_err(|_| StateCause::NotOurs)?;
    let parsed = sections_of(&text)?;
    let edited = "has no digest: it is accepted as a change by hand";
    let note = parsed.is_edited.then(|| edited.to_owned());
    Ok(Found { text: Some(text), sections: parsed.sections, note })
}

/// The generation before the one at `place`, if it exists and is sound. `cause` is the damage found
/// at `place`.
fn last_good(place: &Place, cause: &StateCause) -> Option<Found> {
    if !cause.may_be_damage() {
        return None;
    }
    let old = beside(place, OLD).ok()?;
    // Opened as if it were to be written: another user's is not believed, and no pipe waited for.
    let file = open_there(&old, OFlags::RDWR | OFlags::NONBLOCK).ok()?;
    let file = Some(file).filter(|file| file.metadata().is_ok_and(|it| it.is_file()))?;
    let found = parse(read(&file).ok()?).ok()?;
    let (old, damaged) = (old.path().display(), beside(place, DAMAGED).ok()?);
    let damaged = damaged.path().display();
    let hint = match cause {
        StateCause::NotAsWritten => " (after a change by hand, make `# end` its last line)",
        _ => "",
    };
    let note = format!(
        "{cause}{hint}. The generation before it, {old}, is used: the last change may be missing. The damaged file is put aside \
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
fn try_open(place: &Place) -> Result<Option<Opened>, StateCause> {
    let io = |doing| move |error| cause_of(doing, error);
    let file = match open_there(place, OFlags::RDWR) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return begin(place),
        Err(error) if error.kind() == ErrorKind::IsADirectory => return Err(StateCause::NotAFile),
        Err(error) => return Err(io("open it")(error)),
    };
    let metadata = file.metadata().map_err(io("look at it"))?;
    if !metadata.is_file() {
        return Err(StateCause::NotAFile);
    }
    take(&file)?;
    if !place.has(&file) {
        return Ok(None);
    }
    if metadata.len() > BYTES_MAX {
        return Err(StateCause::NotOurs);
    }
    let bytes = read(&file).map_err(io("read it"))?;
    Ok(Some((file, Some(bytes))))
}

/// Begins a file, as there is none yet. The process with the lock of the file that will get the
/// name makes the first generation.
fn begin(place: &Place) -> Result<Option<Opened>, StateCause> {
    let io = |doing| move |error| cause_of(doing, error);
    let new = beside(place, NEW).map_err(io("make it"))?;
    let file = open_ours(&new, Kind::Private).map_err(io("make it"))?;
    take(&file)?;
    // One that was left here by an earlier version may be readable by all users.
    make_private(&file).map_err(io("make it its owner's alone"))?;
    let is_free = place.look().map_err(io("look at it"))?.is_none();
    Ok((new.has(&file) && is_free).then_some((file, None)))
}

const fn cause_of(doing: &'static str, error: io::Error) -> StateCause {
    StateCause::Io { doing, error }
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

/// Writes `text` to a file, and makes it durable.
fn write_durably(mut file: &File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
