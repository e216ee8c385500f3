//! Mistakes with recordings: a refused request changes nothing, and a failure is reported.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::support::{FARLANE, fail, succeed};
use serde_json::Value;

/// A recording of 1 MB in `directory`, and its bytes.
fn recording(directory: &Path) -> (String, Vec<u8>) {
    let path = directory.join("a.sigmf-data").to_str().unwrap().to_owned();
    succeed(&["record", "--from", "generate:100MB", "--size", "1MB", "--to", &path]);
    let bytes = std::fs::read(&path).unwrap();
    (path, bytes)
}

#[test]
fn nothing_writes_over_the_recording_that_it_reads() {
    let directory = tempfile::tempdir().unwrap();
    let (path, before) = recording(directory.path());
    let link = directory.path().join("link").to_str().unwrap().to_owned();
    std::fs::hard_link(&path, &link).unwrap();
    let base = directory.path().join("a").to_str().unwrap().to_owned();
    let outputs = [("raw", &path), ("raw", &link), ("sigmf", &base), ("mcap", &link)];
    for (format, output) in outputs {
        let error = fail(&["recording", "convert", &path, "--to", output, "--format", format]);
        assert!(error.contains("over"), "{format} {output}: {error}");
    }
    for output in [&path, &link] {
        fail(&["recording", "replay", &path, "--to", output, "--speed", "max"]);
    }
    assert!(std::fs::read(&path).unwrap() == before, "the recording is as it was");
}

#[test]
fn a_part_behind_the_end_is_refused_with_where_the_end_is() {
    let directory = tempfile::tempdir().unwrap();
    let (path, _) = recording(directory.path());
    let out = directory.path().join("out").to_str().unwrap().to_owned();
    for command in [
        &["recording", "replay", &path, "--to", &out][..],
        &["recording", "convert", &path, "--to", &out, "--format", "raw"],
    ] {
        let error = fail(&[command, &["--from-offset", "9MB"]].concat());
        assert!(error.contains("--from-offset") && error.contains("less than 1048576,"), "{error}");
    }
    for from in ["90s", "2500-01-01T00:00:00Z"] {
        let error = fail(&["recording", "replay", &path, "--to", &out, "--from-time", from]);
        assert!(error.contains("is behind the end") && error.contains("which ends at 20"), "{error}");
    }
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_member_that_is_refused_costs_the_others_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (path, before) = recording(directory.path());
    let (new, busy) = (directory.path().join("new"), directory.path().join("busy"));
    std::fs::write(&busy, "words").unwrap();
    let members = ["--to", &path, "--to", new.to_str().unwrap(), "--to", busy.to_str().unwrap()];
    // Another recorder records there.
    let lock = std::fs::File::open(&busy).unwrap();
    lock.lock().unwrap();
    let reported =
        fail(&[&["record", "--from", "generate:1MB", "--size", "1MB", "--force"][..], &members].concat());
    assert!(reported.contains("busy"), "{reported}");
    assert!(std::fs::read(&path).unwrap() == before, "the first member is as it was");
    assert!(!new.exists(), "the second member is not left behind");
    assert_eq!(std::fs::read(&busy).unwrap(), b"words");
}

#[test]
fn a_source_that_cannot_be_read_to_its_end_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    // The first page of a process is not there.
    let source = ["record", "--from", "file:/proc/self/mem", "--to", &path];
    let said = succeed(&[&source[..], &["--json"]].concat());
    let end: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(end["streams"][0]["broken"].as_str().unwrap().contains("Input/output error"), "{end}");
    let said = succeed(&[&source[..], &["--force"]].concat());
    assert!(said.contains("stream 0 broke off: Input/output error"), "{said}");
}

#[test]
fn impossible_buffers_are_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    let record = ["record", "--from", "generate:1MB", "--to", &path];
    let error = fail(&[&record[..], &["--rate", "10GB", "--pause", "10s"]].concat());
    assert!(
        error.contains("--pause") && error.contains("100000000000") && error.contains("16384"),
        "{error}"
    );
    let error = fail(&[&record[..], &["--buffer", "1"]].concat());
    assert!(error.contains("--buffer") && error.contains("4194304"), "{error}");
    let preflight = ["preflight", "--rate", "1MB", "--for", "1s"];
    let error = fail(&[&preflight[..], &["--buffer", "1", &path]].concat());
    assert!(error.contains("--buffer") && error.contains("4194304"), "{error}");
    let error = fail(&[&preflight[..], &["/dev/null"]].concat());
    assert!(error.contains("a character device") && error.contains("expected a file"), "{error}");
    assert!(!Path::new(&path).exists());
}

#[test]
fn what_was_never_written_of_a_long_file_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let (path, before) = recording(directory.path());
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 42).unwrap();
    // Without its certificate, the recording says no longer where it ends.
    file.write_all_at(&[0; 4_096], 131_072).unwrap();
    assert!(succeed(&["recording", "info", &path]).contains("cut off"));
    let verified = Command::new(&*FARLANE).args(["recording", "verify", &path]).output().unwrap();
    assert_eq!(verified.status.code(), Some(1), "{verified:?}");
    succeed(&["recording", "recover", &path]);
    assert_eq!(
        succeed(&["recording", "verify", &path]).lines().next(),
        Some("proved: 1048576 B in 9 chunks")
    );
    assert!(std::fs::metadata(&path).unwrap().len() <= before.len() as u64 + 131_072);
}
