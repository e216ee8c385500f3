//! Plans that are applied, and frames that are held against them.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::own_network::{is_within, test_path};
use crate::support::{Export, fail, farlane, json, succeed};

/// A network with a pair of interfaces that lead to each other, with as many queues as classes, and
/// one interface with a single queue.
const PAIR: &str = "ip link set lo up && ip link add near numtxqueues 8 numrxqueues 8 type veth peer name far \
                    numtxqueues 8 numrxqueues 8 && ip link add narrow numtxqueues 1 type veth peer name other && \
                    ip link set near up && ip link set far up && exec \"$@\"";

/// A plan of a gigabit, with a window of 1 ms and more in each 10 ms, and where it is.
fn plan(further: &[&str]) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plan.json").to_str().unwrap().to_owned();
    let frames = ["--frame", "1518"].repeat(80);
    let plan = ["tsn", "plan", "--cycle", "10ms", "--hops", "1", "--messages", "1", "--json"];
    fs::write(&path, succeed(&[&plan[..], &frames, further].concat())).unwrap();
    (directory, path)
}

/// A capture of frames of the class `pcp` that leave at these times, in nanoseconds.
fn capture(path: &Path, pcp: u8, times: &[u64]) {
    capture_cut(path, pcp, times, 100);
}

/// The same where frames had `length` bytes, of which the capture has 100.
fn capture_cut(path: &Path, pcp: u8, times: &[u64], length: u32) {
    let mut bytes =
        vec![0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    for time in times {
        let seconds = u32::try_from(time / 1_000_000_000).unwrap();
        let rest = u32::try_from(time % 1_000_000_000).unwrap();
        for word in [seconds, rest, 100, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame(pcp));
    }
    fs::write(path, bytes).unwrap();
}

/// A capture of frames of class 7 whose interface says that `lost` more are not in it.
fn capture_losing(path: &Path, times: &[u64], lost: u64) {
    let block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    // A section, and an interface of Ethernet whose stamps are in nanoseconds.
    let mut bytes = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    bytes.extend(block(1, &words(&[1, 0, 0x0001_0009, 9, 0])));
    for time in times {
        let halves = [time >> 32, time & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
        let head = words(&[0, halves[0], halves[1], 100, 100]);
        bytes.extend(block(6, &[head, frame(7)].concat()));
    }
    // Its statistics: packets that were dropped (isb_ifdrop).
    let option = [&[5_u8, 0, 8, 0][..], &lost.to_le_bytes(), &[0; 4]].concat();
    bytes.extend(block(5, &[words(&[0, 0, 0]), option].concat()));
    fs::write(path, bytes).unwrap();
}

/// A frame of the class `pcp`, of 100 bytes.
fn frame(pcp: u8) -> Vec<u8> {
    let mut frame = vec![0; 100];
    frame[12..18].copy_from_slice(&[0x81, 0, pcp << 5, 3, 0x88, 0xb5]);
    frame
}

#[test]
fn the_commands_are_printed_for_any_machine() {
    let (_directory, plan) = plan(&[]);
    let apply = |further: &[&str]| {
        let arguments = ["tsn", "apply", "--interface", "there", "--dry-run"];
        succeed(&[&arguments[..], further].concat()).replace(" \\\n   ", "")
    };
    let said = apply(&[&plan]);
    assert!(
        said.starts_with("tc qdisc replace dev there parent root handle 100 taprio num_tc 8 map"),
        "{said}"
    );
    assert!(said.contains("sched-entry S 80") && said.trim().ends_with("flags 0x2"), "{said}");
    let said = apply(&[&plan, "--software", "--launch-times", "--shaper", "3=100Mbit/s"]);
    assert!(
        said.contains("clockid CLOCK_TAI") && said.contains("parent 100:8 etf clockid CLOCK_TAI"),
        "{said}"
    );
    assert!(said.contains("parent 100:4 cbs idleslope 100000 sendslope -900000"), "{said}");
    assert_eq!(apply(&["--remove"]).trim(), "tc qdisc del dev there root");
    let printed = json(&["model", "tsn", "apply", &plan, "--interface", "there", "--dry-run", "--json"]);
    assert_eq!((&printed["applied"], &printed["commands"][0][0]), (&false.into(), &"tc".into()));
}

#[test]
fn what_is_no_plan_or_can_not_be_kept_is_refused() {
    let (directory, plan) = plan(&[]);
    let broken = directory.path().join("broken.json").to_str().unwrap().to_owned();
    fs::write(&broken, "{\"cycle\": 5}").unwrap();
    let apply = |further: &[&str]| {
        fail(&[&["model", "tsn", "apply", "--interface", "no-such-one"], further].concat()).replace('│', " ")
    };
    assert!(apply(&[&broken]).contains("is no plan"));
    assert!(apply(&[&plan]).contains("no interface no-such-one"));
    assert!(apply(&["--shaper", "9=1Mbit/s"]).contains("'9' is no class"));
    assert!(apply(&[]).contains("<PLAN|--shaper"));
    for (further, expected) in [
        (
            &["--launch-times", "--shaper", "7=1Mbit/s"][..],
            "class 7 takes one discipline, and --launch-times",
        ),
        (&["--shaper", "3=1Mbit/s", "--shaper", "3=2Mbit/s"], "class 3 takes one discipline, and another"),
    ] {
        let said = apply(&[&[&*plan, "--dry-run"], further].concat());
        assert!(said.contains(expected), "{said}");
    }
    let twice = ["--shaper", "3=1Mbit/s", "--shaper", "2=1Mbit/s", "--shaper", "3=2Mbit/s"];
    let said = fail(&[&["model", "tsn", "audit", &plan, "--from", "nowhere.pcap"], &twice[..]].concat());
    assert!(said.contains("class 3 has two rates to keep: 1 Mbit/s and 2 Mbit/s"), "{said}");
    let said = apply(&["--dry-run", "--shaper", "3=1Gbit/s"]);
    assert!(said.contains("unknown rate"), "{said}");
    let said =
        fail(&["model", "tsn", "apply", &plan, "--interface", "lo", "--hop", "2", "--dry-run", "--software"]);
    assert!(said.contains("lo can't keep the plan") || said.contains("no hop 2"), "{said}");
    let launch = format!("{plan},hop=2");
    let said = fail(&["measure", "ping", "udp://127.0.0.1:1", "--launch", &launch]);
    assert!(said.contains("no hop 2"), "{said}");
    let ping = ["ping", "udp://127.0.0.1:1", "--timeout", "300ms", "--launch", &plan];
    let said = fail(&ping);
    assert!(said.contains("without a priority") && said.contains("--priority 7"), "{said}");
    let said = fail(&[&ping[..], &["--priority", "7"]].concat());
    assert!(!said.contains("without a priority"), "{said}");
    let said = fail(&["measure", "ping", "tcp://127.0.0.1:1", "--launch", &plan]);
    assert!(said.contains("udp:// and eth:"), "{said}");
}

#[test]
fn an_interface_has_what_the_plan_needs_or_says_why_not() {
    if !is_within(
        test_path!("an_interface_has_what_the_plan_needs_or_says_why_not"),
        "a pair of interfaces",
        PAIR,
    ) {
        return;
    }
    let (_directory, plan) = plan(&[]);
    let apply = |interface: &str, further: &[&str]| {
        let output =
            farlane(&[&["model", "tsn", "apply", &plan, "--interface", interface], further].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap().replace('│', " "))
    };
    let (status, said) = apply("near", &[]);
    assert!(status == Some(1) && said.contains("no hardware clock"), "{said}");
    let (status, said) = apply("narrow", &["--software"]);
    assert!(status == Some(1) && said.contains("one transmit queue"), "{said}");
    // A kernel with taprio takes the plan and gives it back; another reports its lack, and the
    // interface is as it was.
    match apply("near", &["--software", "--launch-times"]) {
        (Some(0), _) => drop(succeed(&["model", "tsn", "apply", "--interface", "near", "--remove"])),
        (status, said) => {
            eprintln!("this kernel has no taprio: {said}");
            assert!(status == Some(1) && said.contains("CONFIG_NET_SCH_TAPRIO"), "{said}");
        }
    }
    let shown = std::process::Command::new("tc").args(["qdisc", "show", "dev", "near"]).output().unwrap();
    assert!(!String::from_utf8(shown.stdout).unwrap().contains(" 100:"));
}

#[test]
fn frames_of_a_capture_are_held_against_the_plan() {
    let (directory, plan) = plan(&[]);
    let file = directory.path().join("left.pcap");
    let check = |further: &[&str]| {
        let path = file.to_str().unwrap();
        let output =
            farlane(&[&["model", "tsn", "audit", &plan, "--from", path, "--json"], further].concat());
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default())
    };
    // Whole seconds are whole cycles, so TAI and UTC agree about these.
    let second = 1_800_000_000_000_000_000;
    let cycles = |offset: u64| move |cycle: u64| second + cycle * 10_000_000 + offset;
    let times: Vec<_> = (0..500).map(cycles(20_000)).collect();
    capture(&file, 7, &times);
    let (status, said) = check(&[]);
    assert_eq!((status, &said["kept"], &said["frames"]), (Some(0), &true.into(), &500.into()), "{said}");
    // One frame leaves in the middle of the others' time.
    let mut late = times.clone();
    late.push(cycles(5_000_000)(500));
    capture(&file, 7, &late);
    let (status, said) = check(&["--frames", "--error", "1us"]);
    assert_eq!((status, &said["kept"]), (Some(1), &false.into()), "{said}");
    assert_eq!((&said["outside"][0]["frame"], &said["classes"][0]["outside"]), (&500.into(), &1.into()));
    let off = said["outside"][0]["off"].as_u64().unwrap();
    assert!((3_500_000..5_000_000).contains(&off), "{off}");
    // Frames of others have no business in the window, and frames of an unused class are no proof.
    capture(&file, 0, &times);
    let (status, _) = check(&[]);
    assert_eq!(status, Some(1));
    capture(&file, 7, &times[..1]);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(check(&[]).0, Some(1));
    // A frame takes the link as long as it is, however little of it was kept.
    let read: Value = serde_json::from_str(&fs::read_to_string(&plan).unwrap()).unwrap();
    let [opens, window] = ["base_time", "window"].map(|key| read["hops"][0][key].as_u64().unwrap());
    let last = cycles(opens + window - 5_000)(0);
    for (length, status) in [(100, 0), (1_514, 1)] {
        capture_cut(&file, 7, &[last], length);
        assert_eq!(check(&["--error", "1us"]).0, Some(status), "{length} B");
    }
    // A rate that is not kept: 500 frames of 128 B with their overhead, 10 ms apart, are 102.4
    // kbit/s.
    capture(&file, 7, &times);
    for rate in ["7=103kbit/s", "7=10000000Tbit/s"] {
        assert_eq!(check(&["--shaper", rate]).0, Some(0), "{rate}");
    }
    let (status, said) = check(&["--shaper", "7=90kbit/s"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said["classes"][0]["beyond_rate"].as_u64().unwrap() > 0, "{said}");
}

#[test]
fn a_capture_that_has_lost_frames_proves_nothing() {
    let (directory, plan) = plan(&[]);
    let file = directory.path().join("left.pcapng");
    let second = 1_800_000_000_000_000_000;
    let times: Vec<u64> = (0..50).map(|cycle| second + cycle * 10_000_000 + 20_000).collect();
    for (lost, status) in [(0_u64, 0), (3, 1)] {
        capture_losing(&file, &times, lost);
        let output = farlane(&["model", "tsn", "audit", &plan, "--from", file.to_str().unwrap(), "--json"]);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), said["missed"].as_u64()), (Some(status), Some(lost)), "{said}");
    }
}

