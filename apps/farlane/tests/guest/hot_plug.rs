//! Far SSDs below a switch of QEMU's, plugged in and unplugged by native hot-plug as their far ends
//! come and go.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use guest::{Builder, Guest, Kit, skip};

use crate::support::{Export, FARLANE, json};

/// The script of the guest.
const SCRIPT: &str = include_str!("scripts/hot_plug.sh");
/// How often the far end goes and comes back; `FARLANE_PLUGS` says otherwise.
const ROUNDS: u32 = 4;
/// How long a guest may take for one thing. Linux leaves 5 s for second thoughts.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the near end holds a session.
const HOLD: &str = "500ms";

/// A guest with a switch of two ports, `dn1` and `dn2`, and a monitor for each of their processes.
fn guest_with_switch(kit: &Kit, folder: &Path) -> Builder {
    let mut arguments =
        vec!["-global".to_owned(), "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off".to_owned()];
    let mut device = |text: &str| arguments.extend(["-device".to_owned(), text.to_owned()]);
    device("pcie-root-port,id=rp,chassis=70,slot=0");
    device("x3130-upstream,id=up,bus=rp");
    for port in 1..=2 {
        device(&format!("xio3130-downstream,id=dn{port},bus=up,chassis=71,slot={port}"));
    }
    for port in 1..=2 {
        let monitor = folder.join(format!("qmp{port}"));
        arguments.extend(["-qmp".to_owned(), format!("unix:{},server=on,wait=off", monitor.display())]);
    }
    let builder = Guest::builder(kit).unwrap().tools(["fio", "lspci"]).unwrap();
    builder.qemu_arguments(arguments).limit(LIMIT)
}

/// Starts `farlane attach` to `url` for port `number`.
fn attach(folder: &Path, url: &str, number: u32) -> Export {
    let mut command = Command::new(&*FARLANE);
    let path = |name: &str| folder.join(format!("{name}{number}"));
    command.args(["attach", url, "--json", "--hold", HOLD, "--port", &format!("dn{number}")]);
    command.arg("--vfio-user").arg(path("ssd")).arg("--qmp").arg(path("qmp"));
    command.arg("--control").arg(path("control"));
    Export::of(command)
}

fn port_of(folder: &Path, number: u32) -> serde_json::Value {
    let control = folder.join(format!("control{number}"));
    json(&["observe", "status", control.to_str().unwrap(), "--json"])["port"].clone()
}

#[test]
fn a_far_ssd_is_plugged_and_unplugged_while_another_one_works() {
    let Some(kit) = skip::kit_or_skip("hot-plug of far SSDs") else { return };
    let rounds =
        std::env::var("FARLANE_PLUGS").map_or(ROUNDS, |text| text.parse().expect("a number of plugs"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let image = folder.join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let namespace = ["--namespace", image.to_str().unwrap(), "--serial", "FIRST"];
    let mut first = Export::start(&namespace);
    let second = Export::start(&["--ram", "64MiB", "--serial", "SECOND"]);
    let script = format!("ROUNDS={rounds}\n{SCRIPT}");
    let mut guest = guest_with_switch(kit, folder).script(script).start().unwrap();
    let near = [attach(folder, &first.url(), 1), attach(folder, &second.url(), 2)];
    let mut times = Vec::new();
    for round in 1..=rounds {
        let said = |error| panic!("{error}\n{}", near[0].said());
        guest.expect(&format!("round {round}"), LIMIT).unwrap_or_else(said);
        // Reads and writes are under way.
        std::thread::sleep(Duration::from_millis(300));
        let lost = Instant::now();
        first.kill();
        guest.expect(&format!("went {round}"), LIMIT).unwrap_or_else(said);
        times.push(lost.elapsed());
        let address = first.address.clone();
        first = Export::at(&address, &namespace);
    }
    let outcome =
        guest.finish().unwrap_or_else(|error| panic!("{error}\n{}", near[0].said())).expect_success();
    let port = port_of(folder, 1);
    times.sort_unstable();
    eprintln!("{rounds} unplugs, median {:?}: {port}\n{}", times[times.len() / 2], outcome.output);
    for line in ["the other SSD noticed nothing", "the kernel is well"] {
        assert!(outcome.output.lines().any(|one| one == line), "{line:?} in {}", outcome.output);
    }
    assert_eq!((&port["plugs"], &port["unplugs"]), (&(rounds + 1).into(), &rounds.into()), "{port}");
    assert_eq!(port_of(folder, 2)["plugs"], 1);
}
