//! The kernel's own NVMe/TCP target, in a guest, is used by our host.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use guest::{Guest, skip};

use crate::support::{FARLANE, farlane};

/// The script of the guest.
const SCRIPT: &str = include_str!("scripts/nvmet.sh");
const NQN: &str = "nqn.2014-08.org.example:kernel";
const LIMIT: Duration = Duration::from_secs(60);

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs a command that must succeed. Returns its standard output.
fn say(arguments: &[&str]) -> String {
    let output = farlane(arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn our_host_uses_the_kernels_target() {
    let Some(kit) = skip::kit_or_skip("the kernel's NVMe/TCP target") else { return };
    let (first, second) = (free_port(), free_port());
    let mut guest = Guest::builder(kit)
        .unwrap()
        .memory_mib(768)
        .limit(Duration::from_secs(180))
        .forward(first, 4420)
        .unwrap()
        .forward(second, 4421)
        .unwrap()
        .modules(["nvmet", "nvmet-tcp", "brd"])
        .unwrap()
        .script(SCRIPT)
        .start()
        .unwrap();
    guest.expect("ready", LIMIT).unwrap();
    let one = format!("nvme-tcp://127.0.0.1:{first}/{NQN}");
    let both = format!("nvme-tcp://127.0.0.1:{first},127.0.0.1:{second}/{NQN}");

    let found = say(&["use", "discover", &format!("nvme-tcp://127.0.0.1:{first}")]);
    assert!(found.contains(NQN) && found.contains("tcp"), "{found}");
    let identity = say(&["nvme", "identify", &one]);
    assert!(identity.contains("Linux"), "{identity}");
    say(&["nvme", "smart-log", &one]);
    let round_trips = say(&["measure", "ping", &one, "--count", "20"]);
    assert!(round_trips.contains("Property Gets"), "{round_trips}");

    // With and without digests; data in the capsule and by R2T.
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, copy) = (path("source"), path("copy"));
    let bytes: Vec<u8> =
        (0..1_000_448_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    std::fs::write(&source, &bytes).unwrap();
    for query in ["", "?hdgst=on&ddgst=on&queues=2"] {
        let url = format!("{one}{query}");
        say(&["use", "write", &url, "--input", &source]);
        let _ = std::fs::remove_file(&copy);
        say(&["use", "read", &url, "--length", "1000448", "--output", &copy]);
        assert!(std::fs::read(&copy).unwrap() == bytes, "{query}");
        for size in ["512", "4k", "64k"] {
            let job = ["--rw", "randrw", "--bs", size, "--iodepth", "16", "--runtime", "500ms", "--verify"];
            say(&[&["bench", &url][..], &job[..]].concat());
        }
    }

    // Verified writes go on while one path is inaccessible, and while it is gone. They last until
    // it is back, which takes some 6 s if the guest is quick.
    let mut bench = Command::new(&*FARLANE);
    bench.args([
        "bench",
        &both,
        "--rw",
        "randwrite",
        "--bs",
        "4k",
        "--iodepth",
        "16",
        "--runtime",
        "20s",
        "--verify",
    ]);
    let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    for step in ["inaccessible", "optimized", "cut", "join"] {
        guest.tell(step).unwrap();
        guest.expect(step, LIMIT).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    let output = bench.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
    assert!(said.contains("path 1 is lost") && said.contains("path 1 is up again"), "{said}");
    guest.tell("end").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    assert!(outcome.output.contains("nothing in the kernel's log"), "{}", outcome.output);
}
