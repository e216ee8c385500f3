//! Linux's own NVMe/TCP initiator, in a guest, on `farlane target`.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::process::Command;
use std::time::Duration;

use guest::{Builder, Guest, Kit, skip};

use support::{Export, FARLANE};

/// What a guest does with a target.
const USE: &str = include_str!("guest/fabrics.sh");
/// How long a guest may take for something.
const LIMIT: Duration = Duration::from_secs(60);
const NQN: &str = "nqn.2026-01.io.farlane:guest";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

/// `farlane target` at `listen`; a guest reaches it at 10.0.2.2.
fn target(listen: &str, arguments: &[&str]) -> Export {
    let mut command = Command::new(FARLANE);
    command.args(["target", "--json", "--listen", listen, "--nqn", NQN]).args(arguments);
    Export::of(command)
}

/// A guest with the initiator and its tools, and `$PORT`, `$NQN`, `$HOST` in its script.
fn guest_on(kit: &Kit, target: &Export, script: &str) -> Builder {
    let port = target.address.rsplit(':').next().unwrap();
    let script = format!("PORT={port} NQN={NQN} HOST={HOST}\n{script}");
    let builder = Guest::builder(kit).unwrap().tools(["nvme", "fio"]).unwrap();
    builder.modules(["nvme-tcp"]).unwrap().user_network().unwrap().limit(LIMIT * 3).script(script)
}

/// Lines that `USE` prints when all goes well.
const SAID: [&str; 22] = [
    "discovered",
    "an unknown subsystem is refused",
    "listed",
    "subsystem listed",
    "registers shown",
    "identified",
    "namespaces described",
    "logs answered",
    "keep alive is on",
    "copied and compared",
    "fio verified",
    "discarded",
    "a namespace has come",
    "a namespace has gone",
    "controller reset",
    "disconnected",
    "digests verified",
    "fio verified with digests",
    "without flow control",
    "nothing in the kernel's log",
    "connected to all",
    "fio verified through a restart",
];

#[test]
fn linux_uses_a_target_as_any_other_and_finds_it_again_when_it_was_killed() {
    let Some(kit) = skip::kit_or_skip("Linux's initiator on a target") else { return };
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    // The guest knows this machine by another address.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (listen, advertise) = (format!("127.0.0.1:{port}"), format!("10.0.2.2:{port}"));
    let control = directory.path().join("control");
    let arguments = [
        ["--namespace", image.to_str().unwrap()],
        ["--serial", "FABRICS"],
        ["--advertise", &advertise],
        ["--control", control.to_str().unwrap()],
    ]
    .concat();
    let mut first = target(&listen, &arguments);
    let mut running = guest_on(kit, &first, USE).start().unwrap();
    let ask = |words: &[&str]| {
        let socket = ["--control", control.to_str().unwrap()];
        support::succeed(&[&["target"], words, &socket].concat())
    };
    running.expect("add a namespace", LIMIT * 2).unwrap_or_else(|error| panic!("{error}\n{}", first.said()));
    assert_eq!(ask(&["add", "--ram", "16MiB"]), format!("added namespace 2 to {NQN}\n"));
    let status: serde_json::Value = serde_json::from_str(&ask(&["status", "--json"])).unwrap();
    let controller = &status["subsystems"][0]["controllers"][0];
    assert_eq!(controller["host"], HOST, "{status}");
    assert_eq!(controller["queues"].as_array().map(Vec::len), Some(3), "{status}");
    running.expect("remove it", LIMIT).unwrap();
    ask(&["remove", "--nsid", "2"]);
    running.expect("running", LIMIT * 4).unwrap_or_else(|error| panic!("{error}\n{}", first.said()));
    std::thread::sleep(Duration::from_secs(1));
    let said = first.kill();
    std::thread::sleep(Duration::from_secs(2));
    let mut second = target(&listen, &arguments);
    running.tell("restarted").unwrap();
    let outcome = running.finish().unwrap().expect_success();
    for line in SAID {
        assert!(outcome.output.lines().any(|one| one == line), "{line:?} in {}", outcome.output);
    }
    for words in [
        "uses the discovery service, controller",
        &format!("there is no subsystem {NQN}.none at this port"),
        &format!("{HOST} (127.0.0.1:"),
        "depth 1024, no digests",
        "header and data digests, keep alive 5 s",
    ] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
    let (status, said) = second.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the target has shut down"), "{said}");
}
