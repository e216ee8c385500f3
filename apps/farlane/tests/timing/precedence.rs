//! Priority and DSCP of what ends send, as a capture of the interface shows them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use live::drivers::tap::Tap;

use crate::support::own_network::{is_within, test_path};
use crate::support::{Export, fail, json, succeed};

/// A network with loopback and a pair of interfaces, `near` and `far`, that lead to each other.
const PAIR: &str = "ip link set lo up && ip link add near type veth peer name far && \
                    ip link set near up && ip link set far up && exec \"$@\"";
/// How long the kernel may keep frames of a capture to itself.
const LAG: Duration = Duration::from_millis(100);

const EF: u8 = 46 << 2;
const CS5: u8 = 40 << 2;
const ECN: u8 = 0b11;

/// The second bytes of IPv4 packets that pass loopback while `act` runs, without the bits of ECN:
/// those from `port`, and those to it. Packets of `hosts`, the ports at the other end that were
/// seen before, are late ones of connections that ended; new ports are added to them.
fn classes(port: u16, hosts: &mut BTreeSet<(u16, u16)>, act: impl Fn()) -> (Vec<u8>, Vec<u8>) {
    loop {
        let mut tap = Tap::open("lo").unwrap();
        act();
        std::thread::sleep(LAG);
        let (mut from, mut to, mut present) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let until = Instant::now() + LAG;
        while Instant::now() < until {
            while let Some(frame) = tap.next_frame() {
                let word = |at: usize| u16::from_be_bytes([frame.bytes[at], frame.bytes[at + 1]]);
                if frame.is_outgoing && frame.bytes.len() > 38 && word(12) == 0x0800 {
                    let class = frame.bytes[15] & !ECN;
                    let (source, destination) = (word(34), word(36));
                    if source == port && !hosts.contains(&(port, destination)) {
                        from.insert(class);
                        present.insert((port, destination));
                    } else if destination == port && !hosts.contains(&(port, source)) {
                        to.insert(class);
                        present.insert((port, source));
                    }
                }
            }
        }
        hosts.extend(present);
        // A busy machine may overflow the ring: missed frames may have had another class.
        if tap.missed() == 0 {
            return (from.into_iter().collect(), to.into_iter().collect());
        }
    }
}

fn port(address: &str) -> u16 {
    address.rsplit(':').next().unwrap().parse().unwrap()
}

#[test]
fn packets_have_the_class_that_each_end_was_given() {
    if !is_within(test_path!("packets_have_the_class_that_each_end_was_given"), "loopback", PAIR) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key").to_str().unwrap().to_owned();
    json(&["setup", "key", "new", &key, "--json"]);
    let far = Export::start(&[
        "--udp",
        "127.0.0.1:0",
        "--quic",
        "127.0.0.1:0",
        "--key",
        &key,
        "--insecure",
        "--ram",
        "16MiB",
        "--dscp",
        "EF",
        "--priority",
        "5",
    ]);
    let said = |key: &str| far.announcement[key].as_str().unwrap().to_owned();
    let mut hosts = BTreeSet::new();
    for (url, port) in [
        (far.url(), port(&far.address)),
        (format!("udp://{}", said("udp")), port(&said("udp"))),
        (format!("quic://{}?key=any", said("quic")), port(&said("quic"))),
    ] {
        let read = |further: &[&str]| {
            let arguments = [&["read", &url, "--length", "1MiB", "--output", "/dev/null"], further].concat();
            succeed(&arguments);
        };
        let marked = classes(port, &mut hosts, || read(&["--dscp", "CS5", "--priority", "3"]));
        assert_eq!(marked, (vec![EF], vec![CS5]), "{url}");
        // One end's class says nothing about the other's.
        let plain = classes(port, &mut hosts, || read(&[]));
        assert_eq!(plain, (vec![EF], vec![0]), "{url}");
    }
    // A name says it as well, and more than the options do.
    let url = format!("udp://{}?dscp=CS5", said("udp"));
    let both = classes(port(&said("udp")), &mut hosts, || {
        drop(succeed(&["nvme", "identify", &url, "--dscp", "AF11"]))
    });
    assert_eq!(both, (vec![EF], vec![CS5]));
}

#[test]
fn a_target_and_its_hosts_have_classes_too() {
    if !is_within(test_path!("a_target_and_its_hosts_have_classes_too"), "loopback", PAIR) {
        return;
    }
    let nqn = "nqn.2026-01.io.farlane:classes";
    let mut command = std::process::Command::new(&*crate::support::FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", nqn, "--ram", "16MiB"]);
    command.args(["--dscp", "46", "--priority", "6"]);
    let target = Export::of(command);
    let mut hosts = BTreeSet::new();
    for (query, options, class) in
        [("", &["--dscp", "CS5"][..], CS5), ("?dscp=CS5&priority=2", &[], CS5), ("", &[], 0)]
    {
        let url = format!("nvme-tcp://{}/{nqn}{query}", target.address);
        let arguments = [&["identify", &url][..], options].concat();
        let seen = classes(port(&target.address), &mut hosts, || drop(succeed(&arguments)));
        assert_eq!(seen, (vec![EF], vec![class]), "{url}");
    }
}

#[test]
fn frames_of_a_vlan_have_the_priority_in_their_tags() {
    if !is_within(
        test_path!("frames_of_a_vlan_have_the_priority_in_their_tags"),
        "a pair of interfaces",
        PAIR,
    ) {
        return;
    }
    let far = Export::start(&["--insecure", "--eth", "far,vlan=3", "--priority", "6", "--ram", "16MiB"]);
    let mac = far.announcement["eth"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    for (tag, options, expected) in [
        (",vlan=3", &["--priority", "4"][..], 4),
        (",vlan=3,pcp=2", &["--priority", "4"], 2),
        (",vlan=3", &[], 0),
    ] {
        let mut tap = Tap::open("far").unwrap();
        let url = format!("eth:near{tag}/{mac}");
        succeed(&[&["nvme", "identify", &url][..], options].concat());
        std::thread::sleep(LAG);
        let mut priorities = [Vec::new(), Vec::new()];
        while let Some(frame) = tap.next_frame() {
            // A driver of veth leaves the tag beside the frame, others within.
            let tag = match (frame.tag, &frame.bytes[12..16]) {
                (Some([_, _, a, b]), _) | (None, &[0x81, 0, a, b]) => Some([a, b]),
                _ => None,
            };
            let Some([a, b]) = tag else { continue };
            assert_eq!(u16::from_be_bytes([a & 0xf, b]), 3);
            priorities[usize::from(frame.is_outgoing)].push(a >> 5);
        }
        priorities.iter_mut().for_each(|one| one.dedup());
        assert_eq!(priorities, [vec![expected], vec![6]], "{url}");
    }
}

#[test]
fn what_can_not_be_marked_is_said() {
    assert!(fail(&["measure", "ping", "tcp://127.0.0.1:1", "--dscp", "AF9"]).contains("0 to 63"));
    assert!(fail(&["measure", "ping", "tcp://127.0.0.1:1", "--priority", "16"]).contains("0 to 15"));
    let said = fail(&["measure", "ping", "eth:eth0/02:00:5e:00:53:01", "--dscp", "EF"]);
    assert!(said.contains("no DSCP"), "{said}");
    assert!(
        fail(&["measure", "ping", "nvme-tcp://127.0.0.1:1/nqn.2026-01.io.farlane:x?dscp=64"])
            .contains("0 to 63")
    );
}
