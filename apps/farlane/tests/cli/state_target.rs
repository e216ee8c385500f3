//! A target keeps the state of its subsystems however it ends.

use std::fs::{self, File};
use std::process::Command;

use engine::{Buffer, Nanos};
use live::client::{AttachError, Controller, Options, Url};
use nvme::host::Data;
use nvme::wire::feature::FeatureId;
use nvme::wire::{AdminOpcode, IoOpcode, NamespaceId, StatusCode, SubmissionQueueEntry};

use crate::support::running::wait_until;
use crate::support::{Export, FARLANE, json, succeed};

const NQN: &str = "nqn.2026-01.io.farlane:state-test";
/// Value of Change Persist Through Power Loss State (CPTPL) in Reservation Register that makes
/// reservations persist.
const PERSIST: u32 = 0b11 << 30;
const WRITE_EXCLUSIVE: u32 = 1;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for name in ["one.img", "two.img"] {
            File::create(place.path(name)).unwrap().set_len(8 << 20).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn target(&self, namespaces: &[(u32, &str)]) -> Export {
        let mut file = format!("[[port]]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n");
        file += &format!("state = \"{}\"\n", self.path("kept"));
        for (id, name) in namespaces {
            file += &format!("[[subsystem.namespace]]\nid = {id}\npath = \"{}\"\n", self.path(name));
        }
        fs::write(self.path("target.toml"), file).unwrap();
        let mut command = Command::new(&*FARLANE);
        command.args(["target", "--json", "--control", &self.path("control")]);
        command.args(["--config", &self.path("target.toml")]);
        Export::of(command)
    }

    fn state(&self) -> String {
        fs::read_to_string(self.path("kept")).unwrap()
    }
}

/// Connects host `number`, which has an identifier of its own.
fn host(target: &Export, number: u8) -> Controller {
    let (name, id) = (format!("nqn.2014-08.org.example:host{number}"), format!("{number:02x}").repeat(16));
    let url = format!("nvme-tcp://{}/{NQN}?hostnqn={name}&hostid={id}", target.address);
    let address = url.parse::<Url>().unwrap().resolve().unwrap();
    let mut host = Controller::open(&address, &Options::new("host")).unwrap();
    host.wait_ready(Nanos::from_secs(20)).unwrap();
    host
}

fn entry(opcode: IoOpcode, namespace: u32, cdw10: u32) -> SubmissionQueueEntry {
    let namespace = NamespaceId(namespace);
    SubmissionQueueEntry { opcode: opcode.into(), namespace, cdw10, ..SubmissionQueueEntry::default() }
}

/// Registers the host with a key and acquires a Write Exclusive reservation.
fn reserve(host: &mut Controller, namespace: u32, register: u32) {
    let key = |words: [u64; 2]| Data::Write(Buffer::from(words.map(u64::to_le_bytes).concat()));
    host.execute(entry(IoOpcode::ReservationRegister, namespace, register), key([0, 0xfeed_0000_0000_0007]))
        .unwrap();
    let acquire = entry(IoOpcode::ReservationAcquire, namespace, WRITE_EXCLUSIVE << 8);
    host.execute(acquire, key([0xfeed_0000_0000_0007, 0])).unwrap();
}

/// The reservation of a namespace: its type, and the numbers of the registered hosts.
fn reservation(host: &mut Controller, namespace: u32) -> (u8, Vec<u8>) {
    let report = SubmissionQueueEntry { cdw11: 1, ..entry(IoOpcode::ReservationReport, namespace, 255) };
    let data = host.execute(report, Data::Read(1024)).unwrap().data;
    let count = usize::from(u16::from_le_bytes([data[5], data[6]]));
    (data[4], (0..count).map(|index| data[64 + 64 * index + 16]).collect())
}

fn write(host: &mut Controller, namespace: u32) -> Option<StatusCode> {
    match host.write(NamespaceId(namespace), 0, 1, Buffer::zeroed(512)) {
        Ok(()) => None,
        Err(AttachError::Command(status)) => Some(status.code()),
        Err(error) => panic!("{error}"),
    }
}

