//! Captures of PCIe packets: other programs' are understood, and ours show where the time went.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

use crate::support::running::{Running, wait_for_listener};
use crate::support::{Export, FARLANE, fail, json, succeed};

/// The captures of an SSD, as files; none where they are not there.
fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let folders = [folder.join("nettlp-p4600"), folder];
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    if files.is_empty() {
        eprintln!("SKIPPED: there are no captures in {}", folders[1].display());
    }
    files
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_capture_is_read_and_an_ssds_have_the_commands_of_their_names() {
    for path in captures() {
        let stats = json(&["observe", "trace", "stats", text(&path), "--json"]);
        assert!(stats["tlps"].as_u64().unwrap() > 0, "{}", path.display());
        assert_eq!(stats["skipped"]["malformed"], 0, "{}", path.display());
        let name = path.file_stem().unwrap().to_string_lossy();
        let [_, kind, blocks] = *name.split('-').collect::<Vec<_>>() else { continue };
        let Some(blocks) = blocks.strip_suffix("blk") else { continue };
        let blocks: u64 = blocks.parse().unwrap();
        let command = &stats["commands"][kind];
        let found = ["count", "blocks", "bytes"].map(|key| command[key].as_u64().unwrap());
        assert_eq!(found, [1, blocks, blocks * 512], "{name}: {stats}");
        // Data alone never make it certain.
        assert_eq!(stats["confidence"], 0.5, "{name}: {stats}");
    }
}

/// Number of commands of a capture at least.
const COMMANDS_MIN: u64 = 60;

/// A capture of a load on a far SSD, and what the load says of itself.
fn captured(folder: &Path, load: &[&str]) -> (PathBuf, Value) {
    let far = Export::start(&["--ram", "16MiB"]);
    let path = folder.join("load.pcapng");
    // At this rate the file keeps up on any machine: a capture with lost packets has other counts.
    let rate: &[&str] = if load.contains(&"--rate_iops") { &[] } else { &["--rate_iops", "500"] };
    let url = far.url();
    let bench = [&["bench", &url, "--json", "--capture", text(&path)][..], rate, load].concat();
    // A busy machine takes longer to run as many commands.
    for seconds in ["0.2", "1", "5", "25"] {
        let report = json(&[&bench[..], &["--runtime", &format!("{seconds}s")]].concat());
        assert_eq!(report["errors"], 0, "{report}");
        if report["commands"].as_u64().unwrap() >= COMMANDS_MIN {
            return (path, report);
        }
    }
    panic!("fewer than {COMMANDS_MIN} commands in 25 s");
}

#[test]
fn a_capture_of_ours_has_each_command_with_its_steps() {
    let folder = tempfile::tempdir().unwrap();
    // Transfers of 64 KiB have lists of pages.
    let (path, report) = captured(folder.path(), &["--rw", "randrw", "--bs", "64k", "--iodepth", "4"]);
    let stats = json(&["observe", "trace", "stats", text(&path), "--json"]);
    let commands = &stats["commands"];
    let count = |kind: &str| commands[kind]["count"].as_u64().unwrap_or_default();
    assert!(count("read") > 0 && count("write") > 0, "{stats}");
    for kind in ["read", "write"] {
        assert_eq!(commands[kind]["bytes"], count(kind) * 65_536, "{kind}: {stats}");
        assert_eq!(commands[kind]["blocks"], count(kind) * 128, "{kind}: {stats}");
        assert_eq!(commands[kind]["latency_ns"]["count"], count(kind));
    }
    assert!(stats["confidence"].as_f64().unwrap() > 0.99, "{stats}");
    assert_eq!((&stats["unexpected_completions"], &stats["inferred"]), (&0.into(), &0.into()), "{stats}");
    // The report counts what the load measured; the capture has the load's beginning too.
    let measured = report["operations"].as_u64().or(report["latency"]["count"].as_u64()).unwrap_or(1);
    assert!(count("read") + count("write") >= measured, "{report}");
    let chains = json(&["observe", "trace", "chain", text(&path), "--json"]);
    let read = chains["chains"].as_array().unwrap().iter().find(|one| one["command"] == "Read").unwrap();
    let steps: Vec<_> = read["hops"].as_array().unwrap().iter().map(|hop| hop["step"].clone()).collect();
    for step in ["doorbell", "entry fetch", "entry", "list fetch", "list", "data", "completion"] {
        assert!(steps.contains(&step.into()), "{step} in {steps:?}");
    }
}

