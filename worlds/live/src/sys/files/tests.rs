//! Files in folders of other users: planted files and links are neither followed, written nor read.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, mknodat};

use super::*;

/// An unprivileged user, which is no user of these tests.
const OTHER: u32 = 65_534;
const OTHER_TOO: u32 = 65_533;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: only root can give files to another user");
    }
    is_root
}

/// A folder of this test, and in it a folder of another user with this mode and owner, and a file
/// that must not change.
struct Ground {
    _folder: tempfile::TempDir,
    shared: PathBuf,
    victim: PathBuf,
}

const VICTIMS: &[u8] = b"the victim's";

impl Ground {
    fn new(mode: u32, owner: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [shared, victim] = ["shared", "victim"].map(|name| folder.path().join(name));
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(mode)).unwrap();
        chown(&shared, Some(owner), None).unwrap();
        fs::write(&victim, VICTIMS).unwrap();
        Self { _folder: folder, shared, victim }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.shared.join(name)
    }

    /// A symbolic link of another user to `target`.
    fn plant(&self, name: &str, target: &Path, owner: u32) -> PathBuf {
        let path = self.path(name);
        symlink(target, &path).unwrap();
        lchown(&path, Some(owner), None).unwrap();
        path
    }

    fn is_whole(&self) -> bool {
        fs::read(&self.victim).unwrap() == VICTIMS
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Every way in which a file at a path is written.
fn every_way(path: &Path) -> Vec<io::Result<()>> {
    let replaced = || {
        let mut new = Replacement::begin(Place::find(path)?, Kind::Report)?;
        new.write_all(b"new")?;
        new.keep()
    };
    vec![
        write(path, Kind::Private).and_then(|mut file| file.write_all(b"new")),
        write_on(path, Kind::Report).and_then(|mut file| file.write_all(b"new")),
        open_or_make(path, Kind::Private).and_then(|(mut file, _)| file.write_all(b"new")),
        change(path).and_then(|mut file| file.write_all(b"new")),
        replaced(),
    ]
}

#[test]
fn links_of_other_users_are_not_followed_where_every_user_may_make_them() {
    if !is_root() {
        return;
    }
    for (mode, owner) in [(0o1777, 0), (0o1777, OTHER), (0o777, 0), (0o777, OTHER), (0o1757, OTHER_TOO)] {
        let ground = Ground::new(mode, owner);
        let named = ground.plant("named", &ground.victim, OTHER);
        let relative = ground.plant("relative", Path::new("../victim"), OTHER);
        let missing = ground.plant("missing", &ground.victim.with_file_name("new"), OTHER);
        let folder = ground.plant("folder", Path::new(".."), OTHER);
        // One that is followed leads to one that is not.
        let chain = ground.plant("chain", &named, 0);
        for path in [&named, &relative, &missing, &folder.join("victim"), &folder.join("new"), &chain] {
            for result in every_way(path) {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}: {error}", path.display());
                assert!(error.to_string().contains("65534"), "{error}");
            }
        }
        assert!(ground.is_whole() && !ground.victim.with_file_name("new").exists(), "{mode:o} {owner}");
    }
}

#[test]
fn root_follows_no_link_of_another_user_even_in_that_users_own_folder() {
    if !is_root() {
        return;
    }
    let ground = Ground::new(0o755, OTHER);
    let link = ground.plant("link", &ground.victim, OTHER);
    assert!(every_way(&link).into_iter().all(|result| result.is_err()));
    assert!(ground.is_whole());
}

#[test]
fn own_links_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let [file, link, second] = ["file", "link", "second"].map(|name| folder.path().join(name));
    symlink("file", &link).unwrap();
    symlink(&link, &second).unwrap();
    write(&second, Kind::Private).unwrap().write_all(b"first").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"first");
    for (number, result) in every_way(&second).into_iter().enumerate() {
        assert!(result.is_ok(), "{number}: {result:?}");
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(Place::find(&second).unwrap().path(), file.canonicalize().unwrap());
    let round = folder.path().join("round");
    symlink("round", &round).unwrap();
    assert!(Place::find(&round).is_err());
}

#[test]
fn files_that_other_users_have_planted_are_not_written() {
    if !is_root() {
        return;
    }
    let ground = Ground::new(0o1777, 0);
    let planted = ground.path("planted");
    fs::write(&planted, "planted").unwrap();
    chown(&planted, Some(OTHER), None).unwrap();
    // A name of the victim's own file.
    let linked = ground.path("linked");
    fs::hard_link(&ground.victim, &linked).unwrap();
    // A process that opens a pipe for writing waits for its reader.
    let pipe = ground.path("pipe");
    mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o666), 0).unwrap();
    chown(&pipe, Some(OTHER), None).unwrap();
    for path in [&planted, &linked, &pipe] {
        let results = every_way(path);
        let is_pipe = path == &pipe;
        // A replacement takes the name of a pipe.
        let results = results.into_iter().take(if is_pipe { 4 } else { 5 });
        for (number, result) in results.enumerate() {
            assert_eq!(
                result.unwrap_err().kind(),
                ErrorKind::PermissionDenied,
                "{number}, {}",
                path.display()
            );
        }
    }
    assert!(ground.is_whole() && fs::read(&planted).unwrap() == b"planted");
    // In that user's own folder, a file of that user is one that was named on purpose.
    let own = Ground::new(0o755, OTHER);
    let file = own.path("file");
    fs::write(&file, "before").unwrap();
    chown(&file, Some(OTHER), None).unwrap();
    write(&file, Kind::Private).unwrap().write_all(b"after").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"after");
}

