//! Recordings that wait for a trigger: the kept data are written, and none before.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::running::{Running, wait_for_listener, wait_until};
use crate::support::{fail, json, succeed};
use cloud_hypervisor_vfio_user::Client;
use record::registers::layout as at;
use serde_json::Value;

const SECOND: u64 = 1_000_000_000;

/// A recorder that keeps what comes, and answers at a control socket.
struct Armed {
    recorder: Running,
    directory: tempfile::TempDir,
}

impl Armed {
    fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (recording, control) = (at("a.rec"), at("control"));
        let arguments = ["record", "--to", &recording, "--control", &control, "--json"];
        let recorder = Running::start(&[&arguments[..], options].concat());
        wait_for_listener(&control);
        Self { recorder, directory }
    }

    fn at(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn ask(&self, what: &str) -> Value {
        json(&["record", "ctl", &self.at("control"), what, "--json"])
    }

    /// Waits until the recorder keeps so many nanoseconds.
    fn wait_for(&self, kept: u64) -> Value {
        wait_until("enough is kept", || self.ask("status")["kept_ns"].as_u64() > Some(kept));
        self.ask("status")
    }

    /// The events of the recorder, once it has ended, with the last one; and its directory.
    fn end(self) -> (Vec<Value>, Value, tempfile::TempDir) {
        let output = self.recorder.output();
        let text = String::from_utf8(output.stdout).unwrap();
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let end = events.last().unwrap().clone();
        assert_eq!((&end["event"], &end["certified"]), (&"end".into(), &true.into()), "{end}");
        (events, end, self.directory)
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} in {value}"))
}

#[test]
fn what_was_kept_is_recorded_with_what_comes_after_a_trigger() {
    // It still records when it is asked for the second time.
    let options = ["--from", "generate:4MB", "--rate", "4MB", "--pre-trigger", "1s", "--for", "3s"];
    let armed = Armed::start(&options);
    let status = armed.wait_for(SECOND);
    assert_eq!((&status["state"], &status["bytes_stored"]), (&"armed".into(), &0.into()), "{status}");
    assert_eq!(status["pre_trigger_ns"], SECOND);
    let text = succeed(&["record", "ctl", &armed.at("control"), "status"]);
    assert!(text.contains("until it is triggered"), "{text}");
    // More comes than is kept.
    std::thread::sleep(Duration::from_millis(1_200));
    assert_eq!(armed.ask("trigger")["triggered"], true);
    let error = fail(&["record", "ctl", &armed.at("control"), "trigger"]);
    assert!(error.contains("waits for no trigger"), "{error}");
    let (events, end, directory) = armed.end();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let event = events.iter().find(|event| event["event"] == "trigger").unwrap();
    assert_eq!(event["when"], end["triggered"]["when"]);
    // The last second, and what else is in its first chunk.
    let before = number(event, "before_ns");
    assert!((SECOND * 9 / 10..SECOND * 17 / 10).contains(&before), "{event}");
    assert_eq!((&end["reason"], &end["bytes_lost"]), (&"limit reached".into(), &0.into()));
    let (kept, all) = (number(event, "bytes_before"), number(&end, "bytes_in"));
    assert!(kept > 3_000_000 && all > kept + 3_000_000, "{end}");
    assert_eq!(json(&["recording", "verify", &at("a.rec"), "--json"])["ok"], true);
    let info = json(&["recording", "info", &at("a.rec"), "--json"]);
    assert_eq!(info["triggered"]["before_ns"], before, "{info}");
    assert!(succeed(&["recording", "info", &at("a.rec")]).contains("triggered at 20"));
    // The bytes go on without a gap, and begin with the first that was kept.
    succeed(&["export", &at("a.rec"), "--to", &at("raw"), "--format", "raw"]);
    let bytes = std::fs::read(at("raw")).unwrap();
    assert_eq!(bytes.len() as u64, all);
    // A chunk may begin within a word.
    let words = |start: usize| {
        let words = bytes[start..].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        words.collect::<Vec<_>>()
    };
    let words = (0..8).map(words).find(|words| words[0] + 1 == words[1]).unwrap();
    assert!(words[0] > 100_000, "it begins at word {}", words[0]);
    assert!(words.windows(2).all(|pair| pair[0] + 1 == pair[1]), "words are missing");
}

#[test]
fn a_signal_triggers_and_datagrams_of_before_are_there() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("udp://127.0.0.1:{port}?sequence=offset:0,bytes:4,step:1,be");
    let armed = Armed::start(&["--from", &url, "--pre-trigger", "700ms", "--for", "500ms"]);
    let is_over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_over);
    let sender = std::thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for count in 0_u32.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let _ = socket.send_to(&[&count.to_be_bytes()[..], &[7; 500]].concat(), ("127.0.0.1", port));
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    armed.wait_for(700_000_000);
    std::thread::sleep(Duration::from_millis(900));
    armed.recorder.signal("USR1");
    let (_, end, directory) = armed.end();
    is_over.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    assert_eq!((&end["bytes_lost"], &end["gaps"]), (&0.into(), &Value::Array(Vec::new())), "{end}");
    let before = number(&end["triggered"], "before_ns");
    assert!((600_000_000..1_500_000_000).contains(&before), "{end}");
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    assert_eq!(json(&["recording", "verify", &at("a.rec"), "--json"])["ok"], true);
    succeed(&["export", &at("a.rec"), "--to", &at("raw"), "--format", "raw"]);
    let bytes = std::fs::read(at("raw")).unwrap();
    // Datagrams of 504 bytes.
    let numbers = bytes.chunks_exact(504).map(|one| u32::from_be_bytes(one[..4].try_into().unwrap()));
    let numbers: Vec<_> = numbers.collect();
    assert!(numbers[0] > 100, "it begins with {}", numbers[0]);
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
}

