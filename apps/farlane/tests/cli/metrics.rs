//! The metrics of daemons, tried with Prometheus itself where there is one.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::figures::{Figures, asked};
use crate::support::running::wait_until;
use crate::support::{Export, FARLANE, fail, json};
use serde_json::Value;

const NQN: &str = "nqn.2024-01.io.farlane:figures";
const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];
const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../share/grafana/farlane.json");

/// A daemon with figures.
struct Daemon {
    process: Export,
    figures: Figures,
}

impl Daemon {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(&*FARLANE);
        command.args(arguments).args(METRICS).arg("--json");
        let process = Export::of(command);
        let figures = Figures::of(|| process.said());
        Self { process, figures }
    }

    fn target(more: &[&str]) -> Self {
        let control = tempfile::tempdir().unwrap();
        let control = control.path().join("control").to_str().unwrap().to_owned();
        let offer =
            ["target", "--listen", "127.0.0.1:0", "--nqn", NQN, "--no-sandbox", "--control", &control];
        Self::start(&[&offer, more].concat())
    }

    fn far_end() -> Self {
        Self::start(&["export", "--listen", "127.0.0.1:0", "--ram", "16MiB"])
    }

    /// The URL of what a target offers.
    fn subsystem(&self) -> String {
        format!("nvme-tcp://{}/{NQN}", self.process.address)
    }
}

/// Checks what OpenMetrics asks of a page: each family is announced once, with its type, before all
/// of its figures.
fn assert_is_well_formed(page: &str) {
    let (mut known, mut family) = (BTreeSet::new(), "");
    assert!(page.ends_with("# EOF\n"), "{page}");
    for line in page.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(known.insert(name), "{name} comes twice");
            family = name;
        } else if !line.starts_with("# HELP ") {
            let name = line.split(['{', ' ']).next().unwrap();
            let of_family = ["", "_total", "_sum", "_count", "_bucket"];
            assert!(of_family.iter().any(|end| name.strip_suffix(end) == Some(family)), "{line} in {family}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
}

#[test]
fn a_target_reports_the_work_of_each_namespace_and_each_host() {
    let target = Daemon::target(&["--ram", "16MiB", "--ram", "16MiB", "--cores", "2"]);
    let (url, figures) = (target.subsystem(), &target.figures);
    let load = |rw: &str| {
        let load = ["--rw", rw, "--bs", "4k", "--iodepth", "4", "--runtime", "300ms", "--json"];
        let report = json(&[&["bench", &url][..], &load].concat());
        assert_eq!(report["errors"], 0, "{report}");
    };
    load("randwrite");
    let written = figures.sum("farlane_namespace_commands_total", &["nsid=\"1\"", "command=\"write\""]);
    assert!(written > 0.0);
    let bytes = figures.sum("farlane_namespace_bytes_total", &["command=\"write\""]);
    assert_eq!(bytes, written * 4096.0, "each write has 4 KiB");
    load("randread");
    // The bench ends its own queues, so that its host is gone with its figures once the target has
    // seen the end of its connections.
    wait_until("the host is gone", || {
        !figures.page().contains("farlane_host_commands_total")
            && figures.sum("farlane_connections", &[]) == 0.0
    });
    let page = figures.page();
    assert_is_well_formed(&page);
    assert!(!page.contains("farlane_host_commands_total"), "{page}");
    for command in ["read", "write"] {
        let command = format!("command=\"{command}\"");
        let count = figures.sum("farlane_namespace_commands_total", &[&command]);
        let of = |name: &str, phase: &str| {
            let phase = format!("phase=\"{phase}\"");
            figures.sum(&format!("farlane_namespace_seconds_{name}"), &[&command, &phase])
        };
        assert_eq!(of("count", "whole"), count);
        let parts = of("sum", "link") + of("sum", "medium") + of("sum", "wait");
        assert!((parts - of("sum", "whole")).abs() < 1e-6, "the phases are the whole");
        let endless = ["le=\"+Inf\"", "phase=\"whole\"", &command];
        assert_eq!(figures.sum("farlane_namespace_seconds_bucket", &endless), count);
    }
    assert_eq!(figures.sum("farlane_connections", &[]), 0.0);
    assert!(figures.sum("process_resident_memory_bytes", &[]) > 1e6);
    assert!(figures.sum("process_cpu_seconds_total", &[]) > 0.0);
    assert!(figures.sum("farlane_loop_lag_seconds", &["core=\"1\""]) < 5.0);
}

#[test]
fn a_host_has_metrics_while_it_is_there_and_failures_by_their_status() {
    let target = Daemon::target(&["--ram", "16MiB"]);
    let (url, figures) = (target.subsystem(), &target.figures);
    let url = format!("{url}?hostnqn=nqn.2024-01.io.farlane:someone");
    let load = ["bench", &url, "--rw", "randrw", "--runtime", "20s"];
    let load = crate::support::running::Running::start(&load);
    let host = "host=\"nqn.2024-01.io.farlane:someone\"";
    wait_until("the host works", || {
        figures.page().contains(host) && figures.sum("farlane_host_commands_total", &[host]) > 0.0
    });
    assert!(figures.sum("farlane_host_queues", &[host]) >= 2.0);
    assert_eq!(figures.sum("farlane_host_ready", &[host]), 1.0);
    assert!(figures.sum("farlane_host_round_trip_seconds", &[host]) > 0.0);
    assert!(figures.sum("farlane_host_retransmissions_total", &[host]) >= 0.0);
    assert_is_well_formed(&figures.page());
    drop(load);
    wait_until("the host is gone", || !figures.page().contains(host));
}

#[test]
fn a_far_end_reports_its_link_and_its_ssd_and_so_does_the_guests_end() {
    let far = Daemon::far_end();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ssd").to_str().unwrap().to_owned();
    let attach =
        Daemon::start(&["attach", &format!("tcp://{}", far.process.address), "--vfio-user", &socket]);
    let device = format!("vfio-user:{socket}");
    let load = ["--rw", "randread", "--bs", "4k", "--runtime", "300ms", "--json"];
    let report = json(&[&["bench", &device][..], &load].concat());
    assert_eq!(report["errors"], 0, "{report}");
    let reads = far.figures.sum("farlane_namespace_commands_total", &["command=\"read\"", "nsid=\"1\""]);
    assert!(reads > 0.0);
    for figures in [&far.figures, &attach.figures] {
        assert_is_well_formed(&figures.page());
        assert!(figures.sum("farlane_link_packets_sent_total", &[]) > 0.0);
        assert_eq!(figures.sum("farlane_link_resumptions_total", &[]), 0.0);
        let round_trip = figures.sum("farlane_tcp_round_trip_seconds", &["connection=\"0\""]);
        assert!(round_trip > 0.0 && round_trip < 1.0, "{round_trip}");
        assert!(figures.sum("farlane_tcp_retransmissions_total", &["connection=\"0\""]) >= 0.0);
    }
    assert!(attach.figures.sum("farlane_lookahead_entries_total", &[]) > 0.0);
    assert!(far.figures.sum("farlane_far_reads_hits_total", &["far_end=\"tcp://"]) > 0.0);
    assert!(attach.figures.sum("farlane_guest_register_accesses_total", &[]) > 0.0);
}

#[test]
fn a_device_beside_its_host_has_figures_too() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ssd").to_str().unwrap().to_owned();
    let device = ["offer", "device", "--vfio-user", &socket, "--ram", "16MiB", "--cores", "2"];
    let device = Daemon::start(&device);
    let url = format!("vfio-user:{socket}");
    json(&["bench", &url, "--rw", "randread", "--runtime", "200ms", "--json"]);
    let reads = device.figures.sum("farlane_namespace_commands_total", &["command=\"read\""]);
    assert!(reads > 0.0);
    assert!(device.figures.sum("farlane_controller_commands_total", &[]) >= reads);
    // The only I/O queue is at the thread that has fewest.
    assert!(device.figures.sum("farlane_core_commands_total", &["core=\"1\""]) >= reads);
    assert_is_well_formed(&device.figures.page());
}

