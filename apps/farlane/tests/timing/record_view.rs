//! The progress of a recording for people and programs, and its signature later.

use crate::support::figures::{Figures, asked};
use crate::support::running::{Running, wait_until};
use crate::support::{fail, farlane, json, succeed};
use serde_json::Value;

#[test]
fn a_recording_has_figures_for_prometheus_and_lines_where_there_is_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec").to_str().unwrap().to_owned();
    let arguments = ["record", "--from", "generate:10MB", "--to", &path, "--metrics", "127.0.0.1:0"];
    let recorder = Running::start(&arguments);
    let figures = Figures::of(|| recorder.said());
    let figure = |name: &str| figures.sum(&format!("farlane_record_{name}"), &[]);
    wait_until("bytes are acknowledged", || figure("bytes_acknowledged_total") > 0.0);
    assert!(figure("bytes_in_total") > 0.0 && figure("running") == 1.0 && figure("writes_total") > 0.0);
    assert_eq!((figure("gaps_total"), figure("buffer_bytes")), (0.0, 33_554_432.0));
    assert!(asked(&figures.address, "GET /secrets HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert_eq!(asked(&figures.address, &"x".repeat(5_000)), "", "a request without end gets nothing");
    let said = ["MB/s", "buffer [", "a write takes ", "pauses of the medium", "nothing lost"];
    wait_until("a line is written", || said.iter().all(|words| recorder.said().contains(words)));
    recorder.signal("INT");
    let output = recorder.output();
    assert!(output.status.success());
    let refused = fail(&["record", "--from", "generate:1MB", "--to", &path, "--metrics", "192.0.2.1:1"]);
    assert!(refused.contains("--metrics 192.0.2.1:1") && refused.contains("127.0.0.1:0"), "{refused}");
}

#[test]
fn events_have_rate_latency_pauses_and_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec").to_str().unwrap().to_owned();
    let arguments = ["record", "--from", "generate:10MB", "--to", &path, "--for", "2s", "--json"];
    let output = Running::start(&arguments).output();
    let text = String::from_utf8_lossy(&output.stdout);
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.len() >= 3, "{text}");
    let middle = &events[1];
    assert_eq!(middle["event"], "progress");
    let rate = middle["bytes_per_second"].as_f64().unwrap();
    assert!(rate > 1e6 && rate < 1e9, "{middle}");
    for key in ["fill_bytes", "buffer_bytes", "gaps", "write_latency_ns", "pauses", "longest_pause_ns"] {
        assert!(middle[key].is_u64(), "{key} of {middle}");
    }
}

#[test]
fn a_certificate_is_signed_and_a_change_to_it_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (path, key, other) = (at("a.rec"), at("key.pem"), at("other.pem"));
    let ours = json(&["setup", "key", "new", &key, "--json"])["key"].as_str().unwrap().to_owned();
    let theirs = json(&["setup", "key", "new", &other, "--json"])["key"].as_str().unwrap().to_owned();
    let arguments = ["record", "--from", "generate:100MB", "--to", &path, "--size", "2MB"];
    succeed(&[&arguments[..], &["--sign", &key]].concat());
    let proof = json(&["recording", "verify", &path, "--signed-by", &ours, "--json"]);
    assert_eq!((&proof["ok"], &proof["signed_by"]), (&true.into(), &ours.clone().into()));
    assert!(succeed(&["recording", "verify", &path]).contains(&format!("signed by {ours}")));
    let refused = Running::start(&["recording", "verify", &path, "--signed-by", &theirs]).fail();
    assert!(refused.contains("is not signed with the key") && refused.contains(&theirs), "{refused}");
    // The reason of the end is changed, with digests that fit.
    let mut medium = std::fs::read(&path).unwrap();
    let chunk = &mut medium[131_072..2 * 131_072];
    chunk[128] ^= 1;
    let length = usize::try_from(u32::from_le_bytes(chunk[64..68].try_into().unwrap())).unwrap();
    let digest = live::sys::digest::crc32c(0, &chunk[128..128 + length]);
    chunk[120..124].copy_from_slice(&digest.to_le_bytes());
    let digest = live::sys::digest::crc32c(0, &chunk[..124]);
    chunk[124..128].copy_from_slice(&digest.to_le_bytes());
    std::fs::write(&path, medium).unwrap();
    let output = farlane(&["recording", "verify", &path, "--json"]);
    let proof: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&proof["ok"], &proof["wrong_signature"]), (&false.into(), &true.into()), "{proof}");
    // A key that is not there is missed before anything is recorded.
    let refused = fail(&[&arguments[..], &["--force", "--sign", &at("none.pem")]].concat());
    assert!(refused.contains("none.pem"), "{refused}");
}
