//! Stock nvme-cli and fio in a guest, on a local and a far SSD at once.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use guest::{Device, Guest, skip};

use support::{Export, FARLANE};

/// What the administrator does.
const MANAGE: &str = include_str!("guest/manage.sh");
/// An SSD with a namespace and room for more.
const SSD: [&str; 4] = ["--ram", "32MiB", "--pool", "64MiB"];

fn served(arguments: &[&str], socket: &Path) -> Export {
    let mut command = Command::new(FARLANE);
    command.args(arguments).args(["--json", "--vfio-user"]).arg(socket);
    Export::of(command)
}

#[test]
fn an_administrator_manages_a_local_and_a_far_ssd() {
    let Some(kit) = skip::kit_or_skip("managing SSDs from a guest") else { return };
    let directory = tempfile::tempdir().unwrap();
    let (local, near) = (directory.path().join("local"), directory.path().join("near"));
    let device = served(&[&["device", "--serial", "LOCAL"], &SSD[..]].concat(), &local);
    let far = Export::start(&[&["--serial", "FAR"], &SSD[..]].concat());
    let attached = served(&["attach", &far.url()], &near);
    let outcome = Guest::builder(kit)
        .unwrap()
        .tools(["nvme", "fio"])
        .unwrap()
        .limit(Duration::from_secs(180))
        .device(Device::vfio_user(local))
        .device(Device::vfio_user(near))
        .script(MANAGE)
        .run()
        .unwrap()
        .expect_success();
    let jobs = ["features", "logs", "namespaces", "format", "self-test", "sanitize", "commands", "reset"];
    for (serial, job) in ["LOCAL", "FAR"].iter().flat_map(|serial| jobs.iter().map(move |job| (serial, job)))
    {
        assert!(outcome.output.contains(&format!("{serial} {job}")), "{serial} {job}: {}", outcome.output);
    }
    assert!(outcome.output.contains("a minute of mixed blocks verified on both"), "{}", outcome.output);
    drop((device, attached, far));
}