#[test]
fn an_address_that_cannot_be_had_is_named_and_bad_requests_end_alone() {
    let refused = fail(&["target", "--nqn", NQN, "--ram", "1MiB", "--metrics", "192.0.2.1:1"]);
    assert!(refused.contains("--metrics 192.0.2.1:1") && refused.contains("127.0.0.1:0"), "{refused}");
    let target = Daemon::target(&["--ram", "1MiB"]);
    for request in ["\0\0\0\0\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\n", "GET /metricsx HTTP/1.1\r\n\r\n"] {
        assert!(asked(&target.figures.address, request).starts_with("HTTP/1.1 404"), "{request:?}");
    }
    assert_eq!(asked(&target.figures.address, &"x".repeat(5_000)), "");
    assert_is_well_formed(&target.figures.page());
}

/// The expressions of the dashboard's panels, for a server that has watched for some seconds.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_slice(&std::fs::read(DASHBOARD).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap())
        .map(|query| query.replace("$__rate_interval", "4s").replace("$instance", ".*"))
        .collect()
}

/// A Prometheus that watches daemons, killed when dropped.
struct Prometheus {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn watching(program: &Path, daemons: &[&Daemon]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let targets: Vec<_> = daemons.iter().map(|daemon| format!("'{}'", daemon.figures.address)).collect();
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: farlane\n  static_configs:\n  \
             - targets: [{}]\n",
            targets.join(", ")
        );
        std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let child = Command::new(program)
            .current_dir(&folder)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, address, _folder: folder }
    }

    fn query(&self, query: &str) -> Option<Vec<Value>> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        std::net::TcpStream::connect(&self.address).ok()?;
        let request = format!("GET /api/v1/query?query={escaped} HTTP/1.0\r\n\r\n");
        let answer = asked(&self.address, &request);
        let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_reads_the_figures_and_answers_every_query_of_the_dashboard() {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/strangers/prometheus/usr/bin");
    let places = [fetched.join("prometheus"), PathBuf::from("/usr/bin/prometheus")];
    let Some(prometheus) = places.into_iter().find(|path| path.exists()) else {
        println!("SKIPPED: Prometheus is not here; `scripts/setup --tests` fetches it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ssd").to_str().unwrap().to_owned();
    let target = Daemon::target(&["--ram", "16MiB"]);
    let far = Daemon::far_end();
    let attach =
        Daemon::start(&["attach", &format!("tcp://{}", far.process.address), "--vfio-user", &socket]);
    let (subsystem, device) = (target.subsystem(), format!("vfio-user:{socket}"));
    let load = |url: &str| {
        crate::support::running::Running::start(&["bench", url, "--rw", "randrw", "--runtime", "60s"])
    };
    let _loads = (load(&subsystem), load(&device));
    let watching = Prometheus::watching(&prometheus, &[&target, &far, &attach]);
    wait_until("Prometheus has read all three", || {
        let up = watching.query("sum(up)").unwrap_or_default();
        up.first().is_some_and(|one| one["value"][1] == "3")
    });
    // No command fails here, so no status has a figure.
    for query in queries() {
        let may_be_empty = query.contains("farlane_namespace_statuses_total");
        wait_until(&query, || {
            let result = watching.query(&query).unwrap_or_default();
            let is_number = |one: &Value| one["value"][1].as_str().is_some_and(|value| value != "NaN");
            may_be_empty || result.iter().any(is_number)
        });
    }
}