#[test]
fn the_times_of_a_commands_steps_add_up_to_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = captured(folder.path(), &["--rw", "randwrite", "--bs", "4k", "--iodepth", "1"]);
    for number in ["1", "9", "20"] {
        let chain = json(&["observe", "trace", "chain", text(&path), "--command", number, "--json"]);
        let hops = chain["hops"].as_array().unwrap();
        let sum: u64 = hops.iter().map(|hop| hop["ns"].as_u64().unwrap()).sum();
        assert_eq!(chain["whole_ns"], sum, "{chain}");
        assert!(chain["latency_ns"].as_u64().unwrap() <= sum, "{chain}");
    }
    let chain = json(&["observe", "trace", "chain", text(&path), "--command", "20", "--json"]);
    assert_eq!(
        (&chain["command"], &chain["blocks"], &chain["status"]),
        (&"Write".into(), &8.into(), &0.into())
    );
    let shown = succeed(&["observe", "trace", "chain", text(&path), "--command", "20"]);
    assert!(shown.contains("data arrived") && shown.contains("LBA"), "{shown}");
    let missing = fail(&["observe", "trace", "chain", text(&path), "--command", "99999999"]);
    assert!(missing.contains("--command") && missing.contains("1 to "), "{missing}");
}

#[test]
fn lines_are_packets_transactions_or_commands() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = captured(folder.path(), &["--rw", "randread", "--bs", "4k", "--iodepth", "1"]);
    let stats = json(&["observe", "trace", "stats", text(&path), "--json"]);
    let lines = |level: &str| {
        let shown = succeed(&["observe", "trace", "show", text(&path), "--level", level, "--json"]);
        shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    assert_eq!(lines("tlp").len() as u64, stats["tlps"].as_u64().unwrap());
    let commands = lines("command");
    assert_eq!(commands.len() as u64, stats["known"].as_u64().unwrap());
    assert!(commands.iter().any(|one| one["command"] == "Read" && one["bytes"] == 4096));
    // The commands of the start come first, and times count from the first packet.
    let times: Vec<_> = commands.iter().map(|one| one["at_ns"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] > 0, "{times:?}");
    let first = &commands[0];
    assert!(first["command"].as_str().unwrap().starts_with("admin"), "{first}");
    let chain = json(&["observe", "trace", "chain", text(&path), "--command", "1", "--json"]);
    assert_eq!(chain["command"], first["command"]);
    let transactions = lines("transaction");
    let request = |one: &Value| one["tlp"].as_str().unwrap().to_owned();
    assert!(transactions.iter().any(|one| one["completions"] == 1 && one["status"] == "SC"));
    assert!(transactions.iter().any(|one| request(one).contains("CfgRd0") && request(one).contains("0x010")));
    // Nothing failed: enumeration looks for functions that are not there.
    let zero = Value::from(0);
    let counts = ["errors", "failed", "unfinished"].map(|key| &stats[key]);
    assert_eq!(counts, [&zero; 3], "{stats}");
    assert!(stats["probes"].as_u64() > Some(0), "{stats}");
    let reported = succeed(&["observe", "trace", "stats", text(&path)]);
    assert!(
        reported.contains(" 0 completions without success") && reported.contains("0 commands failed"),
        "{reported}"
    );
    for line in succeed(&["observe", "trace", "show", text(&path), "--level", "command"]).lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn malformed_files_are_refused_with_the_place_and_vfio_user_has_no_packets() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = captured(folder.path(), &["--rw", "randread", "--bs", "4k", "--iodepth", "1"]);
    let whole = std::fs::read(&path).unwrap();
    let broken = folder.path().join("broken.pcapng");
    std::fs::write(&broken, &whole[..whole.len() / 2 + 1]).unwrap();
    let cut = fail(&["observe", "trace", "stats", text(&broken)]);
    assert!(cut.contains("at byte") && cut.contains("ends within a block"), "{cut}");
    std::fs::write(&broken, b"neither pcap nor pcapng").unwrap();
    assert!(fail(&["observe", "trace", "stats", text(&broken)]).contains("neither as pcap nor as pcapng"));
    std::fs::write(&broken, b"").unwrap();
    fail(&["observe", "trace", "show", text(&broken)]);
    let missing = fail(&["observe", "trace", "stats", "/nonexistent/capture"]);
    assert!(missing.contains("/nonexistent/capture"), "{missing}");
    let socket = folder.path().join("ssd.sock");
    let device = ["device", "--vfio-user", text(&socket), "--ram", "16MiB"];
    let device = Running::start(&device);
    wait_for_listener(&socket);
    let url = format!("vfio-user:{}", socket.display());
    let refused = fail(&["measure", "ping", &url, "--count", "1", "--capture", text(&broken)]);
    assert!(refused.contains("neither PCIe packets nor a fabric's bytes"), "{refused}");
    device.signal("INT");
}

