//! Stock Linux guests on `farlane offer device` and on `farlane attach` with a `farlane export`
//! behind it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guest::{Builder, Device, Guest, Kit, Running, skip};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::proxy::Proxy;
use crate::support::relay::Relay;
use crate::support::{Export, FARLANE, json};

/// Script of what a guest does with an SSD.
const USE: &str = include_str!("scripts/use.sh");
/// How long a guest may take for one thing.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a far end is away while a guest starts: longer than common hosts wait for an answer.
const AWAY: Duration = Duration::from_secs(2);
/// Kernel parameters that make the guest's driver wait 4 s for a command; its default is 30 s.
const SHORT_TIMEOUTS: &str = "nvme_core.io_timeout=4 nvme_core.admin_timeout=4";

/// Lets one guest run at a time: guests are interpreted, and would wait for each other's
/// processors.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory for sockets, for processes that serve at them.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }
    fn socket(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
    /// Starts `farlane offer device` with an SSD in memory.
    fn device(&self, name: &str, arguments: &[&str]) -> Export {
        let mut command = Command::new(&*FARLANE);
        // `make soak` runs the same with one core.
        let cores = std::env::var("FARLANE_TEST_CORES").unwrap_or_else(|_| "4".to_owned());
        command.args(["offer", "device", "--json", "--cores", &cores, "--vfio-user"]);
        command.arg(self.socket(name)).args(arguments);
        Export::of(command)
    }
    /// Starts `farlane attach` to `url`, with further arguments.
    fn attach(&self, name: &str, url: &str, further: &[&str]) -> Export {
        let mut command = Command::new(&*FARLANE);
        command.args(["attach", url, "--json", "--vfio-user"]).arg(self.socket(name)).args(further);
        Export::of(command)
    }
}

fn guest_with(kit: &Kit, device: Device) -> Builder {
    Guest::builder(kit)
        .unwrap()
        .tools(["nvme", "fio", "lspci", "mkfs.ext4", "fsck.ext4"])
        .unwrap()
        .limit(LIMIT * 2)
        .device(device)
}

/// Checks that the output has all lines that [`USE`] prints when all goes well.
fn assert_used(output: &str, serial: &str) {
    for line in [
        "identity 0x010802 0xfa1a:0x0010",
        "Non-Volatile memory controller [0108]: Device [fa1a:0010] (rev 01)",
        "Express (v2)",
        "MSI-X: Enable+ Count=65 Masked-",
        "Advanced Error Reporting",
        "Kernel driver in use: nvme",
        "mn        : Farlane",
        "logs answered",
        "copied and compared",
        "mounted again",
        "fsck clean",
        "fio verified",
        "discarded",
        "controller reset",
        "function reset",
        "bound 20 times",
        "nothing in the kernel's log",
    ] {
        assert!(output.contains(line), "{line:?} in {output}");
    }
    assert!(output.contains(&format!("sn        : {serial}")), "{output}");
}

#[test]
fn a_guest_uses_a_local_ssd_as_any_other() {
    let Some(kit) = skip::kit_or_skip("a guest on a local SSD") else { return };
    let place = Place::new();
    let mut device = place.device("ssd", &["--ram", "64MiB", "--serial", "LOCAL"]);
    let turn = turn();
    let outcome = guest_with(kit, Device::vfio_user(place.socket("ssd"))).script(USE).run().unwrap();
    drop(turn);
    assert_used(&outcome.expect_success().output, "LOCAL");
    device.wait_for("the client has gone");
    let (status, said) = device.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(!said.contains("outside of the guest's memory"), "{said}");
    assert!(!place.socket("ssd").exists());
}

/// Lets a guest use all of the SSD of `far`, which `near` shows it.
fn use_a_far_ssd(kit: &Kit, place: &Place, far: &Export, mut near: Export) {
    let turn = turn();
    let outcome = guest_with(kit, Device::vfio_user(place.socket("ssd"))).script(USE).run().unwrap();
    drop(turn);
    assert_used(&outcome.expect_success().output, "FAR");
    near.wait_for("the client has gone");
    let (status, said) = near.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(!said.contains("outside of the guest's memory"), "{said}");
    assert!(said.contains("link up with farlane export FAR"), "{said}");
    far.wait_for("link down");
}

