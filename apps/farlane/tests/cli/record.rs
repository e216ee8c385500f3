//! Recording, its bad days, recovery and replay, as a user sees them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{FARLANE, fail, farlane, json};
use record::format::Header;
use record::{Algorithm, Hasher};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The bytes of `generate:`.
fn generated(length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length.div_ceil(8) as u64).flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The last line of what a program printed.
fn last(output: &[u8]) -> Value {
    serde_json::from_str(String::from_utf8_lossy(output).lines().last().unwrap()).unwrap()
}

#[test]
fn a_recording_is_proved_by_blake3_where_that_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    let bytes = generated(3_000_001);
    let mut hasher = Hasher::new(Algorithm::Blake3);
    hasher.update(&bytes);
    let expected: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let record = ["record", "--from", "generate:1GB", "--size", "3000001", "--to", &path];
    let end = last(&farlane(&[&record[..], &["--digest", "blake3", "--json"]].concat()).stdout);
    assert_eq!((&end["blake3"], &end["sha256"]), (&expected.clone().into(), &Value::Null), "{end}");
    let proof = json(&["recording", "verify", &path, "--json"]);
    assert_eq!((&proof["ok"], &proof["blake3"]), (&true.into(), &expected.clone().into()), "{proof}");
    assert!(
        String::from_utf8_lossy(&farlane(&["recording", "verify", &path]).stdout)
            .contains(&format!("BLAKE3 {expected}"))
    );
    // A forger changes a byte, and has the CRC32C fit it.
    let mut changed = std::fs::read(&path).unwrap();
    let chunk = &mut changed[5 * 131_072..6 * 131_072];
    let (header, _) = Header::parse_chunk(5, chunk, engine::crc32c).unwrap();
    chunk[5_000] ^= 4;
    header.emit(chunk, engine::crc32c);
    std::fs::write(&path, changed).unwrap();
    let output = farlane(&["recording", "verify", &path, "--json"]);
    let proof = last(&output.stdout);
    assert_eq!((output.status.code(), &proof["ok"]), (Some(1), &false.into()), "{proof}");
    assert_eq!(proof["bad_chunks"], Value::Array(Vec::new()));
}

#[test]
fn a_file_comes_back_as_it_was_and_harm_is_found_and_declared() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let bytes = generated(3_000_001);
    std::fs::write(at("source"), &bytes).unwrap();
    let from = format!("file:{}", at("source"));
    let end = last(&farlane(&["record", "--from", &from, "--to", &at("a.rec"), "--json"]).stdout);
    assert_eq!((&end["event"], &end["bytes_in"]), (&"end".into(), &bytes.len().into()));
    assert_eq!((&end["bytes_stored"], &end["bytes_lost"]), (&bytes.len().into(), &0.into()));
    assert_eq!(end["sha256"], sha256(&bytes));
    let proof = json(&["recording", "verify", &at("a.rec"), "--json"]);
    assert_eq!((&proof["ok"], &proof["sha256"]), (&true.into(), &end["sha256"]));
    let replayed =
        json(&["recording", "replay", &at("a.rec"), "--to", &at("copy"), "--speed", "max", "--json"]);
    assert_eq!(replayed["bytes"], bytes.len());
    assert!(std::fs::read(at("copy")).unwrap() == bytes);
    // A bit of the payload in slot 5 flips.
    let mut harmed = std::fs::read(at("a.rec")).unwrap();
    harmed[5 * 131_072 + 5_000] ^= 4;
    std::fs::write(at("a.rec"), harmed).unwrap();
    let output = farlane(&["recording", "verify", &at("a.rec"), "--json"]);
    let proof = last(&output.stdout);
    assert_eq!((output.status.code(), &proof["ok"]), (Some(1), &false.into()));
    assert_eq!(proof["bad_chunks"][0]["slot"], 5);
    let recovered = json(&["recording", "recover", &at("a.rec"), "--json"]);
    let gap = &recovered["new_gaps"][0];
    assert_eq!((&gap["from"], &gap["bytes"]), (&(2 * 130_944).into(), &130_944.into()));
    assert_eq!(json(&["recording", "verify", &at("a.rec"), "--json"])["ok"], true);
}

