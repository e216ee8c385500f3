//! The folder in which a user's processes have their sockets.
//!
//! Servers and clients find it by the same rule, so that they meet without a setting. Only
//! this user may put names into it: a client that asks at a socket there asks a process of its own
//! user.

use std::fmt;
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// The variable that names a folder for files that live as long as their user is logged in.
const VARIABLE: &str = "XDG_RUNTIME_DIR";
/// Where systemd has such a folder for each user, by the user's number.
const OF_USERS: &str = "/run/user";
/// Where root's services have theirs.
const OF_ROOT: &str = "/run";
/// The permissions of a folder that let its group or all users put names into it.
const WRITABLE: u32 = 0o022;
/// The permission that keeps names in a folder from all but their owners.
const STICKY: u32 = 0o1000;

/// Why a folder is not used.
#[derive(Debug)]
pub struct Unusable {
    /// The folder.
    pub path: PathBuf,
    why: String,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for Unusable {}

/// The inputs to the choice of a folder.
struct User {
    /// The value of the variable.
    named: Option<PathBuf>,
    of_users: PathBuf,
    of_root: PathBuf,
    temporary: PathBuf,
    uid: u32,
}

/// The folder called `name` for sockets of this process's user. It need not exist.
///
/// It is below the first of these that is the user's own and that no other user may write:
/// `$XDG_RUNTIME_DIR`, for root `/run`, and `/run/user/UID`. Without such a folder, it is
/// `NAME-UID` in the system's folder for temporary files.
pub fn place(name: &str) -> PathBuf {
    let user = User {
        named: std::env::var_os(VARIABLE).map(PathBuf::from),
        of_users: OF_USERS.into(),
        of_root: OF_ROOT.into(),
        temporary: std::env::temp_dir(),
        uid: geteuid().as_raw(),
    };
    user.place(name)
}

/// Makes the folder at `path` for this user alone, unless it is there.
///
/// # Errors
/// When it can't be made, or is there and [`check`] refuses it.
pub fn make(path: &Path) -> Result<(), Unusable> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Unusable { path: path.to_owned(), why: error.to_string() })
        }
        _ => check(path),
    }
}

/// Checks that the folder at `path` is this user's own, and that no other user may rename it or put
/// names into it. A folder that does not exist yet has no names.
///
/// # Errors
/// When it is no folder, a symbolic link, another user's, or others may write it; when the folder
/// that it is to be in is missing, or others may rename files there.
pub fn check(path: &Path) -> Result<(), Unusable> {
    let uid = geteuid().as_raw();
    let fault_of_place = |found: &Metadata| match found.mode() & (WRITABLE | STICKY) {
        mode if mode & WRITABLE == 0 || mode & STICKY != 0 => None,
        _ => Some("other users may rename it: the folder that it is in has no sticky bit".to_owned()),
    };
    let why = match path.parent().map(Path::metadata) {
        Some(Ok(found)) => fault_of_place(&found),
        Some(Err(error)) => Some(error.to_string()),
        None => None,
    };
    let why = why.or_else(|| match path.symlink_metadata() {
        Ok(found) => fault(&found, uid),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(error.to_string()),
    });
    why.map_or(Ok(()), |why| Err(Unusable { path: path.to_owned(), why }))
}

/// Why a folder is not the own one of the user `uid`.
fn fault(found: &Metadata, uid: u32) -> Option<String> {
    let mode = found.mode() & 0o7777;
    if found.is_symlink() {
        return Some("it is a symbolic link, which is not followed".to_owned());
    }
    if !found.is_dir() {
        return Some("it is no folder".to_owned());
    }
    if found.uid() != uid {
        return Some(format!("it belongs to another user (uid {})", found.uid()));
    }
    (mode & WRITABLE != 0).then(|| format!("other users may write it (mode {mode:04o})"))
}

