//! Captures of running daemons: each packet is in the file or declared as lost, even if the reader
//! or the daemon misbehaves.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::load::assert_verified;
use crate::support::running::{Running, signal, wait_until};
use crate::support::{Export, FARLANE, fail, json, succeed};
use serde_json::Value;

const NQN: &str = "nqn.2026-01.io.farlane:captured";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A daemon with a control socket in a folder of its own.
struct Daemon {
    folder: tempfile::TempDir,
    daemon: Export,
}

impl Daemon {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(&*FARLANE);
        command.args(arguments).args(["--json", "--control"]).arg(folder.path().join("control"));
        Self { daemon: Export::of(command), folder }
    }

    fn export() -> Self {
        Self::start(&["export", "--listen", "127.0.0.1:0", "--ram", "16MiB"])
    }

    fn control(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn capture(&self, out: &Path, further: &[&str]) -> Running {
        let control = self.control();
        Running::start(
            &[&["observe", "capture", text(&control), "--out", text(out), "--json"], further].concat(),
        )
    }

    fn status(&self) -> Vec<Value> {
        let status = json(&["observe", "capture", text(&self.control()), "--status", "--json"]);
        status["captures"].as_array().unwrap().clone()
    }

    /// Waits until so many captures are running.
    fn wait_for(&self, captures: usize) {
        wait_until("captures", || self.status().len() == captures);
    }
}

fn load(url: &str, runtime: &str, further: &[&str]) -> Running {
    let load = ["bench", url, "--rw", "randrw", "--size", "8MiB", "--verify", "--runtime", runtime, "--json"];
    let usual = [["--iodepth", "4"], ["--rate_iops", "500"]];
    let rest =
        usual.into_iter().filter(|[option, _]| !further.contains(option)).flatten().collect::<Vec<_>>();
    Running::start(&[&load[..], &rest, further].concat())
}

/// Ends a capture in good order; returns its report, and the statistics of `trace stats` about its
/// file.
fn end(daemon: &Daemon, capture: Running, out: &Path) -> (Value, Value) {
    capture.signal("INT");
    let (report, said) = capture.json();
    let stats = json(&["observe", "trace", "stats", text(out), "--json"]);
    assert_eq!(stats["lost"], report["lost"], "{said}");
    assert_eq!(report["out"], text(out));
    daemon.wait_for(0);
    (report, stats)
}

#[test]
fn a_capture_from_the_middle_of_a_load_knows_its_commands_and_declares_what_is_lost() {
    let daemon = Daemon::export();
    let load = load(&daemon.daemon.url(), "4s", &[]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let out = daemon.file("out.pcapng");
    let capture = daemon.capture(&out, &[]);
    daemon.wait_for(1);
    wait_until("packets", || daemon.status().iter().any(|one| one["packets"].as_u64().unwrap() > 1_000));
    let (report, stats) = end(&daemon, capture, &out);
    assert_verified(load);
    let count = |key: &str| report[key].as_u64().unwrap();
    assert_eq!(count("packets") + count("lost"), count("passed"), "{report}");
    assert_eq!(stats["tlps"], report["packets"], "{stats}");
    assert_eq!(report["trigger"], Value::Null);
    // The set-up of the controller was before the capture: the daemon has reported the places of
    // its queues.
    assert_eq!(stats["inferred"], 0, "{stats}");
    for kind in ["read", "write"] {
        let of = |key: &str| stats["commands"][kind][key].as_u64().unwrap();
        assert!(of("count") > 50, "{stats}");
        assert_eq!(of("blocks"), of("count") * 8, "{stats}");
    }
    if report["lost"] == 0 {
        assert!(stats["confidence"].as_f64().unwrap() > 0.9, "{stats}");
    }
}

#[test]
fn filters_keep_what_they_name_and_nothing_else() {
    let daemon = Daemon::export();
    // Long enough for three captures, one after the other, on a busy machine. One command at a
    // time: a packet with the completions of a read and a write is one of the read's, too.
    let load = load(&daemon.daemon.url(), "8s", &["--iodepth", "1"]);
    let taken = |name: &str, further: &[&str]| {
        let out = daemon.file(name);
        let (report, _) = daemon.capture(&out, &[&["--count", "200"], further].concat()).json();
        assert_eq!(report["packets"], 200, "{report}");
        let shown = succeed(&["observe", "trace", "show", text(&out), "--json"]);
        let lines: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines, json(&["observe", "trace", "stats", text(&out), "--json"]))
    };
    let (_, stats) = taken("reads", &["--opcode", "read"]);
    let commands = stats["commands"].as_object().unwrap();
    assert_eq!(commands.keys().collect::<Vec<_>>(), ["read"], "{stats}");
    let (_, stats) = taken("snapped", &["--snap", "0"]);
    assert_eq!((&stats["skipped"]["malformed"], &stats["tlps"]), (&0.into(), &200.into()), "{stats}");
    let (lines, _) = taken("completions", &["--kind", "completion"]);
    assert_eq!(lines.len(), 200);
    for line in lines {
        assert!(line.to_string().contains("Cpl"), "{line}");
    }
    assert_verified(load);
}

