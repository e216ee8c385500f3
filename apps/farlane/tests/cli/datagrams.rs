//! Datagrams between two ends: over UDP and in Ethernet frames; used, refused and interrupted.

use std::net::UdpSocket;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::support::load::{assert_serves, assert_verified, verified};
use crate::support::outage::Outage;
use crate::support::own_network::{is_within, test_path};
use crate::support::running::{signal, wait_until};
use crate::support::{Export, fail, farlane, json, succeed};

/// A network with a pair of interfaces, `near` and `far`, that lead to each other.
const PAIR: &str = "ip link set lo up && ip link add near type veth peer name far && \
                    ip link set near up && ip link set far up && exec \"$@\"";

fn export(further: &[&str]) -> Export {
    Export::start(&[&["--udp", "127.0.0.1:0"], further].concat())
}

fn said<'a>(far: &'a Export, key: &str) -> &'a str {
    far.announcement[key].as_str().unwrap()
}

fn url(far: &Export) -> String {
    format!("udp://{}", said(far, "udp"))
}

/// A far end at the interface `far`, and its URL from `near`, where both may have a tag.
fn station(tag: &str, further: &[&str]) -> (Export, String) {
    let far = Export::start(&[&["--insecure", "--eth", &format!("far{tag}")], further].concat());
    let mac = said(&far, "eth").rsplit('/').next().unwrap().to_owned();
    let url = format!("eth:near{tag}/{mac}");
    (far, url)
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}: {status}");
}

#[test]
fn every_command_reaches_a_far_end_over_udp() {
    let far = export(&["--ram", "16MiB"]);
    let url = url(&far);
    assert_eq!(json(&["measure", "ping", &url, "--count", "10", "--json"])["count"], 10);
    assert!(!assert_verified(verified(&url, "1s", &[])).contains("interrupted"));
    assert!(succeed(&["observe", "lspci", &url]).contains("Non-Volatile memory controller"));
    assert!(!succeed(&["nvme", "id-ctrl", &url]).is_empty());
    assert_serves(&far.url());
    let front = Export::start(&["--namespace", &format!("{url},readonly")]);
    assert_serves(&front.url());
}

#[test]
fn losses_outages_and_strangers_do_no_harm() {
    let far = export(&["--ram", "16MiB"]);
    let between = Outage::losing(said(&far, "udp"), 30);
    let load = verified(&format!("udp://{}", between.address), "3s", &[]);
    far.wait_for("link up");
    let more = |count| {
        let before = between.passed();
        wait_until("datagrams", || between.passed() > before + count);
    };
    more(200);
    between.set_out(true);
    sleep(Duration::from_millis(500));
    between.set_out(false);
    more(200);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in 0..1_000 {
        stranger.send_to(&vec![1; length], said(&far, "udp")).unwrap();
        stranger.send_to(&vec![1; length], between.address).unwrap();
    }
    let said = assert_verified(load);
    assert!(!said.contains("interrupted"), "{said}");
}

#[test]
fn a_far_end_that_is_killed_and_started_again_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk.img");
    let spec = format!("{},size=16MiB", disk.display());
    let arguments = ["--namespace", &spec, "--hold", "1s"];
    let mut far = export(&arguments);
    let (url, place) = (url(&far), said(&far, "udp").to_owned());
    let load = verified(&url, "2s", &[]);
    wait_until("writes", || {
        std::fs::metadata(&disk).is_ok_and(|file| std::os::unix::fs::MetadataExt::blocks(&file) > 64)
    });
    far.kill();
    sleep(Duration::from_millis(200));
    let _far = Export::start(&[&["--udp", &place], &arguments[..]].concat());
    let said = assert_verified(load);
    assert!(said.contains("interrupted: the connection was lost"), "{said}");
    assert_serves(&url);
}

