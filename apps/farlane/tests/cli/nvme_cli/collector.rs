//! The metrics of Prometheus's node exporter about NVMe devices come from `nvme version`, `nvme
//! list` and `nvme smart-log`, the last two with `--output-format json`. A collector that asks
//! farlane instead, by the same calls, finds the same names.

use std::process::Command;

use serde_json::Value;

use super::NQN;
use super::verbs::found;
use crate::support::{Export, FARLANE, fail, succeed};

/// Counters of the health log. Collectors convert each, as it may be a number or its digits.
const COUNTERS: [&str; 11] = [
    "data_units_read",
    "data_units_written",
    "host_read_commands",
    "host_write_commands",
    "media_errors",
    "num_err_log_entries",
    "power_cycles",
    "power_on_hours",
    "controller_busy_time",
    "unsafe_shutdowns",
    "critical_warning",
];
/// Values of the health log with which collectors calculate: percentages, and kelvins.
const GAUGES: [&str; 4] = ["avail_spare", "spare_thresh", "percent_used", "temperature"];

fn counter(value: &Value) -> Option<u128> {
    value.as_str().map_or_else(|| value.as_u64().map(u128::from), |digits| digits.parse().ok())
}

#[test]
fn a_collector_of_metrics_finds_what_it_finds_in_nvme_cli() {
    let folder = tempfile::tempdir().unwrap();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(&*FARLANE);
        command.args(arguments).args(["--listen", "127.0.0.1:0", "--json", "--no-sandbox"]);
        command.env("XDG_RUNTIME_DIR", folder.path());
        Export::of(command)
    };
    assert_eq!(succeed(&["nvme", "version"]), format!("farlane version {}\n", env!("CARGO_PKG_VERSION")));
    let far = start(&["export", "--ram", "8MiB", "--ram", "8MiB"]);
    let target = start(&["target", "--nqn", NQN, "--ram", "4MiB,block=4096"]);
    let list = found(folder.path(), &["list", "--output-format", "json"]);
    let devices = list["Devices"].as_array().unwrap();
    let mut paths: Vec<_> = devices.iter().map(|device| device["DevicePath"].as_str().unwrap()).collect();
    paths.sort_unstable();
    // Of a controller with two namespaces, each has a path of its own: a collector adds the
    // counters of one path to one series.
    let [one, two] = [1, 2].map(|id| format!("{},nsid={id}", far.url()));
    assert_eq!(paths, [format!("nvme-tcp://{}/{NQN},nsid=1", target.address), one, two.clone()]);
    for device in devices {
        for name in ["ModelNumber", "Firmware", "SerialNumber"] {
            assert!(device[name].as_str().is_some_and(|text| !text.trim().is_empty()), "{name} of {device}");
        }
        let number = |name: &str| device[name].as_u64().unwrap();
        let (sector, size) = (number("SectorSize"), number("PhysicalSize"));
        assert!([(512, 8 << 20), (4096, 4 << 20)].contains(&(sector, size)), "{device}");
        assert!(number("UsedBytes") <= size && number("MaximumLBA") * sector == size, "{device}");
        let path = device["DevicePath"].as_str().unwrap();
        let log = found(folder.path(), &["smart-log", path, "--output-format", "json"]);
        for name in COUNTERS {
            assert!(counter(&log[name]).is_some(), "{name} of {log}");
        }
        for name in GAUGES {
            assert!(log[name].is_u64(), "{name} of {log}");
        }
        assert!(log["temperature"].as_u64().is_some_and(|kelvin| kelvin > 273), "{log}");
        assert!(log["temperature_sensor_8"].is_null(), "a sensor that is not there: {log}");
    } // Commands on one namespace take its path for -n.
    assert_eq!(found(folder.path(), &["list-ns", &two, "-o", "json"])["nsid_list"][1]["nsid"], 2);
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    std::fs::write(&data, [7; 512]).unwrap();
    succeed(&["write", &two, "--input", &data]);
    let read = |path: &str| {
        succeed(&["read", path, "--length", "512", "--output", &data]);
        std::fs::read(&data).unwrap()
    };
    assert_eq!(read(&two), [7; 512]);
    assert_eq!(read(&format!("{},nsid=1", far.url())), [0; 512]);
    let missing = fail(&["read", &format!("{},nsid=3", far.url())]);
    assert!(missing.contains("namespace 3"), "{missing}");
}