#[test]
fn a_trigger_ends_the_capture_and_the_ring_has_its_command() {
    let daemon = Daemon::export();
    let load = load(&daemon.daemon.url(), "2s", &[]);
    let out = daemon.file("slow.pcapng");
    let ring = ["--ring", "64KiB", "--trigger", "latency>1ns", "--after", "1ms"];
    let (report, _) = daemon.capture(&out, &ring).json();
    assert!(report["trigger"]["latency_ns"].as_u64().unwrap() > 1, "{report}");
    assert!(report["bytes"].as_u64().unwrap() <= 64 << 10, "{report}");
    let stats = json(&["observe", "trace", "stats", text(&out), "--json"]);
    assert!(stats["known"].as_u64().unwrap() > 0, "{stats}");
    assert_verified(load);
    let wrong = fail(&["observe", "capture", "--out", "x", "--trigger", "rate>1"]);
    assert!(wrong.contains("latency>2ms"), "{wrong}");
}

#[test]
fn several_captures_run_at_once_and_one_too_many_is_refused() {
    let daemon = Daemon::export();
    let outs: Vec<_> = (0..4).map(|number| daemon.file(&number.to_string())).collect();
    let captures: Vec<_> = outs.iter().map(|out| daemon.capture(out, &[])).collect();
    daemon.wait_for(4);
    let refused = daemon.capture(&daemon.file("fifth"), &[]).fail();
    assert!(refused.contains("4 captures are running"), "{refused}");
    assert_verified(load(&daemon.daemon.url(), "300ms", &[]));
    let stopped = json(&["observe", "capture", text(&daemon.control()), "--stop", "--json"]);
    assert_eq!(stopped["stopped"].as_array().unwrap().len(), 4, "{stopped}");
    let reports: Vec<_> = captures.into_iter().map(|capture| capture.json().0).collect();
    for (report, out) in reports.iter().zip(&outs) {
        assert_eq!(report["passed"], reports[0]["passed"], "{reports:?}");
        // From the first packet on: the capture itself has the queues.
        assert!(json(&["observe", "trace", "stats", text(out), "--json"])["known"].as_u64().unwrap() > 0);
    }
    daemon.wait_for(0);
}

