//! RDMA devices driven through libibverbs and librdmacm: our program runs in a guest, whose kernel
//! does RDMA in software, as RoCE (rxe) and as iWARP (siw).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use guest::{Builder, Guest, Kit, Running, skip};

use crate::support::{Export, FARLANE, json, own_network, stripped, succeed};

/// Script of what the guest does.
const SCRIPT: &str = include_str!("scripts/verbs.sh");
/// How long a guest may take for one thing.
const LIMIT: Duration = Duration::from_secs(240);
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
/// The guest's target, and that of this machine.
const THEIRS: &str = "nqn.2026-01.io.farlane:verbs";
const OURS: &str = "nqn.2026-01.io.farlane:machine";

/// Lines that [`SCRIPT`] prints when all goes well.
const SAID: [&str; 12] = [
    "no device is said to be missing",
    "the kernel's target was used",
    "our target was used by our host",
    "the kernel discovers our target",
    "the kernel verified our target",
    "the kernel reset our controller",
    "the machine's target was used",
    "a target was killed and found again",
    "the target ended in order",
    "rping was answered",
    "measured",
    "nothing in the kernel's log",
];

/// Modules that Debian's kernel needs. Where a kernel has one built in, nothing is inserted.
const MODULES: [&str; 8] =
    ["crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm", "nvme_rdma", "nvmet_rdma", "nvme_tcp", "brd"];

/// A guest with our program, what the program needs, and a script with the variables `known`.
fn with_program(builder: Builder, directory: &Path, known: &str) -> Builder {
    let mut builder = builder.memory_mib(1024).limit(LIMIT * 2).rdma().unwrap();
    builder = builder.tools(["nvme", "fio", "rping"]).unwrap();
    builder.initramfs().program("usr/bin/farlane", &stripped(directory)).unwrap();
    builder.script(format!("{known} HOST={HOST}\n{SCRIPT}"))
}

fn start(arguments: &[&str]) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(arguments);
    Export::of(command)
}

fn wait(guest: &mut Running, words: &str) {
    guest.expect(words, LIMIT).unwrap_or_else(|error| panic!("{error}"));
}

/// A device of a guest's kernel, and what of ours speaks with it from another machine.
struct Device {
    /// Its kind, as `rdma link` has it.
    link: &'static str,
    /// The length of the network's frames.
    mtu: u16,
    /// Our provider of the same wire protocol.
    provider: &'static str,
}

/// Runs our program in a guest that has the `device`, and beside the guest.
fn drive(kit: &Kit, device: &Device) {
    let directory = tempfile::tempdir().unwrap();
    let builder = Guest::builder(kit).unwrap().modules(MODULES).unwrap();
    let builder = builder.tap_network(own_network::INTERFACE, own_network::GUEST_WITH_PREFIX).unwrap();
    let (here, there) = (own_network::HERE, own_network::GUEST);
    let Device { link, mtu, provider } = device;
    let known = format!("LINK={link} MTU={mtu} HERE={there} SERVED={here}:4420 MEASURED={here}:18515");
    let mut guest = with_program(builder, directory.path(), &known).start().unwrap();
    wait(&mut guest, "offering");
    let url = format!("nvme-rdma://{there}:4421/{THEIRS}?provider={provider}&queues=2");
    assert!(succeed(&["nvme", "identify", &url]).contains("Farlane"));
    for size in ["512", "4k", "128k"] {
        let job = ["--rw", "randrw", "--bs", size, "--iodepth", "64", "--runtime", "300ms", "--verify"];
        succeed(&[&["bench", &url][..], &job[..]].concat());
    }
    // One program of this machine has RoCE at its address, so they come one after the other.
    let at = format!("{provider},{here}:4420");
    let running = start(&["target", "--json", "--nqn", OURS, "--ram", "64MiB", "--rdma", &at, "--insecure"]);
    guest.tell("used").unwrap();
    wait(&mut guest, "serving");
    drop(running);
    let at = format!("{here}:18515");
    let running = start(&["measure", "rdma", "serve", "--json", "--provider", provider, "--listen", &at]);
    guest.tell("served").unwrap();
    wait(&mut guest, "measuring");
    drop(running);
    let at = format!("{there}:18515");
    for verb in ["send", "write", "read"] {
        let given = ["rdma", "ping", "--provider", provider, &at, "--verb", verb, "--iters", "200", "--json"];
        assert_eq!(json(&given)["rows"][0]["iterations"], 200);
    }
    guest.tell("measured").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    for line in SAID {
        assert!(outcome.output.lines().any(|one| one == line), "{line:?} in {}", outcome.output);
    }
    for depth in ["1", "32"] {
        println!("{}", beside(link, depth, &outcome.output));
    }
}

/// The guest's measurement at `depth`: our host beside the kernel's. It is printed, and judged by
/// readers: no test asserts a speed.
fn beside(link: &str, depth: &str, output: &str) -> String {
    let figures = output.lines().filter_map(|line| {
        let rest = line.strip_prefix("beside: ")?.strip_prefix(depth)?;
        let (ours, theirs) = rest.strip_prefix(' ')?.split_once(' ')?;
        let [ours, theirs]: [f64; 2] = [ours.parse().ok()?, theirs.trim().parse().ok()?];
        Some((ours / theirs, ours, theirs))
    });
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert_eq!(figures.len(), 5, "five measurements at depth {depth} in {output}");
    let (ratio, ours, theirs) = figures[2];
    format!(
        "{link}: 4 KiB reads {depth} deep: {ours:.0} a second by our host, {theirs:.0} by the kernel's: {ratio:.2}"
    )
}

#[test]
fn our_program_drives_rxe() {
    let Some(kit) = skip::full_kit_or_skip("our program over rxe by verbs") else { return };
    if own_network::is_inside(own_network::test_path!("our_program_drives_rxe")) {
        drive(kit, &Device { link: "rxe", mtu: 4200, provider: "roce" });
    }
}

#[test]
fn our_program_drives_siw() {
    let Some(kit) = skip::built_kit_or_skip("our program over siw by verbs") else { return };
    if own_network::is_inside(own_network::test_path!("our_program_drives_siw")) {
        drive(kit, &Device { link: "siw", mtu: 1500, provider: "iwarp" });
    }
}
