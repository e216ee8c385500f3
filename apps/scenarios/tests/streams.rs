//! Streams that share the hops of a link: those that cannot meet do not disturb each other, and
//! those that meet disturb each other no more than the bounds of strict priority say.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use engine::Nanos;
use scenarios::file::scenario::{Played, Scenario, StreamDone};

/// Two Gigabit hops whose gates are open for class 7 alone during 100 µs of every 500 µs. They are
/// closed for 1 µs before, in which the gap after another class's last frame passes.
const GATED: &str = r#"
[link]
[[link.hop]]
kind = "ethernet"
rate = "1Gbit/s"
[link.hop.tsn]
gates = [{ open = [7], time = "100us" }, { open = [0, 1, 2, 3, 4, 5, 6], time = "399us" }, { open = [], time = "1us" }]
[[link.hop]]
kind = "ethernet"
rate = "1Gbit/s"
[link.hop.tsn]
gates = [{ open = [7], time = "100us" }, { open = [0, 1, 2, 3, 4, 5, 6], time = "399us" }, { open = [], time = "1us" }]
"#;
const PLAIN: &str = "[link]\n[[link.hop]]\nkind = \"ethernet\"\nrate = \"1Gbit/s\"\n";
const CONTROL: &str =
    "[[stream]]\nname = \"control\"\nclass = 7\nlength = 128\nperiod = \"499us\"\ncount = 2000\n";
const BULK: &str = "[[stream]]\nname = \"bulk\"\nclass = 3\nlength = 1518\nmean = \"25us\"\ncount = 2000\n";

fn play(text: &str) -> Played {
    Scenario::parse(text).unwrap().play(1, false).unwrap()
}

fn stream<'a>(played: &'a Played, name: &str) -> &'a StreamDone {
    played.streams.iter().find(|stream| stream.done.name == name).unwrap()
}

/// The latencies of the first 2000 frames.
fn times(played: &Played, name: &str) -> Vec<Nanos> {
    let stream = stream(played, name);
    assert_eq!(stream.done.outcome.failed, 0);
    assert_eq!(stream.sent, stream.done.outcome.times.len() as u64);
    assert!(stream.sent >= 2000, "{}", stream.sent);
    stream.done.outcome.times[..2000].to_vec()
}

#[test]
fn streams_in_disjoint_windows_do_not_disturb_each_other() {
    let both = play(&[GATED, CONTROL, BULK].concat());
    for (name, alone) in [("control", CONTROL), ("bulk", BULK)] {
        let alone = play(&[GATED, alone].concat());
        assert_eq!(times(&both, name), times(&alone, name), "{name}");
    }
    // A frame of class 7 that comes when its window ends waits for the next, 400 µs later, and a
    // little for the rest of the window in which it does not fit.
    let waits = &stream(&both, "control").hops[0].1;
    let longest = waits.iter().max().unwrap().get();
    assert!((400_000..=401_088).contains(&longest), "{longest}");
}

#[test]
fn streams_in_the_same_class_disturb_each_other() {
    let same = BULK.replace("class = 3", "class = 7").replace("25us", "200us");
    let both = play(&[GATED, CONTROL, &same].concat());
    let alone = play(&[GATED, CONTROL].concat());
    let sum = |played| times(played, "control").iter().map(|time| time.get()).sum::<u64>();
    assert!(sum(&both) > sum(&alone) + 2000 * 1_000, "{} {}", sum(&both), sum(&alone));
}