#[test]
fn a_reader_that_is_killed_or_stopped_harms_no_host() {
    let daemon = Daemon::export();
    // The daemon itself writes a capture without a choice, so a reader that sleeps holds up
    // nothing.
    let choosing = ["--count", "1000000000"];
    // The daemon knows them in the order in which they came.
    let [killed, asleep, reader, idle] = [("a", &[][..]), ("b", &choosing), ("c", &choosing), ("d", &[])]
        .map(|(name, further)| {
            let running = daemon.status().len();
            let capture = daemon.capture(&daemon.file(name), further);
            daemon.wait_for(running + 1);
            capture
        });
    asleep.signal("STOP");
    idle.signal("STOP");
    let url = daemon.daemon.url();
    let bench = ["bench", &url, "--iodepth", "8", "--runtime", "4s", "--rate_iops", "4000", "--json"];
    let load = Running::start(&bench);
    killed.signal("KILL");
    reader.signal("KILL");
    daemon.wait_for(2);
    assert_eq!(load.json().0["errors"], 0);
    // Packets that do not fit are counted. On a busy machine, it may take further loads until then.
    wait_until("losses", || {
        let has_lost = daemon.status()[0]["lost"].as_u64().unwrap() > 0;
        if !has_lost {
            assert_eq!(json(&bench)["errors"], 0);
        }
        has_lost
    });
    let of_idle = &daemon.status()[1];
    assert!(of_idle["packets"].as_u64().unwrap() > 1_000 && of_idle["lost"] == 0, "{of_idle}");
    idle.signal("CONT");
    idle.signal("INT");
    assert_eq!(idle.json().0["lost"], 0);
    asleep.signal("CONT");
    let (report, stats) = end(&daemon, asleep, &daemon.file("b"));
    assert!(report["lost"].as_u64().unwrap() > 0, "{report}");
    assert!(stats["tlps"].as_u64().unwrap() > 0);
}

#[test]
fn a_full_disk_and_a_daemon_that_ends_are_said() {
    let mut daemon = Daemon::export();
    for further in [&[][..], &["--count", "1000000000"]] {
        let capture = daemon.capture(Path::new("/dev/full"), further);
        assert_verified(load(&daemon.daemon.url(), "300ms", &[]));
        let said = capture.fail();
        assert!(said.contains("No space left"), "{said}");
        daemon.wait_for(0);
    }
    let (ended, cut) = (daemon.file("ended"), daemon.file("cut"));
    let capture = daemon.capture(&ended, &[]);
    daemon.wait_for(1);
    assert_verified(load(&daemon.daemon.url(), "300ms", &[]));
    // In good order, the capture has its end.
    daemon.daemon.end_by("TERM");
    assert!(capture.json().0["packets"].as_u64().unwrap() > 0);
    let daemon = Daemon::export();
    let capture = daemon.capture(&cut, &[]);
    daemon.wait_for(1);
    assert_verified(load(&daemon.daemon.url(), "300ms", &[]));
    // Packets in the daemon's queue when it is killed are lost.
    wait_until("packets are written", || std::fs::metadata(&cut).is_ok_and(|it| it.len() > 100_000));
    signal(daemon.daemon.id(), "KILL");
    let said = capture.fail();
    assert!(said.contains("ended in the middle"), "{said}");
    for out in [ended, cut] {
        let stats = json(&["observe", "trace", "stats", text(&out), "--json"]);
        assert!(stats["known"].as_u64().unwrap() > 0, "{}: {stats}", out.display());
    }
}

#[test]
fn unknown_daemons_and_captures_that_are_impossible_are_reported() {
    let absent = fail(&["observe", "capture", "4000000000", "--out", "x"]);
    assert!(absent.contains("farlane observe list"), "{absent}");
    let daemon = Daemon::start(&["target", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "16MiB"]);
    let said = daemon.capture(&daemon.file("x"), &["--kind", "read"]).fail();
    assert!(said.contains("--kind") && said.contains("--queue"), "{said}");
    let said = fail(&["observe", "capture", text(&daemon.control()), "--out", "-", "--json"]);
    assert!(said.contains("--json"), "{said}");
}

