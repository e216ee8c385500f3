//! Frames over several paths at once (IEEE 802.1CB): one link as long as either path works, which
//! reports its failing paths.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::support::figures::Figures;
use crate::support::load::{assert_serves, assert_verified, verified};
use crate::support::own_network::{is_within, test_path};
use crate::support::running::{Running, times, wait_until};
use crate::support::{Export, fail, json, succeed};

fn said<'a>(far: &'a Export, key: &str) -> &'a str {
    far.announcement[key].as_str().unwrap()
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}: {status}");
}

/// Two pairs of interfaces, so that frames take two paths.
const TWO_PAIRS: &str = "ip link set lo up && for i in 1 2; do ip link add near$i type veth peer name far$i && \
                         ip link set near$i up && ip link set far$i up || exit 1; done && exec \"$@\"";

#[test]
fn two_paths_are_one_link_as_long_as_either_works() {
    if !is_within(
        test_path!("two_paths_are_one_link_as_long_as_either_works"),
        "two pairs of interfaces",
        TWO_PAIRS,
    ) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control").to_str().unwrap().to_owned();
    let watched = ["--control", &control, "--metrics", "127.0.0.1:0"];
    let far = ["--insecure", "--eth", "far1+far2,vlan=7,pcp=5", "--ram", "16MiB", "--hold", "1s"];
    let far = Export::start(&[&far, &watched[..]].concat());
    let figures = Figures::of(|| far.said());
    let (places, mac) = said(&far, "eth").rsplit_once('/').unwrap();
    assert_eq!(places, "far1+far2,vlan=7,pcp=5");
    let url = format!("eth:near1+near2,vlan=7,pcp=5/{mac}");
    // Most of this takes 3 s; another process is refused only while the load runs.
    let load = verified(&url, "9s", &["--bs", "16k"]);
    far.wait_for("link up");
    for gone in ["near1", "far2"] {
        sleep(Duration::from_millis(400));
        ip(&format!("link set {gone} down"));
        sleep(Duration::from_millis(400));
        ip(&format!("link set {gone} up"));
    }
    sleep(Duration::from_millis(400));
    // The status reports the fate of the frames.
    let status = json(&["observe", "status", &control, "--json"]);
    let reported = &status["far_ends"][0]["datagrams"][0];
    assert!(
        reported["copies"]["passed"].as_u64() > Some(1_000) && reported["received"].as_u64() > Some(1_000),
        "{reported}"
    );
    assert!(reported["copies"]["eliminated"].as_u64() > Some(100), "{reported}");
    // A path that missed more than half of all numbers seems to be behind: its frames are rogue.
    let of = |path: usize, key: &str| reported["paths"][path]["copies"][key].as_u64().unwrap();
    let missed: u64 = (0..2).map(|path| of(path, "lost") + of(path, "rogue")).sum();
    assert!(missed > 0 && reported["paths"][1]["interface"] == "far2", "{reported}");
    let text = succeed(&["observe", "status", &control]);
    assert!(text.contains("far1: ") && text.contains("all paths: "), "{text}");
    for path in ["far1", "far2", "all"] {
        assert!(figures.sum("farlane_frames_passed_total", &[&format!("path=\"{path}\"")]) > 0.0);
    }
    assert!(figures.sum("farlane_datagrams_received_total", &[]) > 1_000.0);
    // Numbers of another process would eliminate these.
    let said = fail(&["measure", "ping", &url, "--timeout", "300ms"]);
    assert!(said.contains("another process sends copies"), "{said}");
    // One path goes away for good, in the middle of everything.
    ip("link del near2");
    assert!(!assert_verified(load).contains("interrupted"));
    // A plain end does not understand numbered frames, and the reverse.
    let said = fail(&["measure", "ping", &format!("eth:near1,vlan=7,pcp=5/{mac}"), "--timeout", "300ms"]);
    assert!(said.contains("was not ready within"), "{said}");
    let said = fail(&["measure", "ping", &url, "--timeout", "300ms"]);
    assert!(said.contains("near2"), "{said}");
}

#[test]
fn a_path_that_was_deleted_and_made_anew_carries_the_link_alone() {
    let name = test_path!("a_path_that_was_deleted_and_made_anew_carries_the_link_alone");
    if !is_within(name, "two pairs of interfaces", TWO_PAIRS) {
        return;
    }
    let far = Export::start(&["--insecure", "--eth", "far1+far2", "--ram", "16MiB", "--hold", "1s"]);
    let mac = said(&far, "eth").rsplit('/').next().unwrap();
    let load = verified(&format!("eth:near1+near2/{mac}"), "15s", &[]);
    far.wait_for("link up");
    let both_report = |words: &str, count: usize| {
        wait_until(words, || [far.said(), load.said()].iter().all(|said| times(said, words) == count));
    };
    for pair in [1, 2] {
        // Its peer goes with it. The second time, the path that was made anew is left.
        ip(&format!("link del near{pair}"));
        both_report("the interface was deleted", pair);
        ip(&format!("link add near{pair} type veth peer name far{pair}"));
        ip(&format!("link set near{pair} up"));
        ip(&format!("link set far{pair} up"));
        both_report("the interface is back, and frames go by it again", pair);
    }
    assert!(!assert_verified(load).contains("interrupted"));
    assert_eq!(times(&far.said(), "link up"), 1);
}

