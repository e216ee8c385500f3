//! The rights that a daemon gives up: files, system calls, and its user's rights.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Export, FARLANE, fail, farlane, succeed};

/// The value of a line of /proc/PID/status.
fn status(process: u32, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

/// Whether a process was started that gives nothing up because the kernel has no Landlock.
fn has_landlock(said: &str) -> bool {
    let has = !said.contains("has no Landlock");
    if !has {
        eprintln!("SKIPPED: this kernel has no Landlock");
    }
    has
}

fn target(folder: &Path, more: &[&str]) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", "nqn.2026-01.io.farlane:disk"]);
    command.args(["--ram", "1MiB", "--control"]).arg(folder.join("control/socket")).args(more);
    Export::of(command)
}

#[test]
fn servers_start_no_programs_and_gain_no_rights() {
    let export = Export::start(&["--ram", "1MiB"]);
    // A process that answers has already given up all its rights.
    succeed(&["measure", "ping", &export.url(), "--count", "10"]);
    assert_eq!((status(export.id(), "Seccomp"), status(export.id(), "NoNewPrivs")), ("2".into(), "1".into()));

    let mut command = Command::new(&*FARLANE);
    command.args(["export", "--json", "--listen", "127.0.0.1:0", "--ram", "1MiB", "--no-sandbox"]);
    let free = Export::of(command);
    succeed(&["measure", "ping", &free.url(), "--count", "10"]);
    assert_eq!((status(free.id(), "Seccomp"), status(free.id(), "NoNewPrivs")), ("0".into(), "0".into()));
}

#[test]
fn a_target_reaches_the_folders_that_it_was_given_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for made in ["control", "given", "other"] {
        fs::create_dir(path(made)).unwrap();
        fs::write(path(made).join("disk"), [0; 1 << 20]).unwrap();
    }
    let target = target(folder.path(), &["--allow-path", path("given").to_str().unwrap()]);
    if !has_landlock(&target.said()) {
        return;
    }
    let socket = path("control/socket").to_str().unwrap().to_owned();
    let add = |folder: &str| {
        let disk = path(folder).join("disk").to_str().unwrap().to_owned();
        ["target", "add", "--control", &socket, "--namespace", &disk].map(str::to_owned)
    };
    let given = add("given");
    succeed(&given.each_ref().map(String::as_str));
    let other = add("other");
    let said = fail(&other.each_ref().map(String::as_str));
    assert!(said.contains("--allow-path"), "{said}");
}

#[test]
fn what_can_not_be_given_up_is_said() {
    let missing = farlane(&["export", "--ram", "1MiB", "--allow-path", "/nowhere"]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(2) && said.contains("/nowhere"), "{said}");
    let absent = farlane(&["export", "--ram", "1MiB", "--listen", "127.0.0.1:0", "--user", "no-such-user"]);
    let said = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(!absent.status.success() && said.contains("there is no user no-such-user"), "{said}");
}

#[test]
fn root_keeps_the_capabilities_that_servers_use() {
    const ADMINISTERS_SYSTEM: u64 = 1 << 21;
    const ADMINISTERS_NETWORK: u64 = 1 << 12;
    const BECOMES_OTHERS: u64 = 1 << 7;
    const OVERRIDES_FILES: u64 = 1 << 1;
    let capabilities = |process| u64::from_str_radix(&status(process, "CapPrm"), 16).unwrap();
    let own = capabilities(std::process::id());
    let kept = |more: &[&str]| {
        let mut command = Command::new(&*FARLANE);
        command.args(["export", "--json", "--listen", "127.0.0.1:0", "--ram", "1MiB"]).args(more);
        let export = Export::of(command);
        succeed(&["measure", "ping", &export.url(), "--count", "10"]);
        capabilities(export.id())
    };
    let server = kept(&[]);
    assert_eq!(server & (ADMINISTERS_SYSTEM | ADMINISTERS_NETWORK | BECOMES_OTHERS), 0, "{server:x}");
    // Without root there is nothing to keep, and nothing is gained.
    assert_eq!((server & OVERRIDES_FILES, server & !own), (own & OVERRIDES_FILES, 0), "{server:x}");
    assert_eq!(kept(&["--congestion", "reno"]) & ADMINISTERS_NETWORK, own & ADMINISTERS_NETWORK);
    assert_eq!(kept(&["--no-sandbox"]), own);
}

#[test]
fn every_thread_gives_up_the_same() {
    let export = Export::start(&["--ram", "1MiB", "--metrics", "127.0.0.1:0"]);
    succeed(&["measure", "ping", &export.url(), "--count", "10"]);
    let of_threads = |key: &str| -> Vec<String> {
        let threads = fs::read_dir(format!("/proc/{}/task", export.id())).unwrap();
        let named = threads.map(|thread| thread.unwrap().file_name().into_string().unwrap());
        named.map(|thread| status(thread.parse().unwrap(), key)).collect()
    };
    let own = status(export.id(), "CapPrm");
    let kept = of_threads("CapPrm");
    assert!(kept.len() > 2 && kept.iter().all(|one| *one == own), "{own}: {kept:?}");
}

#[test]
fn root_becomes_another_user() {
    if status(std::process::id(), "Uid").split_whitespace().nth(1) != Some("0") {
        eprintln!("SKIPPED: only root may become another user");
        return;
    }
    let mut command = Command::new(&*FARLANE);
    command.args(["export", "--json", "--listen", "127.0.0.1:0", "--ram", "1MiB", "--user", "nobody"]);
    let export = Export::of(command);
    succeed(&["measure", "ping", &export.url(), "--count", "10"]);
    assert_ne!(status(export.id(), "Uid").split_whitespace().next(), Some("0"));
    assert_eq!(status(export.id(), "CapEff"), "0000000000000000");
}
