//! Wireshark's dissector of NVMe/TCP understands what our host and our target say to each other.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use crate::support::dumpcap::{Capture, stay_on_one_processor};
use crate::support::{Export, FARLANE, succeed};

const NQN: &str = "nqn.2026-01.io.farlane:captured";
/// PDU types (NVMe TCP Transport Specification 1.0, section 3.6.2) that a session without
/// errors has.
const TYPES: [(&str, &str); 7] = [
    ("0", "ICReq"),
    ("1", "ICResp"),
    ("4", "CapsuleCmd"),
    ("5", "CapsuleResp"),
    ("6", "H2CData"),
    ("7", "C2HData"),
    ("9", "R2T"),
];

/// A filter for PDUs that Wireshark can't make sense of, that are in the group «malformed» of its
/// expert information, or that have a wrong digest.
const COMPLAINTS: &str = "_ws.malformed || _ws.expert.group == 0x07000000 || nvme-tcp.unknown_data || \
                          nvme-tcp.hdgst.status == 0 || nvme-tcp.ddgst.status == 0";

/// How many sessions are captured at most, until tshark can read one.
const SESSIONS: usize = 5;

/// The `fields` that tshark prints of the PDUs in `file` that `filter` selects; none if tshark
/// crashes. Its release 4.0 does so with a few captures, by a fault in libwsutil.
fn tshark(file: &Path, port: &str, filter: &str, fields: &[&str]) -> Option<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-d", &format!("tcp.port=={port},nvme-tcp"), "-Y", filter]);
    for check in ["nvme-tcp.check_hdgst:TRUE", "nvme-tcp.check_ddgst:TRUE"] {
        command.args(["-o", check]);
    }
    command.args(["-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    output.status.code()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {}; it said {said}", output.status);
    Some(String::from_utf8(output.stdout).unwrap())
}

/// How often each value of each of `fields` occurs.
fn count<const N: usize>(file: &Path, port: &str, fields: [&str; N]) -> Option<[BTreeMap<String, usize>; N]> {
    let mut counts = [(); N].map(|()| BTreeMap::new());
    for line in tshark(file, port, "nvme-tcp", &fields)?.lines() {
        for (values, counts) in line.split('\t').zip(&mut counts) {
            // A segment may hold several PDUs, whose values are on one line.
            for value in values.split(',').filter(|value| !value.is_empty()) {
                *counts.entry(value.to_owned()).or_default() += 1;
            }
        }
    }
    Some(counts)
}

/// Discovers, identifies, writes and reads, with data in the capsule and by R2T; then loads of
/// other lengths at a depth of 8.
fn use_it(address: &str, query: &str, directory: &Path) {
    let url = format!("nvme-tcp://{address}/{NQN}{query}");
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (source, copy) = (path("source"), path("copy"));
    let bytes: Vec<u8> = (0..500_224_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    std::fs::write(&source, &bytes).unwrap();
    succeed(&["use", "discover", &format!("nvme-tcp://{address}{query}")]);
    succeed(&["nvme", "identify", &url]);
    succeed(&["use", "write", &url, "--input", &source]);
    let _ = std::fs::remove_file(&copy);
    succeed(&["use", "read", &url, "--length", "500224", "--output", &copy]);
    assert!(std::fs::read(&copy).unwrap() == bytes);
    for size in ["512", "4k", "128k"] {
        let job = ["--rw", "randrw", "--bs", size, "--iodepth", "8", "--runtime", "30ms", "--verify"];
        succeed(&[&["bench", &url][..], &job[..]].concat());
    }
}

/// The output of tshark about a captured session.
struct Found {
    complaints: String,
    types: BTreeMap<String, usize>,
    /// How often each status of a header digest and of a data digest occurs.
    headers: BTreeMap<String, usize>,
    data: BTreeMap<String, usize>,
}

/// Captures a session with a target, and has tshark read it; none if tshark crashes.
///
/// # Errors
/// When nothing can be captured.
fn session(query: &str, directory: &Path) -> Result<Option<Found>, String> {
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "64MiB"]);
    command.arg("--control").arg(directory.join("control"));
    let target = Export::of(command);
    let port = target.address.rsplit(':').next().unwrap();
    let file = directory.join("session.pcapng");
    let capture = Capture::start(port, &file)?;
    use_it(&target.address, query, directory);
    capture.finish();
    let complaints =
        tshark(&file, port, COMPLAINTS, &["frame.number", "nvme-tcp.type", "_ws.expert.message"]);
    let counts = count(&file, port, ["nvme-tcp.type", "nvme-tcp.hdgst.status", "nvme-tcp.ddgst.status"]);
    let found = complaints.zip(counts);
    Ok(found.map(|(complaints, [types, headers, data])| Found { complaints, types, headers, data }))
}

#[test]
fn wireshark_reads_a_session_and_finds_nothing_malformed() {
    stay_on_one_processor();
    let directory = tempfile::tempdir().unwrap();
    for query in ["?hdgst=off&ddgst=off", ""] {
        let sessions = (0..SESSIONS).map(|_| session(query, directory.path()));
        let found = match sessions.filter_map(Result::transpose).next().expect("tshark always crashes") {
            Ok(found) => found,
            Err(why) => {
                // `eprintln` would not do: the test runner keeps its output to itself when the
                // test passes.
                let _ = writeln!(io::stderr(), "SKIPPED Wireshark on a session: {why}");
                return;
            }
        };
        let Found { complaints, types, headers, data } = found;
        assert_eq!(complaints, "", "{query}");
        for (code, name) in TYPES {
            assert!(types.get(code).is_some_and(|count| *count > 0), "no {name} in {types:?}");
        }
        assert_eq!(types.len(), TYPES.len(), "no other type: {types:?}");
        // With digests, every PDU has a header digest, except the two that agree on digests, and
        // all data have a data digest. All digests are good.
        let digests = usize::from(query.is_empty());
        let pdus = |codes: &[&str]| digests * codes.iter().map(|code| types[*code]).sum::<usize>();
        let good = |statuses: &BTreeMap<String, usize>| statuses.get("1").copied().unwrap_or_default();
        assert_eq!(good(&headers), pdus(&["4", "5", "6", "7", "9"]), "{headers:?} in {types:?}");
        let (sent, with_capsules) = (pdus(&["6", "7"]), pdus(&["4", "6", "7"]));
        assert!((sent..=with_capsules).contains(&good(&data)), "{data:?} in {types:?}");
    }
}
