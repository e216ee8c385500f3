//! Files that are right, and the messages about files that are not.

use engine::Nanos;
use network_models::ethernet::{Forwarding, Handover};
use network_models::nr5g::{Cell, Grants, RoundTrip};
use network_models::stage::Settings;
use network_models::wifi::{self, Bursts};
use network_models::{AnyHop, Chance, Rate};

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
    let scenario = "seed = 3\n[link]\nlatency = \"10ms\"\n[host]\n[ssd]\nmodel = \"980\"\n[switch]\n[pcie]\nlanes = 8\n[[task]]\nkind = \"read\"\n[[workload]]\n[[fault]]\n";
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
        ("rate = \"1Gbit/s\"", "rate = \"0bit/s\"", "4", "rate", "above 0"),
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
    for (up, down, shorter) in [("0s", "0s", "0 ns"), ("1s", "999ns", "999 ns")] {
        let text = format!("[link]\nlatency = \"1ms\"\nflaps = {{ up = \"{up}\", down = \"{down}\" }}\n");
        let error = Link::parse(&text).map(|_| ()).unwrap_err();
        let expected = format!("1 µs at least, not {shorter}");
        assert!(error.contains("line 3, flaps") && error.contains(&expected), "{error}");
    }
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
        ("clock_error = \"500ns\"", "clock_offset = 600000", "16", "gates", "less than half a cycle"),
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
    assert!(error.contains("line 2, rate: a hop of kind '5g-up' has none; expected cell, or"), "{error}");
}

const RADIO: &str = r#"
[link]

[link.cell]
numerology = 1
pattern = "7DS2U"
special = "6D4G4U"
special_used = false
down_slot = "10kB"
up_slot = "5kB"
k2 = 3
station = "300us"
capability = 2
grants = { kind = "configured", period = 10, offset = 9, bytes = "3000B" }
harq_up = { first = "5%", attempts = 2 }

[link.core]
delay = "1ms"
loss = "0%"

[[link.hop]]
kind = "5g-up"

[[link.hop]]
kind = "5g-core"
core = { spread = "2ms" }

[[link.hop]]
kind = "5g-down"
cell = { numerology = 2, mini_slot = 7, n2 = 5, grants = { kind = "proactive", lasts = "10ms" } }

[link.back]
hop = [{ kind = "5g-up", cell = { pattern = "DDDSU", grants = { kind = "dynamic" } } }]
"#;

/// The uplink of a link whose cell has this pattern and these grants.
fn uplink(pattern: &str, grants: &str) -> Result<network_models::nr5g::Cell, String> {
    let text = format!(
        "[link]\nhop = [{{ kind = \"5g-up\", cell = {{ pattern = \"{pattern}\", grants = {grants} }} }}]\n"
    );
    let link = Link::parse(&text).map_err(|error| error.to_string())?;
    let [there, _] = link.paths(&engine::Rng::from_seed(1));
    let AnyHop::Uplink(up) = there.hops().next().unwrap() else { panic!("{there:?}") };
    Ok(*up.cell())
}

#[test]
fn occasions_may_be_closer_than_a_slot_and_transmissions_repeated() {
    let grants = |keys: &str| format!("{{ kind = \"configured\", {keys} }}");
    let cell = uplink("FDD", &grants("period_symbols = 2, repetitions = 4, bytes = \"64B\"")).unwrap();
    assert_eq!(cell.grants, Grants::Configured { period: 2, offset: 0, bytes: 64, repetitions: 4 });
    assert!(cell.pattern.paired && cell.lacks().is_none());
    for (pattern, keys, expected) in [
        ("U", "period = 1", "or FDD".to_owned()),
        ("FDD", "period = 1, period_symbols = 2", "not both".to_owned()),
        ("FDD", "repetitions = 3", "expected 1, 2, 4 or 8".to_owned()),
        ("FDD", "period_symbols = 8", "expected 2 to 7".to_owned()),
    ] {
        let error = uplink(pattern, &grants(keys)).unwrap_err();
        assert!(error.contains(&expected), "{pattern}, {keys}: {error}");
    }
}

