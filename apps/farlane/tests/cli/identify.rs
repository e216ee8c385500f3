//! The reports of `lspci`, `identify` and `smart-log` about a far end in another process.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Export, fail, farlane, json, succeed, unused_url};
use serde_json::Value;

#[test]
fn lspci_lists_the_way_to_the_far_controller() {
    let far = Export::start(&["--ram", "64MiB"]);
    let text = succeed(&["observe", "lspci", &far.url()]);
    let expected = "\
00:00.0 PCI bridge: Farlane Root Port
01:00.0 PCI bridge: Farlane Switch Upstream Port
02:00.0 PCI bridge: Farlane Switch Downstream Port
03:00.0 Non-Volatile memory controller: Farlane NVMe Controller (rev 01)
";
    assert_eq!(text, expected);

    let verbose = succeed(&["observe", "lspci", "-v", &far.url()]);
    for line in [
        "03:00.0 Non-Volatile memory controller: Farlane NVMe Controller (rev 01) (prog-if 02 [NVM Express])",
        "\tFlags: bus master",
        "(64-bit, non-prefetchable) [size=16K]",
        "Express Upstream Port",
        "Express Endpoint",
        "MaxPayload 4096 bytes",
        "MSI-X: Count=",
        "Advanced Error Reporting",
    ] {
        assert!(verbose.contains(line), "{line}:\n{verbose}");
    }
}

#[test]
fn lspci_draws_a_branch_for_each_far_end() {
    let (one, other) = (Export::start(&["--ram", "1MiB"]), Export::start(&["--ram", "1MiB"]));
    let text = succeed(&["observe", "lspci", "-t", &one.url(), &other.url()]);
    let expected = r"-[0000:00]---00.0-[01-0a]----00.0-[02-0a]--+-00.0-[03-06]----00.0
                                           \-01.0-[07-0a]----00.0
";
    assert_eq!(text, expected);

    let named = succeed(&["observe", "lspci", "-tv", &one.url(), &other.url()]);
    assert_eq!(named.matches("Farlane NVMe Controller").count(), 2, "{named}");
}

#[test]
fn lspci_prints_functions_for_machines() {
    let far = Export::start(&["--ram", "64MiB"]);
    let list = json(&["observe", "lspci", "--json", &far.url()]);
    let root = &list["roots"][0];
    assert_eq!((root["bdf"].as_str(), root["class"].as_str()), (Some("00:00.0"), Some("060400")));
    let upstream = &root["children"][0];
    assert_eq!(upstream["name"], "Farlane Switch Upstream Port");
    assert!(upstream["bridge"]["windows"]["memory"]["bytes"].as_u64().unwrap() >= 1 << 20);
    let port = &upstream["children"][0];
    assert_eq!((&port["device"], &port["slot"]["present"]), (&"0002".into(), &true.into()));
    let ssd = &port["children"][0];
    assert_eq!((&ssd["vendor"], &ssd["device"]), (&"fa1a".into(), &"0010".into()));
    assert_eq!((&ssd["class"], &ssd["payload_bytes"]), (&"010802".into(), &4096.into()));
    assert_eq!(ssd["class_name"], "Non-Volatile memory controller");
    assert_eq!((&ssd["bars"][0]["bytes"], &ssd["bars"][0]["space"]), (&0x4000.into(), &"memory64".into()));
    assert!(ssd["bars"][0]["address"].as_str().unwrap().starts_with("0x"));
    let names: Vec<_> = ssd["capabilities"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert!(names.contains(&&Value::from("MSI-X")) && names.contains(&&Value::from("Express")), "{names:?}");
    assert_eq!((&ssd["enabled"], &ssd["faults"], &ssd["children"]), (&true.into(), &empty(), &empty()));
    let shadow = &root["shadow"];
    assert!(shadow["reads_near"].as_u64().unwrap() > 20 && shadow["shown"].as_u64().unwrap() > 0, "{shadow}");
    assert_eq!(shadow["retries"], 0);
    assert_eq!(
        json(&["observe", "lspci", "--json", "--no-shadow", &far.url()])["roots"][0]["shadow"],
        Value::Null
    );
}

fn empty() -> Value {
    Value::Array(Vec::new())
}

#[test]
fn lspci_shows_the_empty_slot_of_a_far_end_that_is_not_there() {
    let far = Export::start(&["--ram", "1MiB"]);
    let unused_url = unused_url();
    let output = farlane(&["observe", "lspci", &far.url(), &unused_url]);
    assert!(output.status.success());
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("Switch Downstream Port").count(), 2, "{text}");
    assert_eq!(text.matches("NVMe Controller").count(), 1, "{text}");
    assert!(errors.contains(&format!("{unused_url} is not there")), "{errors}");
}