#[test]
fn a_guests_ssd_shows_each_step_by_packets_and_goes_on_without_them_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ssd.sock");
    let device = ["offer", "device", "--ram", "16MiB", "--vfio-user", text(&socket), "--cores"];
    let several = Daemon::start(&[&device[..], &["2"]].concat());
    let said = several.capture(&several.file("x"), &[]).fail();
    assert!(said.contains("several threads") && said.contains("--cores 1"), "{said}");
    drop(several);
    let daemon = Daemon::start(&[&device[..], &["1"]].concat());
    let load = load(&format!("vfio-user:{}", text(&socket)), "4s", &[]);
    let out = daemon.file("out.pcapng");
    let capture = daemon.capture(&out, &[]);
    daemon.wait_for(1);
    wait_until("packets", || daemon.status().iter().any(|one| one["packets"].as_u64().unwrap() > 1_000));
    let (_, stats) = end(&daemon, capture, &out);
    assert_verified(load);
    assert!(stats["commands"]["read"]["count"].as_u64().unwrap() > 0, "{stats}");
    assert!(stats["confidence"].as_f64().unwrap() > 0.9, "{stats}");
}

/// The output of tshark about `file`; none where there is no tshark.
fn tshark(file: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("tshark").arg("-r").arg(file).args(arguments).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn wireshark_reads_a_targets_capture_and_finds_good_checksums_and_nothing_malformed() {
    for cores in ["1", "2"] {
        let daemon = Daemon::start(&[
            "target",
            "--listen",
            "127.0.0.1:0",
            "--nqn",
            NQN,
            "--ram",
            "16MiB",
            "--cores",
            cores,
        ]);
        let (all, queue) = (daemon.file("all.pcapng"), daemon.file("queue.pcapng"));
        let (capture, of_queue) = (daemon.capture(&all, &[]), daemon.capture(&queue, &["--queue", "1"]));
        daemon.wait_for(2);
        let url = format!("nvme-tcp://{}/{NQN}", daemon.daemon.address);
        // A transfer of 128 KiB is several segments, some of them longer than an Ethernet frame.
        assert_verified(load(&url, "300ms", &["--bs", "128k", "--rate_iops", "100"]));
        of_queue.signal("INT");
        assert!(of_queue.json().0["packets"].as_u64().unwrap() > 0);
        let (report, stats) = end(&daemon, capture, &all);
        assert_eq!((&report["lost"], &stats["gaps"]), (&0.into(), &0.into()), "{stats}");
        assert_eq!(stats["unexpected_completions"], 0, "{stats}");
        assert!(stats["commands"]["write"]["count"].as_u64().unwrap() > 0, "{stats}");
        assert!(stats["commands"]["fabrics: connect"]["count"].as_u64().unwrap() >= 2, "{stats}");
        let filtered = json(&["observe", "trace", "stats", text(&queue), "--json"]);
        assert!(filtered["pdus"].as_u64() < stats["pdus"].as_u64(), "{filtered}");
        let port = daemon.daemon.address.rsplit(':').next().unwrap();
        let decoded = format!("tcp.port=={port},nvme-tcp");
        let checked = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-d", &decoded];
        let wrong = "_ws.malformed || _ws.expert.group == 0x07000000 || tcp.analysis.flags || \
                     tcp.checksum.status != 1 || ip.checksum.status != 1 || nvme-tcp.hdgst.status == 0";
        let Some(found) = tshark(&all, &[&checked[..], &["-Y", wrong]].concat()) else {
            let _ = writeln!(io::stderr(), "SKIPPED Wireshark on a target's capture: there is no tshark");
            return;
        };
        assert_eq!(found, "");
        let fields = ["-Y", "nvme-tcp", "-T", "fields", "-e", "nvme-tcp.type"];
        let types = tshark(&all, &[&checked[..], &fields].concat()).unwrap();
        let count = types.split([',', '\n']).filter(|one| !one.is_empty()).count();
        assert_eq!(stats["pdus"], count, "tshark finds other PDUs");
    }
}