#[test]
fn a_hosts_capture_of_a_fabric_has_each_command_with_its_steps() {
    const NQN: &str = "nqn.2026-01.io.farlane:traced";
    let folder = tempfile::tempdir().unwrap();
    let rdma = ["--rdma", "iwarp,127.0.0.1:0"];
    for (scheme, listen) in [("nvme-tcp", ["--listen", "127.0.0.1:0"]), ("nvme-rdma", rdma)] {
        let mut command = Command::new(&*FARLANE);
        command.args(["target", "--json", "--nqn", NQN, "--ram", "16MiB"]).args(listen);
        command.arg("--control").arg(folder.path().join(scheme));
        let target = Export::of(command);
        let provider = if scheme == "nvme-rdma" { "?provider=iwarp" } else { "" };
        let url = format!("{scheme}://{}/{NQN}{provider}", target.address);
        let path = folder.path().join(format!("{scheme}.pcapng"));
        let load = ["bench", &url, "--rw", "randrw", "--bs", "16k", "--iodepth", "4", "--rate_iops", "200"];
        let further = ["--size", "4MiB", "--runtime", "300ms", "--json", "--capture", text(&path)];
        let report = json(&[&load[..], &further].concat());
        assert_eq!(report["errors"], 0, "{report}");
        let stats = json(&["observe", "trace", "stats", text(&path), "--json"]);
        let commands = &stats["commands"];
        let count = |kind: &str| commands[kind]["count"].as_u64().unwrap_or_default();
        assert_eq!(count("read") + count("write"), report["commands"], "{scheme}: {stats} {report}");
        for kind in ["read", "write"] {
            assert_eq!(commands[kind]["bytes"], count(kind) * 16_384, "{scheme}, {kind}: {stats}");
        }
        assert_eq!(count("fabrics: connect"), 2, "{scheme}: {stats}");
        for nothing in ["gaps", "unexpected_completions", "lost", "dropped"] {
            assert_eq!(stats[nothing], 0, "{scheme}: {stats}");
        }
        let shown = succeed(&["observe", "trace", "show", text(&path), "--level", "command", "--json"]);
        let kinds = shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let read = kinds.enumerate().find(|(_, one)| one["command"] == "Read").unwrap().0 + 1;
        let steps: Vec<_> = steps_of(&path, read).into_iter().map(|(step, _)| step).collect();
        assert_eq!(steps[..2], ["command capsule", "data"], "{scheme}: {steps:?}");
    }
}

#[test]
fn enumeration_alone_is_captured_too() {
    let folder = tempfile::tempdir().unwrap();
    let far = Export::start(&["--ram", "16MiB"]);
    let path = folder.path().join("lspci.pcapng");
    succeed(&["observe", "lspci", &far.url(), "--capture", text(&path)]);
    let shown = succeed(&["observe", "trace", "show", text(&path)]);
    assert!(shown.contains("CfgRd") && shown.contains("CfgWr") && !shown.contains("MWr"), "{shown}");
}

