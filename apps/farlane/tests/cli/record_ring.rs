//! Rings: the oldest data are overwritten, pinned data stay, and the certificate lists the held
//! parts.

use crate::support::running::{Running, wait_for_listener, wait_until};
use crate::support::{fail, farlane, json};
use serde_json::Value;

/// The last line of what a program printed.
fn last(output: &[u8]) -> Value {
    serde_json::from_str(String::from_utf8_lossy(output).lines().last().unwrap()).unwrap()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} in {value}"))
}

/// The bytes of `generate:` from byte `from` on; `from` is a multiple of 8.
fn generated(from: u64, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (from / 8..).take(length.div_ceil(8)).flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}

#[test]
fn a_ring_that_is_killed_is_recovered_with_what_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (control, path) = (at("control"), at("ring.rec"));
    // So slow that the part to pin is there for a second after it has come.
    let arguments = [
        "record",
        "--from",
        "generate:10MB",
        "--to",
        &path,
        "--ring",
        "16MiB",
        "--control",
        &control,
        "--json",
    ];
    let recorder = Running::start(&arguments);
    let ask = |words: &[&str]| json(&[&["record", "ctl", &control], words, &["--json"]].concat());
    wait_for_listener(&control);
    wait_until("4 MB are stored", || number(&ask(&["status"]), "bytes_stored") > 4_000_000);
    let pin = ["pin", "--from-offset", "1000000", "--bytes", "500000"];
    let pinned = ask(&pin)["pinned"][0].clone();
    let (from, bytes) = (number(&pinned, "from"), number(&pinned, "bytes"));
    assert!(from <= 1_000_000 && from + bytes >= 1_500_000 && bytes < 800_000, "{pinned}");
    // Bytes that are reported as overwritten may not be yet when the recorder is killed.
    wait_until("the ring has turned", || number(&ask(&["status"]), "bytes_overwritten") > 33_000_000);
    let refused = fail(&["record", "ctl", &control, "pin", "--from-offset", "3000000", "--bytes", "1000000"]);
    assert!(refused.contains("the ring does not hold it"), "{refused}");
    let refused = fail(&["record", "ctl", &control, "pin", "--last", "1h"]);
    assert!(refused.contains("pin less"), "{refused}");
    recorder.signal("KILL");
    recorder.output();
    let recovered = json(&["recording", "recover", &path, "--json"]);
    assert_eq!(recovered["gaps"], serde_json::json!([]), "overwritten bytes are no gap");
    assert!(std::fs::metadata(&path).unwrap().len() <= 16 << 20, "the ring has its size");
    let proof = json(&["recording", "verify", &path, "--json"]);
    assert_eq!(proof["ok"], true, "{proof}");
    assert!(number(&proof, "bytes_overwritten") > 30_000_000, "{proof}");
    assert!(number(&proof, "bytes") > 10_000_000, "{proof}");
    // The pinned part is there, and the data between it and the ring are not.
    let part = ["--from-offset", "1000000", "--bytes", "500000", "--speed", "max"];
    farlane(&[&["recording", "replay", &path, "--to", &at("part")], &part[..]].concat());
    assert!(std::fs::read(at("part")).unwrap() == generated(1_000_000, 500_000));
    let ranges = proof["held"].as_array().unwrap();
    assert_eq!((ranges.len(), number(&ranges[0], "from")), (2, from), "{proof}");
    let from = number(&ranges[1], "from");
    let part = ["--from-offset", &from.to_string(), "--speed", "max"];
    farlane(&[&["recording", "replay", &path, "--to", &at("rest")], &part[..]].concat());
    let rest = std::fs::read(at("rest")).unwrap();
    assert!(
        rest == generated(from / 8 * 8, rest.len() + 8)[usize::try_from(from % 8).unwrap()..][..rest.len()]
    );
    assert_eq!(rest.len() as u64, number(&ranges[1], "bytes"));
}

#[test]
fn a_ring_ends_certified_and_one_that_is_too_short_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ring.rec").to_str().unwrap().to_owned();
    let record = ["record", "--from", "generate:100MB", "--size", "30MB", "--to", &path, "--json"];
    let ring = ["--ring", "12MiB", "--keep", "0=1MiB"];
    let end = last(&farlane(&[&record[..], &ring].concat()).stdout);
    let sum = number(&end, "bytes_stored") + number(&end, "bytes_lost") + number(&end, "bytes_overwritten");
    assert_eq!((number(&end, "bytes_in"), &end["certified"]), (sum, &true.into()), "{end}");
    assert!(number(&end, "bytes_overwritten") > 15_000_000, "{end}");
    assert_eq!(json(&["recording", "verify", &path, "--json"])["sha256"], end["sha256"]);

    let end = last(&farlane(&[&record[..], &ring, &["--force", "--digest", "none"]].concat()).stdout);
    assert_eq!((&end["sha256"], &end["certified"]), (&Value::Null, &true.into()), "{end}");
    let proof = json(&["recording", "verify", &path, "--json"]);
    assert_eq!((&proof["ok"], &proof["bytes"]), (&true.into(), &end["bytes_stored"]), "{proof}");
    // CRC32C still finds the changed bytes.
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(!farlane(&["recording", "verify", &path]).status.success(), "a changed bit is found");

    let error = fail(&[&record[..], &["--force", "--ring"]].concat());
    assert!(error.contains("give --ring SIZE"), "{error}");
    let error = fail(&[&record[..], &["--force", "--ring", "1MiB"]].concat());
    assert!(error.contains("--ring 1048576 does not fit") && error.contains("9043968 B or more"), "{error}");
    let error = fail(&[&record[..], &["--force", "--ring", "64MiB", "--keep", "3=10m"]].concat());
    assert!(error.contains("--keep"), "{error}");
    let error = fail(&[&record[..], &["--force", "--ring", "64MiB", "--keep", "soon"]].concat());
    assert!(error.contains("expected a time or a size"), "{error}");
}