/// Every frame has its CRC32C here, as always over TCP without keys.
#[test]
fn a_guest_uses_a_far_ssd_as_any_other() {
    let Some(kit) = skip::kit_or_skip("a guest on a far SSD") else { return };
    let place = Place::new();
    let far = Export::start(&["--ram", "64MiB", "--serial", "FAR"]);
    let near = place.attach("ssd", &far.url(), &["--dma", "strict"]);
    use_a_far_ssd(kit, &place, &far, near);
}

#[test]
fn a_guest_uses_a_far_ssd_with_keys_as_any_other() {
    let Some(kit) = skip::kit_or_skip("a guest on a far SSD with keys") else { return };
    let place = Place::new();
    let path = |name: &str| place.socket(name).to_str().unwrap().to_owned();
    let key = |name: &str| {
        json(&["setup", "key", "new", &path(name), "--json"])["key"].as_str().unwrap().to_owned()
    };
    let (far_key, host_key) = (key("far"), key("host"));
    let far = ["--ram", "64MiB", "--serial", "FAR", "--key", &path("far"), "--allow", &host_key];
    let far = Export::start(&far);
    let url = format!("{}?key={far_key}", far.url());
    let near = place.attach("ssd", &url, &["--key", &path("host"), "--dma", "strict"]);
    use_a_far_ssd(kit, &place, &far, near);
}

#[test]
fn a_guest_uses_a_far_ssd_over_several_connections_that_are_cut() {
    let Some(kit) = skip::kit_or_skip("a guest whose queues are spread") else { return };
    let place = Place::new();
    let far = Export::start(&["--ram", "64MiB", "--serial", "SPREAD"]);
    let network = Proxy::cutting(&far.address, 20, 4 << 20, 3);
    let control = place.socket("control");
    let mut command = Command::new(&*FARLANE);
    command.args(["attach", &network.url(), "--json", "--spread", "3", "--vfio-user"]);
    let near = Export::of({
        command.arg(place.socket("ssd")).arg("--control").arg(&control);
        command
    });
    let turn = turn();
    // Two processors have a queue each.
    let builder = guest_with(kit, Device::vfio_user(place.socket("ssd"))).processors(2);
    let outcome = builder.script(USE).run().unwrap();
    drop(turn);
    assert_used(&outcome.expect_success().output, "SPREAD");
    near.wait_for("the client has gone");
    assert!(network.cuts() > 10, "{}", near.said());
    let status = json(&["observe", "status", control.to_str().unwrap(), "--json"]);
    let connections = status["connections"].as_array().unwrap();
    let came = |index: usize| connections[index]["packets_received"].as_u64().unwrap();
    assert!(connections.len() == 3 && came(1) > 1000 && came(2) > 1000, "{status}");
    assert!(!near.said().contains("link down"), "{}", near.said());
}

