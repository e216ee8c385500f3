//! An SSD keeps its state however its process ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nvme::wire::AdminOpcode;
use serde_json::Value;

use crate::support::admin::{Admin, entry};
use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, fail, json};

/// A folder with a disk, a pool and a state.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        for (name, bytes) in [("disk.img", 8 << 20), ("pool.img", 16 << 20)] {
            File::create(place.path(name)).unwrap().set_len(bytes).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Arguments that offer the SSD of this place.
    fn arguments(&self) -> Vec<String> {
        let pairs = [("--namespace", "disk.img"), ("--pool", "pool.img"), ("--state", "ssd.state")];
        pairs.into_iter().flat_map(|(name, file)| [name.to_owned(), self.at(file)]).collect()
    }

    fn export(&self) -> Export {
        let arguments = self.arguments();
        Export::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn state(&self) -> String {
        fs::read_to_string(self.path("ssd.state")).unwrap()
    }
}

/// The report of `farlane nvme identify` about the far end.
fn identify(far: &Export) -> Value {
    json(&["nvme", "identify", &far.url(), "--json"])
}

fn set_feature(admin: &mut Admin, feature: u32, value: u32) -> Result<u32, String> {
    let mut command = entry(AdminOpcode::SetFeatures, 0, feature | 1 << 31);
    command.cdw11 = value;
    admin.send(command, &[])
}

#[test]
fn everything_is_there_after_a_kill() {
    let place = Place::new();
    let mut far = place.export();
    let mut admin = Admin::attach(&far.address).unwrap();
    assert_eq!(admin.create(2048, 0), Ok(2));
    admin.attach_namespace(2).unwrap();
    assert_eq!(admin.create(64, 1), Ok(3));
    admin.delete(3).unwrap();
    assert_eq!(admin.create(64, 1), Ok(3));
    set_feature(&mut admin, 0x0a, 1).unwrap();
    admin.send(entry(AdminOpcode::FormatNvm, 1, 1), &[]).unwrap();
    admin.close();
    let bytes: Vec<u8> =
        (0..1_u32 << 18).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let write = ["write", &far.url(), "--namespace", "2", "--json"];
    let (written, _) = Running::fed(&write, bytes).json();
    let before = identify(&far);
    assert_eq!(before["namespaces"].as_array().unwrap().len(), 2, "{before}");
    far.kill();

    let again = place.export();
    assert_eq!(identify(&again)["namespaces"], before["namespaces"]);
    assert_eq!(identify(&again)["controller"]["sn"], before["controller"]["sn"]);
    let read = json(&["use", "read", &again.url(), "--namespace", "2", "--output", "/dev/null", "--json"]);
    assert_eq!(read["sha256"], written["sha256"]);
    let mut admin = Admin::attach(&again.address).unwrap_or_else(|| panic!("{}", again.said()));
    assert_eq!(admin.allocated(), [1, 2, 3]);
    assert_eq!(admin.send(entry(AdminOpcode::GetFeatures, 0, 0x0a), &[]), Ok(1));
    // The Persistent Event log, with its context established, has more events than those of
    // this start.
    let mut events = entry(AdminOpcode::GetLogPage, 0, 0x0d | 1 << 8 | 1023 << 16);
    events.cdw11 = 0;
    let log = admin.read(events);
    let kinds = u32::from_le_bytes(log[4..8].try_into().unwrap());
    assert!(kinds > 8, "{kinds} events");
    // Namespaces are created as before, in space that no other namespace has.
    assert_eq!(admin.create(2048, 0), Ok(4));
    admin.close();
    let health = json(&["nvme", "smart-log", &again.url(), "--json"]);
    assert_eq!((&health["power_cycles"], &health["unsafe_shutdowns"]), (&2.into(), &1.into()), "{health}");
}

#[test]
fn what_was_acknowledged_outlives_kills_at_any_time() {
    let place = Place::new();
    let mut known: Vec<u32> = vec![1];
    for round in 0..6_u64 {
        let mut far = place.export();
        // The host would wait for the device to come back, so a thread reports what
        // was acknowledged.
        let (address, (said, heard)) = (far.address.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            let mut admin = Admin::attach(&address).unwrap();
            let _ = said.send(Ok(admin.allocated()));
            while let Ok(id) = admin.create(16, 0)
                && said.send(Err(id)).is_ok()
            {}
        });
        let there = heard.recv().unwrap().unwrap();
        let lost: Vec<_> = known.iter().filter(|id| !there.contains(id)).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} of {known:?} are lost");
        assert!(there.len() <= known.len() + 1, "round {round}: {there:?} were not asked for");
        known = there;
        // Kill before anything is acknowledged, or in the middle of what comes after.
        if round % 2 == 1
            && let Ok(Err(id)) = heard.recv()
        {
            known.push(id);
        }
        std::thread::sleep(Duration::from_millis(1 + 3 * round));
        far.kill();
        // Acknowledged writes were reported before the far end was gone, or soon after it.
        std::thread::sleep(Duration::from_millis(500));
        known.extend(heard.try_iter().filter_map(Result::err));
        assert!(place.state().contains("\n# end "));
    }
    assert!(known.len() > 1, "nothing was ever acknowledged");
}