/// Without preemption, a frame of the highest class waits for one frame of a lower class at most:
/// for the whole frame with preamble and gap (IEEE 802.1Q-2018, annex L.3).
#[test]
fn strict_priority_costs_one_frame_of_a_lower_class_at_most() {
    let both = play(&[PLAIN, CONTROL, BULK].concat());
    let alone = play(&[PLAIN, CONTROL].concat());
    // 128 B and 8 B of preamble at 1 Gbit/s, and 373 ns of MACs and PHYs.
    assert!(times(&alone, "control").iter().all(|time| *time == Nanos::new(1_461)));
    let bound = (1518 + 20) * 8;
    let longest = times(&both, "control").into_iter().max().unwrap().get() - 1_461;
    assert!(longest <= bound, "{longest} of {bound}");
    assert!(longest > bound - 200, "the bound is reached: {longest} of {bound}");
    let waits = &stream(&both, "control").hops[0].1;
    assert_eq!(waits[..2000].iter().max().unwrap().get(), longest);
    // With preemption, it waits for a piece of 143 B (and its gap) at most.
    let express = "[link.hop.tsn]\nexpress = [7]\n";
    let express = play(&[PLAIN, express, CONTROL, BULK].concat());
    let longest = times(&express, "control").into_iter().max().unwrap().get() - 1_461;
    assert!(longest <= (143 + 20) * 8, "{longest}");
}

#[test]
fn a_stream_crosses_every_kind_of_hop_and_counts_each_frame_once() {
    let ethernet = "kind = \"ethernet\"\nrate = \"1Gbit/s\"\n";
    let hops = [
        "kind = \"wire\"\nlatency = \"1ms\"\nrate = \"100Mbit/s\"\n".to_owned(),
        ethernet.to_owned(),
        "kind = \"wifi\"\nrate = \"54Mbit/s\"\nbursts = { good = \"20ms\", bad = \"9ms\", bad_loss = \"90%\" }\n".into(),
        "kind = \"5g-up\"\n[[link.hop]]\nkind = \"5g-core\"\n[[link.hop]]\nkind = \"5g-down\"\n".into(),
        "kind = \"usb\"\n".into(),
        "kind = \"pfc\"\nrate = \"1Gbit/s\"\n".into(),
        format!("kind = \"replicated\"\n[[link.hop.way]]\n[[link.hop.way.hop]]\n{ethernet}[[link.hop.way]]\n\
            latency = \"50us\"\n"),
    ];
    let both = CONTROL.replace("499us", "2ms").replace("2000", "300")
        + &BULK.replace("25us", "1ms").replace("2000", "300");
    let both = both.replace("name = \"bulk\"", "name = \"bulk\"\ndirection = \"back\"");
    for hop in &hops {
        let played = play(&format!("[link]\nloss = \"4%\"\nduplication = \"1%\"\n[[link.hop]]\n{hop}{both}"));
        for stream in &played.streams {
            let received = stream.done.outcome.times.len() as u64;
            assert!(stream.sent >= 300 && received > 250, "{hop}: {} of {}", received, stream.sent);
            assert!(stream.done.outcome.failed > 0, "{hop}");
            assert_eq!(stream.sent, received + stream.done.outcome.failed);
            assert!(stream.hops.iter().all(|(_, waits)| waits.len() as u64 == received), "{hop}");
        }
        assert_eq!(
            played.digest,
            play(&format!("[link]\nloss = \"4%\"\nduplication = \"1%\"\n[[link.hop]]\n{hop}{both}")).digest
        );
    }
}

#[test]
fn streams_run_beside_the_ssd_and_slow_it_down() {
    let link = "[link]\n[[link.hop]]\nkind = \"ethernet\"\nrate = \"1Gbit/s\"\n";
    let tasks = "[[task]]\nkind = \"read\"\ncount = 50\n";
    let streams = CONTROL.replace("2000", "100")
        + &BULK.replace("mean = \"25us\"", "period = \"14us\"").replace("2000", "100");
    let streams = streams
        + &BULK.replace("bulk", "home").replace("class = 3", "direction = \"back\"").replace("25us", "50us");
    for transport in ["", "[fabric]\nkind = \"tcp\"\n", "[fabric]\nkind = \"rdma\"\n"] {
        let alone = play(&[transport, link, tasks].concat());
        let both = play(&[transport, link, tasks, &streams].concat());
        let sum = |played: &Played| played.tasks[0].outcome.times.iter().map(|time| time.get()).sum::<u64>();
        assert!(sum(&both) > sum(&alone), "{transport}");
        assert_eq!(both.streams.len(), 3);
        for stream in &both.streams {
            assert!(stream.sent >= 100 && stream.done.outcome.failed == 0, "{transport}: {stream:?}");
        }
        // The frames are measured as long as the task runs, and those of the boot are not.
        let took = (both.tasks[0].outcome.ended - both.tasks[0].outcome.began).get();
        assert!(stream(&both, "bulk").sent >= took / 14_000, "{transport}");
        assert!(stream(&both, "bulk").sent < 100_000, "{transport}");
        assert_eq!(both.digest, play(&[transport, link, tasks, &streams].concat()).digest);
    }
}