#[test]
fn the_round_trips_of_a_boot_to_a_mounted_file_system_are_counted() {
    let Some(kit) = skip::kit_or_skip("the round trips of a boot") else { return };
    let place = Place::new();
    let far = Export::start(&["--ram", "64MiB"]);
    let mut near = place.attach("ssd", &far.url(), &[]);
    let script = r#"
        set -e
        appears /dev/nvme0n1
        mkfs.ext4 -q /dev/nvme0n1
        mount -t ext4 /dev/nvme0n1 /mnt
        tell mounted
        await never
    "#;
    let held = turn();
    let device = Device::vfio_user(place.socket("ssd"));
    let mut running = guest_with(kit, device).script(script).start().unwrap();
    expect(&mut running, "mounted");
    let (status, said) = near.end_by("TERM");
    drop((running, held));
    assert_eq!(status, Some(0), "{said}");
    let reported = near.next_line();
    let count = |of: &Value, name: &str| of[name].as_u64().unwrap();
    let trips = &reported["round_trips"];
    let (accesses, resets, reads) =
        (count(trips, "accesses"), count(trips, "resets"), count(trips, "memory_reads"));
    let all = count(&reported, "config_accesses") + count(&reported, "register_accesses");
    // The near end knows most of what a monitor asks, and register writes don't wait.
    assert!(accesses > 10 && accesses < all * 2 / 3, "{accesses} of {all} accesses");
    // Entries and data went with their doorbells: hardly any command waits for more.
    let entries = count(&reported["lookahead"], "entries");
    assert!(resets > 0 && entries > 100 && reads < entries / 4, "{reported}");
    let trips = accesses + resets + reads;
    assert!(said.contains(&format!("farlane: {trips} round trips: {accesses} of")), "{said}");
    assert!(trips < 1_000, "{reported}");
    eprintln!("a boot to a mounted file system: {reported}");
}

/// A guest that reports the mark at the start of its SSD, and writes one on request.
fn marking(kit: &Kit, device: Device) -> Builder {
    let script = r#"
        read_mark() { dd if=/dev/nvme0n1 bs=4k count=1 iflag=direct 2>/dev/null | tr -d '\0'; }
        mark=$(read_mark)
        tell "found ${mark:-nothing}"
        await mark
        printf 'a mark' | dd of=/dev/nvme0n1 bs=4k conv=sync oflag=direct 2>/dev/null
        tell "left $(read_mark)"
        await never
    "#;
    guest_with(kit, device).reboots().script(script)
}

fn expect(running: &mut Running, words: &str) {
    running.expect(words, LIMIT).unwrap();
}

#[test]
fn a_guest_starts_again_and_another_follows_when_it_is_killed() {
    let Some(kit) = skip::kit_or_skip("guests that come and go") else { return };
    let place = Place::new();
    let far = Export::start(&["--ram", "64MiB"]);
    let mut near = place.attach("ssd", &far.url(), &[]);
    let _turn = turn();
    let device = || Device::vfio_user(place.socket("ssd"));
    let mut running = marking(kit, device()).start().unwrap();
    expect(&mut running, "found nothing");
    // A second guest gets the error at once that it can't have the SSD.
    let second = guest_with(kit, device()).script("true").run().unwrap_err();
    assert!(second.to_string().contains("ssd"), "{second}");
    near.wait_for("was turned away");
    running.tell("mark").unwrap();
    expect(&mut running, "left a mark");
    running.monitor("system_reset").unwrap();
    running.expect_reboot(LIMIT).unwrap();
    expect(&mut running, "found a mark");
    // Kill the guest while it is running.
    drop(running);
    near.wait_for("the client has gone");
    let mut running = marking(kit, device()).start().unwrap();
    expect(&mut running, "found a mark");
    drop(running);
    let (status, said) = near.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the guest resets the function"), "{said}");
}