/// Kills a recorder at a moment that `round` chooses, and recovers its recording.
fn kill_and_recover(path: &str, round: u64) {
    let arguments = ["record", "--from", "generate:20MB", "--to", path, "--json", "--force"];
    let mut child = Command::new(&*FARLANE).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = 0;
    while acknowledged == 0 {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        acknowledged = event["bytes_acknowledged"].as_u64().unwrap();
    }
    std::thread::sleep(Duration::from_millis(round * 17 % 130));
    child.kill().unwrap();
    child.wait().unwrap();
    let recovered = json(&["recording", "recover", path, "--json"]);
    let bytes = recovered["bytes"].as_u64().unwrap();
    assert!(bytes >= acknowledged, "round {round}: {bytes} of {acknowledged} bytes");
    assert_eq!(json(&["recording", "verify", path, "--json"])["ok"], true, "round {round}");
    if recovered["gaps"].as_array().unwrap().is_empty() {
        let expected = sha256(&generated(usize::try_from(bytes).unwrap()));
        assert_eq!(recovered["sha256"], expected, "round {round}");
    }
}

/// `make soak` asks for 200 rounds.
#[test]
fn a_recorder_that_is_killed_keeps_all_that_it_acknowledged() {
    let rounds = std::env::var("FARLANE_KILLS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    let directory = tempfile::tempdir().unwrap();
    // Most of a round is waiting.
    std::thread::scope(|scope| {
        for lane in 0..4_u64 {
            let path = directory.path().join(format!("{lane}.rec")).to_str().unwrap().to_owned();
            scope.spawn(move || {
                (lane..rounds).step_by(4).for_each(|round| kill_and_recover(&path, round));
            });
        }
    });
}

#[test]
fn a_full_medium_has_all_that_fits_and_says_where_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("full.rec").to_str().unwrap().to_owned();
    // 4,000 blocks of 512 or 1,024 bytes, by the shell.
    let script = format!("ulimit -f 4000; exec {} record --from generate:50MB --to {path} --json", *FARLANE);
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let end = last(&output.stdout);
    assert_eq!(end["reason"], "medium full", "{end}");
    let number = |key: &str| end[key].as_u64().unwrap();
    assert_eq!(number("bytes_in"), number("bytes_stored") + number("bytes_lost"));
    let length = std::fs::metadata(&path).unwrap().len();
    assert!([2_048_000, 4_096_000].iter().any(|limit| limit - length < 4_096), "{length} bytes");
    assert_eq!(json(&["recording", "verify", &path, "--json"])["ok"], true);
}

#[test]
fn a_producer_that_vanishes_ends_its_stream_and_a_second_recorder_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("net.rec").to_str().unwrap().to_owned();
    let arguments = ["record", "--from", "tcp-listen://127.0.0.1:0", "--to", &path, "--json"];
    let mut child = Command::new(&*FARLANE)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim().rsplit(' ').next().unwrap().to_owned();
    let mut producer = TcpStream::connect(address).unwrap();
    let bytes = generated(1_000_000);
    producer.write_all(&bytes).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let refused = fail(&["record", "--from", "generate:1MB", "--to", &path]);
    assert!(refused.contains("another recorder writes to it"), "{refused}");
    let while_written = last(&farlane(&["recording", "verify", &path, "--json"]).stdout);
    assert_eq!((&while_written["ok"], &while_written["being_written"]), (&false.into(), &true.into()));
    drop(producer);
    let end: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
    assert_eq!((&end["bytes_stored"], &end["sha256"]), (&1_000_000.into(), &sha256(&bytes).into()));
    assert!(child.wait().unwrap().success());
    let before = std::fs::read(&path).unwrap();
    let again = fail(&["record", "--from", "generate:1MB", "--size", "1MB", "--to", &path]);
    assert!(again.contains("has contents already") && again.contains("--force"), "{again}");
    assert!(std::fs::read(&path).unwrap() == before, "nothing is lost");
}