/// Sets Namespace Write Protection Config if `set` is given, or else gets it. Returns DW0 of
/// the completion.
fn protection(host: &mut Controller, namespace: u32, set: Option<u32>) -> u32 {
    let opcode = if set.is_some() { AdminOpcode::SetFeatures } else { AdminOpcode::GetFeatures };
    let command = SubmissionQueueEntry {
        opcode: opcode.into(),
        namespace: NamespaceId(namespace),
        cdw10: u8::from(FeatureId::WriteProtection).into(),
        cdw11: set.unwrap_or_default(),
        ..SubmissionQueueEntry::default()
    };
    host.admin(command, Data::None).unwrap().dw0
}

#[test]
fn a_target_that_is_killed_remembers_reservations_and_write_protection() {
    let place = Place::new();
    let both = [(1, "one.img"), (7, "two.img")];
    let mut target = place.target(&both);
    let mut one = host(&target, 1);
    reserve(&mut one, 1, PERSIST);
    assert_eq!(protection(&mut one, 7, Some(1)), 0);
    // Nothing of the added namespace was asked to persist.
    succeed(&["target", "add", "--ram", "1MiB", "--control", &place.path("control")]);
    target.kill();
    drop(one);

    let mut target = place.target(&both);
    let mut other = host(&target, 2);
    assert_eq!(reservation(&mut other, 1), (1, vec![1]));
    assert_eq!(write(&mut other, 1), Some(StatusCode::ReservationConflict));
    assert_eq!((protection(&mut other, 1, None), protection(&mut other, 7, None)), (0, 1));
    assert_eq!(write(&mut other, 7), Some(StatusCode::NamespaceWriteProtected));
    let mut one = host(&target, 1);
    assert_eq!(write(&mut one, 1), None, "the holder is known again");
    // The holder releases its reservation, and the release persists as well.
    let key = Data::Write(Buffer::from(0xfeed_0000_0000_0007_u64.to_le_bytes().to_vec()));
    one.execute(entry(IoOpcode::ReservationRelease, 1, 1), key).unwrap();
    assert_eq!(protection(&mut one, 7, Some(0)), 0);
    reserve(&mut other, 7, 0);
    target.kill();
    drop((one, other));

    let target = place.target(&both);
    let mut one = host(&target, 1);
    assert_eq!(reservation(&mut one, 1), (0, vec![]));
    assert_eq!(reservation(&mut one, 7), (0, vec![]), "that one was not to last");
    assert_eq!((write(&mut one, 1), write(&mut one, 7)), (None, None));
}

#[test]
fn what_is_removed_or_replaced_is_forgotten() {
    let place = Place::new();
    let mut target = place.target(&[(1, "one.img"), (2, "two.img")]);
    let mut one = host(&target, 1);
    for namespace in [1, 2] {
        protection(&mut one, namespace, Some(1));
        reserve(&mut one, namespace, PERSIST);
    }
    drop(one);
    // Remove one namespace while the target runs, and add it again.
    let ask =
        |words: &[&str]| succeed(&[&["target"], words, &["--control", &place.path("control")]].concat());
    ask(&["remove", "--nsid", "2"]);
    ask(&["add", "--namespace", &place.path("two.img")]);
    let mut one = host(&target, 1);
    assert_eq!((protection(&mut one, 2, None), reservation(&mut one, 2).0), (0, 0));
    assert_eq!(write(&mut one, 2), None);
    assert!(
        place.state().contains("two.img") && place.state().contains("[[ssd.reservation]]"),
        "{}",
        place.state()
    );
    let (status, said) = target.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    drop(one);
    // The other namespace has another file at the next start.
    let target = place.target(&[(1, "two.img")]);
    target.wait_for("the saved state of that is dropped");
    let mut one = host(&target, 1);
    assert_eq!((protection(&mut one, 1, None), reservation(&mut one, 1).0), (0, 0));
    assert_eq!(write(&mut one, 1), None);
    // The previous end was an orderly one.
    let url = format!("nvme-tcp://{}/{NQN}", target.address);
    assert_eq!(json(&["nvme", "smart-log", &url, "--json"])["unsafe_shutdowns"], 0);
}

#[test]
fn a_target_that_cannot_save_its_state_at_the_end_fails() {
    let place = Place::new();
    let mut target = place.target(&[(1, "one.img")]);
    // A directory in the place of the next generation's file, once the current one has
    // been renamed.
    wait_until("kept.new has no owner", || fs::create_dir(place.path("kept.new")).is_ok());
    assert_eq!(write(&mut host(&target, 1), 1), None);
    let (status, said) = target.end_by("TERM");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("not everything is saved") && said.contains("kept"), "{said}");
}
