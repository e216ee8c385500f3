//! Linux's own ends of NVMe/RDMA, in a guest whose kernel does RDMA in software, with ours: over
//! TCP (siw) and over UDP datagrams (rxe).

use std::io::{self, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use guest::{Builder, Guest, Kit, skip};

use crate::support::dumpcap::Capture;
use crate::support::{Export, FARLANE, own_network, succeed};

/// Script of what a guest does with our target.
const USE: &str = include_str!("scripts/rdma.sh");
/// Script of a guest with the kernel's target.
const OFFER: &str = include_str!("scripts/rdma_nvmet.sh");
/// How long a guest may take for one thing.
const LIMIT: Duration = Duration::from_secs(60);
const NQN: &str = "nqn.2026-01.io.farlane:guest";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const THEIRS: &str = "nqn.2014-08.org.example:kernel";

/// Lines that [`USE`] prints when all goes well.
const SAID: [&str; 13] = [
    "an RDMA link is there",
    "discovered",
    "an unknown subsystem is refused",
    "subsystem listed",
    "identified",
    "copied and compared",
    "fio verified",
    "discarded",
    "controller reset",
    "nothing in the kernel's log",
    "fio verified through a restart",
    "two paths to one disk",
    "fio verified by two paths",
];

/// Modules that Debian's kernel needs for NVMe over RoCE. Where a kernel has one built in, nothing
/// is inserted. `rdma_rxe` asks for its CRC by name, so no dependency names it.
const MODULES: [&str; 6] = ["crc32_generic", "rdma_rxe", "nvme_rdma", "nvme_tcp", "nvmet_rdma", "brd"];

/// A filter for packets that Wireshark can't make sense of, or that are in the group «malformed» of
/// its expert information.
const COMPLAINTS: &str = "infiniband && (_ws.malformed || _ws.expert.group == 0x07000000)";
/// Operation codes of reliable connections that a session has: Sends in one packet, RDMA Writes and
/// answers to RDMA Reads in several, RDMA Reads, acknowledgements, connection management.
const OPERATIONS: [&str; 10] = ["4", "6", "7", "8", "12", "13", "14", "15", "17", "100"];

/// Ports of loopback without listeners.
fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    // All are taken before any is given back.
    let taken = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    taken.each_ref().map(|listener| listener.local_addr().unwrap().port())
}

/// Lets a guest, which `builder` describes, use a target of ours that listens for `rdma` and `tcp`
/// with the `options`. `known` are the variables of [`USE`].
fn use_our_target(builder: Builder, rdma: &str, tcp: &str, options: &[&str], known: &str) {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let target = || {
        let mut command = Command::new(&*FARLANE);
        command.args(["target", "--json", "--nqn", NQN, "--serial", "RDMA", "--namespace"]).arg(&image);
        command.args(["--rdma", rdma, "--listen", tcp]).args(options);
        command.arg("--control").arg(directory.path().join("control"));
        Export::of(command)
    };
    let mut running = target();
    let script = format!("{known} NQN={NQN} HOST={HOST}\n{USE}");
    let builder = builder.tools(["nvme", "fio", "rdma"]).unwrap();
    let mut guest = builder.limit(LIMIT * 3).script(script).start().unwrap();
    guest.expect("running", LIMIT * 3).unwrap_or_else(|error| panic!("{error}\n{}", running.said()));
    running.kill();
    running = target();
    guest.tell("restarted").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    for line in SAID {
        assert!(outcome.output.lines().any(|one| one == line), "{line:?} in {}", outcome.output);
    }
    drop(running);
}

#[test]
fn the_kernels_host_uses_our_target() {
    let Some(kit) = skip::built_kit_or_skip("the kernel's NVMe/RDMA host over siw") else { return };
    let [port, tcp] = free_ports();
    let [at, beside] = [port, tcp].map(|port| format!("10.0.2.2:{port}"));
    let known = format!("LINK=siw PROVIDER=iwarp THERE=10.0.2.2 PORT={port} TCP={tcp}");
    let builder = Guest::builder(kit).unwrap().user_network().unwrap();
    let [rdma, tcp] = [format!("iwarp,127.0.0.1:{port}"), format!("127.0.0.1:{tcp}")];
    use_our_target(builder, &rdma, &tcp, &["--advertise", &beside, "--advertise", &at], &known);
}

/// A guest at the other end of the test's own network.
fn roce_guest(kit: &Kit) -> Builder {
    let builder = Guest::builder(kit).unwrap().memory_mib(768).modules(MODULES).unwrap();
    builder.tap_network(own_network::INTERFACE, own_network::GUEST_WITH_PREFIX).unwrap()
}

