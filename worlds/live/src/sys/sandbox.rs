//! Giving up the rights that a process that serves strangers does not need: files (Landlock),
//! capabilities, system calls (seccomp), and the rights of its user.
//!
//! [`confine`] comes before the process has threads, because Landlock and capabilities bind the
//! calling thread and the threads that it starts later. [`renounce`] comes when everything is open.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::user::become_user;

/// The newest Landlock whose rights are used. An older kernel enforces those that it knows.
const NEWEST: ABI = ABI::V5;
/// Files that every process may read: names of hosts and users, libraries, and the system's
/// descriptions of itself.
const READABLE: [&str; 10] = [
    "/etc",
    "/proc",
    "/sys",
    "/usr",
    "/lib",
    "/lib64",
    "/nix",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
];
/// The devices that every process may use.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/fd"];

/// The rights that a process keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files and folders that are read.
    pub read: Vec<PathBuf>,
    /// Files that are read and written. A file that does not exist yet may be made.
    pub files: Vec<PathBuf>,
    /// Folders in which files are made, written, renamed and removed.
    pub folders: Vec<PathBuf>,
    /// Whether the process connects to others by TCP.
    pub dials: bool,
    /// Whether the process chooses a congestion control of TCP, which the kernel may have to load
    /// first or may keep for administrators.
    pub chooses_congestion: bool,
    /// Whether the process gives packets a priority that takes a right, or times of launch.
    pub takes_precedence: bool,
    /// Whether the process sends bare Ethernet frames.
    pub sends_frames: bool,
    /// Whether such frames go around the kernel's network stack (AF_XDP).
    pub avoids_stack: bool,
    /// Whether the process changes settings of the whole network, such as the limit of a buffer.
    pub administers_network: bool,
    /// Whether the process makes and removes devices of the kernel.
    pub administers_devices: bool,
    /// Whether the process becomes another user later.
    pub changes_user: bool,
}

impl Needs {
    /// Adds the folder that `path` is in, to be read.
    pub fn read_beside(&mut self, path: &Path) {
        self.read.push(folder_of(path));
    }

    /// Adds the folder that `path` is in, to be changed.
    pub fn change_beside(&mut self, path: &Path) {
        self.folders.push(folder_of(path));
    }
}

/// The folder that holds `path`, or the nearest one above it while that folder is still to be made.
fn folder_of(path: &Path) -> PathBuf {
    let named = |folder: &&Path| folder.as_os_str().is_empty() || folder.exists();
    match path.ancestors().skip(1).find(named) {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// How far the system enforces the requested confinement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforced {
    /// All of it.
    Whole,
    /// The part that this kernel knows.
    Part,
    /// Nothing: the kernel has no Landlock, or it is turned off.
    Nothing,
}

/// Lets this thread, and the threads that it starts from now on, reach no files but those of
/// `needs`, and make no connections unless `needs` says so. Of root's capabilities, those stay that
/// servers use.
///
/// # Errors
/// When the system refuses rules that it knows.
pub fn confine(needs: &Needs) -> io::Result<Enforced> {
    let enforced = apply(needs).map_err(io::Error::other)?;
    keep_capabilities(capabilities_of(needs))?;
    Ok(enforced)
}

/// The capabilities of a server with these `needs`.
fn capabilities_of(needs: &Needs) -> CapabilitySet {
    // Files and devices of other users, ports below 1024, pinned memory, and limits.
    let mut kept = CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::FOWNER
        | CapabilitySet::NET_BIND_SERVICE
        | CapabilitySet::IPC_LOCK
        | CapabilitySet::SYS_NICE
        | CapabilitySet::SYS_RESOURCE;
    let administers =
        needs.chooses_congestion || needs.takes_precedence || needs.avoids_stack || needs.administers_network;
    kept.set(CapabilitySet::NET_ADMIN, administers);
    kept.set(CapabilitySet::BPF, needs.avoids_stack);
    kept.set(CapabilitySet::SYS_ADMIN, needs.administers_devices);
    kept.set(CapabilitySet::NET_RAW, needs.sends_frames);
    // Files that are made before belong to the user that the process becomes.
    let becomes = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::CHOWN;
    kept.set(becomes, needs.changes_user);
    kept
}

/// Takes all capabilities but `kept` from this thread and from the threads that it starts later.
fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    let left = CapabilitySets {
        effective: effective & kept,
        permitted: permitted & kept,
        inheritable: inheritable & kept,
    };
    Ok(set_capabilities(None, left)?)
}

