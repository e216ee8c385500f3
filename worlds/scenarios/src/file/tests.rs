//! Files that are right, and the words about those that are not.

use engine::Nanos;
use link::ethernet::{Forwarding, Handover};
use link::{AnyHop, Chance, Rate};

use super::link::Link;
use super::text::{Bytes, parse};

const WHOLE: &str = r#"
[link]
latency = "10ms"
rate = "1Gbit/s"
mtu = 9000
jitter = "1ms"
loss = "0.1%"
tcp = "linux"

[link.stack]
rto_floor = "5ms"
congestion = "newreno"
receive_buffer = "1MiB"

[link.back]
rate = "50Mbit/s"

[[link.fault]]
from = "1s"
to = "2s"
down = true

[[link.hop]]
kind = "ethernet"
rate = "10Gbit/s"
cable = "30m"
"#;

#[test]
fn the_smallest_file_is_enough() {
    let link = Link::parse("[link]\nlatency = \"10ms\"\nrate = \"1Gbit/s\"\n").unwrap();
    assert_eq!(link.config().mtu, 1500);
    assert_eq!(link.config().line, [Some(Rate::from_gigabits(1)); 2]);
    let paths = link.paths(&engine::Rng::from_seed(1));
    assert_eq!(paths.map(|path| path.hops().len()), [1, 1]);
}

#[test]
fn the_link_of_a_scenario_is_a_link() {
    let scenario = "seed = 3\n[link]\nlatency = \"10ms\"\n[ssd]\nmodel = \"980\"\n[switch]\n[pcie]\nlanes = 8\n[[task]]\nkind = \"read\"\n";
    assert_eq!(Link::parse(scenario).unwrap().config().mtu, 1500);
    assert!(Link::parse("[[task]]\nkind = \"read\"\n").unwrap_err().contains("link"));
}

#[test]
fn a_file_says_it_all() {
    let link = Link::parse(WHOLE).unwrap();
    assert_eq!(link.config().mtu, 9000);
    assert_eq!(link.config().tcp[0].retransmission.floor, Nanos::from_millis(5));
    assert_eq!(link.config().tcp[1].receive_buffer, 1 << 20);
    assert_eq!(link.config().line, [Some(Rate::from_gigabits(1)), Some(Rate::from_megabits(50))]);
    let paths = link.paths(&engine::Rng::from_seed(1));
    assert_eq!(paths.map(|path| path.hops().len()), [3, 3]);
}

#[test]
fn a_mistake_is_shown_with_its_line_and_key() {
    for (good, bad, line, key, expected) in [
        ("latency = \"10ms\"", "latency = \"10\"", "3", "latency", "a time with its unit"),
        ("latency = \"10ms\"", "latency = 10", "3", "latency", "expected a string"),
        ("rate = \"1Gbit/s\"", "rate = \"1GB\"", "4", "rate", "a rate with its unit"),
        ("rate = \"1Gbit/s\"", "rate = \"0bit/s\"", "4", "rate", "more than nothing"),
        ("mtu = 9000", "mtu = 10", "5", "mtu", "68 to 9216"),
        ("jitter = ", "jiter = ", "6", "jiter", "expected one of"),
        ("loss = \"0.1%\"", "loss = \"101%\"", "7", "loss", "all of it at most"),
        ("tcp = \"linux\"", "tcp = \"bsd\"", "8", "tcp", "'linux' or 'npap'"),
        ("congestion = \"newreno\"", "congestion = \"bbr\"", "12", "congestion", "'cubic' or 'newreno'"),
        ("receive_buffer = \"1MiB\"", "receive_buffer = \"1B\"", "13", "receive_buffer", "4KiB to 256MiB"),
        ("rate = \"50Mbit/s\"", "mtu = 68", "15", "mtu", "expected in [link]"),
        ("to = \"2s\"", "to = \"1s\"", "18", "fault", "is no time"),
        ("kind = \"ethernet\"", "kind = \"pigeon\"", "24", "kind", "'wire' or 'ethernet' or '5g-up'"),
        ("kind = \"ethernet\"", "kind = \"wire\"", "23", "cable", "ethernet"),
        ("rate = \"10Gbit/s\"", "", "23", "rate", "the rate of the port"),
    ] {
        assert!(WHOLE.contains(good), "{good}");
        let error = Link::parse(&WHOLE.replace(good, bad)).map(|_| ()).unwrap_err();
        let all = [format!("line {line}"), key.to_owned(), expected.to_owned()];
        assert!(all.iter().all(|part| error.contains(part)), "{bad}: {error}");
    }
    let error = Link::parse("[link]\nmtu = 1500\n").map(|_| ()).unwrap_err();
    assert!(error.contains("line 1") && error.contains("expected latency, rate or"), "{error}");
}

