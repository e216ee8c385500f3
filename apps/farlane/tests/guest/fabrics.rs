//! Linux's own NVMe/TCP initiator, in a guest, uses `farlane target`.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use guest::{Builder, Guest, Kit, Running, skip};
use serde_json::Value;

use crate::support::relay::Relay;
use crate::support::running::wait_until;
use crate::support::{Export, FARLANE};

/// Script of what a guest does with a target.
const USE: &str = include_str!("scripts/fabrics.sh");
/// How long a guest may take for one thing.
const LIMIT: Duration = Duration::from_secs(60);
const NQN: &str = "nqn.2026-01.io.farlane:guest";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

/// A target's offers to a guest. Of its two ports, the second is behind a relay. The guest knows
/// this machine as 10.0.2.2.
struct Stage {
    directory: tempfile::TempDir,
    ports: [u16; 2],
    relay: Relay,
}

impl Stage {
    fn set() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::File::create(directory.path().join("disk.img")).unwrap().set_len(64 << 20).unwrap();
        // Both ports are taken before either is given back.
        let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = taken.each_ref().map(|listener| listener.local_addr().unwrap().port());
        drop(taken);
        let relay = Relay::to(&format!("127.0.0.1:{}", ports[1]));
        let stage = Self { directory, ports, relay };
        stage.offer("");
        stage
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes the target's configuration file, with `more` at its end.
    fn offer(&self, more: &str) {
        let [one, other] = self.ports;
        let relay = self.relay.address.port();
        let image = self.path("disk.img");
        let text = format!(
            "[[port]]\nlisten = \"127.0.0.1:{one}\"\nadvertise = \"10.0.2.2:{one}\"\n\
             [[port]]\nlisten = \"127.0.0.1:{other}\"\nadvertise = \"10.0.2.2:{relay}\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nserial = \"FABRICS\"\nana-groups = 1\n\
             [[subsystem.namespace]]\npath = \"{image}\"\n{more}"
        );
        std::fs::write(self.path("target.toml"), text).unwrap();
    }

    fn target(&self) -> Export {
        let mut command = Command::new(&*FARLANE);
        let (config, control) = (self.path("target.toml"), self.path("control"));
        // `make soak` runs the same with one core.
        let cores = std::env::var("FARLANE_TEST_CORES").unwrap_or_else(|_| "4".to_owned());
        command.args(["target", "--json", "--cores", &cores, "--config", &config, "--control", &control]);
        Export::of(command)
    }

    /// Sends a request to the running target, which must succeed. Returns the answer.
    fn ask(&self, words: &[&str]) -> String {
        crate::support::succeed(&[&["target"], words, &["--control", &self.path("control")]].concat())
    }

    /// The controllers of the target's one subsystem.
    fn controllers(&self) -> Vec<Value> {
        let status: Value = serde_json::from_str(&self.ask(&["status", "--json"])).unwrap();
        status["subsystems"][0]["controllers"].as_array().unwrap().clone()
    }

    /// A guest with the initiator and its tools, and with `$PORT`, `$OTHER`, `$NQN` and `$HOST` in
    /// its script.
    fn guest(&self, kit: &Kit) -> Builder {
        let (port, other) = (self.ports[0], self.relay.address.port());
        let script = format!("PORT={port} OTHER={other} NQN={NQN} HOST={HOST}\n{USE}");
        let builder = Guest::builder(kit).unwrap().tools(["nvme", "fio"]).unwrap();
        builder.modules(["nvme-tcp"]).unwrap().user_network().unwrap().limit(LIMIT * 3).script(script)
    }
}

