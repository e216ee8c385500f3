//! The JSON that commands print follows docs/schemas.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::running::{Running, signal, wait_until};
use crate::support::schema::{all_faults, folder, holds, schema};
use crate::support::{Export, FARLANE, farlane, json as printed};
use serde_json::{Value, json};

const NQN: &str = "nqn.2026-01.io.farlane:schemas";

/// The schemas that were used.
#[derive(Default)]
struct Used(BTreeSet<String>);

impl Used {
    /// Holds a command's output against a schema, and broken copies of it, too, which have to fail.
    fn holds(&mut self, name: &str, value: &Value) {
        holds(name, value);
        let mut other = value.clone();
        other["schema_version"] = json!(2);
        assert!(!all_faults(&schema(name), &other).is_empty(), "{name} of another version");
        self.0.insert(name.to_owned());
    }

    fn prints(&mut self, name: &str, arguments: &[&str]) -> Value {
        let value = printed(&[arguments, &["--json"]].concat());
        self.holds(name, &value);
        value
    }
}

/// Starts a service, which is killed at the end of a test.
fn serve(arguments: &[&str], runtime: &Path) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(arguments).arg("--json").env("XDG_RUNTIME_DIR", runtime);
    Export::of(command)
}

/// The lines of a command that finds daemons in `runtime`.
fn lines(arguments: &[&str], runtime: &Path) -> Vec<Value> {
    let mut command = Command::new(&*FARLANE);
    let output = command.args(arguments).arg("--json").env("XDG_RUNTIME_DIR", runtime).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_commands_print_is_what_the_schemas_say() {
    let folder = tempfile::tempdir().unwrap();
    let (used, path) = (&mut Used::default(), |name: &str| folder.path().join(name).display().to_string());
    let far = serve(&["export", "--listen", "127.0.0.1:0", "--ram", "16MiB"], folder.path());
    used.holds("listening", &far.announcement);
    let target = serve(&["target", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "16MiB"], folder.path());
    used.holds("listening", &target.announcement);
    let url = far.url();
    let discovery = format!("nvme-tcp://{}", target.address);
    for url in [&url, &format!("{discovery}/{NQN}")] {
        used.prints("ping", &["ping", url, "--count", "10"]);
        used.prints("bench", &["bench", url, "--runtime", "100ms"]);
        used.prints("identify", &["identify", url]);
    }
    used.prints(
        "bench",
        &["bench", &url, "--runtime", "100ms", "--rw", "randrw", "--verify", "--rate_iops", "1000"],
    );
    fs::write(path("jobs.fio"), "[a]\nrw=write\nsize=64k\nverify=md5\n[b]\nrw=read\nsize=64k\nstonewall\n")
        .unwrap();
    let [progress, ..] =
        &lines(&["bench", &url, "--runtime", "300ms", "--status-interval", "50ms"], folder.path())[..]
    else {
        panic!("nothing is printed while it runs");
    };
    used.holds("bench-progress", progress);
    used.prints("demo", &["demo", "--size", "64KiB", "--runtime", "20ms"]);
    used.prints("bench-jobs", &["bench", &url, "--job", &path("jobs.fio")]);
    used.prints("discover", &["discover", &discovery]);
    used.prints("lspci", &["lspci", &url]);
    fs::write(path("in"), [7; 8192]).unwrap();
    used.prints("write", &["write", &url, "--input", &path("in")]);
    used.prints("read", &["read", &url, "--length", "8k", "--output", &path("out")]);
    tsn(used, &path);
    used.prints("doctor", &["doctor"]);
    used.prints("bench", &["bench", &url, "--runtime", "50ms", "--capture", &path("b.pcapng")]);
    used.prints("trace-stats", &["trace", "stats", &path("b.pcapng")]);
    used.prints("trace-chain", &["trace", "chain", &path("b.pcapng"), "--command", "5"]);
    used.prints("trace-chains", &["trace", "chain", &path("b.pcapng")]);
    used.prints("trace-convert", &["observe", "trace", "convert", &path("b.pcapng"), "--to", &path("b.csv")]);
    used.prints("trace-dissector", &["trace", "dissector"]);
    used.prints("trace-dissector-installed", &["trace", "dissector", "--install", "--to", &path("plugins")]);
    let capture = path("b.pcapng");
    used.prints("trace-compare", &["trace", "compare", &capture, &capture]);
    let short = ["--time", "30ms", "--samples", "50", "--sizes", "4k", "--load", "2"];
    used.prints(
        "measure",
        &[&["measure", &url, "--beside", &format!("{discovery}/{NQN}")][..], &short].concat(),
    );
    daemons(used, folder.path(), &url);
    keys(used, &path);
    let plain = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/plain.toml");
    let plain = plain.to_str().unwrap();
    used.prints("sim", &["sim", plain]);
    used.prints("sim-explain", &["sim", "explain", plain]);
    used.prints("sim-published", &["sim", "published", "niq"]);
    used.prints("sim-published-score", &["model", "published", "niq", "--score"]);
    fs::create_dir(path("pages")).unwrap();
    used.prints("man", &["man", "--to", &path("pages")]);
    recordings(used, &path);
    let output = farlane(&["measure", "ping", "nowhere", "--json"]);
    used.holds("error", &serde_json::from_slice(&output.stderr).unwrap());
    let rdma =
        serve(&["measure", "rdma", "serve", "--provider", "iwarp", "--listen", "127.0.0.1:0"], folder.path());
    used.holds("listening", &rdma.announcement);
    for verb in ["ping", "bench"] {
        used.prints("rdma", &["rdma", verb, &rdma.address, "--provider", "iwarp", "--iters", "50"]);
    }
    let wire = format!("shm:{}", path("wire"));
    let _receiver = Running::start(&["measure", "nic", "receive", &wire, "--echo"]);
    used.prints("nic-ping", &["nic", "ping", &wire, "--count", "50"]);
    used.prints("nic-bench", &["nic", "bench", &wire, "--count", "50"]);
    nic(used, &path);
    let page = serve(&["observe", "ui"], folder.path());
    used.holds("ui", &page.announcement);
    let there = fs::read_dir(self::folder()).unwrap().map(|entry| entry.unwrap().path());
    // Those of the page's questions are tested where these are asked, and those of block devices
    // and of interfaces in a guest, because they need root. Those of multicast DNS, of a trigger
    // and of datagrams are with the tests of these.
    let elsewhere = [
        "connect",
        "disconnect",
        "discover-mdns",
        "emulate-interfaces",
        "emulate-packets-progress",
        "preflight-udp",
        "record-trigger",
    ];
    used.0.extend(elsewhere.map(str::to_owned));
    let there: BTreeSet<_> = there
        .filter(|path| path.is_file())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(used.0, there, "each schema is tested");
}

/// Packets one by one, and a card for another process.
fn nic(used: &mut Used, path: &impl Fn(&str) -> String) {
    let wire = format!("shm:{}", path("packets"));
    let receiver = Command::new(&*FARLANE)
        .args(["measure", "nic", "receive", &wire, "--count", "3", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    used.prints("nic-packets", &["nic", "send", &wire, "--count", "3"]);
    let received = receiver.wait_with_output().unwrap();
    used.holds("nic-packets", &serde_json::from_slice(&received.stdout).unwrap());
    let (socket, wire) = (path("card"), format!("shm:{}", path("served")));
    let mut card =
        serve(&["measure", "nic", "serve", "--vfio-user", &socket, "--wire", &wire], Path::new(&path("")));
    used.holds("listening", &card.announcement);
    signal(card.id(), "TERM");
    used.holds("nic-end", &card.next_line());
}

/// A plan, its commands, and a capture of one frame that keeps to it.
fn tsn(used: &mut Used, path: &impl Fn(&str) -> String) {
    let plan = used.prints("tsn-plan", &["tsn", "plan"]);
    fs::write(path("plan"), plan.to_string()).unwrap();
    used.prints("tsn-apply", &["tsn", "apply", "--interface", "eth0", "--remove", "--dry-run"]);
    // The head of a pcap file in nanoseconds, that of a frame of 64 bytes at 0, and the frame of
    // class 7.
    let words = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 1, 0, 0, 64, 64_u32];
    let head: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let frame = [&[0; 12][..], &[0x81, 0, 0xe0, 0, 0x88, 0xb5], &[0; 46]].concat();
    fs::write(path("frame.pcap"), [head, frame].concat()).unwrap();
    used.prints("tsn-check", &["tsn", "check", &path("plan"), "--from", &path("frame.pcap")]);
}

/// The announcements and last lines of daemons.
fn daemons(used: &mut Used, folder: &Path, url: &str) {
    fs::write(folder.join("link.toml"), "[link]\nlatency = \"1ms\"\n").unwrap();
    let (link, device, slot) = (folder.join("link.toml"), folder.join("device"), folder.join("slot"));
    let services: [&[&str]; 3] = [
        &["device", "--vfio-user", device.to_str().unwrap(), "--ram", "1MiB"],
        &["attach", url, "--vfio-user", slot.to_str().unwrap()],
        &["emulate", "--link", link.to_str().unwrap(), "--listen", "127.0.0.1:0", "--connect", "127.0.0.1:1"],
    ];
    let start = |arguments: &&[&str]| serve(arguments, folder);
    let mut started: Vec<_> = services.iter().map(start).collect();
    for service in &started {
        used.holds("listening", &service.announcement);
    }
    let found = lines(&["observe", "status"], folder);
    let kinds: BTreeSet<_> = found.iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["attach", "device", "emulate", "export", "target"].into());
    found.iter().for_each(|one| used.holds("status", one));
    used.holds("top", &lines(&["observe", "top", "--every", "50ms"], folder)[0]);
    used.prints("check", &["check", link.to_str().unwrap()]);
    let far = folder.join("captured.pcapng");
    let captured = ["capture", "export", "--out", far.to_str().unwrap(), "--time", "50ms"];
    used.holds("capture", &lines(&captured, folder)[0]);
    used.holds("capture-status", &lines(&["observe", "capture", "export", "--status"], folder)[0]);
    used.holds("capture-stopped", &lines(&["observe", "capture", "export", "--stop"], folder)[0]);
    used.holds("list", &lines(&["observe", "list"], folder)[0]);
    used.holds("connect-list", &lines(&["connect", "--list"], folder)[0]);
    used.holds("target-status", &lines(&["target", "status"], folder)[0]);
    let file = folder.join("far.toml");
    fs::write(&file, "[export]\nlisten = \"127.0.0.1:0\"\nram = \"1MiB\"\n").unwrap();
    let control = folder.join("far.control").display().to_string();
    let _far = serve(&["export", "--config", file.to_str().unwrap(), "--control", &control], folder);
    let resize = ["export", "resize", "--nsid", "1", "--size", "2MiB", "--control", &control];
    used.prints("export-resize", &resize);
    used.prints("save", &["export", "save", "--control", &control]);
    let control = folder.join("groups.control").display().to_string();
    let groups = ["target", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "1MiB", "--ana-groups", "1"];
    let _groups = serve(&[&groups[..], &["--control", &control]].concat(), folder);
    for one in [&[][..], &["--port", "127.0.0.1:0"]] {
        let ana = ["target", "ana", "--group", "1", "--state", "non-optimized", "--control", &control];
        used.prints("target-access", &[&ana[..], one].concat());
    }
    used.holds("target-resize", &lines(&["target", "resize", "--nsid", "1", "--size", "8MiB"], folder)[0]);
    for (service, name) in started.iter_mut().zip(["guest-end", "guest-end", "emulate-progress"]) {
        signal(service.id(), "TERM");
        used.holds(name, &service.next_line());
    }
}

fn keys(used: &mut Used, path: &impl Fn(&str) -> String) {
    let key = used.prints("key", &["key", "new", &path("key.pem")])["key"].as_str().unwrap().to_owned();
    used.prints("key", &["key", "show", &path("key.pem")]);
    used.prints("key-trust", &["key", "trust", "192.0.2.1:4430", &key, "--replace"]);
    used.prints("key-secret", &["key", "tls", &path("tls")]);
    used.prints("key-secret", &["key", "dhchap", &path("dhchap")]);
    used.prints("key-check", &["key", "check", &path("tls")]);
    used.prints("key-check", &["key", "check", &path("dhchap")]);
}

/// Raw recordings, several at once, and one that fails on demand.
fn recordings_of_other_kinds(used: &mut Used, path: &impl Fn(&str) -> String) {
    let last = |arguments: &[&str]| lines(arguments, Path::new("")).pop().unwrap();
    fs::write(path("medium"), vec![0; 1 << 21]).unwrap();
    let raw = ["record", "--raw", "--from", "generate:20MB", "--size", "1MiB", "--to", &path("medium")];
    used.holds("record-raw-end", &last(&[&raw[..], &["--force"]].concat()));
    let replay = ["recording", "replay", &path("medium"), "--raw", "--maximum-address", "1MiB", "--to"];
    used.prints("replay-raw", &[&replay[..], &[&path("raw.copy")]].concat());
    let [one, two] = [path("one.rec"), path("two.rec")];
    let each = ["record", "--each", "--size", "1MiB", "--from", "generate:20MB", "--to", &one];
    used.holds("record-each-end", &last(&[&each[..], &["--from", "generate:20MB", "--to", &two]].concat()));
    let control = path("failing.control");
    let failing =
        ["record", "--from", "tcp-connect://127.0.0.1:1", "--to", &path("never.rec"), "--on-demand"];
    let recorder = Running::start(&[&failing[..], &["--control", &control, "--json"]].concat());
    wait_until("the recorder answers", || farlane(&["status", &control]).status.success());
    used.prints("record-control", &["record", "ctl", &control, "start"]);
    wait_until("the recording fails", || recorder.printed().contains('\n'));
    let said = recorder.printed();
    used.holds("record-error", &serde_json::from_str(said.lines().next().unwrap()).unwrap());
}

fn recordings(used: &mut Used, path: &impl Fn(&str) -> String) {
    let recording = path("a.rec");
    let mut command = Command::new(&*FARLANE);
    command.args(["record", "--from", "generate:20MB", "--for", "700ms", "--to", &recording, "--json"]);
    let output = command.stderr(Stdio::null()).output().unwrap();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        let name = if value["event"] == "progress" { "record-progress" } else { "record-end" };
        used.holds(name, &value);
    }
    let control = path("recorder.control");
    let record = ["record", "--from", "generate:20MB", "--to", &path("b.rec"), "--control", &control];
    let recorder = Running::start(&record);
    wait_until("the recorder answers", || farlane(&["status", &control]).status.success());
    used.prints("status", &["status", &control]);
    used.prints("record-control", &["record", "ctl", &control, "stop"]);
    drop(recorder);
    recordings_of_other_kinds(used, path);
    used.prints("info", &["info", &recording]);
    used.prints("verify", &["verify", &recording]);
    used.prints("recover", &["recover", &recording]);
    used.prints("replay", &["replay", &recording, "--to", &path("copy")]);
    used.prints("record-export", &["export", &recording, "--to", &path("a.mcap"), "--format", "mcap"]);
    used.prints(
        "preflight",
        &["preflight", "--rate", "1MB", "--for", "1s", "--measure", "1s", &path("p.rec")],
    );
}
