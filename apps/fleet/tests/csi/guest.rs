//! `csi-sanity` in a guest: a fleet of processes, and block devices of the kernel's initiator.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::guest::{Guest, skip};

use crate::sanity::{program, summary};

/// The script of the guest.
const SCRIPT: &str = include_str!("guest.sh");
/// The fewest of the suite's tests that must run and pass.
const PASSED_MIN: u32 = 80;
/// How long a guest may take. It is interpreted.
const LIMIT: Duration = Duration::from_secs(1500);

/// A program without what only a debugger reads.
fn stripped(from: &Path, folder: &Path) -> PathBuf {
    let place = folder.join(from.file_name().unwrap());
    match Command::new("strip").arg("-o").arg(&place).arg(from).status() {
        Ok(status) if status.success() => place,
        _ => from.to_owned(),
    }
}

/// The program under test of this name: the faster build, where `FARLANE_UNDER_TEST` names one.
fn built(name: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_BIN_EXE_farlane-fleet"));
    let faster = std::env::var_os("FARLANE_UNDER_TEST").map(PathBuf::from);
    let places = faster.iter().map(PathBuf::as_path).chain([own]);
    let found = places.map(|place| place.with_file_name(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED without the program {name} (cargo build --package farlane --bin farlane)");
    }
    found
}

fn run(form: &str, kills: bool) {
    let name = "csi-sanity with the kernel's initiator";
    let Some(suite) = program() else { return };
    let (Some(farlane), Some(fleet)) = (built("farlane"), built("farlane-fleet")) else { return };
    let Some(kit) = skip::kit_or_skip(name) else { return };
    let image = kit.place().with_file_name("debian-root-3.ext4");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/debian-root");
    let made = Command::new(script).arg(&image).output().unwrap();
    if !made.status.success() {
        eprintln!("SKIPPED {name}: {}", String::from_utf8_lossy(&made.stderr).trim());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let drive = format!("id=root,if=none,format=raw,snapshot=on,file={}", image.display());
    let mut guest = Guest::builder(kit)
        .unwrap()
        .memory_mib(2048)
        .limit(LIMIT)
        .boot_limit(Duration::from_secs(300))
        .modules(["nvme-tcp"])
        .unwrap()
        .qemu_arguments(["-drive", &drive, "-device", "nvme,drive=root,serial=root"])
        .script(format!("FORM={form} KILLS={}\n{SCRIPT}", u8::from(kills)));
    for path in [stripped(&farlane, folder.path()), stripped(&fleet, folder.path()), suite] {
        let place = format!("fleet/{}", path.file_name().unwrap().to_str().unwrap());
        guest.initramfs().file(&place, 0o755, &path);
    }
    let outcome = guest.run().unwrap().expect_success();
    for words in ["the kernel has the volume", "nothing is left"] {
        assert!(outcome.output.contains(words), "{words}: {}", outcome.output);
    }
    let found = summary(&outcome.output);
    eprintln!("csi-sanity in a guest, {form}, kills {kills}: {found:?}");
    let killed: Vec<_> = outcome.output.lines().filter(|line| line.contains(" killed ")).collect();
    eprintln!("{killed:?}");
    assert!(!kills || killed.len() == 2, "{}", outcome.output);
    assert!(found.failed == 0 && found.passed >= PASSED_MIN, "{found:?}");
}

#[test]
fn csi_sanity_passes_with_file_systems_of_the_kernels_initiator() {
    run("mount", false);
}

#[test]
fn csi_sanity_passes_while_the_fleet_is_killed() {
    run("block", true);
}
