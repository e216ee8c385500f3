//! `read` and `write` with files and pipes of every kind.

use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::running::Running;
use crate::support::{Export, FARLANE, json};
use sha2::{Digest, Sha256};

/// Bytes of which no part looks like another.
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
    let written =
        json(&["use", "write", &far.url(), "--input", &at("original"), "--offset", "8MiB", "--json"]);
    assert_eq!((&written["bytes"], &written["sha256"]), (&(64 << 20).into(), &sha256(&bytes).into()));
    let output = ["--offset", "8MiB", "--length", "64MiB", "--output", &at("copy"), "--json"];
    let read = json(&[&["use", "read", &far.url()], &output[..]].concat());
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
        Running::fed(&["use", "write", url, "--json"], before.clone()).json();
        for length in [1, 511, 512, 4095, 4097, 131_072, 300_001] {
            let now = vec![0xa5; length];
            let (written, _) = Running::fed(&["use", "write", url, "--json"], now.clone()).json();
            assert_eq!(written["bytes"], length);
            let output = Running::start(&["use", "read", url]).output();
            let mut expected = before.clone();
            expected[..300_001.min(length)].copy_from_slice(&now);
            assert!(output.stdout == expected, "{length} bytes in blocks of {block}");
        }
    }
}

#[test]
fn a_reader_that_has_enough_ends_a_read_quietly() {
    let far = Export::start(&["--ram", "64MiB"]);
    let mut read = Command::new(&*FARLANE)
        .args(["use", "read", &far.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ten = [1; 10];
    read.stdout.take().unwrap().read_exact(&mut ten).unwrap();
    assert_eq!(ten, [0; 10]);
    // The reader's end of the pipe is closed by now.
    let output = read.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("Error") && !said.contains("panicked"), "{said}");
    far.wait_for("closed by the peer");
}

#[test]
fn nothing_is_written_of_nothing() {
    let far = Export::start(&["--ram", "1MiB"]);
    let (written, _) = Running::fed(&["use", "write", &far.url(), "--json"], Vec::new()).json();
    assert_eq!((&written["bytes"], &written["sha256"]), (&0.into(), &sha256(&[]).into()));
    let read = json(&["use", "read", &far.url(), "--length", "0", "--output", "/dev/null", "--json"]);
    assert_eq!(read["bytes"], 0);
}

/// A time longer than either end of a tunnel waits for a sign of life.
const LONGER_THAN_SILENCE: Duration = Duration::from_millis(6_500);

fn piped(arguments: &[&str]) -> Child {
    Command::new(&*FARLANE)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_input_that_is_blocked_stalls_no_session() {
    let far = Export::start(&["--ram", "4MiB"]);
    let bytes = noise(1 << 20);
    let mut write = piped(&["use", "write", &far.url(), "--json"]);
    let mut stdin = write.stdin.take().unwrap();
    stdin.write_all(&bytes[..700_001]).unwrap();
    stdin.flush().unwrap();
    sleep(LONGER_THAN_SILENCE);
    stdin.write_all(&bytes[700_001..]).unwrap();
    drop(stdin);
    let output = write.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), "", "the link was never interrupted");
    let read = json(&["use", "read", &far.url(), "--length", "1MiB", "--output", "/dev/null", "--json"]);
    assert_eq!(read["sha256"], sha256(&bytes));
}

#[test]
fn an_output_that_is_blocked_stalls_no_session() {
    let far = Export::start(&["--ram", "16MiB"]);
    let bytes = noise(16 << 20);
    Running::fed(&["use", "write", &far.url(), "--json"], bytes.clone()).json();
    let read = piped(&["use", "read", &far.url()]);
    sleep(LONGER_THAN_SILENCE);
    let output = read.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(output.stdout == bytes);
    assert!(!said(&output).contains("link"), "{}", said(&output));
}

#[test]
fn of_an_input_that_is_too_long_all_that_fits_is_written() {
    let far = Export::start(&["--ram", "4MiB"]);
    let bytes = noise((4 << 20) + 70_000);
    let mut write = piped(&["use", "write", &far.url(), "--offset", "4096"]);
    let mut stdin = write.stdin.take().unwrap();
    let fed = bytes.clone();
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&fed)));
    let output = write.wait_with_output().unwrap();
    feeder.join().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let fits = (4 << 20) - 4096;
    assert!(
        said(&output).contains(&format!("the namespace is full: {fits} B are written")),
        "{}",
        said(&output)
    );
    let read = ["read", &far.url(), "--offset", "4096", "--output", "/dev/null", "--json"];
    assert_eq!(json(&read)["sha256"], sha256(&bytes[..fits]));
}

#[test]
fn lengths_that_are_known_are_checked_before_anything_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("short").to_str().unwrap().to_owned();
    std::fs::write(&at, noise(8192)).unwrap();
    let far = Export::start(&["--ram", "1MiB"]);
    let url = &far.url();
    let output =
        piped(&["use", "write", url, "--input", &at, "--length", "16KiB"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("--length 16384") && said(&output).contains("8192"), "{}", said(&output));
    let output =
        piped(&["use", "write", url, "--input", &at, "--offset", "1044480"]).wait_with_output().unwrap();
    assert!(!output.status.success() && said(&output).contains("8192"), "{}", said(&output));
    let read = json(&["use", "read", url, "--output", "/dev/null", "--json"]);
    assert_eq!(read["sha256"], sha256(&vec![0; 1 << 20]), "nothing was written");
    // The length of a pipe is not known beforehand.
    let output = Running::fed(&["use", "write", url, "--length", "16KiB"], noise(8192)).output();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("ended after 8192 B of --length 16384"), "{}", said(&output));
}