#[test]
fn identify_describes_the_controller_and_each_namespace() {
    let far = Export::start(&["--ram", "64MiB", "--ram", "1MiB,block=4096", "--serial", "TEST 1"]);
    let json = json(&["nvme", "identify", "--json", &far.url()]);
    let controller = &json["controller"];
    assert_eq!((&controller["vid"], &controller["sn"]), (&0xfa1a.into(), &"TEST 1".into()));
    // Namespaces may be added up to NN while the host uses these.
    assert_eq!((&controller["nn"], &controller["ver"]), (&33.into(), &0x2_0000.into()));
    let namespaces = json["namespaces"].as_array().unwrap();
    let reported: Vec<_> = namespaces
        .iter()
        .map(|it| ["nsid", "nsze", "bytes", "block_bytes"].map(|name| it[name].as_u64().unwrap()))
        .collect();
    assert_eq!(reported, [[1, 1 << 17, 64 << 20, 512], [2, 256, 1 << 20, 4096]]);
    for name in ["nguid", "eui64", "uuid"] {
        let (one, other) = (namespaces[0][name].as_str().unwrap(), namespaces[1][name].as_str().unwrap());
        assert!(
            one != other && one.bytes().any(|digit| digit != b'0' && digit != b'-'),
            "{name}: {one} {other}"
        );
    }
    assert_eq!(namespaces[1]["lbafs"][1]["in_use"], true);

    let text = succeed(&["nvme", "identify", &far.url()]);
    for line in [
        "Controller 03:00.0 at tcp://127.0.0.1:",
        "PCI vendor: Farlane",
        "TEST 1",
        "NVMe 2.0.0",
        "optional NVM commands: Compare, Write Uncorrectable, Dataset Management, Write Zeroes",
        "Namespace 1\n",
        "blocks: 64 MiB",
        "Namespace 2\n",
        "4096 B, best (in use)",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
}

#[test]
fn smart_log_counts_what_was_done() {
    let far = Export::start(&["--ram", "8MiB"]);
    let before = json(&["nvme", "smart-log", "--json", &far.url()]);
    assert_eq!((&before["critical_warning"], &before["temperature"]), (&0.into(), &300.into()));
    assert_eq!((&before["host_read_commands"], &before["avail_spare"]), (&0.into(), &100.into()));
    succeed(&["use", "read", &far.url(), "--length", "1MiB", "--bs", "4k", "--output", "/dev/null"]);
    let after = json(&["nvme", "smart-log", "--json", &far.url()]);
    assert_eq!((&after["host_read_commands"], &after["data_units_read"]), (&256.into(), &3.into()));

    let text = succeed(&["nvme", "smart-log", &far.url()]);
    assert!(text.starts_with("SMART / health of the controller 03:00.0 at tcp://127.0.0.1:"), "{text}");
    for line in ["warnings: none", "kelvin (27 °C)", "1.53 MB read"] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
}

#[test]
fn a_far_end_that_is_not_there_is_reported_in_time() {
    for command in ["lspci", "identify", "smart-log"] {
        let started = Instant::now();
        let errors = fail(&[command, &unused_url(), "--timeout", "300ms"]);
        assert!(errors.contains("no far end answers at 127.0.0.1:"), "{errors}");
        assert!(errors.contains("farlane export --listen"), "{errors}");
        // Without the option, it would wait for 15 s.
        assert!(started.elapsed() < Duration::from_secs(10), "{command} took {:?}", started.elapsed());
    }
}

#[test]
fn something_else_on_the_port_is_reported_in_time() {
    // The listener accepts connections and says nothing.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", mute.local_addr().unwrap());
    let errors = fail(&["observe", "lspci", &url, "--timeout", "300ms"]);
    assert!(errors.contains("the far end was not ready within 300"), "{errors}");
}

#[test]
fn a_url_that_is_none_is_explained() {
    for (url, complaint) in [
        ("127.0.0.1:4430", "no scheme; expected tcp://HOST:PORT"),
        ("sctp://127.0.0.1:4430", "the scheme 'sctp' is not one of: tcp"),
        ("tcp://127.0.0.1", "is not HOST:PORT"),
    ] {
        let errors = fail(&["nvme", "identify", url]);
        assert!(errors.contains(complaint), "{errors}");
    }
    let errors = fail(&["observe", "lspci"]);
    assert!(errors.contains("<URL>..."), "{errors}");
    let errors = fail(&["nvme", "smart-log", "tcp://nowhere.invalid:1", "--timeout", "300ms"]);
    assert!(errors.contains("nowhere.invalid:1 has no address"), "{errors}");
}

#[test]
fn a_far_end_in_use_says_so() {
    let far = Export::start(&["--ram", "1MiB"]);
    let bench = || {
        Command::new(&*crate::support::FARLANE)
            .args(["bench", &far.url(), "--runtime", "20s", "--json"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut other = bench();
    // The host that comes first has the far end. If that was not the other host, the other host
    // tries again.
    let refused = (0..100).find_map(|_| {
        if other.try_wait().unwrap().is_some() {
            other = bench();
        }
        std::thread::sleep(Duration::from_millis(50));
        let output = farlane(&["nvme", "identify", &far.url(), "--json"]);
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    });
    other.kill().unwrap();
    other.wait().unwrap();
    let refused = refused.expect("the second host is refused");
    assert!(refused.contains("one host at a time"), "{refused}");
}