#[test]
fn a_far_end_that_goes_is_an_error_in_the_guest_and_comes_back() {
    let Some(kit) = skip::kit_or_skip("a far end that goes and comes back") else { return };
    let place = Place::new();
    let image = place.socket("disk.img");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let namespace = ["--namespace", image.to_str().unwrap(), "--serial", "COMES-BACK", "--hold", "5s"];
    let mut far = Export::start(&namespace);
    let address = far.address.clone();
    let mut near = place.attach("ssd", &far.url(), &[]);
    let script = r#"
        printf 'a mark' | dd of=/dev/nvme0n1 bs=4k conv=sync,fsync 2>/dev/null
        AT=$(basename $(readlink -f /sys/class/nvme/nvme0/device))
        tell ready
        await gone
        dd if=/dev/nvme0n1 of=/dev/null bs=4k count=1 iflag=direct && exit 1
        tell error
        await back
        echo 1 >/sys/bus/pci/devices/$AT/remove
        echo 1 >/sys/bus/pci/rescan
        for i in $(seq 200); do [ -b /dev/nvme0n1 ] && break; sleep 0.05; done
        tell "found $(dd if=/dev/nvme0n1 bs=4k count=1 iflag=direct 2>/dev/null | tr -d '\0')"
        await end
    "#;
    let _turn = turn();
    let builder = guest_with(kit, Device::vfio_user(place.socket("ssd"))).command_line(SHORT_TIMEOUTS);
    let mut running = builder.script(script).start().unwrap();
    expect(&mut running, "ready");
    far.kill();
    running.tell("gone").unwrap();
    expect(&mut running, "error");
    near.wait_for("the function has gone");
    let far = Export::at(&address, &namespace);
    near.wait_for("the function is back");
    running.tell("back").unwrap();
    expect(&mut running, "found a mark");
    // Without the near end the guest's device is gone, but the guest and the far end go on.
    near.kill();
    running.tell("end").unwrap();
    let outcome = running.finish().unwrap();
    assert_eq!(outcome.status, 0, "{}", outcome.console);
    far.wait_for("interrupted");
}

#[test]
fn a_guest_that_starts_while_its_far_end_is_away_finds_its_disk() {
    let Some(kit) = skip::kit_or_skip("a guest that starts while its far end is away") else { return };
    let place = Place::new();
    let far = Export::start(&["--ram", "64MiB", "--serial", "AWAY"]);
    let network = Relay::to(&far.address);
    let mut near = place.attach("ssd", &format!("tcp://{}", network.address), &[]);
    near.wait_for("offering function");
    let _turn = turn();
    network.cut();
    let script = "appears /dev/nvme0n1; tell \"found $(cat /sys/class/nvme/nvme0/serial)\"; await end";
    let builder = guest_with(kit, Device::vfio_user(place.socket("ssd")));
    // A monitor waits for its devices when it starts.
    let mut running = std::thread::scope(|scope| {
        scope.spawn(|| {
            near.wait_for("a client has come");
            std::thread::sleep(AWAY);
            network.join();
        });
        builder.script(script).start().unwrap()
    });
    expect(&mut running, "found AWAY");
    running.tell("end").unwrap();
    let _outcome = running.finish().unwrap().expect_success();
    let (status, said) = near.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("resumed"), "{said}");
}

#[test]
fn a_far_end_that_stalls_for_40_seconds_costs_the_guest_nothing_but_time() {
    let Some(kit) = skip::kit_or_skip("a far end that stalls") else { return };
    let place = Place::new();
    let far = Export::start(&["--ram", "64MiB"]);
    let near = place.attach("ssd", &far.url(), &[]);
    let script = r#"
        set -e
        dd if=/dev/urandom of=/tmp/noise bs=1M count=8 2>/dev/null
        mkfs.ext4 -q /dev/nvme0n1
        mount -t ext4 /dev/nvme0n1 /mnt
        copy() { cp /tmp/noise /mnt/$1; sync; echo 3 >/proc/sys/vm/drop_caches; cmp /tmp/noise /mnt/$1; }
        copy before
        tell ready
        await stalled
        copy during
        copy after
        umount /mnt
        fsck.ext4 -f -n /dev/nvme0n1 >/dev/null 2>&1
        dmesg | grep -i nvme
        tell done
    "#;
    let held = turn();
    let builder = guest_with(kit, Device::vfio_user(place.socket("ssd")));
    let mut running = builder.script(script).start().unwrap();
    expect(&mut running, "ready");
    // Other tests need not wait for the stall.
    drop(held);
    crate::support::running::signal(far.id(), "STOP");
    running.tell("stalled").unwrap();
    std::thread::sleep(Duration::from_secs(40));
    crate::support::running::signal(far.id(), "CONT");
    expect(&mut running, "done");
    let outcome = running.finish().unwrap().expect_success();
    // The guest's driver noticed: it gives a command 30 s, and then asks for it again.
    assert!(outcome.output.contains("timeout"), "{}", outcome.output);
    assert!(!outcome.output.contains("Disabling"), "{}", outcome.output);
    near.wait_for("resumed");
}

