//! Whose files and links are trusted, and the modes and owners of new files.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{FileType, Gid, Mode, Stat, Uid, fchmod, fchown};
use rustix::process::{getegid, geteuid};

use super::Kind;
use crate::sys::user;

/// The default mode of private files: for their owner alone.
const OWNERS: u32 = 0o600;
/// The mode of reports, of which the umask takes some.
const EVERYBODYS: u32 = 0o666;
const ROOT: u32 = 0;
/// The variable in which `sudo` names its caller.
const SUDO_UID: &str = "SUDO_UID";

/// The mode of private files.
static MODE: AtomicU32 = AtomicU32::new(OWNERS);
/// The user and group that this process is about to become.
static FUTURE: Mutex<Option<(u32, u32)>> = Mutex::new(None);
/// Folders that a warning has named, by device and inode.
static NAMED: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// Gives private files that are made from now on the mode `mode`, regardless of the umask.
pub fn make_with(mode: u32) {
    MODE.store(mode, Ordering::Relaxed);
}

/// Takes note that this process is about to become the user called `name`: private files that it
/// makes belong to that user, whose files and links are trusted. Without such a user, nothing
/// changes.
pub fn make_for(name: &str) {
    let ids = CString::new(name).ok().and_then(|name| user::ids_of(&name).ok()?);
    *FUTURE.lock().unwrap_or_else(PoisonError::into_inner) = ids;
}

fn future() -> Option<(u32, u32)> {
    *FUTURE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mode with which a file is made.
pub(super) fn mode_at_first(kind: Kind) -> Mode {
    Mode::from_raw_mode(match kind {
        Kind::Private => OWNERS,
        Kind::Report => EVERYBODYS,
    })
}

/// Gives a private file that was just made its mode and owner.
pub(super) fn settle(file: impl AsFd, kind: Kind) {
    if kind == Kind::Report {
        return;
    }
    if let Some((uid, gid)) = future().filter(|_| geteuid().is_root()) {
        // A process that may not do this goes on with the file that it has open.
        let _ = fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    }
    // It was made for its owner alone. A file system without modes refuses others.
    if MODE.load(Ordering::Relaxed) != OWNERS {
        let _ = make_private(file);
    }
}

/// Gives a file the mode of a private one.
///
/// # Errors
/// The system's.
pub(crate) fn make_private(file: impl AsFd) -> io::Result<()> {
    Ok(fchmod(file, Mode::from_raw_mode(MODE.load(Ordering::Relaxed)))?)
}

/// Whether a file that is made under a fixed name was made by this process or another one of its
/// user: no other user writes it, and it is no other file of that user.
pub(super) fn is_own(file: &Stat) -> bool {
    let is_regular = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
    is_regular && file.st_nlink <= 1 && is_trusted(file.st_uid)
}

/// Whether files of the user `uid` are this process's own, or root's.
fn is_trusted(uid: u32) -> bool {
    // The variables of root's process are set by root.
    let caller = || std::env::var(SUDO_UID).ok().and_then(|text| text.parse().ok());
    let own = geteuid();
    uid == ROOT
        || uid == own.as_raw()
        || future().is_some_and(|(future, _)| future == uid)
        || (own.is_root() && caller() == Some(uid))
}

/// Whether this process is root on the machine. In a user namespace, it can't distinguish root's
/// files from those of other users.
fn is_root() -> bool {
    static IS_INITIAL: OnceLock<bool> = OnceLock::new();
    let is_initial = || {
        let map = std::fs::read_to_string("/proc/self/uid_map");
        map.map_or(true, |map| map.split_whitespace().eq(["0", "0", "4294967295"]))
    };
    geteuid().is_root() && *IS_INITIAL.get_or_init(is_initial)
}

/// Whether every user may make files in a folder.
fn is_everybodys(folder: &Stat) -> bool {
    folder.st_mode & 0o002 != 0
}

/// Refuses a symbolic link in `folder` that must not be followed. Linux has a similar rule where
/// `fs.protected_symlinks` is on, for sticky folders alone; it trusts the owner of the folder.
///
/// # Errors
/// For a link of another user.
pub(super) fn check_link(link: &Stat, folder: &Stat) -> io::Result<()> {
    let is_followed = is_trusted(link.st_uid) || !(is_everybodys(folder) || is_root());
    match is_followed {
        true => Ok(()),
        false => Err(refused(&format!(
            "it is a symbolic link of another user (uid {}), which is not followed",
            link.st_uid
        ))),
    }
}

/// Refuses to write a file that is there and that another user may have put there, either to have
/// it overwritten, or to read the written bytes.
///
/// # Errors
/// For such a file.
pub(super) fn check_file(file: &Stat, folder: &Stat) -> io::Result<()> {
    let kind = FileType::from_raw_mode(file.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Fifo) {
        return Ok(());
    }
    if is_everybodys(folder) && !is_trusted(file.st_uid) {
        return Err(refused(&format!(
            "it belongs to another user (uid {}), and every user may make files in its folder",
            file.st_uid
        )));
    }
    let is_of_others = is_everybodys(folder) || (is_root() && !is_trusted(folder.st_uid));
    if is_of_others && kind == FileType::RegularFile && file.st_nlink > 1 {
        return Err(refused(
            "it has another name as well (a hard link), and other users may write its folder",
        ));
    }
    Ok(())
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Which other users may write a folder; `None` if only this user and root may.
fn others_of(folder: &Stat) -> Option<String> {
    let mode = folder.st_mode & 0o7777;
    if is_everybodys(folder) {
        return Some(format!("every user may (mode {mode:04o})"));
    }
    if !is_trusted(folder.st_uid) {
        return Some(format!("it belongs to another user (uid {})", folder.st_uid));
    }
    let is_own_group =
        |gid| gid == ROOT || gid == getegid().as_raw() || future().is_some_and(|(_, own)| own == gid);
    let is_groups = mode & 0o020 != 0 && !is_own_group(folder.st_gid);
    is_groups.then(|| format!("its group may (mode {mode:04o}, gid {})", folder.st_gid))
}

/// Whether other users may give the names in a folder to other files.
pub(super) fn is_shared(folder: &Stat) -> bool {
    others_of(folder).is_some()
}

/// Warns, the first time that this is found, that other users may write the folder called `name`.
pub(super) fn warn_of(folder: &Stat, name: &Path) {
    let Some(why) = others_of(folder) else { return };
    if NAMED.lock().unwrap_or_else(PoisonError::into_inner).insert((folder.st_dev, folder.st_ino)) {
        tracing::warn!(
            each = true,
            "other users may write the folder {}: {why}; keep files with data, state, keys and captures in a folder \
             that this user alone may write",
            name.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_groups_and_folders_have_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let own = rustix::fs::stat(folder.path()).unwrap();
        let with = |mode: u32, uid: u32, gid: u32| {
            let mut changed = own;
            (changed.st_mode, changed.st_uid, changed.st_gid) = (mode, uid, gid);
            others_of(&changed)
        };
        let (uid, gid) = (own.st_uid, getegid().as_raw());
        assert_eq!(with(0o700, uid, gid), None);
        assert_eq!(with(0o775, uid, gid), None, "the group of this process");
        assert_eq!(with(0o755, ROOT, ROOT), None);
        assert!(with(0o1777, uid, gid).unwrap().contains("every user may (mode 1777)"));
        assert!(with(0o755, uid + 77, gid).unwrap().contains(&format!("uid {}", uid + 77)));
        assert!(with(0o775, uid, gid + 77).unwrap().contains(&format!("gid {}", gid + 77)));
    }
}
