//! The steps of every daemon, in their order.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::figures::Figures;
use crate::support::running::{Said, signal, wait_for_listener, wait_until};
use crate::support::{Export, FARLANE, json, succeed};

/// A daemon of the table.
struct Row {
    kind: &'static str,
    arguments: Vec<String>,
    /// The text of its last line.
    ends: &'static str,
    /// The part of a series of its own.
    series: &'static str,
}

fn row(kind: &'static str, arguments: &[&str], ends: &'static str, series: &'static str) -> Row {
    Row { kind, arguments: arguments.iter().map(|one| (*one).to_owned()).collect(), ends, series }
}

/// All daemons but `connect`, whose block devices take a kernel of their own (`tests/guest`).
fn daemons(folder: &Path, far: &str, device: &str) -> Vec<Row> {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (slot, own, card, wire) = (path("slot"), path("own"), path("card"), format!("shm:{}", path("wire")));
    let link = path("link.toml");
    std::fs::write(&link, "[link]\nlatency = \"1ms\"\nrate = \"1Gbit/s\"\n").unwrap();
    let (any, listen) = ("127.0.0.1:0", "--listen");
    let nqn = "nqn.2026-01.io.farlane:order";
    let emulate = ["emulate", listen, any, "--connect", far, "--link", &link];
    let url = format!("tcp://{far}");
    let (recorded, recording) = (path("recorded"), path("recording"));
    succeed(&["record", "--from", "generate:1MB", "--to", &recorded, "--size", "128k"]);
    let record = ["record", "--from", "generate:1MB", "--force", "--to", &recording];
    let replay = ["replay", &recorded, "--loop", "0", "--to", "udp://127.0.0.1:9"];
    vec![
        row("record", &record, "the recorder", "farlane_record_"),
        row("replay", &replay, "the replayer", "farlane_record_"),
        row("device", &["device", "--ram", "1MiB", "--vfio-user", &own], "the device", "farlane_guest_"),
        row("attach", &["attach", &url, "--vfio-user", &slot], "the guest's end", "farlane_link_"),
        row("nic", &["nic", "serve", "--vfio-user", &card, "--wire", &wire], "the card", "farlane_nic_"),
        row("rdma", &["rdma", "serve", listen, any], "the server of measurements", "farlane_rdma_"),
        row("emulate", &emulate, "the emulated network", "farlane_emulated_"),
        row("export", &["export", listen, any, "--ram", "1MiB"], "the far end", "farlane_far_end_"),
        row("export", &["export", listen, any, "--vfio-user", device], "the far end", "farlane_far_end_"),
        row("target", &["target", listen, any, "--nqn", nqn, "--ram", "1MiB"], "the target", "farlane_loop_"),
    ]
}

/// A line of the status of a process, by the system.
fn of_process(id: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim_start_matches(':').trim().to_owned()
}

fn check(row: &Row, folder: &Path, options: &[&str]) {
    let socket = folder.join("control");
    let mut command = Command::new("env");
    // Tests that run under nohup ignore SIGHUP.
    command
        .args(["--default-signal=HUP", &FARLANE])
        .args(&row.arguments)
        .args(["--metrics", "127.0.0.1:0", "--control"])
        .arg(&socket)
        .args(options);
    command.arg("--json").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut said = Said::by(process.stderr.take().unwrap());
    let announced = Said::by(process.stdout.take().unwrap());
    let name = format!("{} {options:?}", row.arguments.join(" "));
    let figures = Figures::of(|| said.so_far());
    wait_for_listener(&socket);
    let status = json(&["observe", "status", socket.to_str().unwrap(), "--json"]);
    assert_eq!(status["kind"], row.kind, "{name}");
    // A replay announces nothing.
    wait_until(&format!("{name} is announced"), || row.kind == "replay" || announced.so_far().contains('\n'));
    wait_until(&format!("{name} has given up what it does not need"), || {
        let expected = if options.contains(&"--no-sandbox") { "0" } else { "2" };
        of_process(process.id(), "Seccomp") == expected
    });
    let page = figures.page();
    assert!(page.contains(row.series), "{name}: {page}");

    signal(process.id(), "HUP");
    let kept = "SIGHUP: this process has no configuration file to read again";
    wait_until(&format!("{name} heeds SIGHUP"), || said.so_far().contains(kept));
    signal(process.id(), "TERM");
    let mut ended = None;
    wait_until(&format!("{name} ends"), || {
        ended = process.try_wait().unwrap();
        ended.is_some()
    });
    let said = said.all();
    assert!(ended.unwrap().success(), "{name}: {said}");
    let last = format!("farlane: {} has shut down\n", row.ends);
    assert!(said.ends_with(&last), "{name}: {said}");
    let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("{name}: {words} in {said}"));
    assert!(at("figures at http://") < at(kept) && at(kept) < at(&last), "{name}: {said}");
    assert!(!socket.exists(), "{name} removes its socket");
}

#[test]
fn each_daemon_answers_is_watched_confined_and_ended_in_the_same_order() {
    let folder = tempfile::tempdir().unwrap();
    let far = Export::start(&["--ram", "1MiB"]);
    let device = folder.path().join("device");
    let mut served = Command::new(&*FARLANE);
    served.args(["offer", "device", "--json", "--ram", "1MiB", "--vfio-user"]).arg(&device);
    let _served = Export::of(served);
    for row in daemons(folder.path(), &far.address, device.to_str().unwrap()) {
        check(&row, folder.path(), &[]);
        check(&row, folder.path(), &["--no-sandbox"]);
    }
}
