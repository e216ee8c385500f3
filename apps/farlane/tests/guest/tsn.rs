//! Time-Sensitive Networking in the kernel of a stock guest: gates, shapers and launch times of
//! Linux, and a far SSD that keeps to a plan beside others' traffic.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guest::{Device, Guest, skip};
use serde_json::Value;

use crate::support::own_network::{GUEST_WITH_PREFIX, INTERFACE, is_inside, test_path};
use crate::support::{Export, FARLANE};

/// The script of the guest.
const SCRIPT: &str = include_str!("scripts/tsn.sh");
/// Script of a box with a far SSD behind gates.
const BOX: &str = include_str!("scripts/tsn_box.sh");
/// How long a guest may take for all of it: it is interpreted.
const LIMIT: Duration = Duration::from_secs(300);
/// The modules that Debian's kernel has for this.
const MODULES: [&str; 6] = ["veth", "8021q", "sch_taprio", "sch_mqprio", "sch_cbs", "sch_etf"];
/// The address of the far end in its box.
const MAC: &str = "02:00:5e:00:53:01";
/// The cycle of the plan, and how late an interpreted machine may be.
const CYCLE: Duration = Duration::from_millis(100);
const ERROR: Duration = Duration::from_millis(20);

/// One test at a time: guests are interpreted, and the machine's error is that of one guest which
/// waits for no other's processors.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_far_ssd_over_frames_keeps_to_a_plan_beside_others() {
    let Some(kit) = skip::full_kit_or_skip("TSN in a guest's kernel") else { return };
    let _turn = turn();
    let mut builder = Guest::builder(kit).unwrap().tools(["ip", "tc"]).unwrap().modules(MODULES).unwrap();
    builder.initramfs().program("usr/bin/farlane", Path::new(&*FARLANE)).unwrap();
    let settings =
        format!("CYCLE={}ms ERROR={}ms DELTA=16ms LEAD=30ms\n", CYCLE.as_millis(), ERROR.as_millis());
    let builder = builder.memory_mib(1024).boot_limit(LIMIT).limit(LIMIT).script(settings + SCRIPT);
    let outcome = builder.run().unwrap();
    eprintln!("{}", outcome.output);
    let outcome = outcome.expect_success();
    for line in [
        "taprio is there",
        "etf is there",
        "cbs is there",
        "undone",
        "mqprio is there",
        "verified in windows",
        "the plan is kept",
        "done",
    ] {
        assert!(outcome.output.lines().any(|one| one == line), "{line:?} in {}", outcome.output);
    }
    let reported = |name: &str| -> Value {
        let line = outcome.output.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        serde_json::from_str(line).unwrap()
    };
    let (plan, check) = (reported("PLAN "), reported("CHECK "));
    let of_class = |class: u64| {
        check["classes"].as_array().unwrap().iter().find(|one| one["class"] == class).unwrap().clone()
    };
    let (flow, others) = (of_class(7), of_class(0));
    assert!(flow["frames"].as_u64().unwrap() > 10, "{check}");
    assert!(others["frames"].as_u64().unwrap() > 100, "the others were to send all the time: {check}");
    // A round trip is at most two delays that the plan bounds, each with the machine's own error.
    // Datagrams that an interpreted machine handed over too late were dropped, counted and sent
    // again.
    let bound = plan["delays"][1]["worst_case"].as_u64().unwrap();
    let most = 2 * (bound + u64::try_from(ERROR.as_nanos()).unwrap());
    for flow in ["PING ", "SECOND "] {
        let ping = reported(flow);
        let time = |name: &str| ping["latency_ns"][name].as_u64().unwrap();
        let is_within = time("max") <= most || outcome.output.contains("missed their times of launch");
        assert!(time("p90") <= most && is_within, "{flow}{ping}: more than {most} ns");
    }
}

/// The box with the SSD is a guest, whose kernel has gates; so is the machine that boots. Between
/// them is an interface of this machine, at which the near end sends frames.
#[test]
fn a_machine_boots_from_a_far_ssd_behind_gates() {
    let name = test_path!("a_machine_boots_from_a_far_ssd_behind_gates");
    let Some(kit) = skip::full_kit_or_skip("booting behind gates") else { return };
    let _turn = turn();
    if !is_inside(name) {
        return;
    }
    let modules = ["bridge"].into_iter().chain(MODULES);
    let mut far = Guest::builder(kit).unwrap().tools(["ip", "tc"]).unwrap().modules(modules).unwrap();
    far.initramfs().program("usr/bin/farlane", Path::new(&*FARLANE)).unwrap();
    far.initramfs().bytes("disk.img", 0o644, guest::boot_image());
    let far = far.tap_network(INTERFACE, GUEST_WITH_PREFIX).unwrap();
    let script = format!("MAC={MAC}\n{BOX}");
    let mut far = far.boot_limit(LIMIT).limit(LIMIT).script(script).start().unwrap();
    far.expect("far", LIMIT).unwrap_or_else(|error| panic!("{error}"));
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    let mut command = Command::new(&*FARLANE);
    let url = format!("eth:{INTERFACE},vlan=3,pcp=7/{MAC}");
    command.args(["attach", &url, "--json", "--vfio-user"]).arg(&socket);
    let near = Export::of(command);
    // The firmware's own driver reads the first sectors, and their code runs.
    let machine = Guest::builder(kit).unwrap().device(Device::vfio_user(&socket));
    let outcome = machine
        .boot_from_device()
        .boot_limit(LIMIT)
        .run()
        .unwrap_or_else(|error| panic!("{error}\n{}", near.said()));
    assert_eq!(outcome.status, 0, "{}", near.said());
    // Then Linux with its own driver writes and reads.
    let machine = Guest::builder(kit).unwrap().device(Device::vfio_user(&socket)).tools(["nvme"]).unwrap();
    let machine = machine.modules(["nvme"]).unwrap();
    let script = "set -e; appears /dev/nvme0n1 90; nvme id-ctrl /dev/nvme0 | grep GATED\n\
        dd if=/dev/urandom of=/tmp/data bs=1M count=2 2>/dev/null\n\
        dd if=/tmp/data of=/dev/nvme0n1 bs=128k seek=8 oflag=direct 2>/dev/null\n\
        dd if=/dev/nvme0n1 bs=128k skip=8 count=16 iflag=direct 2>/dev/null | cmp - /tmp/data && echo compared\n";
    let outcome = machine.boot_limit(LIMIT).limit(LIMIT).script(script).run().unwrap().expect_success();
    assert!(outcome.output.contains("compared"), "{}", outcome.output);
    far.tell("over").unwrap();
    let outcome = far.finish().unwrap().expect_success();
    eprintln!("{}", outcome.output);
    assert!(outcome.output.contains("gates are there"), "{}", outcome.output);
}