#[test]
fn new_files_are_private_and_those_that_are_there_keep_their_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("private"), Kind::Private).unwrap();
    open_or_make(&path("made"), Kind::Private).unwrap();
    Replacement::begin(Place::find(&path("replaced")).unwrap(), Kind::Private).unwrap().keep().unwrap();
    assert_eq!(["private", "made", "replaced"].map(|name| mode(&path(name))), [0o600; 3]);
    write(&path("report"), Kind::Report).unwrap();
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    assert_eq!(mode(&path("report")), 0o666 & !umask.bits());
    fs::set_permissions(path("private"), Permissions::from_mode(0o644)).unwrap();
    assert!(every_way(&path("private")).into_iter().all(|result| result.is_ok()));
    assert_eq!(mode(&path("private")), 0o644);
    make_with(0o640);
    write(&path("wide"), Kind::Private).unwrap();
    write(&path("other"), Kind::Report).unwrap();
    make_with(0o600);
    assert_eq!(mode(&path("wide")), 0o640);
    assert_eq!(mode(&path("other")), 0o666 & !umask.bits());
}

#[test]
fn a_replacement_leaves_nothing_unless_it_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "before").unwrap();
    let mut new = Replacement::begin(Place::find(&path).unwrap(), Kind::Report).unwrap();
    new.write_all(b"half").unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    drop(new);
    assert_eq!(fs::read(&path).unwrap(), b"before");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // A name that this program chooses is taken from the file that has it.
    let place = Place::find(&path).unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, VICTIMS).unwrap();
    symlink(&victim, folder.path().join("file.new")).unwrap();
    let mut new = Replacement::begin_as(&place, "file.new".into()).unwrap();
    new.write_all(b"after").unwrap();
    new.keep().unwrap();
    assert_eq!((fs::read(&path).unwrap(), fs::read(&victim).unwrap()), (b"after".to_vec(), VICTIMS.to_vec()));
    fs::create_dir(folder.path().join("file.new")).unwrap();
    assert!(Replacement::begin_as(&place, "file.new".into()).is_err(), "a folder stays");
}

#[test]
fn locks_are_this_users_own_files_whatever_was_planted() {
    if !is_root() {
        return;
    }
    let ground = Ground::new(0o1777, OTHER);
    let of_others = ground.path("file.lock");
    let own = |path: &Path| open_ours(&Place::of_name(path).unwrap(), Kind::Private).unwrap();
    let is_new = |path: &Path| {
        let mut file = own(path);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        file.write_all(b"locked").unwrap();
        let metadata = fs::symlink_metadata(path).unwrap();
        assert!(metadata.is_file() && std::os::unix::fs::MetadataExt::uid(&metadata) == 0);
        bytes.is_empty()
    };
    ground.plant("file.lock", &ground.victim, OTHER);
    assert!(is_new(&of_others) && !is_new(&of_others), "the second one finds that of the first");
    fs::remove_file(&of_others).unwrap();
    fs::hard_link(&ground.victim, &of_others).unwrap();
    assert!(is_new(&of_others));
    chown(&of_others, Some(OTHER), None).unwrap();
    assert!(is_new(&of_others));
    assert!(ground.is_whole());
}

#[test]
fn what_is_no_file_is_opened_as_it_is() {
    write(Path::new("/dev/null"), Kind::Private).unwrap().write_all(b"gone").unwrap();
    let (mut reader, writer) = io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
    assert!(Place::find(Path::new(&path)).unwrap().is_kernels());
    write(Path::new(&path), Kind::Private).unwrap().write_all(b"through").unwrap();
    let by_dev = path.replace("/proc/self/fd", "/dev/fd");
    write(Path::new(&by_dev), Kind::Private).unwrap().write_all(b" both").unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through both");
    // A file without a name, as it is made for a measurement.
    let file = tempfile::tempfile().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let (mut again, made) = open_or_make(Path::new(&path), Kind::Private).unwrap();
    again.write_all(b"seen").unwrap();
    assert!(made.is_none() && file.metadata().unwrap().len() == 4);
    let folder = tempfile::tempdir().unwrap();
    for wrong in [folder.path().to_owned(), folder.path().join("file/"), folder.path().join("none/file")] {
        assert!(write(&wrong, Kind::Private).is_err(), "{}", wrong.display());
    }
    assert!(write(Path::new(""), Kind::Private).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_stays_the_same_when_its_name_goes_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, moved] = ["first", "second", "moved"].map(|name| folder.path().join(name));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    let place = Place::find(&first.join("file")).unwrap();
    fs::rename(&first, &moved).unwrap();
    symlink(&second, &first).unwrap();
    make(&place, Kind::Private).unwrap();
    assert!(moved.join("file").exists() && !second.join("file").exists());
}