#[test]
fn the_kernels_host_uses_our_target_by_roce() {
    let Some(kit) = skip::full_kit_or_skip("the kernel's NVMe/RDMA host over rxe") else { return };
    if !own_network::is_inside(own_network::test_path!("the_kernels_host_uses_our_target_by_roce")) {
        return;
    }
    let here = own_network::HERE;
    let known = format!("LINK=rxe PROVIDER=roce-v2 THERE={here} PORT=4420 TCP=4421");
    let [rdma, tcp] = [format!("roce,{here}:4420"), format!("{here}:4421")];
    use_our_target(roce_guest(kit), &rdma, &tcp, &["--insecure"], &known);
}

/// Uses the kernel's target by our host: finds it, writes, reads and compares.
fn use_theirs(at: &str, query: &str, directory: &Path) -> String {
    let url = format!("nvme-rdma://{at}/{THEIRS}?queues=2&{query}");
    let found = succeed(&["use", "discover", &format!("nvme-rdma://{at}?{query}")]);
    assert!(found.contains("rdma") && found.contains(THEIRS), "{found}");
    assert!(succeed(&["nvme", "identify", &url]).contains("Linux"));
    succeed(&["measure", "ping", &url, "--count", "20"]);
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (source, copy) = (path("source"), path("copy"));
    let bytes: Vec<u8> =
        (0..1_000_448_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    std::fs::write(&source, &bytes).unwrap();
    succeed(&["use", "write", &url, "--input", &source]);
    succeed(&["use", "read", &url, "--length", "1000448", "--output", &copy]);
    assert!(std::fs::read(&copy).unwrap() == bytes);
    url
}

/// Loads the kernel's target, and compares the read data with the written data.
fn load(url: &str) {
    for size in ["512", "4k", "64k"] {
        let job = ["--rw", "randrw", "--bs", size, "--iodepth", "16", "--runtime", "500ms", "--verify"];
        succeed(&[&["bench", url][..], &job[..]].concat());
    }
}

/// Starts a guest that offers the kernel's target.
fn offer(builder: Builder, known: &str) -> guest::Running {
    let script = format!("{known}\n{OFFER}");
    let mut guest = builder.limit(LIMIT * 3).tools(["rdma"]).unwrap().script(script).start().unwrap();
    guest.expect("ready", LIMIT).unwrap();
    guest
}

/// Ends that guest, whose kernel must have complained of nothing.
fn end(mut guest: guest::Running) {
    guest.tell("end").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    assert!(outcome.output.contains("nothing in the kernel's log"), "{}", outcome.output);
}

#[test]
fn our_host_uses_the_kernels_target() {
    let Some(kit) = skip::built_kit_or_skip("the kernel's NVMe/RDMA target over siw") else { return };
    let [port] = free_ports();
    let builder = Guest::builder(kit).unwrap().memory_mib(768).forward(port, 4420).unwrap();
    let guest = offer(builder, "LINK=siw MTU=1500 HERE=10.0.2.15");
    let directory = tempfile::tempdir().unwrap();
    load(&use_theirs(&format!("127.0.0.1:{port}"), "provider=iwarp", directory.path()));
    end(guest);
}

#[test]
fn our_host_uses_the_kernels_target_by_roce() {
    let Some(kit) = skip::full_kit_or_skip("the kernel's NVMe/RDMA target over rxe") else { return };
    if !own_network::is_inside(own_network::test_path!("our_host_uses_the_kernels_target_by_roce")) {
        return;
    }
    let guest = offer(roce_guest(kit), &format!("LINK=rxe MTU=4200 HERE={}", own_network::GUEST));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("session.pcapng");
    let capture = Capture::of(own_network::INTERFACE, "udp port 4791", &file);
    let url = use_theirs(&format!("{}:4420", own_network::GUEST), "provider=roce", directory.path());
    match capture {
        Ok(capture) => {
            capture.finish();
            look_at(&file);
        }
        // `eprintln` would not do: the test runner hides its output when the test passes.
        Err(why) => drop(writeln!(io::stderr(), "SKIPPED Wireshark on RoCE: {why}")),
    }
    load(&url);
    end(guest);
}

/// The value of `field` in each packet of `file` that `filter` selects.
fn tshark(file: &Path, filter: &str, field: &str) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", filter, "-T", "fields", "-e", field]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Wireshark understands each packet of a session, and finds every kind of them.
fn look_at(file: &Path) {
    assert_eq!(tshark(file, COMPLAINTS, "_ws.expert.message"), [""; 0]);
    let operations = tshark(file, "infiniband.bth", "infiniband.bth.opcode");
    for operation in OPERATIONS {
        assert!(operations.iter().any(|one| one == operation), "no operation {operation}");
    }
}