#[test]
fn a_mixed_load_reads_as_often_as_its_option_says() {
    let folder = tempfile::tempdir().unwrap();
    let mixed =
        ["--rw", "randrw", "--bs", "4k", "--rwmixread", "80", "--rate_iops", "1600,400", "--randseed", "7"];
    let (path, _) = captured(folder.path(), &mixed);
    let stats = json(&["observe", "trace", "stats", text(&path), "--json"]);
    let [reads, writes] =
        ["read", "write"].map(|kind| stats["commands"][kind]["count"].as_f64().unwrap_or_default());
    // Four deviations of 400 commands are 8 %.
    let share = reads / (reads + writes);
    assert!((0.72..=0.88).contains(&share), "{reads} reads, {writes} writes");
    let refused = fail(&["bench", "tcp://127.0.0.1:1", "--rw", "randrw", "--rwmixread", "101"]);
    assert!(refused.contains("101") && refused.contains("0..=100"), "{refused}");
}

#[test]
fn a_comparison_marks_what_is_more_than_chance() {
    let folder = tempfile::tempdir().unwrap();
    // In virtual time, so that no other program of the machine is a part of the comparison.
    let [first, second] = ["512", "128KiB"].map(|size| {
        let scenario = folder.path().join("reads.toml");
        let task = format!("[[task]]\nkind = \"read\"\ncount = 100\nsize = \"{size}\"\n");
        std::fs::write(&scenario, format!("{task}[ssd]\nmodel = \"980\"\n")).unwrap();
        let path = folder.path().join(format!("{size}.pcapng"));
        succeed(&["model", "sim", text(&scenario), "--capture", text(&path)]);
        path
    });
    let row = |one: &Path, other: &Path, step: &str| {
        let table = json(&["observe", "trace", "compare", text(one), text(other), "--json"]);
        let rows = table["rows"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["command"] == "Read" && row["step"] == step).unwrap()
    };
    let same = row(&first, &first, "until completion");
    assert_eq!((&same["significant"], &same["second_longer"]), (&false.into(), &0.5.into()), "{same}");
    assert_eq!(same["difference"], 0.0, "{same}");
    // A list of pages, and 256 times the data.
    let longer = row(&first, &second, "until completion");
    assert_eq!(longer["significant"], true, "{longer}");
    assert!(longer["second_longer"].as_f64().unwrap() > 0.6, "{longer}");
    assert!(longer["difference"].as_f64().unwrap() > 0.0, "{longer}");
    assert_eq!(row(&first, &second, "list fetch")["first_ns"]["count"], 0);
    let shown = succeed(&["observe", "trace", "compare", text(&first), text(&second), "--three-sigma"]);
    assert!(shown.contains("until completion") && shown.contains("  *"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    fail(&["observe", "trace", "compare", text(&first), "/nonexistent/capture"]);
}

#[test]
fn other_programs_get_each_command_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = captured(folder.path(), &["--rw", "randrw", "--bs", "16k", "--iodepth", "4"]);
    let stats = json(&["observe", "trace", "stats", text(&path), "--json"]);
    let known = stats["known"].as_u64().unwrap();
    let export = |name: &str| {
        let to = folder.path().join(name);
        let said = json(&["observe", "trace", "convert", text(&path), "--to", text(&to), "--json"]);
        assert_eq!(said["commands"], known, "{name}");
        std::fs::read(to).unwrap()
    };
    let table = String::from_utf8(export("commands.csv")).unwrap();
    let names: Vec<_> = table.lines().next().unwrap().split(',').collect();
    let place = |name: &str| names.iter().position(|other| *other == name).unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    assert_eq!(table.lines().count() as u64, known + 1);
    for line in table.lines().skip(1) {
        let values: Vec<_> = line.split(',').collect();
        let steps = values[place("doorbell_ns")..].iter().map(|value| number(value));
        assert_eq!(steps.sum::<u64>(), number(values[place("whole_ns")]), "{line}");
    }

    let to = folder.path().join("commands.parquet");
    export("commands.parquet");
    let reader = SerializedFileReader::new(std::fs::File::open(to).unwrap()).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len() as u64, known);
    for (row, line) in rows.iter().zip(table.lines().skip(1)) {
        let values: Vec<_> = line.split(',').collect();
        let found = row.get_column_iter().map(|(name, field)| match field {
            Field::Null => (name.as_str(), String::new()),
            Field::Str(text) => (name.as_str(), text.clone()),
            number => (name.as_str(), number.to_string()),
        });
        assert!(
            found.eq(names.iter().copied().zip(values.iter().map(|value| (*value).to_owned()))),
            "{line}"
        );
    }

    let events: Value = serde_json::from_slice(&export("perfetto.json")).unwrap();
    let mut open = BTreeMap::<u64, Vec<String>>::new();
    for event in events["traceEvents"].as_array().unwrap() {
        let stack = open.entry(event["id"].as_u64().unwrap()).or_default();
        let name = event["name"].as_str().unwrap().to_owned();
        match event["ph"].as_str().unwrap() {
            "b" => stack.push(name),
            _ => assert_eq!(stack.pop(), Some(name), "what began last ends first"),
        }
    }
    assert_eq!(open.len() as u64, known);
    assert!(open.values().all(Vec::is_empty));
    let picture = String::from_utf8(export("where.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("Write") && picture.contains("head doorbell"));
    assert!(export("where.png").starts_with(b"\x89PNG"));
    let refused = fail(&["observe", "trace", "convert", text(&path), "--to", "commands.xml"]);
    assert!(refused.contains("commands.xml") && refused.contains(".parquet"), "{refused}");
    let refused = fail(&["observe", "trace", "convert", text(&path), "--to", "/nonexistent/commands.csv"]);
    assert!(refused.contains("/nonexistent/commands.csv"), "{refused}");
    // An unreadable capture replaces nothing, not even itself.
    let csv = folder.path().join("commands.csv");
    fail(&["observe", "trace", "convert", "/nonexistent/capture", "--to", text(&csv)]);
    fail(&[
        "observe",
        "trace",
        "convert",
        text(&csv),
        "--columns",
        "time=Time,tlp=Bytes",
        "--to",
        text(&csv),
    ]);
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), table);
}

