//! A stock Linux guest that boots with a far end's disk, makes a file system on it and mounts that.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use guest::{Device, Guest, Kit};
use serde_json::Value;

use super::ends::Far;
use super::farlane;

/// How long a guest may take.
const LIMIT: Duration = Duration::from_secs(120);
const SCRIPT: &str = "\
set -e
now() { cut -d ' ' -f 1 /proc/uptime; }
BEGAN=$(now)
appears /dev/nvme0n1
mkfs.ext4 -q /dev/nvme0n1
mount -t ext4 /dev/nvme0n1 /mnt
echo \"from $BEGAN to $(now)\"
umount /mnt
";

/// How long a guest took to boot and to mount its disk.
pub(crate) struct Booted {
    /// Time from power-on to the guest's first script.
    pub(crate) boot: Duration,
    /// Time from power-on to the mounted file system.
    pub(crate) mounted: Duration,
    /// Round trips for which the guest or the function waited, until the guest's end.
    pub(crate) round_trips: u64,
}

/// Boots a guest whose only SSD is the one at `far`.
pub(crate) fn boot(kit: &Kit, far: &Far, lookahead: bool) -> Booted {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    let mut near = farlane()
        .args(["attach", &far.url(), "--json", "--vfio-user", socket.to_str().unwrap()])
        .arg(if lookahead { "--lookahead" } else { "--no-lookahead" })
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(near.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.next().expect("attach says where it listens");
    let builder = Guest::builder(kit).unwrap().tools(["mkfs.ext4"]).unwrap();
    let builder = builder.device(Device::vfio_user(socket)).boot_limit(LIMIT).limit(LIMIT);
    let outcome = builder.script(SCRIPT).run().unwrap().expect_success();
    assert!(Command::new("kill").arg(near.id().to_string()).status().unwrap().success());
    let reported: Value = serde_json::from_str(&lines.last().expect("attach reports at its end")).unwrap();
    near.wait().unwrap();
    let (began, ended) = outcome
        .output
        .lines()
        .find_map(|line| line.strip_prefix("from ")?.split_once(" to "))
        .unwrap_or_else(|| panic!("no times in {}", outcome.output));
    let [began, ended] = [began, ended].map(|time| Duration::from_secs_f64(time.parse().unwrap()));
    let trips = reported["round_trips"].as_object().unwrap_or_else(|| panic!("no round trips in {reported}"));
    let round_trips = trips.values().filter_map(Value::as_u64).sum();
    Booted { boot: outcome.boot, mounted: outcome.boot + (ended - began), round_trips }
}
