//! The commands that nvme-cli has too, on a far SSD and on subsystems of a target.

mod collector;
mod page;
mod verbs;

use std::process::Command;

use crate::support::running::wait_until;
use crate::support::schema::holds;
use crate::support::{Export, FARLANE, fail, farlane, json, succeed};
use serde_json::Value;

const NQN: &str = "nqn.2024-01.io.farlane:administered";

/// A daemon of this test.
struct Served {
    _process: Option<Export>,
    url: String,
}

impl Served {
    fn far(more: &[&str]) -> Self {
        let process = Export::start(more);
        let url = process.url();
        Self { _process: Some(process), url }
    }

    fn target(more: &[&str]) -> Self {
        let mut command = Command::new(&*FARLANE);
        command
            .args(["target", "--listen", "127.0.0.1:0", "--nqn", NQN, "--json", "--no-sandbox"])
            .args(more);
        let process = Export::of(command);
        let url = format!("nvme-tcp://{}/{NQN}", process.address);
        Self { _process: Some(process), url }
    }

    /// A controller of another process of the test.
    fn elsewhere(url: String) -> Self {
        Self { _process: None, url }
    }

    fn with<'a>(&'a self, verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&[verb, &self.url][..], more].concat()
    }

    fn json(&self, verb: &str, more: &[&str]) -> Value {
        let value = json(&[&self.with(verb, more)[..], &["-o", "json"]].concat());
        holds(&format!("nvme/{verb}"), &value);
        value
    }

    fn said(&self, verb: &str, more: &[&str]) -> String {
        succeed(&self.with(verb, more))
    }

    fn refused(&self, verb: &str, more: &[&str]) -> String {
        fail(&self.with(verb, more))
    }
}

/// Both kinds of controllers, with the same namespaces.
fn both(offer: &[&str]) -> [Served; 2] {
    [Served::far(offer), Served::target(offer)]
}

#[test]
fn controllers_and_namespaces_are_reported_under_the_names_that_nvme_cli_gives_them() {
    for served in both(&["--ram", "8MiB", "--ram", "4MiB,block=4096"]) {
        let controller = served.json("id-ctrl", &[]);
        for key in ["vid", "sn", "mn", "fr", "mdts", "cntlid", "ver", "oacs", "nn", "oncs"] {
            assert!(!controller[key].is_null(), "{key} of {controller}");
        }
        assert_eq!(controller["nn"].as_u64().map(|count| count >= 2), Some(true));
        let second = served.json("id-ns", &["-n", "2"]);
        assert_eq!(second["nsze"], 1024);
        assert_eq!(served.json("list-ns", &[])["nsid_list"][1]["nsid"], 2);
        assert_eq!(served.said("list-ns", &["--all"]), "[   0]:0x1\n[   1]:0x2\n");
        assert_eq!(served.said("list-ns", &["-n", "1"]), "[   0]:0x2\n");
        let listed = served.json("list-ctrl", &["-n", "1"]);
        assert!(listed["num_ctrl"].as_u64().is_some_and(|count| count > 0), "{listed}");
        let missing = served.refused("id-ns", &["-n", "0"]);
        assert!(missing.contains("Invalid Namespace or Format"), "{missing}");
    }
}

