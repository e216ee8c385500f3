//! `farlane model emulate`: a modelled network between two live ends.

use std::path::PathBuf;
use std::process::Command;

use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, fail, farlane, json};
use serde_json::Value;
use tempfile::TempDir;

/// A network in front of a far end or a target.
struct Emulated {
    process: Export,
    _directory: TempDir,
}

impl Emulated {
    fn between(to: &str, link: &str) -> Self {
        let (directory, path) = file(link);
        let mut command = Command::new(&*FARLANE);
        command.args(["model", "emulate", "--connect", to, "--json", "--seed", "7", "--link"]).arg(path);
        Self { process: Export::of(command), _directory: directory }
    }

    fn url(&self) -> String {
        self.process.url()
    }

    /// Interrupts the emulator, as a person would. Returns its last counters.
    fn end(mut self) -> Value {
        let (status, said) = self.process.end_by("INT");
        assert_eq!(status, Some(0), "{said}");
        loop {
            let counters = self.process.next_line();
            if counters["end"] == true {
                return counters;
            }
        }
    }
}

/// A link file whose text is `link`, and its directory.
fn file(link: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("link.toml");
    std::fs::write(&path, link).unwrap();
    (directory, path)
}

#[test]
fn a_ping_takes_the_time_of_the_model() {
    let far = Export::start(&["--ram", "1MiB"]);
    let network = Emulated::between(&far.address, "[link]\nlatency = \"10ms\"\nrate = \"1Gbit/s\"\n");
    let ping = json(&["measure", "ping", &network.url(), "--count", "20", "--json"]);
    let least = ping["latency_ns"]["p50"].as_u64().unwrap();
    assert!((20_000_000..60_000_000).contains(&least), "{ping}");
    let counters = network.end();
    assert_eq!(counters["connections"], 1);
    assert!(counters["there"]["frames"].as_u64().unwrap() >= 20, "{counters}");
    assert_eq!(counters["there"]["lost"], 0);
}

/// Writes bytes to the namespace at `url`, and checks that they are read back.
fn copy(url: &str, bytes: usize) {
    let noise: Vec<u8> =
        (0..bytes as u64).flat_map(|i| (i.wrapping_mul(0x9e37_79b9)).to_le_bytes()).collect();
    let noise = &noise[..bytes];
    let (written, _) = Running::fed(&["use", "write", url, "--json"], noise.to_vec()).json();
    assert_eq!(written["bytes"], bytes);
    let length = bytes.to_string();
    let read = Running::start(&["use", "read", url, "--length", &length]).output();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    assert!(read.stdout == noise);
}

#[test]
fn it_says_how_late_it_was() {
    let far = Export::start(&["--ram", "1MiB"]);
    let network = Emulated::between(&far.address, "[link]\nlatency = \"5ms\"\n");
    json(&["measure", "ping", &network.url(), "--count", "50", "--json"]);
    let late = network.end()["late_ns"].clone();
    assert!(late["count"].as_u64().unwrap() >= 100, "{late}");
    // How late it was depends on the machine, which may have other work.
    assert!(late["p50"].is_u64() && late["p99"].is_u64(), "{late}");
}

#[test]
fn the_demo_runs_over_it_beside_what_is_simulated() {
    let link = "[link]\nlatency = \"2ms\"\nrate = \"1Gbit/s\"\n\n[[task]]\nkind = \"read\"\n";
    let (_directory, path) = file(link);
    let path = path.to_str().unwrap();
    let arguments = ["demo", "--link", path, "--size", "1MiB", "--runtime", "100ms"];
    let figures = ["config_read_ns", "read_4k_ns", "write_4k_ns"];
    for (more, round_trips) in [(&["--json"][..], [1, 1, 1]), (&["--json", "--no-lookahead"], [1, 2, 3])] {
        let demo = json(&[&arguments[..], more].concat());
        let verified = (&demo["verified"], &demo["bytes"], &demo["lookahead"]);
        assert_eq!(verified, (&true.into(), &(1 << 20).into(), &(more.len() == 1).into()), "{demo}");
        assert!(demo.get("floor").is_none(), "{demo}");
        let over = &demo["over"];
        for (figure, round_trips) in figures.into_iter().zip(round_trips) {
            let [emulated, simulated] =
                [&demo["tunnel"], &over["simulated"]].map(|place| place[figure]["p50"].as_u64().unwrap());
            let least = 4_000_000 * round_trips;
            // The machine may have other work; the simulation has none.
            assert!(emulated >= least && (least..least + 1_000_000).contains(&simulated), "{figure}: {demo}");
        }
        assert!(
            over["late_ns"]["count"].as_u64().unwrap() > 100 && over["frames"].as_u64().unwrap() > 100,
            "{over}"
        );
    }
    let text = crate::support::succeed(&arguments);
    assert!(text.contains("simulated") && text.contains(path) && !text.contains("raw TCP"), "{text}");
    assert!(text.contains("Lookahead: ") && text.contains("goes without lookahead (medians"), "{text}");
    let said = fail(&["demo", "--link", "/nowhere/link.toml"]);
    assert!(said.contains("/nowhere/link.toml") && said.contains("No such file"), "{said}");
}

#[test]
fn a_file_comes_back_as_it_was() {
    let far = Export::start(&["--ram", "16MiB"]);
    let network = Emulated::between(&far.address, "[link]\nlatency = \"1ms\"\nrate = \"1Gbit/s\"\n");
    copy(&network.url(), 4 << 20);
    let counters = network.end();
    assert!(counters["there"]["bytes"].as_u64().unwrap() > 4 << 20, "{counters}");
    assert!(counters["back"]["bytes"].as_u64().unwrap() > 4 << 20, "{counters}");
}

