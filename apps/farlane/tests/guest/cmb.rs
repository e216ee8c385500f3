//! A controller memory buffer, as used for submission queues by a stock Linux that has peer-to-peer
//! DMA.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use guest::{Device, Guest, skip};

use crate::support::{Export, FARLANE};

/// The script of the guest.
const SCRIPT: &str = include_str!("scripts/cmb.sh");

fn served(arguments: &[&str], socket: &Path) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(arguments).args(["--json", "--vfio-user"]).arg(socket);
    Export::of(command)
}

#[test]
fn linux_has_its_submission_queues_in_the_controllers_memory() {
    let Some(kit) = skip::newer_kit_or_skip("a controller memory buffer in a guest") else { return };
    let directory = tempfile::tempdir().unwrap();
    let (local, near) = (directory.path().join("local"), directory.path().join("near"));
    let mut device =
        served(&["offer", "device", "--serial", "LOCAL", "--ram", "64MiB", "--cmb", "2MiB"], &local);
    let mut far = Export::start(&["--serial", "FAR", "--ram", "64MiB", "--cmb", "2MiB"]);
    let attached = served(&["attach", &far.url()], &near);
    let outcome = Guest::builder(kit)
        .unwrap()
        .tools(["nvme", "fio"])
        .unwrap()
        .limit(Duration::from_secs(120))
        .device(Device::vfio_user(local))
        .device(Device::vfio_user(near))
        .script(SCRIPT)
        .run()
        .unwrap()
        .expect_success();
    for (serial, line) in ["LOCAL", "FAR"].iter().flat_map(|serial| {
        // CMBLOC: BAR 2, from its first byte. CMBSZ: 512 units of 4 KiB, for submission queues and
        // nothing else.
        ["cmbloc : 0x00000002 cmbsz : 0x00200001", "of 2097152 bytes, queues have", "verified"]
            .map(|line| (serial, line))
    }) {
        let whole = format!("{serial} {line}");
        assert!(outcome.output.contains(&whole), "{whole:?} in {}", outcome.output);
    }
    assert!(outcome.output.contains("nothing in the kernel's log"), "{}", outcome.output);

    // Only the admin queue is in the guest's memory.
    let (status, said) = device.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    let reported = device.next_line();
    let count = |name: &str| reported["controller"][name].as_u64().unwrap();
    let (commands, pushed) = (count("commands"), count("from_memory_buffer"));
    assert!(pushed > 1000 && commands - pushed < 200, "{reported}");
    assert!(said.contains(&format!("{commands} commands: {pushed} from")), "{said}");
    let (status, said) = far.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    let line = said.lines().find(|line| line.contains("controller memory buffer")).unwrap();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[1] > 1000 && numbers[0] - numbers[1] < 200, "{line}");
    drop(attached);
}