#[test]
fn a_far_end_that_is_stopped_for_a_while_loses_nothing() {
    let far = export(&["--ram", "16MiB"]);
    let load = verified(&url(&far), "2s", &[]);
    far.wait_for("link up");
    signal(far.id(), "STOP");
    sleep(Duration::from_millis(700));
    signal(far.id(), "CONT");
    assert_verified(load);
}

#[test]
fn a_host_that_is_killed_makes_room_for_the_next() {
    let far = export(&["--ram", "16MiB", "--hold", "100ms"]);
    let load = verified(&url(&far), "60s", &[]);
    far.wait_for("link up");
    drop(load);
    far.wait_for("link down");
    assert_serves(&url(&far));
}

#[test]
fn what_can_not_be_is_said() {
    let with =
        |further: &[&str]| fail(&[&["export", "--listen", "127.0.0.1:0", "--ram", "1MiB"], further].concat());
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let held = UdpSocket::bind(taken).unwrap();
    assert!(with(&["--udp", &taken.to_string()]).contains("can't listen on UDP"));
    drop(held);
    assert!(with(&["--udp", "0.0.0.0:0"]).contains("--insecure"));
    assert!(
        with(&["--udp", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--ram", "1MiB"]).contains("2 far ends")
    );
    assert!(with(&["--eth", "lo"]).contains("--insecure"));
    assert!(with(&["--eth", "lo,vlan=9999"]).contains("1 to 4094"));
    assert!(with(&["--insecure", "--eth", "no-such-one"]).contains("no-such-one"));
    assert!(fail(&["measure", "ping", "udp://127.0.0.1:1?key=1"]).contains("43 characters of base64"));
    assert!(fail(&["measure", "ping", "eth:eth0/ff:ff:ff:ff:ff:ff"]).contains("MAC address"));
    let said = fail(&["measure", "ping", &format!("udp://{taken}"), "--timeout", "3s"]);
    assert!(said.contains("nothing listens there"), "{said}");
}

#[test]
fn the_demo_runs_over_udp() {
    let demo = json(&["demo", "--size", "1MiB", "--runtime", "50ms", "--json", "--carrier", "udp"]);
    assert_eq!((&demo["carrier"], &demo["verified"]), (&"udp".into(), &true.into()), "{demo}");
}

#[test]
fn frames_carry_the_tunnel_between_two_interfaces() {
    if !is_within(test_path!("frames_carry_the_tunnel_between_two_interfaces"), "a pair of interfaces", PAIR)
    {
        return;
    }
    for tag in ["", ",vlan=7,pcp=5", ",pcp=3"] {
        let (far, url) = station(tag, &["--ram", "16MiB"]);
        assert!(!assert_verified(verified(&url, "500ms", &[])).contains("interrupted"), "{url}");
        assert!(succeed(&["observe", "lspci", &url]).contains("Non-Volatile memory controller"));
        drop(far);
    }
    // Frames of another VLAN are none of ours.
    let (far, url) = station(",vlan=7", &["--ram", "16MiB"]);
    let mac = url.rsplit('/').next().unwrap();
    for tag in ["", ",vlan=8"] {
        let said = fail(&["measure", "ping", &format!("eth:near{tag}/{mac}"), "--timeout", "300ms"]);
        assert!(said.contains("was not ready within"), "{said}");
    }
    assert_serves(&url);
    drop(far);
    // Longer frames are found out, and used.
    ip("link set near mtu 9000");
    ip("link set far mtu 9000");
    let (_far, url) = station("", &["--ram", "16MiB"]);
    assert_verified(verified(&url, "500ms", &["--bs", "64k"]));
}

#[test]
fn an_interface_may_go_down_and_come_back_and_get_narrower() {
    if !is_within(
        test_path!("an_interface_may_go_down_and_come_back_and_get_narrower"),
        "a pair of interfaces",
        PAIR,
    ) {
        return;
    }
    ip("link set near mtu 9000");
    ip("link set far mtu 9000");
    let (far, url) = station("", &["--ram", "16MiB"]);
    let load = verified(&url, "4s", &["--bs", "16k"]);
    far.wait_for("link up");
    sleep(Duration::from_millis(300));
    for interface in ["near", "far"] {
        ip(&format!("link set {interface} down"));
        sleep(Duration::from_millis(300));
        ip(&format!("link set {interface} up"));
        sleep(Duration::from_millis(300));
    }
    ip("link set near mtu 1500");
    ip("link set far mtu 1500");
    assert_verified(load);
    // The interface goes away for good.
    let load = verified(&url, "60s", &["--timeout", "2s"]);
    sleep(Duration::from_millis(500));
    ip("link del near");
    assert!(!load.fail().is_empty());
}

/// The far end sleeps when nothing comes, and nothing wakes it when an interface is there again.
#[test]
fn a_far_end_listens_again_where_an_interface_was_deleted_and_made_anew() {
    let name = test_path!("a_far_end_listens_again_where_an_interface_was_deleted_and_made_anew");
    if !is_within(name, "a pair of interfaces", PAIR) {
        return;
    }
    let (far, url) = station("", &["--ram", "16MiB", "--spin", "0ms"]);
    let mac = url.rsplit('/').next().unwrap();
    let has_reported = |words: &str, times: usize| {
        wait_until(words, || far.said().matches(words).count() == times);
    };
    let replace = |times: usize| {
        // Its peer goes with it.
        ip("link del far");
        has_reported("no host reaches this far end there until the interface is back", times);
        ip("link add near type veth peer name far");
        ip(&format!("link set far address {mac}"));
        ip("link set near up");
        ip("link set far up");
        has_reported("the interface is back, and hosts reach this far end at eth:far/", times);
    };
    let load = verified(&url, "4s", &[]);
    far.wait_for("link up");
    replace(1);
    assert_verified(load);
    // No host is there when it happens again, and the interface is down before it is gone.
    ip("link set far down");
    replace(2);
    assert_serves(&url);
}

#[test]
fn packets_go_around_the_network_stack() {
    if !is_within(test_path!("packets_go_around_the_network_stack"), "a pair of interfaces", PAIR) {
        return;
    }
    let (far, url) = station(",xdp", &["--ram", "16MiB", "--hold", "1s"]);
    if said(&far, "frames_by") == "AF_PACKET" {
        eprintln!("SKIPPED packets_go_around_the_network_stack: AF_XDP can't be used here");
        return;
    }
    assert!(said(&far, "frames_by").starts_with("AF_XDP"));
    let load = verified(&url, "3s", &["--bs", "16k"]);
    far.wait_for("link up");
    // Another process of the same station finds the queue taken, reports it, and does no harm.
    let output = farlane(&["measure", "ping", &url, "--count", "1", "--timeout", "500ms"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("go by AF_PACKET, because AF_XDP"), "{text}");
    for interface in ["near", "far"] {
        ip(&format!("link set {interface} down"));
        sleep(Duration::from_millis(300));
        ip(&format!("link set {interface} up"));
        sleep(Duration::from_millis(300));
    }
    assert!(!assert_verified(load).contains("interrupted"));
    // The interface is as before for the next process, also after a host was killed.
    let load = verified(&url, "60s", &[]);
    far.wait_for("link up");
    drop(load);
    far.wait_for("link down");
    // A host without AF_XDP is served, too.
    assert_serves(&url.replace(",xdp", ""));
    let load = verified(&url, "60s", &["--timeout", "2s"]);
    sleep(Duration::from_millis(500));
    ip("link del near");
    assert!(!load.fail().is_empty());
}

/// A process that may not load a program into the kernel says so, and its frames go their way as
/// without one.
#[test]
fn who_may_not_go_around_the_network_stack_goes_through_it() {
    let name = test_path!("who_may_not_go_around_the_network_stack_goes_through_it");
    if !is_within(name, "a pair of interfaces", PAIR) {
        return;
    }
    let mut far = Command::new("setpriv");
    far.env("XDG_CONFIG_HOME", crate::support::CONFIGURATION);
    let without = "-bpf,-sys_admin";
    far.args([
        &format!("--bounding-set={without}"),
        &format!("--inh-caps={without}"),
        &crate::support::FARLANE,
    ]);
    far.args([
        "export",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--insecure",
        "--eth",
        "far,xdp",
        "--ram",
        "16MiB",
    ]);
    let far = Export::of(far);
    assert_eq!(said(&far, "frames_by"), "AF_PACKET");
    far.wait_for("go by AF_PACKET, because AF_XDP can't be used: it needs the capabilities");
    let mac = said(&far, "eth").rsplit('/').next().unwrap();
    assert_serves(&format!("eth:near/{mac}"));
}

#[test]
fn far_ends_and_hosts_share_an_interface() {
    if !is_within(test_path!("far_ends_and_hosts_share_an_interface"), "a pair of interfaces", PAIR) {
        return;
    }
    let ram = ["--ram", "16MiB"];
    let (far, url) = station("", &ram);
    let (other, _) = station(",port=9", &ram);
    // Also with a program of its own at the interface, which takes no packets of the others.
    let (third, _) = station(",port=32767,xdp", &ram);
    // And a far end where the hosts are.
    let (mac, near) =
        (url.rsplit('/').next().unwrap(), Export::start(&["--insecure", "--eth", "near", "--ram", "1MiB"]));
    let urls = ["", ",port=9", ",port=32767"].map(|port| format!("eth:near{port}/{mac}"));
    let loads = urls.each_ref().map(|url| verified(url, "2s", &[]));
    for load in loads {
        assert!(!assert_verified(load).contains("interrupted"));
    }
    let said =
        fail(&["export", "--listen", "127.0.0.1:0", "--insecure", "--eth", "far,port=9", "--ram", "1MiB"]);
    assert!(said.contains("another far end has port 9 there") && said.contains("port=0"), "{said}");
    let said = fail(&["measure", "ping", &format!("eth:near,port=8/{mac}"), "--timeout", "300ms"]);
    assert!(said.contains("was not ready within"), "{said}");
    // A port is free when its far end has gone.
    drop(other);
    let (_again, url) = station(",port=9", &ram);
    assert_serves(&url);
    drop((far, third, near));
}

#[test]
fn the_demo_runs_over_frames_in_a_network_of_its_own() {
    if !is_within(
        test_path!("the_demo_runs_over_frames_in_a_network_of_its_own"),
        "a pair of interfaces",
        PAIR,
    ) {
        return;
    }
    let arguments = ["demo", "--size", "1MiB", "--runtime", "50ms", "--json", "--carrier", "eth"];
    for further in [&[][..], &["--interfaces", "near,far"]] {
        let demo = json(&[&arguments[..], further].concat());
        assert_eq!((&demo["carrier"], &demo["verified"]), (&"eth".into(), &true.into()), "{demo}");
    }
    assert!(fail(&["demo", "--carrier", "eth", "--interfaces", "near"]).contains("two interfaces"));
}

/// Both ends ask each other how they are, and that is all.
#[test]
fn an_idle_link_of_frames_sends_less_than_one_a_second() {
    if !is_within(
        test_path!("an_idle_link_of_frames_sends_less_than_one_a_second"),
        "a pair of interfaces",
        PAIR,
    ) {
        return;
    }
    let (far, url) = station("", &["--ram", "16MiB"]);
    let held = crate::support::running::Running::start(&[
        "measure",
        "ping",
        &url,
        "--interval",
        "30s",
        "--count",
        "2",
    ]);
    far.wait_for("link up");
    sleep(Duration::from_secs(3));
    let mut tap = live::drivers::tap::Tap::open("far").unwrap();
    sleep(Duration::from_secs(12));
    let mut frames = 0;
    while let Some(frame) = tap.next_frame() {
        frames += u32::from(frame.bytes[12..14] == [0x88, 0xb5]);
    }
    drop(held);
    assert!((1..12).contains(&frames), "{frames} frames in 12 s");
}
