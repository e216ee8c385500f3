//! Recordings to media and from sources on a bad day, and their ends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use record::registers::Direction;
use rustix::fs::{MemfdFlags, SealFlags};

use record::Progress;
use record::format::{CHUNK_MIN, Certificate, Kind, Reason};

use super::session::Ends;
use super::source::{Feed, Intake, Took};
use super::*;

/// A file in memory that takes no write any more once it is sealed: each fails from then on.
#[test]
fn a_medium_that_breaks_keeps_what_was_acknowledged_and_the_rest_is_declared() {
    for algorithm in [Algorithm::Sha256, Algorithm::Blake3, Algorithm::None] {
        let medium: File = rustix::fs::memfd_create("medium", MemfdFlags::ALLOW_SEALING).unwrap().into();
        let path = PathBuf::from(format!("/proc/self/fd/{}", medium.as_raw_fd()));
        let config =
            Config { algorithm, digests: Digests::World, ..Config::new([3; 16], vec!["made".into()]) };
        let place = Place { targets: vec![Target::Path(&path)], overwrite: false };
        let limits = Limits { time: Some(Duration::from_secs(30)), bytes: None };
        let mut acknowledged = 0;
        let report = |status: &Status| {
            let progress = status.progress;
            if acknowledged == 0 && progress.acknowledged > 0 {
                rustix::fs::fcntl_add_seals(&medium, SealFlags::FUTURE_WRITE).unwrap();
                acknowledged = progress.acknowledged;
            }
        };
        let sources = vec![Source::generate(20_000_000)];
        let handle = Handle::new(Direction::Write, End::new().unwrap());
        let recorded = record(place, config, sources, limits, &handle, report).unwrap();
        let certificate = &recorded.certificate;
        assert_eq!((certificate.reason, recorded.is_certified), (Reason::Failed, false), "{recorded:?}");
        let (came, stored, lost) =
            (certificate.bytes_in(), certificate.bytes_stored(), certificate.bytes_lost());
        assert!(came == stored + lost && stored >= acknowledged && lost > 0, "{recorded:?}");
        let found = Recording::read(&path, false).unwrap();
        assert!(found.survey.certificate.is_none() && !found.is_proved());
        assert_eq!(found.survey.bytes(), stored);
        assert!(found.survey.holes.is_empty() && found.survey.bad.is_empty());
    }
}

/// The entries of an index match the chunks, and without an index their headers are read.
#[test]
fn a_recording_is_opened_as_it_is_read_with_and_without_its_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let streams = vec!["one".into(), "two".into(), "three".into()];
    let (chunk, algorithm) = (CHUNK_MIN, Algorithm::Blake3);
    let config = Config { chunk, algorithm, digests: Digests::World, ..Config::new([5; 16], streams) };
    let place = Place { targets: vec![Target::Path(&path)], overwrite: false };
    let limits = Limits { time: None, bytes: Some(30 << 20) };
    let sources = [50_000_000, 20_000_000, 3_000_000].map(Source::generate).into_iter().collect();
    let handle = Handle::new(Direction::Write, End::new().unwrap());
    let recorded = record(place, config, sources, limits, &handle, |_| {}).unwrap();
    let assert_same = |why: &str, slots: u64| {
        let (opened, read) = (Recording::open(&path).unwrap().survey, Recording::read(&path, false).unwrap());
        assert_eq!(opened.entries, read.survey.entries, "{why}");
        assert_eq!((opened.times, opened.end), (read.survey.times, slots), "{why}");
        assert_eq!(read.digest_of_all(), recorded.certificate.digest, "{why}");
        let (mut bytes, mut block) = (0, None);
        let recording = Recording::open(&path).unwrap();
        let spare = &mut || block.take().unwrap_or_else(|| Block::of(CHUNK_MIN as usize));
        recording.chunks(&opened.entries, spare, &mut |entry, chunk| {
            assert!(chunk.unwrap().is_ok(), "{why}: {entry:?}");
            bytes += u64::from(entry.length);
            std::ops::ControlFlow::Continue(())
        });
        assert_eq!(bytes, recorded.certificate.bytes_stored(), "{why}");
    };
    let slots = recorded.certificate.slots;
    assert_same("whole", slots);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut head = [0; 11];
    let index = (3..slots).rev().find(|slot| {
        file.read_exact_at(&mut head, slot * u64::from(CHUNK_MIN)).unwrap();
        head[10] == 4
    });
    assert!(index.is_some(), "{:?} is the kind of an index", Kind::Index);
    file.write_all_at(&[0xff; 4], index.unwrap() * u64::from(CHUNK_MIN) + 200).unwrap();
    assert_same("a damaged index", slots);
}

