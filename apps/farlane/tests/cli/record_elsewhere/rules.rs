//! The rule by which losses were found, and restarts of senders, in all that speaks of a recording.

use serde_json::{Value, json};

use super::sources::{Recorder, field, gvsp, last, record_bytes, rtp, spead, vita49};
use crate::support::{farlane, json};

type Make = fn(u64) -> Vec<u8>;

/// The option of each kind of numbers, its packets, what the rule's words begin with, and whether
/// they show a restart.
const KINDS: [(&str, Make, &str, bool); 6] = [
    (
        "rtp",
        rtp,
        "RTP sequence numbers, up to 5 late, restart after two in sequence behind a jump of \
     more than 3,000",
        true,
    ),
    (
        "vita49",
        vita49,
        "VITA 49 packet count modulo 16, up to 4 late, up to 11 packets ahead; a restart looks like a loss",
        false,
    ),
    (
        "gvsp",
        gvsp,
        "GVSP block and packet, up to 5 packets late, restart after two packets behind a jump \
     of more than 3,000 blocks",
        true,
    ),
    ("spead", spead, "SPEAD heap identifiers in steps that are learnt, up to 16 heaps in turns", true),
    (
        "spead,step:4",
        spead,
        "SPEAD heap identifiers in steps of 4, up to 16 heaps in turns, restart after \
     two packets behind a jump of more than 65,536 heaps",
        true,
    ),
    (
        "offset:2,bytes:4,step:16,le",
        field,
        "own numbers of 4 B at byte 2, little-endian, in steps of \
     16, up to 5 packets late, restart after two in sequence behind a jump of more than 16,777,216",
        true,
    ),
];

/// The first number, far from the beginning that a restarted sender counts from.
const FIRST: [u64; 6] = [20_000, 0, 9_000, 900_000, 900_000, 9_000_000];

#[test]
fn the_certificate_names_the_rule_and_a_restart_is_no_gap() {
    for ((option, make, words, shows_restart), first) in KINDS.into_iter().zip(FIRST) {
        let before = (first..first + 20).filter(|number| *number != first + 7);
        let numbers: Vec<_> = before.chain(1..30).collect();
        let datagrams: Vec<_> = numbers.into_iter().map(make).collect();
        let from = format!("udp://127.0.0.1:0?window=5&sequence={option}");
        let mut recorder = Recorder::start(&[&from], &["--json"]);
        recorder.send(&datagrams);
        let (said, directory) = recorder.stop();
        let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
        let end = last(&said);
        let rule = &end["streams"][0]["sequence_rule"];
        assert_eq!(rule["option"], option, "{end}");
        assert!(rule["words"].as_str().unwrap().starts_with(words), "{option}: {rule}");
        let proof = json(&["recording", "verify", &path, "--json"]);
        assert_eq!((&proof["ok"], &proof["sequence_rules"][0]), (&true.into(), rule), "{proof}");
        let info = json(&["recording", "info", &path, "--json"]);
        assert_eq!(&info["sequence_rules"][0], rule);
        let text = String::from_utf8(farlane(&["recording", "verify", &path]).stdout).unwrap();
        assert!(text.contains(&format!("  stream 0: rule of sequence: {words}")), "{text}");
        assert_eq!(end["restarts"], proof["restarts"], "{option}");
        let restarts = end["restarts"].as_array().unwrap();
        assert_eq!(restarts.len(), usize::from(shows_restart), "{option}: {end}");
        assert_eq!(info["restarts"], usize::from(shows_restart));
        let is_loss = |gap: &Value| gap["packets"].as_u64() > Some(0) || gap["bytes"].as_u64() > Some(0);
        assert!(end["gaps"].as_array().unwrap().iter().all(is_loss), "{option}: {end}");
        if shows_restart {
            assert_eq!(end["gaps"].as_array().unwrap().len(), 1, "{option}: {end}");
            assert_eq!(end["gaps"][0]["packets"], 1, "{option}: {end}");
            let at = restarts[0]["from"].as_u64().unwrap();
            let line = format!("  restart: stream 0, the sender started over at byte {at}, ");
            assert!(text.contains(&line), "{text}");
        }
    }
}