#[test]
fn a_full_queue_loses_frames_of_its_class_only() {
    let hop = PLAIN.to_owned() + "queue_frames = 4\n";
    let bulk = BULK.replace("mean = \"25us\"", "period = \"500us\"\nframes = 40");
    let played = play(&[&hop, CONTROL, &bulk].concat());
    assert_eq!(stream(&played, "control").done.outcome.failed, 0);
    let bulk = stream(&played, "bulk");
    assert!(bulk.done.outcome.failed > bulk.sent / 2, "{} of {}", bulk.done.outcome.failed, bulk.sent);
}

#[test]
fn wrong_streams_are_reported_with_their_place() {
    let whole = [GATED, CONTROL, BULK].concat();
    for (good, bad, key, expected) in [
        ("name = \"bulk\"", "name = \"control\"", "name", "no other result has"),
        ("class = 3", "class = 8", "class", "0 to 7, not 8"),
        ("length = 1518", "length = 1523", "length", "64 to 1522 bytes"),
        ("length = 128", "length = 63", "length", "64 to 1522 bytes"),
        ("mean = \"25us\"", "mean = \"1ns\"", "mean", "expected 100 ns to"),
        ("mean = \"25us\"", "mean = \"25us\"\nperiod = \"1ms\"", "stream", "one of period and mean"),
        ("mean = \"25us\"\n", "", "stream", "one of period and mean"),
        ("mean = \"25us\"", "mean = \"25us\"\noffset = \"1us\"", "offset", "with period only"),
        ("mean = \"25us\"", "mean = \"25us\"\nframes = 2", "frames", "with period only"),
        ("period = \"499us\"", "period = \"499us\"\noffset = \"499us\"", "offset", "less than the period"),
        ("period = \"499us\"", "period = \"499us\"\nframes = 0", "frames", "1 to 1024"),
        ("count = 2000", "count = 0", "count", "1 to 1000000"),
        ("class = 3", "direction = \"up\"", "direction", "'there' or 'back'"),
    ] {
        assert!(whole.contains(good), "{good}");
        let error = Scenario::parse(&whole.replacen(good, bad, 1)).map(|_| ()).unwrap_err();
        assert!(error.starts_with("line ") && error.contains(&format!(", {key}: ")), "{bad}: {error}");
        assert!(error.contains(expected), "{bad}: {error}");
    }
    let error = Scenario::parse(CONTROL).unwrap_err();
    assert!(error.contains("expected a [link]"), "{error}");
    let error = Scenario::parse(&(CONTROL.to_owned() + "[[load]]\nrw = \"read\"\n")).unwrap_err();
    assert!(error.contains("no [[stream]] beside a [[load]]"), "{error}");
    let long = [GATED, &CONTROL.replace("499us", "100s"), BULK].concat();
    let error = Scenario::parse(&long).unwrap().play(1, false).unwrap_err();
    assert!(error.contains("stream 'bulk' sends"), "{error}");
    let alone = Scenario::parse(&whole).unwrap();
    assert!(alone.play(1, true).unwrap_err().contains("root port's link"));
    assert!(alone.timeline(1).unwrap_err().contains("time line"));
}

#[test]
fn no_scenario_of_the_gallery_has_a_warning() {
    let gallery = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    for folder in [gallery.join("fabrics"), gallery] {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                assert_eq!(Scenario::read(&path).unwrap().warnings(), [""; 0], "{}", path.display());
            }
        }
    }
}
