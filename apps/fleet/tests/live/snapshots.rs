//! Snapshots and clones, where files share blocks and where they do not.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::stage::Stage;

/// A file system that ends with the test.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        // The target, which has files open there, may not have ended yet.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Puts XFS in the place of a machine's pool, whose agent starts anew.
fn share_blocks(stage: &mut Stage, machine: usize) -> Option<Mount> {
    let name = stage.machines[machine].name.clone();
    let (image, pool) = (stage.path("image"), stage.path(&format!("{name}-pool")));
    File::create(&image).unwrap().set_len(400 << 20).unwrap();
    let done = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    stage.machines[machine].agent = None;
    let is_made = done(Command::new("mkfs.xfs").arg("-q").arg(&image))
        && done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&pool));
    stage.start_agent(machine);
    if !is_made {
        println!("SKIPPED: no XFS can be mounted here (root, a loop device and xfsprogs are needed)");
        return None;
    }
    Some(Mount(pool))
}

/// The bytes of the snapshot's file, of which there is one.
fn snapshot(pool: &Path, name: &str) -> Vec<u8> {
    let entries = std::fs::read_dir(pool).unwrap().flatten().map(|entry| entry.path());
    let beginning = format!("{name}.");
    let is_it =
        |path: &PathBuf| path.file_name().is_some_and(|one| one.to_string_lossy().starts_with(&beginning));
    let found: Vec<_> = entries.filter(is_it).collect();
    assert!(found.len() == 1 && found[0].extension().is_some_and(|kind| kind == "snapshot"), "{found:?}");
    std::fs::read(&found[0]).unwrap()
}

fn phase(stage: &Stage, kind: &str, name: &str) -> Value {
    stage.fleet(&["get", kind, name])["status"]["phase"].clone()
}

/// Takes snapshots and makes clones of a volume that is written to before, after and, where blocks
/// are shared, meanwhile.
fn keeps_what_was(mut stage: Stage, shares: bool) {
    let pool = stage.path("m0-pool");
    stage.eventually("the agent has tried its pool", |stage| {
        stage.fleet(&["get", "pool", "m0"])["clones"] == shares && stage.health(0)["connected"][1] == "m1"
    });
    stage.fleet(&["volume", "create", "data", "--size", "16MiB", "--pool", "m0"]);
    stage.fleet(&["attach", "data", "--node", "m1"]);
    let record = stage.record(1, "data-m1");
    let writes = ["--rw", "randrw", "--verify", "--iodepth", "8", "--runtime", "4s"];
    let mut load = stage.load("load", &record, &writes);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let taken = stage.try_fleet(&["snapshot", "create", "busy", "--volume", "data", "--timeout", "2s"]);
    assert_eq!(taken.is_ok(), shares, "{taken:?}\n{}", stage.logs());
    if let Err(why) = taken {
        assert!(why.contains("share no blocks") && why.contains("detach data"), "{why}");
    }
    assert!(load.wait(std::time::Duration::from_secs(60)), "{}\n{}", load.text(), stage.logs());
    stage.fleet(&["detach", "data-m1"]);
    stage.eventually("the snapshot is taken", |stage| phase(stage, "snapshot", "busy") == "ready");
    // The agent is killed as soon as the user has asked.
    stage.fleet(&["snapshot", "create", "still", "--volume", "data", "--no-wait"]);
    stage.machines[0].agent = None;
    stage.start_agent(0);
    stage.eventually("the snapshot is taken", |stage| phase(stage, "snapshot", "still") == "ready");
    let before = std::fs::read(pool.join("data.raw")).unwrap();
    assert!(before.iter().any(|byte| *byte != 0));
    assert!(snapshot(&pool, "still") == before);
    let made = stage.fleet(&["volume", "create", "copy", "--from", "snapshot/still", "--size", "32MiB"]);
    assert_eq!((&made["source"], &made["pool"]), (&"snapshot/still".into(), &"m0".into()), "{made}");
    assert!(std::fs::read(pool.join("copy.raw")).unwrap().starts_with(&before));
    stage.fleet(&["volume", "create", "twin", "--from", "volume/data"]);
    assert!(std::fs::read(pool.join("twin.raw")).unwrap() == before);
    // Both are written to, and neither changes the other or the snapshot.
    stage.fleet(&["attach", "data", "--node", "m1"]);
    stage.fleet(&["attach", "copy", "--node", "m1"]);
    for one in ["data-m1", "copy-m1"] {
        let record = stage.record(1, one);
        let mut load = stage.load(one, &record, &writes);
        assert!(load.wait(std::time::Duration::from_secs(60)), "{}\n{}", load.text(), stage.logs());
    }
    assert!(std::fs::read(pool.join("data.raw")).unwrap() != before);
    assert!(snapshot(&pool, "still") == before);
    assert!(std::fs::read(pool.join("twin.raw")).unwrap() == before);
    // Snapshots outlive their volume.
    stage.fleet(&["detach", "data-m1"]);
    stage.fleet(&["volume", "delete", "data"]);
    stage.fleet(&["snapshot", "delete", "busy"]);
    assert!(snapshot(&pool, "still") == before);
    stage.fleet(&["snapshot", "delete", "still"]);
    let left = std::fs::read_dir(&pool).unwrap().flatten().map(|entry| entry.file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["copy.raw", "twin.raw"]);
    let audit = std::fs::read_to_string(stage.path("audit.jsonl")).unwrap();
    assert!(audit.contains("\"snapshot still\"") && audit.contains("delete"), "{audit}");
}

#[test]
fn a_snapshot_is_what_the_volume_was() {
    let Some(stage) = Stage::new(None, 1, 2) else { return };
    // The folder of temporary files may be on a file system that shares blocks.
    let shares = {
        let (one, two) = (stage.path("one"), stage.path("two"));
        std::fs::write(&one, [1; 4096]).unwrap();
        let copied = Command::new("cp").arg("--reflink=always").arg(&one).arg(&two).output();
        copied.is_ok_and(|output| output.status.success())
    };
    keeps_what_was(stage, shares);
}

#[test]
fn a_snapshot_is_taken_while_hosts_write_where_files_share_blocks() {
    let Some(mut stage) = Stage::new(None, 1, 2) else { return };
    let Some(_mount) = share_blocks(&mut stage, 0) else { return };
    keeps_what_was(stage, true);
}