#[test]
fn a_load_is_verified_over_a_bad_link() {
    let far = Export::start(&["--ram", "16MiB"]);
    let link = "[link]\nlatency = \"2ms\"\nrate = \"200Mbit/s\"\nloss = \"1%\"\nreorder = \"1%\"\nreorder_by = \"1ms\"\n";
    let network = Emulated::between(&far.address, link);
    let mut arguments = vec!["bench".to_owned(), network.url()];
    let load = "--rw randwrite --iodepth 8 --size 8MiB --verify --runtime 2s --json";
    arguments.extend(load.split(' ').map(str::to_owned));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (report, said) = Running::start(&arguments).json();
    assert_eq!((&report["errors"], &report["verified"]), (&Value::from(0), &Value::from(true)), "{said}");
    let counters = network.end();
    assert!(counters["there"]["lost"].as_u64().unwrap() > 0, "{counters}");
    assert!(counters["retransmitted"].as_u64().unwrap() > 0, "{counters}");
}

#[test]
fn a_target_of_nvme_over_tcp_is_used_through_it() {
    const NQN: &str = "nqn.2026-01.io.farlane:emulated";
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "16MiB"]);
    let directory = tempfile::tempdir().unwrap();
    command.arg("--control").arg(directory.path().join("control"));
    let target = Export::of(command);
    let network =
        Emulated::between(&target.address, "[link]\nlatency = \"1ms\"\nrate = \"1Gbit/s\"\ntcp = \"npap\"\n");
    copy(&format!("nvme-tcp://{}/{NQN}", network.process.address), 2 << 20);
    assert!(network.end()["connections"].as_u64().unwrap() >= 2);
}

#[test]
fn a_far_end_that_is_killed_is_gone_for_the_host_too() {
    let mut far = Export::start(&["--ram", "1MiB", "--hold", "1s"]);
    let network = Emulated::between(&far.address, "[link]\nlatency = \"1ms\"\n");
    let ping = Running::start(&["measure", "ping", &network.url(), "--count", "1000000", "--timeout", "5s"]);
    network.process.wait_for("connected");
    wait_until("the host is there", || far.said().contains("link up"));
    far.kill();
    let said = ping.fail();
    assert!(said.contains("the far end"), "{said}");
    wait_until("the connection is over", || {
        let said = network.process.said();
        said.contains("reset") || said.contains("closed")
    });
    // No process listens any more: later connections are refused.
    fail(&["measure", "ping", &network.url(), "--timeout", "300ms"]);
    network.process.wait_for("refused: the other end: Connection refused");
    network.end();
}

#[test]
fn a_root_complex_that_waits_for_less_than_a_round_trip_finds_nothing() {
    let far = Export::start(&["--ram", "1MiB"]);
    let network = Emulated::between(&far.address, "[link]\nlatency = \"10ms\"\n");
    let directory = tempfile::tempdir().unwrap();
    let attach = |name: &str, timeout: &str| {
        let mut command = Command::new(&*FARLANE);
        command.args(["attach", &network.url(), "--json", "--completion-timeout", timeout, "--vfio-user"]);
        command.arg(directory.path().join(name));
        (Export::of(command), format!("vfio-user:{}", directory.path().join(name).display()))
    };
    let (mut near, url) = attach("impatient", "10ms");
    near.wait_for("completion timeout: configuration read of ");
    let said = fail(&["nvme", "identify", &url]);
    assert!(said.contains("it is no NVMe controller"), "{said}");
    let (status, said) = near.end_by("TERM");
    assert!(status == Some(0) && said.contains("at 0x000: no answer within 10 ms"), "{said}");
    assert!(said.contains("the guest's slot is empty") && said.contains(" completion timeouts: "), "{said}");
    let reported = near.next_line();
    assert!(reported["completion_timeouts"].as_u64().unwrap() > 0, "{reported}");
    // The timeout is long, since the machine may have other work.
    let (mut near, url) = attach("patient", "3.5s");
    let identified = json(&["nvme", "identify", &url, "--json"]);
    assert!(identified["controller"]["mn"].as_str().unwrap().starts_with("Farlane"), "{identified}");
    near.end_by("TERM");
    let reported = near.next_line();
    assert_eq!(
        (&reported["completion_timeouts"], reported["lookahead"].is_object()),
        (&0.into(), true),
        "{reported}"
    );
    let said = fail(&["attach", "tcp://127.0.0.1:1", "--vfio-user", "x", "--completion-timeout", "11ms"]);
    assert!(said.contains("100 µs, 10 ms, 55 ms"), "{said}");
}

#[test]
fn a_link_that_cannot_be_is_explained() {
    for (link, words) in [
        ("[link]\nlatency = \"10\"\n", ["line 2", "latency", "expected a time with its unit"]),
        ("[link]\nlatency = \"1ms\"\nspeed = \"1Gbit/s\"\n", ["line 3", "speed", "expected one of"]),
        ("[link]\nlatency = \"1ms\"\ntcp = \"bsd\"\n", ["line 3", "tcp", "'linux' or 'npap'"]),
    ] {
        let (_directory, path) = file(link);
        let path = path.to_str().unwrap();
        let output = farlane(&["model", "emulate", "--connect", "127.0.0.1:1", "--link", path]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    let said = fail(&["model", "emulate", "--connect", "127.0.0.1:1", "--link", "/nowhere/link.toml"]);
    assert!(said.contains("/nowhere/link.toml") && said.contains("No such file"), "{said}");
    let (_directory, path) = file("[link]\nlatency = \"1ms\"\n");
    let said = fail(&["model", "emulate", "--connect", "nowhere", "--link", path.to_str().unwrap()]);
    assert!(said.contains("--connect nowhere"), "{said}");
}