fn apply(needs: &Needs) -> Result<Enforced, landlock::RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST) & !AccessFs::Execute;
    let write = all & !AccessFs::Execute;
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(all)?;
    let ruleset = if needs.dials { ruleset } else { ruleset.handle_access(AccessNet::ConnectTcp)? };
    let mut ruleset = ruleset.create()?;
    let readable = READABLE.iter().map(Path::new).chain(needs.read.iter().map(PathBuf::as_path));
    let devices = DEVICES.iter().map(Path::new);
    let folders = needs.folders.iter().map(PathBuf::as_path);
    let mut rules: Vec<(&Path, _)> = readable.map(|path| (path, read)).collect();
    rules.extend(devices.chain(folders).map(|path| (path, write)));
    let beside: Vec<PathBuf> = needs.files.iter().map(|path| reach_of(path)).collect();
    rules.extend(beside.iter().map(|path| (path.as_path(), write)));
    for (path, access) in rules {
        // A path that does not exist needs no rule.
        let Ok(place) = PathFd::new(path) else { continue };
        let is_folder = path.is_dir();
        let access = if is_folder { access } else { access & AccessFs::from_file(NEWEST) };
        ruleset = ruleset.add_rule(PathBeneath::new(place, access))?;
    }
    Ok(match ruleset.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Enforced::Whole,
        RulesetStatus::PartiallyEnforced => Enforced::Part,
        RulesetStatus::NotEnforced => Enforced::Nothing,
    })
}

/// The subject of a rule for the file `path`: the file itself, or its folder while it is still to
/// be made.
fn reach_of(path: &Path) -> PathBuf {
    if path.exists() { path.to_owned() } else { folder_of(path) }
}

/// Becomes `user`, if one is given. With `calls`, gives up the system calls that no server needs:
/// from then on the process starts no other program.
///
/// # Errors
/// When there is no such user, this process may not become it, or the system refuses the filter.
pub fn renounce(user: Option<&str>, calls: bool) -> io::Result<()> {
    if let Some(name) = user {
        become_user(name)?;
    }
    if !calls {
        return Ok(());
    }
    for filter in filters().map_err(io::Error::other)? {
        seccompiler::apply_filter_all_threads(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

/// System calls that no server needs, and that an intruder would: they answer EPERM.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_personality,
];

/// The same, where only one architecture has them.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[libc::SYS_fork, libc::SYS_vfork, libc::SYS_iopl, libc::SYS_ioperm];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// The bit by which programs of the x32 ABI call an x86-64 kernel. For the filter it is part of the
/// number, so each call has a second number there.
#[cfg(target_arch = "x86_64")]
const X32_BIT: libc::c_long = 0x4000_0000;
/// x32's own numbers: execve, ptrace, kexec_load, process_vm_readv, process_vm_writev, execveat.
#[cfg(target_arch = "x86_64")]
const X32_ONLY: [libc::c_long; 6] = [520, 521, 528, 539, 540, 545];

/// The flags by which `clone` makes a namespace. It has no flag for one of time.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The offset of a call's number, for each way into the kernel.
#[cfg(target_arch = "x86_64")]
const WAYS: [libc::c_long; 2] = [0, X32_BIT];
#[cfg(not(target_arch = "x86_64"))]
const WAYS: [libc::c_long; 1] = [0];

/// The numbers of all calls that are refused, by every way into the kernel.
fn refused() -> impl Iterator<Item = libc::c_long> {
    let calls = || REFUSED.iter().chain(REFUSED_HERE).copied();
    #[cfg(target_arch = "x86_64")]
    let calls = || calls().chain(calls().chain(X32_ONLY).map(|call| call | X32_BIT));
    calls()
}

/// The filters of system calls, of which each has one answer to refused calls.
fn filters() -> Result<[BpfProgram; 2], BackendError> {
    let mut rules: Rules = refused().map(|call| (call, Vec::new())).collect();
    let namespaces = NAMESPACES.into_iter().map(has_flag).collect::<Result<Vec<_>, _>>()?;
    rules.extend(WAYS.into_iter().map(|way| (libc::SYS_clone | way, namespaces.clone())));
    // A filter does not see the flags of clone3, which are in memory. To libraries the kernel seems
    // to be too old for it, so they use clone.
    let unseen: Rules = WAYS.into_iter().map(|way| (libc::SYS_clone3 | way, Vec::new())).collect();
    Ok([compile(rules, libc::EPERM)?, compile(unseen, libc::ENOSYS)?])
}

/// System calls by their numbers, each with the arguments that it is refused for: with none, it is
/// refused always.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The rule for calls whose first argument has this flag.
fn has_flag(flag: libc::c_int) -> Result<SeccompRule, BackendError> {
    let flag = u64::from(flag.unsigned_abs());
    let is_set = SeccompCmpOp::MaskedEq(flag);
    SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, is_set, flag)?])
}