#[test]
fn time_that_runs_back_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("back.pcap");
    let mut bytes: Vec<u8> = Vec::new();
    for word in [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 1 << 16, 147] {
        bytes.extend(word.to_le_bytes());
    }
    // Memory writes at 0, 900, 300 and 400 ns.
    for at in [0_u32, 900, 300, 400] {
        for word in [1, at, 24, 24] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([1, 8, 1, 0, 0, 0, 0, 0, 0x40, 0, 0, 1, 0x19, 0, 0, 0x0f, 0xa0, 0, 0, 0, 1, 2, 3, 4]);
    }
    std::fs::write(&path, bytes).unwrap();
    let stats = json(&["observe", "trace", "stats", text(&path), "--json"]);
    assert_eq!((&stats["tlps"], &stats["time_ran_back"]), (&4.into(), &1.into()), "{stats}");
    let shown = succeed(&["observe", "trace", "stats", text(&path)]);
    assert!(shown.contains("packets with an earlier time than the one before: 1"), "{shown}");
}

/// The steps of a command with how many packets each has.
fn steps_of(path: &Path, number: usize) -> Vec<(String, u64)> {
    let chain = json(&["observe", "trace", "chain", text(path), "--command", &number.to_string(), "--json"]);
    let hops = chain["hops"].as_array().unwrap();
    let step = |hop: &Value| (hop["step"].as_str().unwrap().to_owned(), hop["packets"].as_u64().unwrap());
    hops.iter().map(step).collect()
}

