//! `farlane model sim` as a person uses it: sweeps to files, latency chains, and the messages about
//! mistakes.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::FARLANE;

const SCENARIO: &str = "\
[link]
latency = \"100us\"
rate = \"1Gbit/s\"

[[task]]
kind = \"read\"
count = 30
";

/// A directory with the scenario in it.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("one.toml"), SCENARIO).unwrap();
    directory
}

fn sim(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(&*FARLANE);
    command.arg("sim").args(arguments).current_dir(directory).stdin(Stdio::null()).output().unwrap()
}

fn json(directory: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = sim(directory, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_sweep_writes_the_same_bytes_however_many_threads_play_it() {
    let directory = directory();
    let written = |jobs: &str| {
        let names = ["csv", "parquet", "svg", "png"].map(|form| format!("{jobs}.{form}"));
        let [csv, parquet, svg, png] = names.each_ref().map(String::as_str);
        let sets = ["link.rate=100Mbit/s,1Gbit/s", "task.0.depth=1,4", "pcie.payload=128,256"];
        let mut arguments = vec!["sweep", "one.toml", "--jobs", jobs, "--csv", csv, "--parquet", parquet];
        arguments.extend(["--plot", svg, "--plot", png]);
        arguments.extend(sets.iter().flat_map(|set| ["--set", set]));
        let output = sim(directory.path(), &arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        names.map(|name| std::fs::read(directory.path().join(name)).unwrap())
    };
    let [csv, parquet, svg, png] = written("1");
    assert_eq!([&csv, &parquet, &svg, &png], written("2").each_ref());
    assert_eq!(String::from_utf8(csv).unwrap().lines().count(), 1 + 8);
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    assert!(String::from_utf8(svg).unwrap().contains("pcie.payload = 256"));
    assert!(png.starts_with(b"\x89PNG"));
}

#[test]
fn the_stretches_of_an_operation_add_up_to_the_latency_that_was_measured() {
    let directory = directory();
    let played = json(directory.path(), &["one.toml", "--json"]);
    let explained = json(directory.path(), &["explain", "one.toml", "--json", "--svg", "chain.svg"]);
    let one = &explained["operations"][0];
    assert_eq!(one["latency_ns"], played["tasks"][0]["p50_ns"]);
    let segments = one["segments"].as_array().unwrap();
    let sum: u64 = segments.iter().map(|segment| segment["length_ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), one["latency_ns"].as_u64());
    let all: u64 =
        one["places"].as_array().unwrap().iter().map(|place| place["length_ns"].as_u64().unwrap()).sum();
    assert_eq!(all, sum);
    // The wire is passed four times: there and back for the doorbell and the interrupt, and for the
    // fetch and its completion.
    let hops: u64 = segments
        .iter()
        .filter(|segment| segment["place"].as_str().unwrap().starts_with("wire"))
        .filter(|segment| segment["part"] == "propagation")
        .map(|segment| segment["length_ns"].as_u64().unwrap())
        .sum();
    assert_eq!(hops, 4 * 100_000, "{segments:#?}");
    let svg = std::fs::read_to_string(directory.path().join("chain.svg")).unwrap();
    assert!(svg.contains("doorbell") && svg.contains("wire, 1 Gbit/s, there"), "{svg}");
    let text = String::from_utf8(sim(directory.path(), &["explain", "one.toml"]).stdout).unwrap();
    assert!(text.contains("by place") && text.contains("propagation"), "{text}");
}

/// A ring: frames take two ways, and the second one is shorter.
const RING: &str = "[link]\n\n[[link.hop]]\nkind = \"replicated\"\n\n\
    [[link.hop.way]]\nlatency = \"3ms\"\nrate = \"1Gbit/s\"\n\n\
    [[link.hop.way]]\nlatency = \"1ms\"\nrate = \"1Gbit/s\"\n\n\
    [[task]]\nkind = \"read\"\ncount = 20\n";

#[test]
fn the_ways_of_a_ring_are_shown_with_their_hops_and_the_way_that_won() {
    let directory = directory();
    std::fs::write(directory.path().join("ring.toml"), RING).unwrap();
    let explained = json(directory.path(), &["explain", "ring.toml", "--json", "--svg", "ring.svg"]);
    let one = &explained["operations"][0];
    let ways: Vec<_> = one["ways"].as_array().unwrap().iter().collect();
    let shown: Vec<_> =
        ways.iter().map(|way| (way["direction"].as_str().unwrap(), way["way"].as_u64())).collect();
    assert_eq!(shown, [("there", Some(1)), ("there", Some(2)), ("back", Some(1)), ("back", Some(2))]);
    for way in ways {
        let won = if way["way"] == 2 { way["of"].clone() } else { 0.into() };
        assert!(way["won"] == won && way["of"].as_u64().unwrap() > 0, "{way}");
    }
    let segments = one["segments"].as_array().unwrap();
    let there = |segment: &&serde_json::Value| segment["place"] == "way 2: wire, 1 Gbit/s, there";
    let crossed = segments.iter().filter(there).filter(|segment| segment["part"] == "propagation");
    let crossed: Vec<_> = crossed.map(|segment| segment["length_ns"].as_u64()).collect();
    assert!(!crossed.is_empty() && crossed.iter().all(|length| *length == Some(1_000_000)), "{segments:#?}");
    assert!(!segments.iter().any(|segment| segment["place"].as_str().unwrap().starts_with("way 1")));
    let svg = std::fs::read_to_string(directory.path().join("ring.svg")).unwrap();
    for shown in ["way 1: wire, 1 Gbit/s, there", "way 2: wire, 1 Gbit/s, back", "won 0 of "] {
        assert!(svg.contains(shown), "{shown}: {svg}");
    }
    let text = String::from_utf8(sim(directory.path(), &["explain", "ring.toml"]).stdout).unwrap();
    assert!(text.contains("there, won 0 of") && text.contains(": way 1: wire, 1 Gbit/s, there"), "{text}");
}

#[test]
fn a_mistake_is_reported_with_its_place_and_what_was_expected() {
    let directory = directory();
    std::fs::write(directory.path().join("bad.toml"), SCENARIO.replace("\"read\"", "\"erase\"")).unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["explain", "none.toml"], &["none.toml", "No such file"]),
        (&["explain", "bad.toml"], &["bad.toml", "line 6, kind", "expected 'config-read'", "'erase'"]),
        (&["explain", "one.toml", "--percentile", "101"], &["--percentile", "'101'", "0 to 100"]),
        (&["explain", "one.toml", "--png", "chain.gif"], &["chain.gif", ".png"]),
        (&["sweep", "one.toml"], &["--set"]),
        (&["sweep", "one.toml", "--set", "link"], &["path=v1,v2"]),
        (&["sweep", "bad.toml", "--set", "link.rate=1Gbit/s"], &["bad.toml", "line 6, kind"]),
        (
            &["sweep", "one.toml", "--set", "link.rate=fast"],
            &["link.rate=fast", "such as 100Mbit/s", "'fast'"],
        ),
        (
            &["sweep", "one.toml", "--set", "task.0.depth=1,65"],
            &["task.0.depth=65", "depth: expected 1 to 64"],
        ),
        (&["sweep", "one.toml", "--set", "task.7.depth=1"], &["task.7.depth", "there is no 7"]),
        (&["sweep", "one.toml", "--set", "task.0.count=9", "--plot", "a.gif"], &["a.gif", ".svg or .png"]),
        (
            &["sweep", "one.toml", "--set", "task.0.count=9", "--plot", "a.svg", "--task", "wipe"],
            &["--task wipe", "'read'"],
        ),
    ];
    for (arguments, words) in cases {
        let output = sim(directory.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).replace('│', " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!output.status.success(), "{arguments:?}");
        for word in *words {
            assert!(said.contains(word), "{arguments:?}: {word}: {said}");
        }
    }
}

#[test]
fn a_closed_loop_over_gates_is_warned_of() {
    let directory = directory();
    let gates = "[[link.hop]]\nkind = \"ethernet\"\nrate = \"1Gbit/s\"\n[link.hop.tsn]\n\
                 gates = [{ open = [0], time = \"100us\" }, { open = [1], time = \"400us\" }]\n";
    let file = |gap: &str| format!("[link]\n{gates}[[task]]\nkind = \"read\"\ncount = 10\ngap = \"{gap}\"\n");
    for (gap, is_reported) in [("100us", true), ("500us", false)] {
        std::fs::write(directory.path().join("gates.toml"), file(gap)).unwrap();
        for arguments in [
            &["gates.toml"] as &[&str],
            &["explain", "gates.toml"],
            &["sweep", "gates.toml", "--set", "seed=1"],
        ] {
            let output = sim(directory.path(), arguments);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{said}");
            assert_eq!(
                said.contains("task 'read' is a closed loop"),
                is_reported,
                "{gap} {arguments:?}: {said}"
            );
        }
    }
}

#[test]
fn a_sweep_reports_unwritable_files_before_it_plays() {
    let directory = directory();
    let arguments = ["sweep", "one.toml", "--set", "task.0.count=9", "--csv", "a.csv"];
    let output = sim(directory.path(), &[&arguments[..], &["--plot", "none/a.svg"]].concat());
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("none/a.svg"));
    assert!(!directory.path().join("a.csv").exists(), "nothing was played, so there is no table");
}

#[test]
fn a_sweep_refuses_a_task_that_no_point_has_before_it_plays() {
    let directory = directory();
    let mut arguments = vec!["sweep", "one.toml", "--csv", "a.csv", "--plot", "a.svg"];
    arguments.extend(["--set", "task.0.name=slow,fast"]);
    let output = sim(directory.path(), &[&arguments[..], &["--task", "read"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).replace('│', " ");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!output.status.success());
    assert!(said.contains("--task read") && said.contains("'slow', 'fast'"), "{said}");
    assert!(!directory.path().join("a.csv").exists(), "nothing was played");
    let output = sim(directory.path(), &[&arguments[..], &["--task", "fast"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(directory.path().join("a.csv")).unwrap().lines().count(), 1 + 2);
}

#[test]
fn a_table_takes_the_place_of_the_one_before_it_as_a_whole() {
    let directory = directory();
    let [file, link] = ["a.csv", "link.csv"].map(|name| directory.path().join(name));
    std::fs::write(&file, "before").unwrap();
    std::fs::hard_link(&file, &link).unwrap();
    let arguments = ["sweep", "one.toml", "--set", "task.0.count=9", "--csv", "a.csv"];
    assert!(sim(directory.path(), &arguments).status.success());
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("task.0.count"));
    // The former file was never written over.
    assert_eq!(std::fs::read_to_string(&link).unwrap(), "before");
}

/// A disk of 250 GB in virtual time.
#[test]
fn a_time_line_of_a_whole_disk_is_written_in_every_form() {
    let directory = directory();
    let full = "[ssd]\nmodel = \"960-evo\"\n[[load]]\nrw = \"write\"\niodepth = 32\n";
    std::fs::write(directory.path().join("full.toml"), full).unwrap();
    let names = ["t.csv", "t.parquet", "t.svg", "t.png"];
    let mut arguments = vec!["full.toml", "--json"];
    arguments.extend(names.iter().flat_map(|name| ["--timeline", name]));
    let played = json(directory.path(), &arguments);
    assert_eq!(played["tasks"][0]["count"], 1_907_801);
    let [csv, parquet, svg, png] = names.map(|name| std::fs::read(directory.path().join(name)).unwrap());
    let csv = String::from_utf8(csv).unwrap();
    let rows: Vec<Vec<u64>> = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').map(|field| field.parse().unwrap()).collect())
        .collect();
    let column = |name: &str| csv.lines().next().unwrap().split(',').position(|one| one == name).unwrap();
    let rate = |row: usize| rows[row][column("write_bytes_per_second")];
    assert!(rows.len() > 400 && rows.len() <= 1_000, "{} rows", rows.len());
    assert!(rate(1).abs_diff(1_500_000_000) < 20_000_000, "{}", rate(1));
    assert!(rate(rows.len() / 2).abs_diff(300_000_000) < 5_000_000, "{}", rate(rows.len() / 2));
    let written: u64 = rows.iter().map(|row| row[column("writes")]).sum();
    assert_eq!(written, 1_907_801);
    assert!(parquet.starts_with(b"PAR1") && png.starts_with(b"\x89PNG"));
    assert!(String::from_utf8(svg).unwrap().contains("throughput, MB/s"));
    // A host's reads have a time line, too.
    let played = json(directory.path(), &["one.toml", "--json", "--timeline", "one.csv"]);
    let one = std::fs::read_to_string(directory.path().join("one.csv")).unwrap();
    let reads = |line: &str| line.split(',').nth(column("reads")).unwrap().parse::<u64>().unwrap();
    assert_eq!(played["tasks"][0]["count"], one.lines().skip(1).map(reads).sum::<u64>());
    let output = sim(directory.path(), &["full.toml", "--timeline", "a.txt"]);
    let said = String::from_utf8_lossy(&output.stderr).replace('│', " ");
    assert!(!output.status.success() && said.contains(".csv, .parquet, .svg or .png"), "{said}");
}

const STREAMS: &str = "\
[link]
[[link.hop]]
kind = \"ethernet\"
rate = \"1Gbit/s\"

[[stream]]
name = \"control\"
class = 7
length = 128
period = \"501us\"
count = 500

[[stream]]
name = \"bulk, alone\"
length = 1518
mean = \"20us\"
direction = \"back\"
";

/// Streams need no task: text, JSON, tables and checks have them.
#[test]
fn streams_are_reported_with_their_waits() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("streams.toml"), STREAMS).unwrap();
    let report = json(directory.path(), &["streams.toml", "--json"]);
    assert_eq!(report["tasks"], serde_json::json!([]));
    let control = &report["streams"][0];
    assert_eq!((&control["stream"], &control["direction"]), (&"control".into(), &"there".into()));
    assert_eq!(
        (&control["sent"], &control["received"], &control["lost"]),
        (&500.into(), &500.into(), &0.into())
    );
    assert_eq!((&control["p50_ns"], &control["max_ns"]), (&1461.into(), &1461.into()));
    assert_eq!(control["hops"][0]["name"], "Ethernet, 1 Gbit/s");
    assert_eq!(control["hops"][0]["wait_max_ns"], 0);
    let bulk = &report["streams"][1];
    assert!(
        bulk["sent"].as_u64() >= Some(10_000) && bulk["hops"][0]["wait_max_ns"].as_u64() > Some(0),
        "{bulk}"
    );
    assert_eq!(json(directory.path(), &["streams.toml", "--json"])["digest"], report["digest"]);
    let output = sim(directory.path(), &["streams.toml"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("stream control, class 7, there: 500 sent, 500 received, 0 lost"), "{text}");
    assert!(text.contains("waits at hop 1 (Ethernet, 1 Gbit/s): mean 0 ns"), "{text}");
    let output = sim(directory.path(), &["sweep", "streams.toml", "--set", "stream.0.class=0,7"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.lines().any(|line| line.starts_with("7,control,500,0,1461,")), "{table}");
    let check = |text: &str| {
        std::fs::write(directory.path().join("streams.toml"), text).unwrap();
        let mut command = Command::new(&*FARLANE);
        command.args(["check", "streams.toml"]).current_dir(directory.path()).output().unwrap()
    };
    assert!(check(STREAMS).status.success());
    let wrong = check(&STREAMS.replace("mean = \"20us\"", "mean = \"1ns\""));
    assert!(!wrong.status.success());
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned() + &String::from_utf8_lossy(&wrong.stdout);
    assert!(said.contains("line 16, mean: expected 100 ns"), "{said}");
    // So do loads of every other kind: such a file is a scenario, not a network alone.
    for load in ["[[workload]]\nrw = \"erase\"\n", "[[load]]\nrw = \"read\"\n"] {
        let wrong = check(&format!("[link]\nlatency = \"1ms\"\n{load}"));
        assert!(!wrong.status.success(), "{load}");
    }
}