#[test]
fn a_pools_first_namespace_needs_no_guest() {
    for served in both(&["--pool", "64MiB"]) {
        assert_eq!(served.said("list-ns", &["--all"]), "");
        let none = served.refused("create-ns", &["--nsze", "64", "--block-size", "1000"]);
        assert!(none.contains("1000") && none.contains("512, 4096"), "{none}");
        let create = ["--nsze", "2048", "--ncap", "2048", "--block-size", "4096"];
        assert_eq!(served.said("create-ns", &create), "create-ns: Success, created nsid:1\n");
        assert_eq!(served.said("list-ns", &[]), "", "it is attached to no controller");
        assert_eq!(served.said("attach-ns", &["-n", "1"]), "attach-ns: Success, nsid:1\n");
        assert_eq!(served.json("id-ns", &["-n", "1"])["nsze"], 2048);
        let load = ["bench", &served.url, "--rw", "randrw", "--runtime", "100ms", "--verify", "--json"];
        assert_eq!(json(&load)["verified"], true);
        assert!(served.refused("attach-ns", &["-n", "1"]).contains("Namespace Already Attached"));
        let too_much = served.refused("create-ns", &["--nsze", "1000000"]);
        assert!(too_much.contains("Namespace Insufficient Capacity"), "{too_much}");
        assert_eq!(served.said("detach-ns", &["-n", "1"]), "detach-ns: Success, nsid:1\n");
        assert_eq!(served.said("delete-ns", &["-n", "1"]), "delete-ns: Success, deleted nsid:1\n");
        assert_eq!(served.said("list-ns", &["--all"]), "");
    }
}