#[test]
fn a_live_capture_has_the_published_anatomy_of_a_read_and_a_write() {
    let folder = tempfile::tempdir().unwrap();
    // The published host: payloads of 256 B, completions of 128 B, and interrupts.
    let host = ["--payload-size", "256", "--completion-size", "128", "--interrupts"];
    let load = ["--rw", "randrw", "--bs", "4k", "--iodepth", "1"];
    let (path, _) = captured(folder.path(), &[&host[..], &load].concat());
    let stats = json(&["observe", "trace", "stats", text(&path), "--json"]);
    assert!(stats["confidence"].as_f64().unwrap() > 0.99, "{stats}");
    let commands = succeed(&["observe", "trace", "show", text(&path), "--level", "command", "--json"]);
    let commands: Vec<Value> = commands.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (kind, data) in [("Read", &[("data", 16)][..]), ("Write", &[("data", 16), ("data arrived", 32)])] {
        let before = [("doorbell", 1), ("entry fetch", 1), ("entry", 1)];
        let after = [("completion", 1), ("interrupt", 1), ("head doorbell", 1)];
        let expected: Vec<_> = [&before[..], data, &after]
            .concat()
            .into_iter()
            .map(|(step, count)| (step.to_owned(), count))
            .collect();
        let places: Vec<_> =
            (1..).zip(&commands).filter(|(_, one)| one["command"] == kind).map(|it| it.0).collect();
        assert!(places.len() > 10, "{stats}");
        for place in [places[places.len() / 3], places[places.len() / 2]] {
            assert_eq!(steps_of(&path, place), expected, "{kind} {place}");
        }
    }
}

#[test]
fn a_hardware_analysers_table_has_the_commands_of_the_capture_that_it_was_made_from() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = captured(folder.path(), &["--rw", "randrw", "--bs", "8k", "--iodepth", "4"]);
    let shown = succeed(&["observe", "trace", "show", text(&path), "--json"]);
    let bytes = std::fs::read(&path).unwrap();
    let mut table = "Exported by nobody\nStamp,Way,Bytes\n".to_owned();
    // The frames of our own file, block by block; each line of `show` has the time of one.
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut lines) = (0, shown.lines());
    while at < bytes.len() {
        let length = word(at + 4);
        if word(at) == 6 {
            let frame = &bytes[at + 28..at + 28 + word(at + 20)];
            let line: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
            let hex: String = frame[8..].iter().map(|byte| format!("{byte:02x}")).collect();
            let way = ["Downstream", "Upstream"][usize::from(frame[2])];
            table += &format!("{} ns,{way},{hex}\n", line["at_ns"]);
        }
        at += length;
    }
    let csv = folder.path().join("analyser.csv");
    std::fs::write(&csv, table).unwrap();
    let map = ["--columns", "time=Stamp,direction=Way,tlp=Bytes", "--json"];
    let from_table = json(&[&["observe", "trace", "stats", text(&csv)][..], &map].concat());
    let from_capture = json(&["observe", "trace", "stats", text(&path), "--json"]);
    for key in ["tlps", "bytes", "commands", "confidence", "known"] {
        assert_eq!(from_table[key], from_capture[key], "{key}");
    }
    let wrong = fail(&["observe", "trace", "stats", text(&csv), "--columns", "time=Time,tlp=Bytes"]);
    assert!(wrong.contains("Time") && wrong.contains("Exported by nobody"), "{wrong}");
}

