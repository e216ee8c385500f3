//! Becoming another user.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use super::secrets;

/// The size with which room for the text of a user's entry begins, and the one that no entry needs.
const ENTRY: usize = 1 << 10;
const ENTRY_MAX: usize = 1 << 20;

/// A user of the system, and the user's first group.
struct User {
    uid: libc::uid_t,
    gid: libc::gid_t,
}

impl User {
    /// The user of this `name` in the system's data bases; `None` if no user has it.
    fn find(name: &CStr) -> io::Result<Option<Self>> {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut text = vec![0; ENTRY];
        loop {
            let mut found = ptr::null_mut();
            // SAFETY: the name ends with a zero, the function writes to the entry, the text of the
            // length that is given, and `found`, and keeps none of them.
            let error = unsafe {
                libc::getpwnam_r(
                    name.as_ptr(),
                    entry.as_mut_ptr(),
                    text.as_mut_ptr(),
                    text.len(),
                    &raw mut found,
                )
            };
            match error {
                0 if found.is_null() => return Ok(None),
                0 => {
                    // SAFETY: the function has found a user, so it has written the entry.
                    let entry = unsafe { entry.assume_init_ref() };
                    return Ok(Some(Self { uid: entry.pw_uid, gid: entry.pw_gid }));
                }
                libc::EINTR => {}
                libc::ERANGE if text.len() < ENTRY_MAX => text.resize(2 * text.len(), 0),
                other => return Err(io::Error::from_raw_os_error(other)),
            }
        }
    }
}

/// The numbers of the user called `name` and of the user's first group, if there is such a user.
pub(super) fn ids_of(name: &CStr) -> io::Result<Option<(u32, u32)>> {
    Ok(User::find(name)?.map(|User { uid, gid }| (uid, gid)))
}

/// Gives this process, all of its threads, the user and the groups of `name`. These are functions
/// of the C library, which gives them to each thread: the system calls of the same names change
/// one thread.
pub(super) fn become_user(name: &str) -> io::Result<()> {
    let text = CString::new(name).map_err(io::Error::other)?;
    let User { uid, gid } = User::find(&text)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no user {name}")))?;
    let (own, own_group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if (own, own_group) == (uid, gid) {
        return Ok(());
    }
    let keeps_secrets = secrets::are_kept();
    // In this order: a process that is no longer root may not change groups. SAFETY: the name ends
    // with a zero, and the function keeps it no longer than it runs.
    done(unsafe { libc::initgroups(text.as_ptr(), gid) })?;
    // SAFETY: the function takes numbers.
    done(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: the function takes numbers.
    done(unsafe { libc::setresuid(uid, uid, uid) })?;
    // With the user, the kernel resets the permission for dumps, as fs.suid_dumpable says.
    if keeps_secrets {
        secrets::keep_from_dumps();
    }
    Ok(())
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user belongs to all threads of a process, so this test has a process of its own.
    const CHILD: &str = "FARLANE_LIVE_TEST_USER_CHILD";

    /// The kernel's data on each thread: its users, its groups, and the other groups.
    fn threads() -> Vec<[Vec<u32>; 3]> {
        let all = std::fs::read_dir("/proc/self/task").unwrap();
        let numbers = |status: &str, key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.split_whitespace().map(|number| number.parse().unwrap()).collect()
        };
        let of = |status: &str| ["Uid:", "Gid:", "Groups:"].map(|key| numbers(status, key));
        all.map(|task| of(&std::fs::read_to_string(task.unwrap().path().join("status")).unwrap())).collect()
    }

    #[test]
    fn child_that_becomes_another_user() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        // Groups of root that the unprivileged user has not.
        // SAFETY: the call reads two numbers.
        done(unsafe { libc::setgroups(2, [0, 1].as_ptr()) }).unwrap();
        secrets::keep_from_dumps();
        become_user("nobody").unwrap();
        assert!(secrets::are_kept());
        let User { uid, gid } = User::find(c"nobody").unwrap().unwrap();
        let all = threads();
        assert!(all.len() >= 3, "{all:?}");
        for thread in all {
            assert_eq!(thread, [vec![uid; 4], vec![gid; 4], vec![gid]]);
        }
        drop(end);
        assert!(other.join().unwrap().is_err());
        println!("\nheld");
    }

    #[test]
    fn all_threads_have_the_other_user_and_the_secrets_stay_kept() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root may become another user");
            return;
        }
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["sys::user::tests::child_that_becomes_another_user", "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("\nheld\n"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn users_are_found_by_their_names() {
        let root = User::find(c"root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        let error = become_user("nobody-of-that-name").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(become_user("no\0body").is_err());
    }
}