#[test]
fn copies_on_two_paths_carry_one_number() {
    if !is_within(test_path!("copies_on_two_paths_carry_one_number"), "two pairs of interfaces", TWO_PAIRS) {
        return;
    }
    let far = Export::start(&["--insecure", "--eth", "far1+far2", "--ram", "16MiB"]);
    let mac = said(&far, "eth").rsplit('/').next().unwrap();
    let mut taps = ["far1", "far2"].map(|interface| live::drivers::tap::Tap::open(interface).unwrap());
    let url = format!("eth:near1+near2/{mac}");
    let host = std::thread::spawn(move || succeed(&["nvme", "identify", &url]));
    let mut copies = [Vec::new(), Vec::new()];
    // Read while the host runs: the kernel keeps few frames. A busy kernel takes longer to hand on
    // what came last.
    wait_until("as many frames came by either path", || {
        let has_ended = host.is_finished();
        for (tap, frames) in taps.iter_mut().zip(&mut copies) {
            while let Some(frame) = tap.next_frame() {
                // The R-TAG of 802.1CB, and the addresses of the first interfaces on both paths.
                if !frame.is_outgoing && frame.bytes[12..16] == [0xf1, 0xc1, 0, 0] {
                    frames.push(frame.bytes[..20].to_vec());
                }
            }
        }
        has_ended && copies[0].len() == copies[1].len()
    });
    host.join().unwrap();
    let [first, second] = copies;
    assert!(first.len() > 20 && first == second, "{} and {} frames", first.len(), second.len());
    let numbers: Vec<_> = first.iter().map(|frame| u16::from_be_bytes([frame[16], frame[17]])).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "{numbers:?}");
    assert!(first.iter().all(|frame| frame[18..] == [0x88, 0xb5] && frame[..12] == first[0][..12]));
}

/// A bridge in each path, so that frames can vanish although every interface says that it is up.
const TWO_BRIDGED_PAIRS: &str = "ip link set lo up && for i in 1 2; do ip link add middle$i type bridge && \
    ip link set middle$i up && for end in near far; do ip link add $end$i type veth peer name $end-port$i && \
    ip link set $end-port$i master middle$i && ip link set $end-port$i up && ip link set $end$i up || exit 1; \
    done; done && exec \"$@\"";

#[test]
fn a_path_that_fails_in_silence_is_reported() {
    let name = test_path!("a_path_that_fails_in_silence_is_reported");
    if !is_within(name, "two pairs of interfaces with a bridge in each", TWO_BRIDGED_PAIRS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control").to_str().unwrap().to_owned();
    let far = ["--insecure", "--eth", "far1+far2", "--ram", "16MiB", "--metrics", "127.0.0.1:0"];
    let far = Export::start(&[&far[..], &["--control", &control]].concat());
    let figures = Figures::of(|| far.said());
    let mac = said(&far, "eth").rsplit('/').next().unwrap();
    // The load lasts for as long as the far end takes to see both changes.
    let load = verified(&format!("eth:near1+near2/{mac}"), "300s", &[]);
    far.wait_for("link up");
    sleep(Duration::from_secs(3));
    let failing = || figures.sum("farlane_path_failing", &["path=\"far2\""]);
    assert!(failing() + figures.sum("farlane_path_failing", &["path=\"far1\""]) < 0.5);
    // The switch in the second path is switched off. No interface goes down.
    ip("link set near-port2 nomaster");
    far.wait_for("frames came by other paths alone");
    let reported = &json(&["observe", "status", &control, "--json"])["far_ends"][0]["datagrams"][0];
    let of = |path: usize| reported["paths"][path]["failing"].as_bool().unwrap();
    assert!(!of(0) && of(1) && reported["copies"]["latent_errors"].as_u64() > Some(0), "{reported}");
    assert!(succeed(&["observe", "status", &control]).contains("far2: the path fails"));
    assert!(failing() > 0.5);
    ip("link set near-port2 master middle2");
    far.wait_for("works again");
    assert!(far.said().contains("far2: the path from"));
    load.signal("INT");
    let output = load.output();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["errors"]), (Some(130), &0.into()), "{report}");
    assert!(report["commands"].as_u64().unwrap() > 0, "{report}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("interrupted: "), "the other path keeps the link up: {said}");
}

/// A far end and a host of one station, of which each would number frames to the same peer.
#[test]
fn a_far_end_and_a_host_of_one_station_send_no_copies_to_the_same_peer() {
    let name = test_path!("a_far_end_and_a_host_of_one_station_send_no_copies_to_the_same_peer");
    if !is_within(name, "two pairs of interfaces", TWO_PAIRS) {
        return;
    }
    let ends = ["far1+far2", "near1+near2"]
        .map(|place| Export::start(&["--insecure", "--eth", place, "--ram", "16MiB", "--hold", "100ms"]));
    let [to_far, to_near] = [("near1+near2", 0), ("far1+far2", 1)].map(|(place, end): (&str, usize)| {
        format!("eth:{place}/{}", said(&ends[end], "eth").rsplit('/').next().unwrap())
    });
    let load = verified(&to_far, "4s", &[]);
    ends[0].wait_for("link up");
    // The far end at far1 answers the station at near1, so no host at far1 may send to that, ...
    let refused = fail(&["measure", "ping", &to_near, "--timeout", "500ms"]);
    assert!(refused.contains("another process sends copies over several paths there"), "{refused}");
    assert!(!assert_verified(load).contains("interrupted"));
    ends[0].wait_for("link down");
    // ... until its last connection has gone.
    assert_serves(&to_near);
    ends[1].wait_for("link down");
    // The same at the other station.
    let so_far = times(&ends[1].said(), "link up");
    let held = Running::start(&["measure", "ping", &to_near, "--interval", "30s", "--count", "2"]);
    wait_until("another host", || times(&ends[1].said(), "link up") > so_far);
    let late = fail(&["measure", "ping", &to_far, "--timeout", "500ms"]);
    assert!(late.contains("another process sends copies"), "{late}");
    drop(held);
}