#[test]
fn a_simulated_capture_has_the_published_anatomy_of_a_read_and_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("direct.pcapng");
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/direct.toml");
    let played = json(&["model", "sim", text(&scenario), "--capture", text(&path), "--json"]);
    let stats = json(&["observe", "trace", "stats", text(&path), "--json"]);
    assert_eq!((&stats["confidence"], &stats["time_ran_back"]), (&1.0.into(), &0.into()), "{stats}");
    // The published time lines: 16 MWr or MRd of 256 B each, and 32 CplD of 128 B.
    let read: &[(&str, u64)] = &[
        ("doorbell", 1),
        ("entry fetch", 1),
        ("entry", 1),
        ("data", 16),
        ("completion", 1),
        ("interrupt", 1),
        ("head doorbell", 1),
    ];
    let write = [&read[..4], &[("data arrived", 32)], &read[4..]].concat();
    let commands = succeed(&["observe", "trace", "show", text(&path), "--level", "command", "--json"]);
    let commands: Vec<Value> = commands.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (kind, expected) in [("Read", read), ("Write", &write)] {
        let count = commands.iter().filter(|one| one["command"] == kind).count();
        assert_eq!(count, 1_000, "{kind}");
        let place = commands.iter().position(|one| one["command"] == kind).unwrap();
        for number in [place + 1, place + 500] {
            let chain =
                json(&["observe", "trace", "chain", text(&path), "--command", &number.to_string(), "--json"]);
            let hops = chain["hops"].as_array().unwrap();
            let found: Vec<_> = hops
                .iter()
                .map(|hop| (hop["step"].as_str().unwrap(), hop["packets"].as_u64().unwrap()))
                .collect();
            assert_eq!(found, expected, "{kind} {number}");
        }
        // The simulator counts to the acknowledgement of the last packet, some hundred ns later.
        let chains = json(&["observe", "trace", "chain", text(&path), "--json"]);
        let chains = chains["chains"].as_array().unwrap();
        let chain = chains.iter().find(|one| one["command"] == kind).unwrap();
        let tasks = played["tasks"].as_array().unwrap();
        let task = tasks.iter().find(|one| one["task"] == kind.to_lowercase()).unwrap();
        let [chain, task] = [&chain["whole_ns"]["mean"], &task["mean_ns"]].map(|mean| mean.as_f64().unwrap());
        assert!((0.0..400.0).contains(&(task - chain)), "{kind}: {task} and {chain}");
    }
    let scenario = scenario.with_file_name("fabrics");
    let fabric = std::fs::read_dir(scenario).unwrap().next().unwrap().unwrap().path();
    let refused = fail(&["model", "sim", text(&fabric), "--capture", text(&path)]);
    assert!(refused.contains("no root port"), "{refused}");
}

#[test]
fn words_of_linux_tracers_are_commands_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    let mut words = String::from("# tracer: nop\n");
    for number in 0..100 {
        let cmd = format!("cmd=(nvme_cmd_write slba={}, len=7, ctrl=0x0, dsmgmt=0, reftag=0)", number * 8);
        words += &format!("fio-8 [001] ..... 7.{number:03}000: nvme_setup_cmd: nvme0: disk=nvme0n1, qid=1, ");
        words += &format!("cmdid={number}, nsid=1, flags=0x0, meta=0x0, {cmd}\n");
        words +=
            &format!("<idle>-0 [001] d.h1. 7.{number:03}080: nvme_complete_rq: nvme0: disk=nvme0n1, qid=1, ");
        words += &format!("cmdid={number}, res=0x0, retries=0, flags=0x0, status=0x0\n");
    }
    std::fs::write(&path, words).unwrap();
    let stats = json(&["observe", "trace", "stats", text(&path), "--json"]);
    let writes = &stats["commands"]["write"];
    assert_eq!((&writes["count"], &writes["bytes"]), (&100.into(), &409_600.into()), "{stats}");
    let median = writes["latency_ns"]["p50"].as_u64().unwrap();
    assert!((79_900..=80_100).contains(&median), "{stats}");
    assert_eq!(stats["skipped"]["foreign"], 1, "{stats}");
    let shown = succeed(&["observe", "trace", "chain", text(&path), "--command", "7"]);
    assert!(shown.contains("LBA 48") && shown.contains("completion"), "{shown}");
    let compared = json(&["observe", "trace", "compare", text(&path), text(&path), "--json"]);
    assert_eq!(compared["rows"][0]["significant"], false, "{compared}");
    std::fs::write(&path, "nothing that anybody traced\n").unwrap();
    assert!(fail(&["observe", "trace", "stats", text(&path)]).contains("neither as pcap nor as pcapng"));
}
