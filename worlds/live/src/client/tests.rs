use nvme::media::ram::RamDisk;
use nvme::subsystem::Config;
use nvme::wire::{AdminOpcode, IoOpcode, StatusCode};
use nvme_pcie::controller;
use nvme_pcie::host::QueueId;

use super::*;

const DISK_BYTES: u64 = 4 << 20;
const BLOCKS: u32 = 256;
const PATIENCE: Nanos = Nanos::from_secs(30);

/// A controller in this process with one namespace.
fn controller(options: &Options) -> Controller {
    let mut media = Media::new();
    let medium = media.add(RamDisk::new(DISK_BYTES)).unwrap();
    let core = Config::new("HANDLE").with_namespace(medium, DISK_BYTES);
    let config = function::Config::new(controller::Config::new(core));
    let mut controller = Controller::direct(config, media, options).unwrap();
    controller.wait_ready(PATIENCE).unwrap();
    controller
}

fn pattern(seed: u8) -> Buffer {
    let bytes: Vec<u8> = (0..BLOCKS * 512).map(|at| at.to_le_bytes()[1].wrapping_mul(seed)).collect();
    Buffer::from(bytes)
}

/// The next command that ends.
fn ended(controller: &mut Controller) -> Completed {
    let deadline = controller.now() + PATIENCE;
    loop {
        match controller.next_event(Some(deadline)).unwrap() {
            Some(Event::Completed(completed)) => return completed,
            Some(_) => {}
            None => panic!("no command ends"),
        }
    }
}

#[test]
fn data_in_buffers_and_data_with_a_place_are_the_same_data() {
    let mut controller = controller(&Options::new("test"));
    let id = controller.identity().unwrap().namespaces[0].id;
    controller.write(id, 0, BLOCKS, pattern(3)).unwrap();
    let place = Place { address: controller.data_region().base, length: BLOCKS * 512 };
    let now = controller.now();
    controller
        .submit(now, Submission::on_blocks(IoOpcode::Read, QueueId(1), id, 0, BLOCKS, place, 7))
        .unwrap();
    let read = ended(&mut controller);
    assert_eq!((read.cookie, read.data.len(), read.is_unheard), (7, 0, false));
    assert!(controller.bytes(place) == &pattern(3)[..]);

    controller.put(place, |bytes| bytes.copy_from_slice(&pattern(5)));
    let now = controller.now();
    controller
        .submit(now, Submission::on_blocks(IoOpcode::Write, QueueId(1), id, 1024, BLOCKS, place, 8))
        .unwrap();
    assert_eq!(ended(&mut controller).cookie, 8);
    assert!(controller.read(id, 1024, BLOCKS).unwrap()[..] == pattern(5)[..]);
    assert!(controller.read(id, 0, BLOCKS).unwrap()[..] == pattern(3)[..], "the slot is used again");
    controller.close().unwrap();
}

#[test]
fn as_many_commands_with_buffers_are_under_way_as_there_are_slots() {
    let mut controller = controller(&Options { slots: 2, ..Options::new("test") });
    let id = controller.identity().unwrap().namespaces[0].id;
    let now = controller.now();
    let read = |cookie: u64| Request {
        cookie,
        entry: on_blocks(IoOpcode::Read, id, cookie, 1),
        data: Data::Read(512),
        queue: 0,
    };
    controller.submit_io(now, read(0)).unwrap();
    controller.submit_io(now, read(1)).unwrap();
    let error = controller.submit_io(now, read(2)).unwrap_err();
    assert!(error.is_busy() && !error.is_away(), "{error}");
    let mut cookies = [ended(&mut controller).cookie, ended(&mut controller).cookie];
    cookies.sort_unstable();
    assert_eq!(cookies, [0, 1]);
    let now = controller.now();
    controller.submit_io(now, read(2)).unwrap();
    let read = ended(&mut controller);
    assert_eq!((read.cookie, read.data.len()), (2, 512));
    let long = controller.read(id, 0, 512).unwrap_err();
    assert!(matches!(&long, AttachError::Submit(error) if !error.is_busy() && !error.is_away()), "{long}");
}

#[test]
fn a_command_that_fails_says_so_and_gives_its_slot_back() {
    let mut controller = controller(&Options { slots: 1, ..Options::new("test") });
    let id = controller.identity().unwrap().namespaces[0].id;
    for _ in 0..3 {
        let error = controller.read(id, DISK_BYTES / 512, 1).unwrap_err();
        let AttachError::Command(status) = error else { panic!("{error}") };
        assert_eq!(status.code(), StatusCode::LbaOutOfRange);
    }
    let identify = SubmissionQueueEntry {
        opcode: AdminOpcode::Identify.into(),
        cdw10: nvme::wire::identify::cns::CONTROLLER,
        ..SubmissionQueueEntry::default()
    };
    let page = controller.admin(identify, Data::Read(4096)).unwrap();
    assert_eq!((page.status.is_success(), page.data.len()), (true, 4096));
    assert_eq!(&page.data[4..10], b"HANDLE", "Serial Number (SN)");
    assert!(!controller.is_fabric() && controller.near().is_some());
    let now = controller.now();
    controller.probe(now).unwrap();
    let probed = std::iter::from_fn(|| controller.next_event(Some(now + PATIENCE)).unwrap())
        .find_map(|event| if let Event::Probed(result) = event { Some(result) } else { None });
    assert!(probed.unwrap().is_ok_and(|ids| ids & 0xffff != 0xffff));
}

#[test]
fn the_news_of_a_path_are_worded_for_a_person_and_for_a_medium() {
    use nvme_fabrics::host::Loss;
    use nvme_fabrics::host::multipath::PathIndex;
    let lost = News::PathLost(PathIndex(1), Loss::KeepAlive);
    assert_eq!(lost.to_string(), "path 2 is lost: a Keep Alive was not answered in time");
    assert_eq!(lost.brief(), "a Keep Alive was not answered in time");
    let digests = News::NoDigests(PathIndex(0), "data digests");
    assert!(digests.to_string().starts_with("path 1: the controller enables no data digests: "));
    assert_eq!(digests.brief(), "has no data digests: a bit that flips in transit may go unnoticed");
}

#[test]
fn a_url_leads_to_an_address() {
    let hold = Nanos::from_secs(9);
    for (text, expected, wait) in [
        ("tcp://127.0.0.1:1", "Far", hold),
        ("vfio-user:ssd.sock", "VfioUser", hold),
        ("nvme-tcp://127.0.0.1:1,127.0.0.1:2/nqn.2014-08.org.example:x", "Subsystem", hold),
        (
            "nvme-tcp://127.0.0.1/nqn.2014-08.org.example:x?fast-io-fail-tmo=2",
            "Subsystem",
            Nanos::from_secs(2),
        ),
    ] {
        let url: Url = text.parse().unwrap();
        let address = url.resolve().unwrap();
        assert!(format!("{address:?}").starts_with(expected), "{text}: {address:?}");
        assert_eq!(url.hold(hold), wait, "{text}");
    }
}