#[test]
fn quantities_are_exact() {
    assert_eq!(parse::<Nanos>("1.5us"), Ok(Nanos::new(1_500)));
    assert_eq!(parse::<Nanos>("2 min"), Ok(Nanos::from_secs(120)));
    assert_eq!(parse::<Rate>("2.5Gbit/s"), Ok(Rate::from_megabits(2_500)));
    assert_eq!(parse::<Bytes>("64KiB"), Ok(Bytes(65_536)));
    assert_eq!(parse::<Chance>("0.05%"), Ok(Chance::parts_per_million(500)));
    for wrong in ["", "ms", "-1ms", "1.2345ns", "1e3s", "99999999999999999999s", "1..2s", ".5s"] {
        assert!(parse::<Nanos>(wrong).is_err(), "{wrong}");
    }
}

const TSN: &str = r#"
[link]
class = 7

[[link.hop]]
kind = "ethernet"
rate = "100Mbit/s"

[[link.hop]]
kind = "ethernet"
rate = "100Mbit/s"
cut_through = true
queue_frames = 64

[link.hop.tsn]
gates = [{ open = [7], time = "20us" }, { open = [0, 1, 6], time = "980us" }]
base = "5us"
clock_error = "500ns"
express = [7]
shapers = { 6 = "10Mbit/s" }
buffers = 1

[[link.hop.others]]
class = 0
length = 1518
always = true

[[link.hop.others]]
class = 6
length = 300
period = "1ms"
frames = 2
"#;

#[test]
fn a_hop_says_what_it_has_of_tsn() {
    let link = Link::parse(TSN).unwrap();
    assert_eq!(link.config().class.number(), 7);
    let [there, _] = link.paths(&engine::Rng::from_seed(1));
    let ports: Vec<_> = there
        .hops()
        .map(|hop| match hop {
            AnyHop::Port(port) => port.settings(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ports[0].handover, Handover::Header);
    assert_eq!((ports[1].forwarding, ports[1].queue_frames), (Forwarding::CutThrough, 64));
    let gates = ports[1].gates.as_ref().unwrap();
    assert_eq!((gates.cycle(), gates.base()), (Nanos::from_millis(1), Nanos::from_micros(5)));
    assert_eq!(gates.open_time(7), Nanos::from_micros(20));
    assert_eq!(gates.clock().bound(), Nanos::new(500));
    assert!(ports[1].preemption.unwrap().express.is_open(7));
    assert_eq!(ports[1].idle_slopes[6], Some(Rate::from_megabits(10)));
    assert_eq!((ports[1].stages.len(), ports[1].background.len()), (1, 2));
}

#[test]
fn a_mistake_in_tsn_is_shown_with_its_line_and_key() {
    for (good, bad, line, key, expected) in [
        ("class = 7", "class = 8", "3", "class", "0 to 7"),
        ("open = [7]", "open = [9]", "16", "gates", "0 to 7, not 9"),
        ("clock_error = \"500ns\"", "clock_error = \"1ms\"", "16", "gates", "less than half a cycle"),
        ("express = [7]", "express = [70]", "19", "express", "not 70"),
        ("6 = \"10Mbit/s\"", "6 = \"1Gbit/s\"", "20", "shapers", "not more than the port's rate"),
        ("buffers = 1", "buffers = 100", "21", "buffers", "8 at most"),
        ("length = 1518", "length = 15", "23", "length", "64 to 9022"),
        ("always = true", "", "23", "others", "one of period"),
        ("always = true", "often = true", "26", "often", "unknown field"),
    ] {
        assert!(TSN.contains(good), "{good}");
        let error = Link::parse(&TSN.replacen(good, bad, 1)).map(|_| ()).unwrap_err();
        let all = [format!("line {line}"), key.to_owned(), expected.to_owned()];
        assert!(all.iter().all(|part| error.contains(part)), "{bad}: {error}");
    }
}

#[test]
fn a_way_goes_over_the_air() {
    let text = "[link]\n[[link.hop]]\nkind = \"5g-up\"\n[[link.hop]]\nkind = \"wire\"\nlatency = \"1ms\"\n";
    let link = Link::parse(text).unwrap();
    assert_eq!(link.paths(&engine::Rng::from_seed(1)).map(|path| path.hops().len()), [2, 2]);
    let error = Link::parse(&text.replace("5g-up\"", "5g-up\"\nrate = \"1Gbit/s\"")).map(|_| ()).unwrap_err();
    assert!(error.contains("line 2, rate: the cell has its own"), "{error}");
}