/// Lines that [`USE`] prints when all goes well.
const SAID: [&str; 32] = [
    "discovered",
    "an unknown subsystem is refused",
    "listed",
    "subsystem listed",
    "registers shown",
    "identified",
    "namespaces described",
    "questions answered",
    "logs answered",
    "keep alive is on",
    "copied and compared",
    "fio verified",
    "discarded",
    "a namespace has come",
    "a namespace is longer",
    "a namespace is shorter",
    "a namespace has gone",
    "controller reset",
    "disconnected",
    "digests verified",
    "fio verified with digests",
    "without flow control",
    "nothing in the kernel's log",
    "connected to all",
    "two paths to one disk",
    "one way leads nowhere",
    "one way is longer",
    "fio verified through a restart",
    "fio verified through a cut path",
    "no program saw an error",
    "the discovery service is kept",
    "the discovery log has changed",
];

/// Waits until the guest prints `words`.
fn expect(guest: &mut Running, words: &str, target: &Export) {
    guest.expect(words, LIMIT * 4).unwrap_or_else(|error| panic!("{error}\n{}", target.said()));
}

fn namespaces_come_and_go(stage: &Stage, guest: &mut Running, target: &Export) {
    expect(guest, "add a namespace", target);
    assert_eq!(stage.ask(&["add", "--ram", "16MiB"]), format!("added namespace 2 to {NQN}\n"));
    let controllers = stage.controllers();
    assert_eq!(controllers[0]["host"], HOST, "{controllers:?}");
    assert_eq!(controllers[0]["queues"].as_array().map(Vec::len), Some(3), "{controllers:?}");
    expect(guest, "make it longer", target);
    stage.ask(&["resize", "--nsid", "2", "--size", "32MiB"]);
    expect(guest, "make it shorter", target);
    stage.ask(&["resize", "--nsid", "2", "--size", "4MiB"]);
    expect(guest, "remove it", target);
    stage.ask(&["remove", "--nsid", "2"]);
}

/// Makes one of the two paths inaccessible, then non-optimized, then as good as the other.
fn one_way_leads_nowhere(stage: &Stage, guest: &mut Running, target: &Export) {
    let port = format!("127.0.0.1:{}", stage.ports[0]);
    expect(guest, "one way leads nowhere", target);
    stage.ask(&["ana", "--port", &port, "--state", "inaccessible"]);
    expect(guest, "it leads there again", target);
    stage.ask(&["ana", "--port", &port, "--state", "non-optimized"]);
    expect(guest, "both are alike again", target);
    stage.ask(&["ana", "--state", "optimized"]);
}

/// Cuts one of the two paths in the middle of writes, and lets the guest connect it again.
fn one_path_is_cut(stage: &Stage, guest: &mut Running, target: &Export) {
    expect(guest, "writing by two paths", target);
    assert_eq!(stage.controllers().len(), 2);
    let passed = stage.relay.passed();
    wait_until("writes go by the path that is to be cut", || stage.relay.passed() - passed > 2 << 20);
    stage.relay.cut();
    guest.tell("cut").unwrap();
    expect(guest, "a path is away", target);
    wait_until("the target knows it", || stage.controllers().len() == 1);
    std::thread::sleep(Duration::from_secs(1));
    let passed = stage.relay.passed();
    stage.relay.join();
    guest.tell("joined").unwrap();
    expect(guest, "a path is back", target);
    assert!(stage.relay.passed() > passed);
    wait_until("the target knows it", || stage.controllers().len() == 2);
}

#[test]
fn linux_uses_a_target_as_any_other_and_finds_it_again_when_it_was_killed() {
    let Some(kit) = skip::kit_or_skip("Linux's initiator on a target") else { return };
    let stage = Stage::set();
    let mut first = stage.target();
    let mut running = stage.guest(kit).start().unwrap();
    namespaces_come_and_go(&stage, &mut running, &first);
    expect(&mut running, "running", &first);
    std::thread::sleep(Duration::from_secs(1));
    let said = first.kill();
    std::thread::sleep(Duration::from_secs(2));
    let mut second = stage.target();
    running.tell("restarted").unwrap();
    one_way_leads_nowhere(&stage, &mut running, &second);
    one_path_is_cut(&stage, &mut running, &second);
    expect(&mut running, "change what is offered", &second);
    stage.offer("[[referral]]\naddress = \"192.0.2.2:8009\"\n");
    stage.ask(&["reload"]);
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
