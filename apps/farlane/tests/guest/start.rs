//! The tutorial, `docs/start.md`, from its first command to its last, as root in a stock Linux
//! guest.

use std::time::Duration;

use guest::{Guest, skip};

use crate::support::{stripped, tutorial};

/// How long the tutorial may take in an interpreted guest.
const LIMIT: Duration = Duration::from_secs(300);

/// A reader's machine has sudo, loads modules, and has the host's name from the package nvme-cli.
const BEFORE: &str = "sudo() { \"$@\"; }\nmodprobe() { :; }\nmkdir -p /tmp/start /etc/nvme && cd /tmp/start\n\
    echo nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555 >/etc/nvme/hostnqn\n";

#[test]
fn the_whole_tutorial_works_in_a_stock_guest() {
    let Some(kit) = skip::kit_or_skip("the tutorial, with the lines that need root") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut builder = Guest::builder(kit)
        .unwrap()
        .memory_mib(2048)
        .limit(LIMIT)
        .tools(["nvme", "mkfs.ext4"])
        .unwrap()
        .modules(["ublk_drv", "nvme-tcp"])
        .unwrap()
        .user_network()
        .unwrap();
    builder.initramfs().program("usr/bin/farlane", &stripped(folder.path())).unwrap();
    // The guest is root, has its modules already, and keeps all files in memory.
    let steps = tutorial::script().replace("size=1GiB", "size=128MiB");
    let script = format!("{BEFORE}{steps}echo all of it\n");
    let outcome = builder.script(script).run().unwrap().expect_success();
    assert!(outcome.output.lines().any(|line| line == "all of it"), "{}", outcome.output);
    for shown in ["/dev/ublkb0", "-[0000:00]-", "nqn.2026-01.io.farlane:start"] {
        assert!(outcome.output.contains(shown), "{shown}: {}", outcome.output);
    }
}