#[test]
fn a_packet_without_a_time_stamp_is_reported_and_proves_nothing() {
    let (directory, plan) = plan(&[]);
    let file = directory.path().join("left.pcapng");
    let path = file.to_str().unwrap();
    // A Simple Packet Block.
    let (kind, length, captured) = (3_u32.to_le_bytes(), 116_u32.to_le_bytes(), 100_u32.to_le_bytes());
    let simple = [&kind[..], &length, &captured, &frame(7)[..], &length].concat();
    let write = |times: &[u64]| {
        capture_losing(&file, times, 0);
        let whole = [fs::read(&file).unwrap(), simple.clone()].concat();
        fs::write(&file, whole).unwrap();
    };
    write(&[1_800_000_000_000_020_000]);
    let output = farlane(&["model", "tsn", "audit", &plan, "--from", path, "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &said["frames"], &said["without_stamp"]),
        (Some(1), &1.into(), &1.into())
    );
    write(&[]);
    let said = fail(&["model", "tsn", "audit", &plan, "--from", path]);
    assert!(said.contains("beside 1 packets"), "{said}");
}

#[test]
fn a_capture_of_another_link_type_is_refused() {
    let (directory, plan) = plan(&[]);
    let file = directory.path().join("left.pcap");
    capture(&file, 7, &[1_800_000_000_000_020_000]);
    // As tcpdump -i any writes it.
    let mut bytes = fs::read(&file).unwrap();
    bytes[20..24].copy_from_slice(&276_u32.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let output = farlane(&["model", "tsn", "audit", &plan, "--from", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("frames have link type 276, LINUX_SLL2, in"), "{said}");
}

/// Without queueing disciplines, times of launch change nothing, so the tunnel works and the check
/// finds frames outside.
#[test]
fn frames_of_a_tunnel_are_seen_and_found_outside() {
    if !is_within(test_path!("frames_of_a_tunnel_are_seen_and_found_outside"), "a pair of interfaces", PAIR) {
        return;
    }
    let (_directory, plan) = plan(&[]);
    let far = Export::start(&["--insecure", "--eth", "far,pcp=7", "--launch", &plan, "--ram", "16MiB"]);
    let mac = far.announcement["eth"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let url = format!("eth:near,pcp=7/{mac}");
    let seen = std::thread::scope(|scope| {
        let check = scope.spawn(|| {
            let arguments = ["tsn", "check", &plan, "--interface", "near", "--for", "2s", "--json"];
            let output = farlane(&arguments);
            (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap())
        });
        json(&["measure", "ping", &url, "--launch", &plan, "--count", "300", "--interval", "3ms", "--json"]);
        check.join().unwrap()
    });
    assert_eq!((seen.0, &seen.1["kept"]), (Some(1), &false.into()), "{}", seen.1);
    let classes = seen.1["classes"].as_array().unwrap();
    let flow = classes.iter().find(|one| one["class"] == 7).unwrap();
    assert!(flow["outside"].as_u64().unwrap() > 100, "{flow}");
    assert!(
        fail(&["model", "tsn", "audit", &plan, "--interface", "narrow", "--for", "10ms"])
            .contains("nothing to check")
    );
    assert!(
        fail(&["model", "tsn", "audit", &plan, "--interface", "nobody"]).contains("can't see the frames")
    );
}