#[test]
fn an_orderly_end_is_no_unsafe_shutdown_and_keeps_the_counters() {
    let place = Place::new();
    let mut far = place.export();
    Running::fed(&["use", "write", &far.url(), "--json"], vec![7; 4 << 20]).json();
    let before = json(&["nvme", "smart-log", &far.url(), "--json"]);
    let (status, said) = far.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    let again = place.export();
    let after = json(&["nvme", "smart-log", &again.url(), "--json"]);
    for key in ["host_write_commands", "data_units_written"] {
        assert!(after[key].as_u64() >= before[key].as_u64() && after[key] != 0, "{key}: {before} {after}");
    }
    assert_eq!((&after["power_cycles"], &after["unsafe_shutdowns"]), (&2.into(), &0.into()), "{after}");
}

#[test]
fn an_end_at_which_the_state_cannot_be_saved_is_a_failure() {
    let place = Place::new();
    // A directory in the place of the next generation's file, once the current one has
    // been renamed.
    let obstacle = place.path("ssd.state.new");
    let obstruct = || wait_until("ssd.state.new has no owner", || fs::create_dir(&obstacle).is_ok());
    let mut far = place.export();
    obstruct();
    Running::fed(&["use", "write", &far.url(), "--json"], vec![7; 1 << 20]).json();
    let (status, said) = far.end_by("TERM");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("not everything is saved") && said.contains("ssd.state"), "{said}");
    fs::remove_dir(&obstacle).unwrap();

    let (socket, mut command) = (place.at("socket"), Command::new(&*FARLANE));
    command.args(["offer", "device", "--json", "--vfio-user", &socket]).args(place.arguments());
    let mut device = Export::of(command);
    obstruct();
    Running::fed(&["use", "write", &format!("vfio-user:{socket}"), "--json"], vec![7; 1 << 20]).json();
    let (status, said) = device.end_by("TERM");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("not everything is saved"), "{said}");
}

#[test]
fn a_damaged_generation_is_reported_and_the_one_before_it_is_used() {
    let place = Place::new();
    drop(place.export());
    let second = place.export();
    // A far end is there before its first state is saved.
    wait_until("a generation before", || place.path("ssd.state.old").exists());
    drop(second);
    let sound = place.state();
    let damaged = sound.replacen("serial = \"FL", "serial = \"FM", 1);
    assert_ne!(damaged, sound);
    fs::write(place.path("ssd.state"), &damaged).unwrap();
    let mut far = place.export();
    assert!(sound.contains(identify(&far)["controller"]["sn"].as_str().unwrap()));
    far.wait_for("ssd.state.old, is used");
    far.kill();
    assert_eq!(fs::read_to_string(place.path("ssd.state.damaged")).unwrap(), damaged);
}

#[test]
fn a_local_device_keeps_its_state_too() {
    let place = Place::new();
    let socket = place.at("socket");
    let mut serials = Vec::new();
    for round in 1..=2 {
        let mut command = Command::new(&*FARLANE);
        command.args(["offer", "device", "--json", "--vfio-user", &socket]).args(place.arguments());
        let mut device = Export::of(command);
        let url = format!("vfio-user:{socket}");
        let said = json(&["nvme", "identify", &url, "--json"]);
        serials.push((said["controller"]["sn"].clone(), said["namespaces"].clone()));
        let health = json(&["nvme", "smart-log", &url, "--json"]);
        assert_eq!((&health["power_cycles"], &health["unsafe_shutdowns"]), (&round.into(), &0.into()));
        Running::fed(&["use", "write", &url, "--json"], vec![7; 1 << 20]).json();
        device.end_by("TERM");
    }
    assert_eq!(serials[0], serials[1]);
}