/// The filter that answers `error` to the calls of `rules`.
fn compile(rules: Rules, error: libc::c_int) -> Result<BpfProgram, BackendError> {
    let refused = SeccompAction::Errno(error.unsigned_abs());
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_meant_by_themselves_and_files_to_come_by_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let (here, later) = (folder.path().join("here"), folder.path().join("later"));
        std::fs::write(&here, "").unwrap();
        assert_eq!(reach_of(&here), here);
        assert_eq!(reach_of(&later), folder.path());
        assert_eq!(reach_of(&folder.path().join("to/come")), folder.path());
        assert_eq!(folder_of(Path::new("disk.img")), Path::new("."));
    }

    #[test]
    fn a_thread_reaches_what_it_needs_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("mine"), "mine").unwrap();
        std::fs::create_dir(path("ours")).unwrap();
        std::fs::write(path("other"), "other").unwrap();
        let needs = Needs { files: vec![path("mine")], folders: vec![path("ours")], ..Needs::default() };
        // Landlock binds a thread: the others of this test program stay free.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let enforced = confine(&needs).unwrap();
                if enforced == Enforced::Nothing {
                    eprintln!("SKIPPED: this kernel has no Landlock");
                    return;
                }
                std::fs::write(path("mine"), "changed").unwrap();
                std::fs::write(path("ours/new"), "new").unwrap();
                std::fs::rename(path("ours/new"), path("ours/newer")).unwrap();
                for refused in [path("other"), "/root".into()] {
                    let error = std::fs::File::open(&refused).unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{}", refused.display());
                }
                assert!(std::fs::write(path("more"), "").is_err());
                assert!(std::fs::read("/etc/passwd").is_ok());
            });
        });
        assert!(std::fs::File::open(path("other")).is_ok());
    }

    #[test]
    fn a_thread_keeps_the_capabilities_that_servers_use_and_no_others() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let before = capabilities(None).unwrap().permitted;
                let mut needs = Needs { chooses_congestion: true, changes_user: true, ..Needs::default() };
                keep_capabilities(capabilities_of(&needs)).unwrap();
                let kept = capabilities(None).unwrap();
                assert_eq!(kept.permitted, before & capabilities_of(&needs));
                assert!(!kept.permitted.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE));
                needs = Needs::default();
                keep_capabilities(capabilities_of(&needs)).unwrap();
                let last = capabilities(None).unwrap().effective;
                assert!(!last.intersects(CapabilitySet::NET_ADMIN | CapabilitySet::SETUID));
                assert!(kept.permitted.contains(last));
            });
        });
    }

    #[test]
    fn a_thread_makes_threads_and_no_namespaces() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The filters bind a thread: the others of this test program stay free.
                for filter in filters().unwrap() {
                    seccompiler::apply_filter(&filter).unwrap();
                }
                let none: libc::c_long = 0;
                for flag in NAMESPACES {
                    let flags = libc::c_long::from(flag | libc::SIGCHLD);
                    // SAFETY: the call shares no memory with its child, which ends at once.
                    let child = unsafe {
                        let child = libc::syscall(libc::SYS_clone, flags, none, none, none, none);
                        if child == 0 {
                            libc::_exit(0);
                        }
                        child
                    };
                    let error = io::Error::last_os_error().raw_os_error();
                    assert_eq!((child, error), (-1, Some(libc::EPERM)), "{flag:x}");
                }
                // SAFETY: arguments of no length are not read.
                let child = unsafe { libc::syscall(libc::SYS_clone3, none, none) };
                assert_eq!((child, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOSYS)));
                assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
            });
        });
    }

    #[test]
    fn the_filter_can_be_built() {
        assert!(filters().unwrap()[0].len() > refused().count());
        #[cfg(target_arch = "x86_64")]
        assert!(refused().any(|call| call == X32_BIT | 520), "x32's execve");
    }
}
