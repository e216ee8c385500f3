//! `read` and `write` with files and pipes of every kind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::Read;
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};
use support::running::Running;
use support::{Export, FARLANE, json};

/// Bytes that no part of which looks like another.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_large_file_comes_back_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let far = Export::start(&["--namespace", &format!("{},size=80MiB", at("disk.img"))]);
    let bytes = noise(64 << 20);
    std::fs::write(at("original"), &bytes).unwrap();
    let written = json(&["write", &far.url(), "--input", &at("original"), "--offset", "8MiB", "--json"]);
    assert_eq!((&written["bytes"], &written["sha256"]), (&(64 << 20).into(), &sha256(&bytes).into()));
    let output = ["--offset", "8MiB", "--length", "64MiB", "--output", &at("copy"), "--json"];
    let read = json(&[&["read", &far.url()], &output[..]].concat());
    assert_eq!(read["sha256"], written["sha256"]);
    assert!(std::fs::read(at("copy")).unwrap() == bytes);
    assert!(std::fs::read(at("disk.img")).unwrap()[8 << 20..72 << 20] == bytes);
}

#[test]
fn a_part_of_a_block_leaves_the_rest_of_it_as_it_was() {
    for block in [512, 4096] {
        let far = Export::start(&["--ram", &format!("1MiB,block={block}")]);
        let url = &far.url();
        let before = noise(1 << 20);
        Running::fed(&["write", url, "--json"], before.clone()).json();
        for length in [1, 511, 512, 4095, 4097, 131_072, 300_001] {
            let now = vec![0xa5; length];
            let (written, _) = Running::fed(&["write", url, "--json"], now.clone()).json();
            assert_eq!(written["bytes"], length);
            let output = Running::start(&["read", url]).output(std::time::Duration::from_secs(60));
            let mut expected = before.clone();
            expected[..300_001.min(length)].copy_from_slice(&now);
            assert!(output.stdout == expected, "{length} bytes in blocks of {block}");
        }
    }
}

#[test]
fn a_reader_that_has_enough_ends_a_read_quietly() {
    let far = Export::start(&["--ram", "64MiB"]);
    let mut read = Command::new(FARLANE)
        .args(["read", &far.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ten = [1; 10];
    read.stdout.take().unwrap().read_exact(&mut ten).unwrap();
    assert_eq!(ten, [0; 10]);
    // Its end of the pipe is closed by now.
    let output = read.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("Error") && !said.contains("panicked"), "{said}");
    far.wait_for("closed by the peer");
}

#[test]
fn nothing_is_written_of_nothing() {
    let far = Export::start(&["--ram", "1MiB"]);
    let (written, _) = Running::fed(&["write", &far.url(), "--json"], Vec::new()).json();
    assert_eq!((&written["bytes"], &written["sha256"]), (&0.into(), &sha256(&[]).into()));
    let read = json(&["read", &far.url(), "--length", "0", "--output", "/dev/null", "--json"]);
    assert_eq!(read["bytes"], 0);
}