/// Writes `kind` with `payload` in `slot` of the medium, as a chunk of this recording.
fn forge(path: &std::path::Path, kind: Kind, slot: u64, emit: impl FnOnce(&mut [u8]) -> usize) {
    Recording::read(path, true).unwrap().put(kind, slot, emit).unwrap();
}

#[test]
fn a_certificate_that_lies_about_slots_neither_stops_readers_nor_recovery() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let config = Config { chunk: CHUNK_MIN, ..Config::new([6; 16], vec!["made".into()]) };
    let place = Place { targets: vec![Target::Path(&path)], overwrite: false };
    let limits = Limits { time: None, bytes: Some(1 << 20) };
    let handle = Handle::new(Direction::Write, End::new().unwrap());
    let sources = vec![Source::generate(500_000_000)];
    let certificate = record(place, config, sources, limits, &handle, |_| {}).unwrap().certificate;
    let lie = Certificate { slots: u64::MAX, index: u64::MAX, bad: 0, ..certificate };
    forge(&path, Kind::Certificate, 1, |payload| lie.emit(payload));
    let opened = Recording::open(&path).unwrap().survey;
    assert_eq!(opened.bytes(), 1 << 20);
    // A data chunk becomes a certificate, which must not be believed in its slot.
    forge(&path, Kind::Certificate, 5, |payload| lie.emit(payload));
    let mut cut = Recording::read(&path, true).unwrap();
    assert!(!cut.is_proved());
    assert_eq!(cut.survey.holes.len(), 1);
    assert_eq!(cut.mend().unwrap().len(), 1);
    drop(cut);
    let repaired = Recording::read(&path, false).unwrap();
    assert!(repaired.is_proved(), "{:?}", repaired.survey.certificate);
    assert!(std::fs::metadata(&path).unwrap().len() < 2 << 20);
}

#[test]
fn a_named_pipe_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let why = Recording::open(&path).unwrap_err().to_string();
    assert_eq!(why, "it is a named pipe; expected a file or a block device");
    assert_eq!(Recording::read(&path, true).unwrap_err().to_string(), why);
    let config = Config::new([7; 16], vec!["made".into()]);
    let place = Place { targets: vec![Target::Path(&path)], overwrite: true };
    let limits = Limits { time: None, bytes: Some(1) };
    let handle = Handle::new(Direction::Write, End::new().unwrap());
    let refused = record(place, config, vec![Source::generate(1)], limits, &handle, |_| {});
    assert!(matches!(refused, Err(Refused::Medium { member: 0, error }) if error.to_string() == why));
}

#[test]
fn a_source_that_is_a_pipe_waits_for_its_writer_until_it_is_asked_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let [pipe, to] = ["pipe", "a.rec"].map(|name| directory.path().join(name));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let recorded = |handle: &Handle, source: Source| {
        let config = Config::new([8; 16], vec!["pipe".into()]);
        let place = Place { targets: vec![Target::Path(&to)], overwrite: true };
        record(place, config, vec![source], Limits::default(), handle, |_| {}).unwrap().certificate
    };
    let handle = Handle::new(Direction::Write, End::new().unwrap());
    let source = Source::file(&pipe).unwrap();
    handle.stop();
    let certificate = recorded(&handle, source);
    assert_eq!((certificate.reason, certificate.bytes_in()), (Reason::Asked, 0));
    let source = Source::file(&pipe).unwrap();
    let writer = std::thread::spawn(move || std::fs::write(&pipe, vec![7_u8; 300_000]));
    let certificate = recorded(&Handle::new(Direction::Write, End::new().unwrap()), source);
    assert_eq!((certificate.reason, certificate.bytes_stored()), (Reason::SourceEnded, 300_000));
    writer.join().unwrap().unwrap();
}