impl User {
    fn place(&self, name: &str) -> PathBuf {
        // The specification has programs ignore a relative path.
        let named = self.named.clone().filter(|path| path.is_absolute());
        let of_root = (self.uid == 0).then(|| self.of_root.clone());
        let of_user = self.of_users.join(self.uid.to_string());
        let mut folders = named.into_iter().chain(of_root).chain([of_user]);
        let own = folders.find(|folder| self.is_own(folder));
        own.map_or_else(|| self.temporary.join(format!("{name}-{}", self.uid)), |folder| folder.join(name))
    }

    /// Whether names in a folder are this user's alone. A sticky folder of this user is one: others
    /// may add names and remove only theirs, and [`check`] refuses these.
    fn is_own(&self, folder: &Path) -> bool {
        folder.metadata().is_ok_and(|found| {
            let is_kept = found.mode() & WRITABLE == 0 || found.mode() & STICKY != 0;
            found.is_dir() && found.uid() == self.uid && is_kept
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A user whose folders are below `root`.
    fn user(root: &Path) -> User {
        User {
            named: Some(root.join("named")),
            of_users: root.join("users"),
            of_root: root.join("run"),
            temporary: root.join("tmp"),
            uid: geteuid().as_raw(),
        }
    }

    fn folder(path: &Path, mode: u32) {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_own_folder_is_used() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let mut user = user(root.path());
        let uid = user.uid;
        let last = at(&format!("tmp/farlane-{uid}"));
        assert_eq!(user.place("farlane"), last, "none of the others is there");
        let of_user = at(&format!("users/{uid}"));
        folder(&of_user, 0o700);
        assert_eq!(user.place("farlane"), of_user.join("farlane"));
        folder(&at("named"), 0o700);
        assert_eq!(user.place("farlane"), at("named/farlane"));
        for (mode, is_used) in [(0o755, true), (0o1777, true), (0o777, false), (0o775, false)] {
            folder(&at("named"), mode);
            assert_eq!(user.place("farlane") == at("named/farlane"), is_used, "{mode:o}");
        }
        folder(&at("named"), 0o700);
        user.named = Some("named".into());
        assert_eq!(user.place("farlane"), of_user.join("farlane"), "a relative path is ignored");
        user.named = Some(PathBuf::new());
        assert_eq!(user.place("farlane"), of_user.join("farlane"), "and so is an empty one");
        // Folders of another user.
        user.uid = uid + 1;
        user.named = Some(at("named"));
        folder(&at(&format!("users/{}", user.uid)), 0o700);
        assert_eq!(user.place("farlane"), at(&format!("tmp/farlane-{}", user.uid)));
    }

    #[test]
    fn root_has_its_services_folder() {
        let root = tempfile::tempdir().unwrap();
        let user = user(root.path());
        folder(&root.path().join("run"), 0o755);
        let is_used = user.place("farlane") == root.path().join("run/farlane");
        assert_eq!(is_used, user.uid == 0);
    }

    #[test]
    fn a_folder_that_others_could_write_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("own");
        check(&own).unwrap();
        make(&own).unwrap();
        assert_eq!(own.metadata().unwrap().mode() & 0o777, 0o700);
        make(&own).unwrap();
        let said = |path: &Path| make(path).unwrap_err().to_string();
        let link = root.path().join("link");
        symlink(&own, &link).unwrap();
        assert!(said(&link).contains("symbolic link"), "{}", said(&link));
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(said(&file).contains("no folder"), "{}", said(&file));
        folder(&own, 0o770);
        assert!(said(&own).contains("mode 0770"), "{}", said(&own));
        let missing = root.path().join("missing/farlane");
        assert!(said(&missing).contains("No such file"), "{}", said(&missing));
        let open = root.path().join("open");
        folder(&open, 0o777);
        let inside = open.join("farlane");
        assert!(said(&inside).contains("no sticky bit"), "{}", said(&inside));
        folder(&open, 0o1777);
        make(&inside).unwrap();
        let foreign = fault(&root.path().metadata().unwrap(), geteuid().as_raw() + 1).unwrap();
        assert!(foreign.contains("another user"), "{foreign}");
    }
}