#[test]
fn what_loses_data_wants_a_word_more_and_then_loses_them() {
    let served = Served::far(&["--ram", "8MiB"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [0xa5; 4096]).unwrap();
    let path = file.path().to_str().unwrap();
    let kept = || {
        let read = ["--opcode", "2", "-n", "1", "--data-len", "512", "--read", "-b"];
        farlane(&served.with("io-passthru", &read)).stdout
    };
    succeed(&["use", "write", &served.url, "--input", path]);
    assert_eq!(kept(), [0xa5; 512]);
    for (verb, more) in [("format", &["-n", "1"][..]), ("sanitize", &["-a", "start-block-erase"])] {
        let refused = served.refused(verb, more);
        assert!(refused.contains("loses data for good") && refused.contains("--force"), "{refused}");
    }
    assert_eq!(kept(), [0xa5; 512]);
    assert_eq!(served.said("format", &["-n", "1", "--force"]), "Success formatting namespace:1\n");
    assert_eq!(kept(), [0; 512]);
    served.said("format", &["-n", "1", "--block-size", "4096", "--force"]);
    assert_eq!(served.json("id-ns", &[])["nsze"], 2048);
    served.said("sanitize", &["-a", "2", "--force"]);
    wait_until("the sanitize operation ends", || {
        let log = served.json("sanitize-log", &[]);
        log[&served.url]["sstat"]["status"].as_str().is_some_and(|status| status.starts_with("(1)"))
    });
    assert_eq!(served.json("sanitize-log", &[])[&served.url]["sprog"], 0xffff);
    assert!(served.said("sanitize-log", &["-H"]).contains("[2:0] 0x1"));
    let unknown = served.refused("sanitize", &["-a", "burn"]);
    assert!(unknown.contains("start-crypto-erase"), "{unknown}");
}

#[test]
fn logs_and_features_are_read_and_set() {
    for served in both(&["--ram", "8MiB"]) {
        let none = served.refused("get-feature", &["-f", "0xc0"]);
        assert!(none.contains("Invalid Field"), "{none}");
        let errors = served.json("error-log", &["-e", "3"]);
        if served.url.starts_with("tcp:") {
            let status = errors["errors"][0]["status_field"].as_u64();
            assert_eq!(status.map(|status| status & 0xff), Some(2), "{errors}");
            assert!(served.said("error-log", &[]).contains("error 1: Invalid Field in Command (queue 0"));
        } else {
            // On a fabric, each of our commands has a controller of its own with a log of its own.
            assert_eq!(served.said("error-log", &[]), "the log has no entry\n");
        }
        let health = farlane(&served.with("get-log", &["-i", "2", "-l", "512", "-b"])).stdout;
        assert_eq!((health.len(), health[3]), (512, 100), "the spare blocks are there");
        let long = served.json("get-log", &["-i", "1", "-l", "4096", "-L", "0"]);
        assert_eq!(long["data"].as_array().map(Vec::len), Some(4096));
        assert!(served.refused("get-log", &["-i", "2", "-l", "511"]).contains("511"));
        assert!(served.refused("get-log", &["-i", "0xee", "-l", "64"]).contains("Invalid Log Page"));
        assert!(served.said("fw-log", &[]).contains("frs1"));
        let firmware = &served.json("fw-log", &[])[&served.url];
        assert!(firmware["Active Firmware Slot (afi)"].is_u64(), "{firmware}");
        assert!(
            firmware["Firmware Rev Slot 1"].as_str().is_some_and(|one| one.contains("0.1.0")),
            "{firmware}"
        );
        let on = served.json("get-feature", &["-f", "6"])["value"].as_u64().unwrap();
        served.said("set-feature", &["-f", "6", "--value", &(1 - on).to_string()]);
        // A setting that ends with the command's controller is no silent success.
        let warm = served.said("set-feature", &["-f", "4", "-V", "0x140"]);
        assert!(warm.contains("ends with this command's controller"), "{warm}");
        assert_eq!(served.json("set-feature", &["-f", "4", "-V", "0x140"])["lasts"], false);
        // The value belongs to the controller, which goes with the host that set it on a fabric.
        if served.url.starts_with("tcp:") {
            assert_eq!(served.json("get-feature", &["-f", "6", "--sel", "1"])["value"], on);
        }
        let cache = served.said("get-feature", &["-f", "6", "-H"]);
        assert!(cache.contains("\tVolatile Write Cache Enable (WCE): "), "{cache}");
        let bits = &served.json("get-feature", &["-f", "7", "-H"])["feature: 0x07"][0];
        assert!(bits["Number of IO Submission Queues Allocated (NSQA)"].is_u64(), "{bits}");
        assert!(bits["Current"].as_str().is_some_and(|value| value.starts_with("0x")), "{bits}");
        let time = served.json("get-feature", &["-f", "0x0e"]);
        assert_eq!((time["data"].as_array().map(Vec::len), &time["name"]), (Some(8), &"Timestamp".into()));
    }
}

/// Structures as the controller sends them, by the command that reads them, and their lengths.
const STRUCTURES: [(&str, &[&str], usize); 11] = [
    ("id-ctrl", &[], 4096),
    ("id-ns", &["-n", "1"], 4096),
    ("list-ns", &[], 4096),
    ("list-ctrl", &[], 4096),
    ("smart-log", &[], 512),
    ("error-log", &["-e", "2"], 128),
    ("fw-log", &[], 512),
    ("sanitize-log", &[], 512),
    ("self-test-log", &[], 564),
    ("get-log", &["-i", "2", "-l", "512"], 512),
    ("get-feature", &["-f", "0x0e"], 8),
];

#[test]
fn structures_are_printed_in_every_form() {
    for served in both(&["--ram", "8MiB"]) {
        for (verb, more, length) in STRUCTURES {
            let bytes = |form: &[&str]| farlane(&served.with(verb, &[more, form].concat())).stdout;
            for form in [&["-o", "binary"][..], &["--output-format=binary"], &["-b"]] {
                assert_eq!(bytes(form).len(), length, "{verb} {form:?}");
            }
            for form in [&["-o", "json"][..], &["--output-format", "json"], &["--json"]] {
                let json: Value = serde_json::from_slice(&bytes(form)).unwrap();
                assert!(json.is_object(), "{verb} {form:?}: {json}");
            }
            // The time goes on.
            if verb != "get-feature" {
                assert_eq!(bytes(&["-o", "normal"]), bytes(&[]), "{verb}");
            }
        }
        let serial = served.json("id-ctrl", &[])["sn"].as_str().unwrap().to_owned();
        let page = farlane(&served.with("id-ctrl", &["-o", "binary"])).stdout;
        assert_eq!(String::from_utf8_lossy(&page[4..24]).trim(), serial);
    }
}

#[test]
fn a_form_that_a_command_has_not_is_refused_before_anything_is_done() {
    let served = Served::far(&["--ram", "8MiB"]);
    for (verb, more) in [
        ("format", &["-n", "1", "--force"][..]),
        ("flush", &[]),
        ("identify", &[]),
        ("device-self-test", &[]),
        ("set-feature", &["-f", "6"]),
        ("write-zeroes", &[]),
    ] {
        let refused = served.refused(verb, &[more, &["-o", "binary"]].concat());
        assert!(refused.contains("prints no structure"), "{verb}: {refused}");
    }
    assert!(fail(&["observe", "list", "-o", "binary"]).contains("prints no structure"));
    let number = served.refused("get-feature", &["-f", "6", "-b"]);
    assert!(number.contains("no bytes to print") && number.contains("Volatile Write Cache"), "{number}");
    let nothing = served.refused("admin-passthru", &["--opcode", "0x18", "-b"]);
    assert!(nothing.contains("--read"), "{nothing}");
    assert!(served.refused("smart-log", &["-o", "xml"]).contains("xml"));
}

#[test]
fn bits_are_explained_to_those_who_ask() {
    let served = Served::far(&["--ram", "8MiB"]);
    for (verb, line) in [
        ("smart-log", "[3:3] 0x0  all media are read-only"),
        ("id-ctrl", "[1:1] 0x1  Format NVM"),
        ("id-ns", "[0:0] 0x0  write protected"),
    ] {
        assert!(served.said(verb, &["-H"]).contains(line), "{verb}");
        assert!(!served.said(verb, &[]).contains(line), "{verb}");
    }
    assert_eq!(served.json("smart-log", &[])["critical_warning"], 0);
    assert_eq!(served.json("smart-log", &["-H"])["critical_warning"]["ro"], 0);
}

#[test]
fn a_clock_is_set_by_all_48_bits_of_its_time() {
    let served = Served::target(&["--ram", "8MiB"]);
    let set = served.json("set-feature", &["-f", "0x0e", "--value", "0x19a000000000"]);
    assert_eq!(set["value"], 0x19a0_0000_0000_u64);
    let late = served.refused("set-feature", &["-f", "0x0e", "--value", "0x1000000000000"]);
    assert!(late.contains("48 bits"), "{late}");
    let wide = served.refused("set-feature", &["-f", "6", "--value", "0x100000000"]);
    assert!(wide.contains("at most 32 bits"), "{wide}");
}

#[test]
fn self_tests_run_and_report() {
    let served = Served::far(&["--ram", "8MiB"]);
    assert!(served.said("device-self-test", &["-s", "1"]).contains("short passed"));
    let log = served.json("self-test-log", &[]);
    assert_eq!(log["List of Valid Reports"][0]["Self test result"], 0, "{log}");
    assert_eq!(served.said("device-self-test", &["-s", "2"]), "Extended Device self-test started\n");
    wait_until("the extended self-test ends", || {
        served.json("self-test-log", &[])["List of Valid Reports"][0]["Self test code"] == 2
    });
}

#[test]
fn firmware_is_sent_in_pieces_and_put_into_a_slot() {
    let served = Served::far(&["--ram", "8MiB"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [1, 2, 3]).unwrap();
    let path = file.path().to_str().unwrap();
    assert!(served.refused("fw-download", &["--fw", path]).contains("multiple of 4"));
    std::fs::write(file.path(), vec![7; 10_000]).unwrap();
    let sent = served.refused("fw-download", &["--fw", path, "--xfer", "3"]);
    assert!(sent.contains("--xfer"), "{sent}");
    // Each command of ours attaches a host of its own, and an image goes with its host.
    let missing = served.refused("fw-commit", &["--slot", "2", "--action", "0"]);
    assert!(missing.contains("Firmware"), "{missing}");
}

#[test]
fn reservations_keep_other_hosts_out() {
    let served = Served::target(&["--ram", "8MiB"]);
    let host = |name: &str| Served {
        _process: None,
        url: format!("{}?hostnqn=nqn.2014-08.org.nvmexpress:uuid:{name}&hostid={name}", served.url),
    };
    let (one, other) =
        (host("00000000-0000-4000-8000-000000000001"), host("00000000-0000-4000-8000-000000000002"));
    assert_eq!(one.json("resv-report", &[])["regctl"], 0);
    one.said("resv-register", &["--nrkey", "0xab", "--cptpl", "2"]);
    let without = other.refused("resv-acquire", &["--crkey", "1", "--rtype", "1"]);
    assert!(without.contains("Reservation Conflict"), "{without}");
    let report = one.json("resv-report", &[]);
    assert_eq!((&report["regctl"], &report["regctlext"][0]["rkey"]), (&1.into(), &0xab.into()), "{report}");
    assert_eq!(report["regctlext"][0]["hostid"], "00000000000040008000000000000001");
    for extended in [&["--eds"][..], &["-e"], &["--cdw11", "1"]] {
        assert_eq!(one.json("resv-report", extended), report);
    }
    for short in [&["--short"][..], &["--cdw11", "0"]] {
        let refused = one.refused("resv-report", short);
        assert!(refused.contains("Host Identifier Inconsistent Format"), "{refused}");
    }
    assert!(one.refused("resv-report", &["--eds", "--cdw11", "1"]).contains("--cdw11"));
    assert_eq!(farlane(&one.with("resv-report", &["-b", "--numd", "32"])).stdout.len(), 128);
    assert!(one.said("resv-report", &[]).contains("key 0xab"));
    one.said("resv-acquire", &["--crkey", "0xab", "--rtype", "1"]);
    assert!(one.said("resv-report", &[]).contains("write exclusive; 1 registered"));
    let zeroes = other.refused("write-zeroes", &["-s", "0", "-c", "7"]);
    assert!(zeroes.contains("Reservation Conflict"), "{zeroes}");
    one.said("write-zeroes", &["-s", "0", "-c", "7"]);
    one.said("resv-release", &["--crkey", "0xab", "--rtype", "1"]);
    other.said("write-zeroes", &["-s", "0", "-c", "7", "--deac"]);
}

#[test]
fn blocks_are_zeroed_verified_and_given_back() {
    for served in both(&["--ram", "8MiB"]) {
        assert_eq!(served.said("flush", &["-n", "1"]), "NVMe Flush: success\n");
        served.said("verify-blocks", &["-s", "0", "-c", "2047"]);
        assert!(served.refused("verify-blocks", &["-s", "16384"]).contains("LBA Out of Range"));
        served.said("dsm", &["--ad", "--slbs", "0,4096", "--blocks", "2048,8"]);
        let odd = served.refused("dsm", &["--ad", "--slbs", "0,1", "--blocks", "1"]);
        assert!(odd.contains("as many as --slbs"), "{odd}");
    }
}

#[test]
fn any_command_can_be_sent_and_wrong_directions_are_refused() {
    for served in both(&["--ram", "8MiB"]) {
        let identify = ["--opcode", "0x06", "--cdw10", "1", "--data-len", "4096", "--read"];
        let page = farlane(&served.with("admin-passthru", &[&identify[..], &["-b"]].concat())).stdout;
        assert_eq!(page.len(), 4096);
        let serial = served.json("id-ctrl", &[])["sn"].as_str().unwrap().trim().to_owned();
        assert_eq!(String::from_utf8_lossy(&page[4..24]).trim(), serial);
        assert!(served.said("admin-passthru", &identify).starts_with("NVMe command result:00000000\n0000: "));
        let wrong = ["--opcode", "0x01", "--data-len", "512", "--read"];
        assert!(served.refused("io-passthru", &wrong).contains("--write for opcodes that end in 01b"));
        let unknown = served.refused("admin-passthru", &["--opcode", "0xc4"]);
        assert!(unknown.contains("Invalid Command Opcode"), "{unknown}");
        let shown = served.said("io-passthru", &["--opcode", "0x02", "-n", "1", "--dry-run"]);
        assert!(shown.starts_with("0000: 02 00 00 00 01 00 00 00"), "{shown}");
    }
}