#[test]
fn a_buffer_that_is_too_small_keeps_less_and_says_so() {
    let options = [
        "--from",
        "generate:20MB",
        "--rate",
        "20MB",
        "--buffer",
        "4MiB",
        "--pre-trigger",
        "10s",
        "--for",
        "1s",
    ];
    let armed = Armed::start(&options);
    let status = armed.wait_for(120_000_000);
    wait_until("the buffer is full", || number(&armed.ask("status"), "fill_bytes") > 2_900_000);
    assert!(number(&status, "kept_ns") < SECOND, "{status}");
    armed.ask("trigger");
    let output = armed.recorder.output();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        reported.contains("of the 10 s before a trigger") && reported.contains("--buffer "),
        "{reported}"
    );
    let end: Value =
        serde_json::from_slice(output.stdout.split(|byte| *byte == b'\n').rev().nth(1).unwrap()).unwrap();
    assert_eq!(&end["certified"], true, "{end}");
    assert!(number(&end["triggered"], "before_ns") < SECOND, "{end}");
}

#[test]
fn a_recording_without_a_trigger_is_empty_and_certified() {
    let armed = Armed::start(&["--from", "generate:4MB", "--pre-trigger", "1s", "--size", "1MiB"]);
    armed.wait_for(500_000_000);
    armed.recorder.signal("INT");
    let (_, end, directory) = armed.end();
    assert_eq!((&end["bytes_in"], &end["triggered"]), (&0.into(), &Value::Null), "{end}");
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    let proof = json(&["recording", "verify", &path, "--json"]);
    assert_eq!((&proof["ok"], &proof["bytes"]), (&true.into(), &0.into()), "{proof}");
    // A source that ends is forgotten when its data are too old.
    let file = directory.path().join("file").to_str().unwrap().to_owned();
    std::fs::write(&file, vec![1; 300_000]).unwrap();
    let from = format!("file:{file}");
    let said = succeed(&["record", "--from", &from, "--to", &path, "--force", "--pre-trigger", "300ms"]);
    assert!(said.contains("0 B in") && said.contains("never triggered: no data are recorded"), "{said}");
}

#[test]
fn a_recorder_that_is_killed_before_a_trigger_leaves_an_empty_recording() {
    let armed = Armed::start(&["--from", "generate:4MB", "--pre-trigger", "1s"]);
    armed.wait_for(300_000_000);
    armed.recorder.signal("KILL");
    let Armed { recorder, directory } = armed;
    recorder.output();
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    succeed(&["recording", "recover", &path]);
    let proof = json(&["recording", "verify", &path, "--json"]);
    assert_eq!((&proof["ok"], &proof["bytes"]), (&true.into(), &0.into()), "{proof}");
}

#[test]
fn a_trigger_without_a_waiting_recorder_is_refused() {
    let record = ["record", "--from", "generate:1MB", "--to", "/nowhere/a.rec"];
    for (more, words) in [
        (&["--pre-trigger", "5s", "--ring", "1GiB"][..], "--ring"),
        (&["--pre-trigger", "0"], "expected a time such as"),
        (&["--for", "0s"], "expected a time such as"),
        (&["--pre-trigger", "1h", "--rate", "1GB"], "--pre-trigger"),
    ] {
        let error = fail(&[&record[..], more].concat());
        assert!(error.contains(words), "{error}");
    }
    let armed = Armed::start(&["--from", "generate:1MB", "--for", "20s"]);
    let error = fail(&["record", "ctl", &armed.at("control"), "trigger"]);
    assert!(error.contains("start it with --pre-trigger TIME"), "{error}");
}

#[test]
fn a_driver_triggers_by_the_registers() {
    const ARMED: u64 = 1;
    const RUNNING: u64 = 2;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (recording, socket) = (path("a.rec"), path("registers"));
    let source = ["record", "--from", "generate:4MB", "--to", &recording, "--pre-trigger", "300ms"];
    let recorder =
        Running::start(&[&source[..], &["--on-demand", "--registers", &socket, "--json"]].concat());
    wait_for_listener(&socket);
    let mut client = Client::new(Path::new(&socket)).unwrap();
    // BAR0 is region 0, the configuration space region 7. Memory Space and Bus Master Enable.
    client.region_write(7, 4, &6_u16.to_le_bytes()).unwrap();
    let read = |client: &mut Client, register: u32| {
        let mut bytes = [0; 8];
        client.region_read(0, register.into(), &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    let control = |client: &mut Client, bits: u32| {
        client.region_write(0, (at::WRITING + at::CONTROL).into(), &bits.to_le_bytes()).unwrap();
    };
    let can = read(&mut client, at::CAPABILITIES);
    assert_eq!(can & u64::from(u32::MAX), u64::from(at::CAN_WRITE | at::CAN_TRIGGER));
    control(&mut client, at::START);
    let state = |client: &mut Client| read(client, at::WRITING + at::CONTROL) >> 32;
    wait_until("something is kept", || read(&mut client, at::WRITING + at::BYTES) > 1_000_000);
    assert_eq!((state(&mut client), read(&mut client, at::WRITING + at::BYTES_STORED)), (ARMED, 0));
    control(&mut client, at::TRIGGER);
    wait_until("it records", || state(&mut client) == RUNNING);
    wait_until("it is stored", || read(&mut client, at::WRITING + at::BYTES_STORED) > 1_500_000);
    control(&mut client, at::STOP);
    recorder.signal("INT");
    let output = String::from_utf8(recorder.output().stdout).unwrap();
    let end: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert!(number(&end["triggered"], "before_ns") > 200_000_000, "{end}");
    assert_eq!(json(&["recording", "verify", &recording, "--json"])["ok"], true);
}