#[test]
fn a_machine_boots_from_a_far_ssd() {
    let Some(kit) = skip::kit_or_skip("booting from a far SSD") else { return };
    let place = Place::new();
    let image = place.socket("boot.img");
    std::fs::write(&image, guest::boot_image()).unwrap();
    let far = Export::start(&["--namespace", image.to_str().unwrap()]);
    let near = place.attach("ssd", &far.url(), &[]);
    let _turn = turn();
    let builder = Guest::builder(kit).unwrap().device(Device::vfio_user(place.socket("ssd")));
    let outcome = builder.boot_from_device().boot_limit(LIMIT).run().unwrap();
    assert_eq!(outcome.status, 0, "{}", outcome.console);
    near.wait_for("the client has gone");
}

/// The same by UEFI firmware, whose driver identifies namespaces and asks for their blocks in
/// another way.
#[test]
fn a_machine_boots_from_a_far_ssd_by_uefi() {
    let Some(kit) = skip::kit_or_skip("booting from a far SSD by UEFI") else { return };
    let place = Place::new();
    let image = place.socket("efi.img");
    std::fs::write(&image, guest::efi_image()).unwrap();
    let far = Export::start(&["--namespace", image.to_str().unwrap()]);
    let near = place.attach("ssd", &far.url(), &[]);
    let _turn = turn();
    let builder = Guest::builder(kit).unwrap().device(Device::vfio_user(place.socket("ssd")));
    let builder = builder.firmware(guest::Firmware::Edk2).boot_from_device();
    let outcome = builder.boot_limit(LIMIT).run().unwrap();
    assert_eq!(outcome.status, 0, "{}", outcome.console);
    near.wait_for("the client has gone");
}

#[test]
fn a_local_and_a_far_ssd_share_a_switch_of_the_guests() {
    let Some(kit) = skip::kit_or_skip("two SSDs behind a switch") else { return };
    let place = Place::new();
    let far = Export::start(&["--ram", "16MiB", "--serial", "FAR"]);
    let _near = place.attach("far", &far.url(), &[]);
    let _local = place.device("near", &["--ram", "16MiB", "--serial", "NEAR", "--poll-doorbells"]);
    let script = r#"
        set -e
        cat /sys/class/nvme/*/serial | tr -d ' ' | sort
        dd if=/dev/urandom of=/tmp/noise bs=1M count=4 2>/dev/null
        for disk in /dev/nvme0n1 /dev/nvme1n1; do dd if=/tmp/noise of=$disk bs=1M conv=fsync 2>/dev/null & done
        wait
        cmp -n 4194304 /dev/nvme0n1 /dev/nvme1n1 && cmp -n 4194304 /dev/nvme0n1 /tmp/noise && echo alike
        AT=$(basename $(readlink -f /sys/class/nvme/nvme0/device))
        lspci -vv -s $AT | grep -E 'Express \(v2\)|LnkSta:'
        echo bus >/sys/bus/pci/devices/$AT/reset_method
        echo 1 >/sys/bus/pci/devices/$AT/reset
        dd if=/dev/nvme0n1 of=/dev/null bs=1M count=4 iflag=direct 2>/dev/null && echo "bus reset"
    "#;
    let _turn = turn();
    let devices = ["far", "near"].map(|name| Device::vfio_user(place.socket(name)));
    let builder = Guest::builder(kit).unwrap().tools(["lspci"]).unwrap().switch(devices).limit(LIMIT);
    let output = builder.script(script).run().unwrap().expect_success().output;
    for line in ["FAR\nNEAR\n", "alike\n", "Express (v2) Endpoint", "LnkSta:", "bus reset\n"] {
        assert!(output.contains(line), "{line:?} in {output}");
    }
}
