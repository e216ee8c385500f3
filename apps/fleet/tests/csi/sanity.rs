//! `csi-sanity`, the test suite of the CSI community, against the driver.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::machine::Fake;
use crate::memory::Memory;
use crate::stage::{POOL, Stage};

/// The fewest of its tests that must run and pass. The others are about groups of volumes, which
/// the driver has not.
const PASSED_MIN: u32 = 95;
/// The most volumes that the driver attaches to a node.
const VOLUMES_MAX: u64 = 4;
/// How long the suite may take.
const LIMIT: Duration = Duration::from_secs(300);

/// The suite's program: `make csi` puts it among the build's own tools.
pub(crate) fn program() -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/csi-sanity");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("csi-sanity"));
    let found = std::iter::once(tools).chain(found).find(|one| one.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: csi-sanity is not on this machine: `make csi` builds it, which needs go");
    }
    found
}

/// What the suite says at its end.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

/// Reads the suite's last line: `SUCCESS! -- 77 Passed | 0 Failed | 1 Pending | 25 Skipped`.
pub(crate) fn summary(said: &str) -> Summary {
    let line = said.lines().rfind(|line| line.contains(" Passed | ")).unwrap_or_else(|| panic!("{said}"));
    let number = |word: &str| {
        let part = line.split(" | ").find_map(|part| part.strip_suffix(word)).unwrap();
        part.trim().rsplit(' ').next().unwrap().parse().unwrap()
    };
    Summary { passed: number("Passed"), failed: number("Failed") }
}

async fn run(form: &str) {
    let Some(program) = program() else { return };
    let machine = Fake::default();
    let stage = Stage::with(Memory::new(POOL, machine.clone()), machine, VOLUMES_MAX).await;
    let parameters = stage.path("mutable.yaml");
    std::fs::write(&parameters, "class: any\n").unwrap();
    let mut command = Command::new(program);
    command
        .arg(format!("--csi.endpoint=unix://{}", stage.socket().display()))
        .arg(format!("--csi.mountdir={}", stage.path("mount").display()))
        .arg(format!("--csi.stagingdir={}", stage.path("staging").display()))
        .arg(format!("--csi.testvolumemutableparameters={}", parameters.display()))
        .arg(format!("--csi.testvolumeaccesstype={form}"))
        .args(["--csi.testvolumesize=1073741824", "--csi.testnodevolumeattachlimit", "--ginkgo.no-color"])
        .kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = summary(&said);
    eprintln!("csi-sanity, {form}: {found:?}");
    assert!(output.status.success() && found.failed == 0, "{said}");
    assert!(found.passed >= PASSED_MIN, "{said}");
    // Nothing is left behind.
    use fleet::object::Kind;
    use fleetd::csi::Fleet as _;
    for kind in [Kind::Volume, Kind::Attachment, Kind::Snapshot] {
        let left = stage.fleet.list(kind).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn csi_sanity_passes_with_file_systems() {
    run("mount").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn csi_sanity_passes_with_block_devices() {
    run("block").await;
}

#[test]
fn summaries_are_read() {
    let found = summary("x\nSUCCESS! -- 77 Passed | 0 Failed | 1 Pending | 25 Skipped\n");
    assert_eq!((found.passed, found.failed), (77, 0));
    let found = summary("FAIL! -- 5 Passed | 2 Failed | 1 Pending | 0 Skipped\n");
    assert_eq!((found.passed, found.failed), (5, 2));
}