#[test]
fn a_recording_without_numbers_says_so_and_an_old_one_does_not_say() {
    let none = json!({ "option": null, "window": null, "words": "none" });
    let directory = record_bytes("file", &[7; 40_000]);
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    let proof = json(&["recording", "verify", &path, "--json"]);
    assert_eq!((&proof["ok"], &proof["sequence_rules"]), (&true.into(), &json!([none])));
    // A superblock of an older recorder ends before the rules.
    let mut bytes = std::fs::read(&path).unwrap();
    let (mut header, payload) = record::format::Header::parse_chunk(0, &bytes, engine::crc32c).unwrap();
    header.length = u32::try_from(payload.len()).unwrap() - 16;
    header.emit(&mut bytes, engine::crc32c);
    std::fs::write(&path, bytes).unwrap();
    let proof = json(&["recording", "verify", &path, "--json"]);
    assert_eq!((&proof["ok"], &proof["sequence_rules"]), (&true.into(), &json!([null])));
    let text = String::from_utf8(farlane(&["recording", "verify", &path]).stdout).unwrap();
    assert!(text.contains("stream 0: rule of sequence: the recording does not say"), "{text}");
}

/// Changes the payload of the chunk in `slot` of the recording at `path`.
fn change(path: &str, slot: usize, chunk: usize, with: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    let place = &mut bytes[slot * chunk..(slot + 1) * chunk];
    let slot = u64::try_from(slot).unwrap();
    let (mut header, payload) = record::format::Header::parse_chunk(slot, place, engine::crc32c).unwrap();
    let mut payload = payload.to_vec();
    with(&mut payload);
    header.length = u32::try_from(payload.len()).unwrap();
    place[128..128 + payload.len()].copy_from_slice(&payload);
    header.emit(place, engine::crc32c);
    std::fs::write(path, bytes).unwrap();
}

/// The rule of one stream is the last 16 bytes of the superblock; byte 4 is the window.
fn change_window(superblock: &mut [u8]) {
    let window = superblock.len() - 16 + 4;
    superblock[window] = 9;
}

#[test]
fn a_rule_that_was_changed_after_the_signature_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key.pem").to_str().unwrap().to_owned();
    assert!(farlane(&["key", "new", &key]).status.success());
    let mut recorder =
        Recorder::start(&["udp://127.0.0.1:0?window=5&sequence=rtp"], &["--json", "--sign", &key]);
    recorder.send(&(1..30).map(rtp).collect::<Vec<_>>());
    let (_, directory) = recorder.stop();
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    let whole = std::fs::read(&path).unwrap();
    let proof = json(&["verify", &path, "--json"]);
    assert!(proof["ok"] == true && proof["signed_by"].is_string(), "{proof}");
    let signed = proof["signed_by"].as_str().unwrap().to_owned();
    let refused = |why: &[&str]| {
        let output = farlane(&["verify", &path, "--signed-by", &signed]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && why.iter().all(|part| said.contains(part)), "{said}");
    };
    change(&path, 0, 128 << 10, |superblock| change_window(superblock));
    let changed = "rule of sequence of stream 0 was changed";
    refused(&[changed, "up to 9 late", "in the superblock", "up to 5 late", "in the certificate"]);
    // A rule that was taken away is named, too.
    change(&path, 0, 128 << 10, |superblock| superblock.truncate(superblock.len() - 16));
    refused(&[changed, "not known in the superblock", "up to 5 late"]);
    // If the certificate's rule is changed as well, its signature is wrong.
    std::fs::write(&path, whole).unwrap();
    change(&path, 0, 128 << 10, |superblock| change_window(superblock));
    change(&path, 1, 128 << 10, |certificate| certificate[96 + 64 + 4] = 9);
    let output = farlane(&["verify", &path, "--json"]);
    let proof: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&proof["ok"], &proof["wrong_signature"]), (&false.into(), &true.into()), "{proof}");
}

#[test]
fn a_signature_of_an_older_recorder_which_covers_no_rule_stays_good() {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
    let directory = record_bytes("file", &[7; 40_000]);
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    let id = json(&["info", &path, "--json"])["recording"].as_str().unwrap().to_owned();
    let id: [u8; 16] = std::array::from_fn(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap());
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    change(&path, 1, 16 << 10, |payload| {
        // Byte 2 says that there is a signature, and byte 3 that no rules are named.
        payload[2..4].copy_from_slice(&[1, 0]);
        let message = [&b"farlane recording certificate\0"[..], &id, payload].concat();
        payload.extend(pair.public_key().as_ref());
        payload.extend(pair.sign(&message).as_ref());
    });
    let proof = json(&["verify", &path, "--json"]);
    assert!(proof["ok"] == true && proof["signed_by"].is_string(), "{proof}");
    assert_eq!(proof["wrong_signature"], false, "{proof}");
}
