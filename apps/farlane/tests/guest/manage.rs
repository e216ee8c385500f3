//! How a data centre uses guests' SSDs: stock nvme-cli and fio on a local and a far SSD at once;
//! and two guests, each with a far SSD of the same export.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use guest::{Device, Guest, skip};

use crate::support::{Export, FARLANE};

/// Script of what the administrator does.
const MANAGE: &str = include_str!("scripts/manage.sh");
/// Options of an SSD with a namespace and room for more.
const SSD: [&str; 4] = ["--ram", "32MiB", "--pool", "64MiB"];

fn served(arguments: &[&str], socket: &Path) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(arguments).args(["--json", "--vfio-user"]).arg(socket);
    Export::of(command)
}

#[test]
fn an_administrator_manages_a_local_and_a_far_ssd() {
    let Some(kit) = skip::kit_or_skip("managing SSDs from a guest") else { return };
    let directory = tempfile::tempdir().unwrap();
    let (local, near) = (directory.path().join("local"), directory.path().join("near"));
    let device = served(&[&["offer", "device", "--serial", "LOCAL"], &SSD[..]].concat(), &local);
    let (pool, state) = (directory.path().join("pool.img"), directory.path().join("ssd.state"));
    let pool = format!("{},size=64MiB", pool.display());
    let remembering =
        ["--serial", "FAR", "--ram", "32MiB", "--pool", &pool, "--state", state.to_str().unwrap()];
    let mut far = Export::start(&remembering);
    let attached = served(&["attach", &far.url()], &near);
    let limit = Duration::from_secs(180);
    let mut guest = Guest::builder(kit)
        .unwrap()
        .tools(["nvme", "fio", "smartctl"])
        .unwrap()
        .limit(limit)
        .device(Device::vfio_user(local))
        .device(Device::vfio_user(near))
        .script(MANAGE)
        .start()
        .unwrap();
    guest.expect("remembered", limit).unwrap();
    far.kill();
    let far = Export::at(&far.address, &remembering);
    attached.wait_for("the function is back");
    guest.tell("restarted").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    assert!(outcome.output.contains("the far SSD remembers"), "{}", outcome.output);
    let jobs = [
        "features",
        "logs",
        "namespaces",
        "format",
        "self-test",
        "sanitize",
        "commands",
        "smartctl",
        "reset",
    ];
    for (serial, job) in ["LOCAL", "FAR"].iter().flat_map(|serial| jobs.iter().map(move |job| (serial, job)))
    {
        assert!(outcome.output.contains(&format!("{serial} {job}")), "{serial} {job}: {}", outcome.output);
    }
    assert!(outcome.output.contains("a minute of mixed blocks verified on both"), "{}", outcome.output);
    drop((device, attached, far));
}

#[test]
fn two_guests_have_a_far_ssd_each_of_one_export() {
    let Some(kit) = skip::kit_or_skip("two guests on two far ends of one export") else { return };
    let directory = tempfile::tempdir().unwrap();
    let more = ["--ram", "32MiB", "--listen", "127.0.0.1:0", "--ram", "32MiB"];
    let mut export = Export::start(&more);
    let urls = [export.url(), export.next_url()];
    let sockets = [directory.path().join("one"), directory.path().join("other")];
    let _near: Vec<_> =
        urls.iter().zip(&sockets).map(|(url, socket)| served(&["attach", url], socket)).collect();
    let limit = Duration::from_secs(60);
    let guests = sockets.iter().zip(["one", "other"]).map(|(socket, mark)| {
        let script = format!(
            "set -e; appears /dev/nvme0n1
             mkfs.ext4 -q /dev/nvme0n1; mount -t ext4 /dev/nvme0n1 /mnt
             tell mounted; await go
             echo {mark} >/mnt/mark; dd if=/dev/urandom of=/mnt/noise bs=1M count=8 2>/dev/null
             umount /mnt; mount -t ext4 /dev/nvme0n1 /mnt
             cat /mnt/mark; umount /mnt; fsck.ext4 -f -n /dev/nvme0n1 >/dev/null 2>&1"
        );
        let builder = Guest::builder(kit).unwrap().tools(["mkfs.ext4", "fsck.ext4"]).unwrap();
        builder.limit(limit).device(Device::vfio_user(socket)).script(script).start().unwrap()
    });
    let mut guests: Vec<_> = guests.collect();
    for guest in &mut guests {
        guest.expect("mounted", limit).unwrap();
    }
    // Both guests write at the same time.
    for guest in &mut guests {
        guest.tell("go").unwrap();
    }
    for (guest, mark) in guests.into_iter().zip(["one", "other"]) {
        let outcome = guest.finish().unwrap().expect_success();
        assert_eq!(outcome.output.lines().last(), Some(mark), "{}", outcome.output);
    }
}