#[test]
fn a_repetition_takes_a_time_or_is_scheduled() {
    let cell = |keys: &str| {
        let text = format!("[link]\n[link.cell]\n{keys}\n[[link.hop]]\nkind = \"5g-up\"\n");
        let [there, _] = Link::parse(&text)?.paths(&engine::Rng::from_seed(1));
        let AnyHop::Uplink(up) = there.hops().next().unwrap() else { panic!("{there:?}") };
        Ok::<_, String>(*up.cell())
    };
    let given = cell("harq_up = { round_trip = \"scheduled\" }\nswitched_feedback = true").unwrap();
    assert_eq!((given.harq_up.round_trip, given.switched_feedback), (RoundTrip::Scheduled, true));
    let given = cell("harq_down = { round_trip = \"3ms\" }").unwrap();
    assert_eq!(given.harq_down.round_trip, RoundTrip::Fixed(Nanos::from_millis(3)));
    assert_eq!((given.harq_up, given.switched_feedback), (Cell::CAMPUS.harq_up, false));
    let error = cell("harq_up = { round_trip = \"soon\" }").unwrap_err();
    assert!(error.contains("not 'soon', or 'scheduled'"), "{error}");
}

#[test]
fn a_cell_says_what_it_is() {
    let link = Link::parse(RADIO).unwrap();
    let [there, back] = link.paths(&engine::Rng::from_seed(1));
    let there: Vec<_> = there.hops().collect();
    let AnyHop::Uplink(up) = there[0] else { panic!("{:?}", there[0]) };
    let cell = up.cell();
    assert_eq!((cell.pattern.down, cell.pattern.up, cell.pattern.slots()), (7, 2, 10));
    assert_eq!((cell.pattern.special_symbols, cell.pattern.special_used), ((6, 4), false));
    assert_eq!((cell.down_bytes, cell.up_bytes, cell.k2), (10_000, 5_000, 3));
    assert_eq!((cell.n1, cell.n2, cell.station), (5, 6, Nanos::from_micros(300)));
    assert_eq!(cell.grants, Grants::Configured { period: 140, offset: 126, bytes: 3_000, repetitions: 1 });
    assert_eq!((cell.harq_up.first, cell.harq_up.attempts), (Chance::percent(5), 2));
    assert_eq!(cell.harq_down, Cell::CAMPUS.harq_down);
    let AnyHop::Core(core) = there[1] else { panic!("{:?}", there[1]) };
    let settings = core.settings();
    assert_eq!((settings.delay, settings.spread), (Nanos::from_millis(1), Nanos::from_millis(2)));
    assert_eq!((settings.loss, settings.coherence), (Chance::NEVER, Nanos::from_millis(1)));
    let AnyHop::Downlink(down) = there[2] else { panic!("{:?}", there[2]) };
    let cell = down.cell();
    assert_eq!((cell.numerology, cell.mini_slot, cell.n1, cell.n2), (2, 7, 17, 5));
    let Grants::Dynamic { proactive: Some(proactive), .. } = cell.grants else { panic!("{cell:?}") };
    assert_eq!(proactive.lasts, Nanos::from_millis(10));
    let AnyHop::Uplink(up) = back.hops().next().unwrap() else { panic!("{back:?}") };
    assert_eq!((up.cell().pattern.slots(), up.cell().k2), (5, 3));
    assert!(matches!(up.cell().grants, Grants::Dynamic { proactive: None, .. }));
}

#[test]
fn what_a_file_leaves_out_of_a_cell_is_the_campus_network() {
    let link = Link::parse("[link]\n[[link.hop]]\nkind = \"5g-up\"\n").unwrap();
    let [there, _] = link.paths(&engine::Rng::from_seed(1));
    let AnyHop::Uplink(up) = there.hops().next().unwrap() else { panic!("{there:?}") };
    assert_eq!(*up.cell(), Cell::CAMPUS);
}

#[test]
fn a_mistake_in_a_cell_is_shown_with_its_line_and_key() {
    for (good, bad, line, key, expected) in [
        ("numerology = 1", "numerology = 4", "5", "numerology", "0 to 3, not 4"),
        ("\"7DS2U\"", "\"UD\"", "6", "pattern", "such as DDDSU"),
        ("\"7DS2U\"", "\"99999999999D\"", "6", "pattern", "not '99999999999D'"),
        ("\"7DS2U\"", "\"40DU\"", "6", "pattern", "40 at most"),
        ("\"7DS2U\"", "\"7DS\"", "4", "pattern", "slots for a transmission of 14 symbols up"),
        ("\"7DS2U\"", "\"2U\"", "4", "pattern", "slots for a transmission of 14 symbols down"),
        ("\"6D4G4U\"", "\"6D4G5U\"", "7", "special", "14 symbols such as 10D2G2U"),
        ("up_slot = \"5kB\"", "up_slot = \"0B\"", "10", "up_slot", "1 to 10000000 bytes"),
        ("k2 = 3", "k2 = 99", "11", "k2", "0 to 32"),
        ("capability = 2", "capability = 3", "13", "capability", "1 or 2"),
        ("numerology = 1", "numerology = 3", "13", "capability", "ends at 60 kHz"),
        (
            "kind = \"configured\"",
            "kind = \"free\"",
            "14",
            "kind",
            "'dynamic' or 'proactive' or 'configured'",
        ),
        ("kind = \"configured\"", "kind = \"dynamic\"", "14", "bytes", "grants of kind 'dynamic' have none"),
        ("period = 10", "period = 0", "14", "period", "1 to 5120"),
        ("attempts = 2", "attempts = 0", "15", "attempts", "1 to 32"),
        ("mini_slot = 7", "mini_slot = 5", "30", "mini_slot", "2, 4, 7 or 14"),
        ("core = { spread", "cell = { spread", "26", "spread", "unknown field"),
        ("kind = \"5g-core\"\ncore", "kind = \"wire\"\ncore", "24", "core", "a hop of kind '5g-core'"),
    ] {
        assert!(RADIO.contains(good), "{good}");
        let error = Link::parse(&RADIO.replace(good, bad)).map(|_| ()).unwrap_err();
        let all = [format!("line {line}"), key.to_owned(), expected.to_owned()];
        assert!(all.iter().all(|part| error.contains(part)), "{bad}: {error}");
    }
}