#[test]
fn what_was_lost_on_the_wire_counts_towards_no_limit() {
    let ends = Ends { time: None, bytes: Some(1_000), never_came: 50 };
    let progress = Progress { bytes_in: 700, never_came: 50, ..Progress::default() };
    assert_eq!(ends.left(&progress), Some(300));
    let progress = Progress { bytes_in: (23 << 30) + 700, never_came: (23 << 30) + 50, ..progress };
    assert_eq!(ends.left(&progress), Some(300));
    assert_eq!(ends.left(&Progress { bytes_in: 1_001, never_came: 50, ..progress }), Some(0));
    assert_eq!(Ends::default().left(&progress), None);
}

/// A source that has something whenever it is looked at, as a socket under a flood has.
struct Flooded;

impl Feed for Flooded {
    fn take(&mut self, intake: &mut Intake<'_, '_>) -> Took {
        match intake.lane.room() {
            Some(room) => {
                let bytes = room.len().min(100);
                intake.lane.filled(bytes, real_time());
            }
            None => intake.lane.lose(100, real_time().nanos),
        }
        Took::Something
    }

    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}

/// Runs `work` on a thread of its own. Panics if it takes longer than half a minute.
fn within_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || done.send(work()));
    let result = is_done.recv_timeout(Duration::from_secs(30)).expect("it ends within half a minute");
    thread.join().unwrap().unwrap();
    result
}

/// The last writes are submitted although the source has more and more.
#[test]
fn a_source_that_never_pauses_does_not_keep_a_recording_from_ending() {
    let directory = tempfile::tempdir().unwrap();
    let [whole, raw] = ["whole", "raw"].map(|name| directory.path().join(name));
    let end = |path: PathBuf, is_raw: bool| {
        let handle = Handle::new(Direction::Write, End::new().unwrap());
        let other = handle.clone();
        let asks = std::thread::spawn(move || {
            while other.status().progress.bytes_in == 0 {
                std::thread::yield_now();
            }
            other.stop();
        });
        let (target, limits) = (Target::Path(&path), Limits::default());
        let source = Source::new(Flooded);
        let recorded = match is_raw {
            true => {
                let config = record::RawConfig::new(CHUNK_MIN, 0);
                record_raw((target, true), config, source, limits, &handle, |_| {}).unwrap()
            }
            false => {
                let config = Config::new([9; 16], vec!["flood".into()]);
                let place = Place { targets: vec![target], overwrite: true };
                super::record(place, config, vec![source], limits, &handle, |_| {}).unwrap()
            }
        };
        asks.join().unwrap();
        (recorded.certificate.reason, recorded.is_certified, handle.status().state)
    };
    assert_eq!(within_time(move || end(whole, false)), (Reason::Asked, true, State::Ended));
    assert_eq!(within_time(move || end(raw, true)), (Reason::Asked, true, State::Ended));
}

/// Nothing but the request wakes the loop.
#[test]
fn whatever_is_asked_of_a_handle_ends_the_sleep_of_its_loop() {
    for round in 0..200_u64 {
        let (end, pause) = (End::new().unwrap(), Duration::from_micros(round % 7 * 30));
        let handle = Handle::new(Direction::Write, end.clone());
        let waiting = handle.clone();
        let asks = std::thread::spawn(move || {
            std::thread::sleep(pause);
            if round % 2 == 0 { assert!(handle.start()) } else { end.ask() }
        });
        assert_eq!(within_time(move || waiting.wait_for_start().unwrap()), round % 2 == 0, "{round}");
        asks.join().unwrap();
    }
}

#[test]
fn a_limit_of_bytes_counts_those_that_had_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let config = Config { chunk: CHUNK_MIN, buffer: 32, ..Config::new([2; 16], vec!["made".into()]) };
    let place = Place { targets: vec![Target::Path(&path)], overwrite: true };
    let limits = Limits { time: None, bytes: Some(20 << 20) };
    let handle = Handle::new(Direction::Write, End::new().unwrap());
    // More than any buffer holds: a part is lost.
    let source = Source::generate(1 << 40).on_full(OnFull::Drop);
    let certificate =
        super::record(place, config, vec![source], limits, &handle, |_| {}).unwrap().certificate;
    assert_eq!((certificate.reason, certificate.bytes_in()), (Reason::Limit, 20 << 20));
    assert_eq!(certificate.bytes_in(), certificate.bytes_stored() + certificate.bytes_lost());
}