#[test]
fn state_that_does_not_fit_is_refused_with_the_remedy() {
    let place = Place::new();
    let far = place.export();
    let export = |more: &[&str]| {
        let mut arguments = vec!["export", "--listen", "127.0.0.1:0"];
        arguments.extend_from_slice(more);
        fail(&arguments).replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (state, pool) = (place.at("ssd.state"), place.at("pool.img"));
    let said = export(&["--ram", "1MiB", "--state", &state]);
    assert!(said.contains("ssd.state: is in use") && said.contains("another --state"), "{said}");
    let mut admin = Admin::attach(&far.address).unwrap();
    admin.create(16, 0).unwrap();
    admin.close();
    drop(far);

    let said = export(&["--pool", &pool]);
    assert!(said.contains("requires --state") && said.contains("--state FILE"), "{said}");
    let other = place.at("other.img,size=4MiB");
    let said = export(&["--pool", &other, "--state", &state]);
    assert!(said.contains("another pool") && said.contains("pool.img"), "{said}");
    let said = export(&["--ram", "1MiB", "--state", &state, "--state", &place.at("second")]);
    assert!(said.contains("give one of them"), "{said}");

    let written = place.state();
    fs::remove_file(place.path("ssd.state.old")).unwrap();
    // As a person leaves a file after changing it by hand.
    let sound = format!("{}# end\n", written.rsplit_once("# end ").unwrap().0);
    for (text, words) in [
        (written.replace("block = 512", "block = 4096"), "its digest does not match its contents"),
        (sound.replace("block = 512", "block = 513"), "block: expected 512, 4096, 4104 or 4112, found 513"),
        (sound.replace("attached = true", "attached = 7"), "attached = 7"),
        (sound[..sound.len() - 20].to_owned(), "cut off"),
        ("something else".to_owned(), "not a state of Farlane's"),
    ] {
        assert_ne!(text, sound);
        fs::write(&state, &text).unwrap();
        let said = export(&["--pool", &pool, "--state", &state]);
        assert!(said.contains(words) && said.contains("help:") && said.contains("ssd.state"), "{said}");
        assert_eq!(place.state(), text, "it was left as it was");
    }
}

#[test]
fn what_cannot_be_saved_is_not_acknowledged() {
    let place = Place::new();
    // 16 blocks of 512 B, a POSIX shell's unit, are 8 KiB.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 16 && exec \"$0\" \"$@\"", &FARLANE]);
    limited.args(["export", "--listen", "127.0.0.1:0", "--json"]).args(place.arguments());
    let mut far = Export::of(limited);
    let mut admin = Admin::attach(&far.address).unwrap();
    let mut made = vec![1];
    let refused = loop {
        match admin.create(16, 0) {
            Ok(id) => made.push(id),
            Err(why) => break why,
        }
        assert!(made.len() < 31, "the state never grows too large");
    };
    assert!(refused.contains("Internal Error"), "{refused}");
    assert_eq!(admin.allocated(), made, "what failed was not done");
    // Everything else goes on.
    let mut command = entry(AdminOpcode::SetFeatures, 0, 0x0a);
    command.cdw11 = 0;
    admin.send(command, &[]).unwrap();
    admin.close();
    far.wait_for("the state can't be saved in");
    far.kill();
    assert!(place.state().contains("\n# end "));

    let again = place.export();
    let mut admin = Admin::attach(&again.address).unwrap();
    assert_eq!(admin.allocated(), made);
    admin.create(16, 0).unwrap();
    admin.close();
}

/// A small file system of its own, unmounted when dropped.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn at(path: &'a Path) -> Option<Self> {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"]).arg(path).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(path))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        // The far end may not be gone yet.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_reported_and_forgiven() {
    let place = Place::new();
    let folder = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(folder.path()) else {
        eprintln!("SKIPPED: no file system can be mounted here, so there is no full disk for state");
        return;
    };
    let state = small.0.join("ssd.state");
    let (pool, state) = (place.at("pool.img"), state.to_str().unwrap());
    let mut far = Export::start(&["--pool", &pool, "--state", state]);
    let filler = small.0.join("filler");
    // The write fails because it does not all fit.
    let _ = fs::write(&filler, vec![1; 1 << 20]);
    let mut admin = Admin::attach(&far.address).unwrap();
    let said = admin.create(16, 0).unwrap_err();
    assert!(said.contains("Internal Error"), "{said}");
    assert_eq!(admin.allocated(), Vec::<u32>::new());
    let said = set_feature(&mut admin, 0x0a, 1).unwrap_err();
    assert!(said.contains("Internal Error"), "{said}");
    far.wait_for("No space left on device");
    fs::remove_file(&filler).unwrap();
    assert_eq!(admin.create(16, 0), Ok(1));
    far.wait_for("the state is saved again");
    admin.close();
    far.kill();
    let again = Export::start(&["--pool", &pool, "--state", state]);
    let mut admin = Admin::attach(&again.address).unwrap();
    assert_eq!(admin.allocated(), [1]);
    admin.close();
}