const WAYS: &str = r#"
[link]
mtu = 1500

[[link.hop]]
kind = "dma"

[[link.hop]]
kind = "usb"
latency = "20us"
interval = "125us"

[[link.hop]]
kind = "routing"
latency = "11us"

[[link.hop]]
kind = "stage"
latency = "1us"
longest = "2.45us"
occupancy = "500ns"

[[link.hop]]
kind = "replicated"

[[link.hop.way]]
latency = "1ms"
rate = "1Gbit/s"
loss = "10%"

[[link.hop.way]]
latency = "2ms"
hop = [{ kind = "ethernet", rate = "1Gbit/s" }]

[link.hop.way.flaps]
up = "1s"
down = "1ms"
"#;

#[test]
fn frames_take_several_ways_and_the_steps_of_machines() {
    let link = Link::parse(WAYS).unwrap();
    assert_eq!(link.config().line, [Some(Rate::from_gigabits(1)); 2]);
    let [there, _] = link.paths(&engine::Rng::from_seed(1));
    let hops: Vec<_> = there.hops().collect();
    let stages: Vec<_> = hops[..4]
        .iter()
        .map(|hop| match hop {
            AnyHop::Stage(stage) => *stage.settings(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(stages[0], Settings::DMA);
    let usb = Settings { interval: Nanos::from_micros(125), ..Settings::pipeline(Nanos::from_micros(20)) };
    assert_eq!((stages[1], stages[2]), (usb, Settings::ROUTING_DOWNSTREAM));
    assert_eq!((stages[3].picoseconds_per_byte, stages[3].occupancy), (1_000, Nanos::new(500)));
    let AnyHop::Replicated(replicated) = hops[4] else { panic!("{:?}", hops[4]) };
    let ways = replicated.ways();
    assert_eq!(ways.iter().map(|way| way.hops().len()).collect::<Vec<_>>(), [2, 3]);
    // The longest frame fits through the port with its tag.
    let Some(AnyHop::Port(port)) = ways[1].hops().nth(1) else { panic!("{:?}", ways[1]) };
    assert_eq!(port.settings().mtu, 1_506);
}

#[test]
fn a_mistake_in_ways_and_steps_is_shown_with_its_line_and_key() {
    for (good, bad, line, key, expected) in [
        ("kind = \"stage\"\nlatency = \"1us\"", "kind = \"stage\"", "17", "latency", "the time of a frame"),
        ("longest = \"2.45us\"", "longest = \"1ns\"", "20", "longest", "for 1518 bytes, not 1 ns"),
        ("interval = \"125us\"", "cable = \"1m\"", "8", "cable", "a hop of kind 'ethernet'"),
        ("latency = \"1ms\"\n", "mtu = 1500\n", "26", "mtu", "expected in [link]"),
        ("kind = \"ethernet\"", "kind = \"replicated\"", "33", "rate", "'ethernet'"),
        (
            "kind = \"ethernet\", rate = \"1Gbit/s\"",
            "kind = \"replicated\"",
            "33",
            "kind",
            "no ways within a way",
        ),
    ] {
        assert!(WAYS.contains(good), "{good}");
        let error = Link::parse(&WAYS.replace(good, bad)).map(|_| ()).unwrap_err();
        let all = [format!("line {line}"), key.to_owned(), expected.to_owned()];
        assert!(all.iter().all(|part| error.contains(part)), "{bad}: {error}");
    }
    let one = "[link]\n[[link.hop]]\nkind = \"replicated\"\nway = [{ latency = \"1ms\" }]\n";
    let error = Link::parse(one).map(|_| ()).unwrap_err();
    assert!(error.starts_with("line 2, way: expected 2 to 8 of"), "{error}");
}

const WIFI: &str = r#"
[link]

[[link.hop]]
kind = "wifi"
rate = "54Mbit/s"
queue_frames = 500
attempts = 4
timing = { slot = "20us", sifs = "10us", preamble = "26us", cw_min = 31, cw_max = 511 }
bursts = { good = "1s", bad = "20ms", good_loss = "1%", bad_loss = "60%" }

[[link.hop]]
kind = "wifi"
rate = "6Mbit/s"
channel = "backhaul"
"#;

#[test]
fn both_directions_share_each_wifi_channel() {
    let link = Link::parse(WIFI).unwrap();
    let paths = link.paths(&engine::Rng::from_seed(1));
    let stations: Vec<_> = paths
        .iter()
        .flat_map(|path| path.hops())
        .map(|hop| match hop {
            AnyHop::Station(station) => station,
            other => panic!("{other:?}"),
        })
        .collect();
    let [near, backhaul, far, backhaul_back] = stations[..] else { panic!("{stations:?}") };
    assert!(near.shares_medium_with(far) && backhaul.shares_medium_with(backhaul_back));
    assert!(!near.shares_medium_with(backhaul));
    let bursts = Bursts {
        good: Nanos::from_secs(1),
        bad: Nanos::from_millis(20),
        good_loss: Chance::percent(1),
        bad_loss: Chance::percent(60),
    };
    let expected = wifi::Settings {
        rate: Rate::from_megabits(54),
        slot: Nanos::from_micros(20),
        sifs: Nanos::from_micros(10),
        preamble: Nanos::from_micros(26),
        cw_min: 31,
        cw_max: 511,
        attempts: 4,
        queue_frames: 500,
        bursts: Some(bursts),
    };
    assert_eq!(*near.settings(), expected);
    let usual = wifi::Settings { rate: Rate::from_megabits(6), ..wifi::Settings::OFDM };
    assert_eq!(*backhaul_back.settings(), usual);
    // Another link has another medium.
    let [other, _] = link.paths(&engine::Rng::from_seed(1));
    let Some(AnyHop::Station(other)) = other.hops().next() else { panic!("{other:?}") };
    assert!(!near.shares_medium_with(other));
}

#[test]
fn the_wifi_link_of_the_documentation_is_a_link() {
    let page = include_str!("../../../../pure/network-models/README.md");
    let (_, section) = page.split_once("## Wi-Fi").unwrap();
    let (_, example) = section.split_once("```toml\n").unwrap();
    Link::parse(example.split_once("```").unwrap().0).unwrap();
}

#[test]
fn a_mistake_in_a_wifi_hop_is_shown_with_its_line_and_key() {
    for (good, bad, line, key, expected) in [
        ("[link]", "[link]\nmtu = 9000", "5", "mtu", "2296 bytes at most"),
        ("rate = \"54Mbit/s\"\n", "", "4", "rate", "such as 54Mbit/s"),
        ("54Mbit/s", "5Mbit/s", "4", "rate", "not 5 Mbit/s"),
        ("queue_frames = 500", "queue_frames = 0", "4", "queue_frames", "1 to 65536, not 0"),
        ("attempts = 4", "attempts = 0", "8", "attempts", "1 to 255, not 0"),
        ("slot = \"20us\"", "slot = \"0s\"", "9", "slot", "1 µs to 1 ms, not 0 ns"),
        ("cw_min = 31", "cw_min = 0", "9", "cw_min", "1 to 32767, not 0"),
        ("cw_min = 31", "cw_min = 600", "9", "cw_max", "600 at least"),
        ("cw_min = 31", "aifs = 3", "9", "aifs", "unknown field"),
        ("good = \"1s\"", "good = \"0s\"", "10", "good", "1 µs at least, not 0 ns"),
        ("bad = \"20ms\", ", "", "10", "bad", "missing field"),
        ("rate = \"6Mbit/s\"", "rate = \"6Mbit/s\"\ncable = \"1m\"", "12", "cable", "'ethernet'"),
        ("kind = \"wifi\"\nrate = \"6", "kind = \"wire\"\nrate = \"6", "12", "channel", "kind 'wifi'"),
    ] {
        assert!(WIFI.contains(good), "{good}");
        let error = Link::parse(&WIFI.replace(good, bad)).map(|_| ()).unwrap_err();
        let all = [format!("line {line}"), key.to_owned(), expected.to_owned()];
        assert!(all.iter().all(|part| error.contains(part)), "{bad}: {error}");
    }
}
