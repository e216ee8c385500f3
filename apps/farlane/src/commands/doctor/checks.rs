//! The needs of each purpose, and checks whether a machine meets them.

use std::path::Path;

use super::finding::Finding;
use super::machine::Machine;
use crate::args::Purpose;
use crate::commands::control;

/// The oldest kernel that Farlane is made for.
const KERNEL_MIN: (u32, u32) = (5, 15);
/// Descriptors with which a few hundred hosts can be served.
const DESCRIPTORS_GOOD: u64 = 4096;
/// Bytes that a socket's buffer may need: 1 Gbit/s over 32 ms.
const BUFFER_GOOD: u64 = 4 << 20;
/// Bytes that a driver of an NVMe controller locks at least, for queues and buffers.
const LOCKED_GOOD: u64 = 64 << 20;
/// Numbers of `capabilities(7)`.
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
/// The class of NVMe controllers in PCI's terms: storage, non-volatile memory, NVM Express.
const CLASS_NVME: &str = "0x010802";

/// The findings about everything that `purpose` needs.
pub(super) fn of(machine: &Machine, purpose: Purpose) -> Vec<Finding> {
    match purpose {
        Purpose::Serving => {
            vec![kernel(machine), descriptors(machine), landlock(machine), control_sockets()]
        }
        Purpose::Files => vec![ring(machine)],
        Purpose::Network => network(machine),
        Purpose::Latency => {
            vec![clock_source(machine), governor(machine), processors(machine), nodes(machine)]
        }
        Purpose::Guests => vec![kvm(machine), qemu(machine), huge_pages(machine)],
        Purpose::Vfio => {
            vec![iommu(machine), vfio(machine), iommufd(machine), locked(machine), controllers(machine)]
        }
        Purpose::Record => vec![packets(machine), datagrams(machine)],
        Purpose::Time => vec![hardware_clocks(machine), synchronised(machine)],
        Purpose::Emulate => vec![tun(machine), network_rights(machine)],
        Purpose::Initiator => vec![initiator(machine), block_driver(machine)],
        Purpose::Rdma => vec![rdma(machine)],
    }
}

fn kernel(machine: &Machine) -> Finding {
    let (least, name) = (format!("{}.{}", KERNEL_MIN.0, KERNEL_MIN.1), "kernel");
    let Some(release) = machine.text("/proc/sys/kernel/osrelease") else {
        return Finding::weak(name, "unknown", format!("Linux {least} or newer is expected"));
    };
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version >= KERNEL_MIN {
        true => Finding::ok(name, release),
        false => Finding::missing(name, release, format!("use Linux {least} or newer")),
    }
}

fn descriptors(machine: &Machine) -> Finding {
    let name = "descriptors";
    match machine.descriptors_max {
        None => Finding::ok(name, "no limit"),
        Some(most) if most >= DESCRIPTORS_GOOD => {
            let far_end = (most / 8).min(tunnel::downstream::WAITING_MAX as u64);
            let target = (most / 8).min(assemblies::target::STRANGERS_MAX as u64);
            let shares =
                format!("hosts without a proven key have {far_end} at a far end, {target} at a target");
            Finding::ok(name, format!("{most} at most; {shares}"))
        }
        Some(most) => Finding::weak(
            name,
            format!("{most} at most: few hosts can be served"),
            format!(
                "ulimit -Hn {DESCRIPTORS_GOOD} as root, or LimitNOFILE={DESCRIPTORS_GOOD} in a systemd unit"
            ),
        ),
    }
}

fn landlock(machine: &Machine) -> Finding {
    let modules = machine.text("/sys/kernel/security/lsm");
    match modules {
        Some(modules) if modules.split(',').any(|one| one == "landlock") => Finding::ok("Landlock", "there"),
        Some(_) => Finding::weak(
            "Landlock",
            "not there: services are not confined to their files",
            "add landlock to the kernel's parameter lsm=, or run services under systemd's own confinement",
        ),
        None => Finding::weak(
            "Landlock",
            "unknown: securityfs is not mounted here",
            "mount -t securityfs securityfs /sys/kernel/security shows it",
        ),
    }
}

fn control_sockets() -> Finding {
    let folder = control::folder();
    match control::check_folder() {
        Ok(()) => Finding::ok("control sockets", format!("in {}", folder.display())),
        Err(why) => Finding::weak(
            "control sockets",
            format!("{why}: farlane observe list finds no daemon"),
            "set XDG_RUNTIME_DIR to a folder that this user alone may write, or give --control PATH",
        ),
    }
}

fn ring(machine: &Machine) -> Finding {
    let Some(why) = &machine.no_ring else { return Finding::ok("io_uring", "usable") };
    let remedy = match machine.number("/proc/sys/kernel/io_uring_disabled") {
        Some(1 | 2) => "sysctl kernel.io_uring_disabled=0",
        _ => "allow io_uring_setup where this runs: containers' filters of system calls often refuse it",
    };
    Finding::weak("io_uring", format!("{why}: transfers are made one at a time"), remedy)
}

fn network(machine: &Machine) -> Vec<Finding> {
    let largest = |name: &'static str, path: &str, key: &str| match machine.number(path) {
        None => Finding::weak(name, "unknown", format!("sysctl {key} shows it")),
        Some(bytes) if bytes >= BUFFER_GOOD => Finding::ok(name, format!("{bytes} B at most")),
        Some(bytes) => Finding::weak(
            name,
            format!("{bytes} B at most: too few for a fast link that is long"),
            format!("sysctl -w {key}={}", sizes(machine, path)),
        ),
    };
    let congestion = machine.text("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    let others = machine.text("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let control = match others.split(' ').any(|one| one == "bbr") || congestion == "bbr" {
        true => Finding::ok("congestion control", format!("{congestion} of {others}")),
        false => Finding::weak(
            "congestion control",
            format!("{congestion}; bbr, which suits lossy links, is not loaded"),
            "modprobe tcp_bbr, and give --congestion bbr",
        ),
    };
    let idle = match machine.number("/proc/sys/net/ipv4/tcp_slow_start_after_idle") {
        Some(0) => Finding::ok("after a pause", "the window stays open"),
        _ => Finding::weak(
            "after a pause",
            "TCP starts slowly again: the first large transfer takes more round trips",
            "sysctl -w net.ipv4.tcp_slow_start_after_idle=0",
        ),
    };
    vec![
        largest("receive buffers", "/proc/sys/net/ipv4/tcp_rmem", "net.ipv4.tcp_rmem"),
        largest("send buffers", "/proc/sys/net/ipv4/tcp_wmem", "net.ipv4.tcp_wmem"),
        control,
        idle,
    ]
}

/// The values of a `sysctl` of three sizes, with a good largest one.
fn sizes(machine: &Machine, path: &str) -> String {
    let text = machine.text(path).unwrap_or_default();
    let mut sizes: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
    sizes.pop();
    sizes.push(BUFFER_GOOD.to_string());
    format!("\"{}\"", sizes.join(" "))
}

fn clock_source(machine: &Machine) -> Finding {
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let source = machine.text(&format!("{folder}/current_clocksource")).unwrap_or_default();
    match source.as_str() {
        "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "arch_sys_counter" => {
            Finding::ok("clock source", source)
        }
        other => Finding::weak(
            "clock source",
            format!("{other}: each look at the clock is a slow access to a device"),
            "use tsc if dmesg does not call it unstable: the kernel's parameter clocksource=tsc",
        ),
    }
}

fn governor(machine: &Machine) -> Finding {
    let name = "processor governor";
    let folder = "/sys/devices/system/cpu";
    let is_processor =
        |name: &String| name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let processors = machine.names(folder).into_iter().filter(is_processor);
    let mut governors: Vec<_> = processors
        .filter_map(|one| machine.text(&format!("{folder}/{one}/cpufreq/scaling_governor")))
        .collect();
    governors.sort();
    governors.dedup();
    match governors.iter().any(|one| one != "performance") {
        false if governors.is_empty() => {
            Finding::ok(name, "none: the clock rate is not this kernel's matter")
        }
        false => Finding::ok(name, "performance"),
        true => Finding::weak(
            name,
            format!("{}: a processor that slept wakes slowly", governors.join(", ")),
            "cpupower frequency-set -g performance",
        ),
    }
}

fn processors(machine: &Machine) -> Finding {
    let text = machine.text("/proc/cpuinfo").unwrap_or_default();
    match text.lines().filter(|line| line.starts_with("processor")).count() {
        1 => Finding::weak(
            "processors",
            "1: two ends on this machine take turns",
            "give this machine two, or measure between two machines",
        ),
        count => Finding::ok("processors", count.to_string()),
    }
}

fn nodes(machine: &Machine) -> Finding {
    let names = machine.names("/sys/devices/system/node");
    let count =
        names.iter().filter(|name| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()));
    match count.count() {
        0 | 1 => Finding::ok("NUMA", "one node"),
        several => Finding::weak(
            "NUMA",
            format!("{several} nodes: memory of another node is slower"),
            "--cpu N keeps each end on the node of its network card: numactl --hardware shows them",
        ),
    }
}

fn kvm(machine: &Machine) -> Finding {
    match (machine.has("/dev/kvm"), machine.may_open("/dev/kvm")) {
        (true, true) => Finding::ok("KVM", "usable"),
        (true, false) => Finding::weak(
            "KVM",
            "/dev/kvm may not be opened: guests run without it, slowly",
            "usermod -aG kvm USER, and log in again",
        ),
        (false, _) => Finding::weak(
            "KVM",
            "no /dev/kvm: guests run without it, slowly",
            "modprobe kvm_intel or kvm_amd, after virtualisation is on in the firmware",
        ),
    }
}

fn qemu(machine: &Machine) -> Finding {
    let program = "qemu-system-x86_64";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program));
    match found.into_iter().find(|path| machine.has(&path.to_string_lossy())) {
        Some(path) => Finding::ok("QEMU", path.to_string_lossy()),
        None => Finding::weak(
            "QEMU",
            format!("no {program} in $PATH"),
            "install QEMU 10.1 or newer: it is the first one with vfio-user-pci",
        ),
    }
}

fn huge_pages(machine: &Machine) -> Finding {
    let name = "huge pages";
    match (machine.memory("HugePages_Total"), machine.memory("HugePages_Free")) {
        (Some(all @ 1..), Some(free)) => Finding::ok(name, format!("{free} of {all} are free")),
        _ => Finding::ok(name, "none are set aside; a guest's memory does without"),
    }
}

fn iommu(machine: &Machine) -> Finding {
    match machine.names("/sys/kernel/iommu_groups").len() {
        0 => Finding::missing(
            "IOMMU",
            "no group in /sys/kernel/iommu_groups",
            "turn it on in the firmware (VT-d, AMD-Vi), and start the kernel with intel_iommu=on",
        ),
        count => Finding::ok("IOMMU", format!("{count} groups")),
    }
}

fn vfio(machine: &Machine) -> Finding {
    match machine.has("/dev/vfio/vfio") {
        true => Finding::ok("vfio-pci", "/dev/vfio/vfio"),
        false => Finding::missing("vfio-pci", "no /dev/vfio/vfio", "modprobe vfio-pci"),
    }
}

fn iommufd(machine: &Machine) -> Finding {
    match machine.has("/dev/iommu") {
        true => Finding::ok("iommufd", "/dev/iommu, which Farlane does not need"),
        false => Finding::ok("iommufd", "none; Farlane does without"),
    }
}

fn locked(machine: &Machine) -> Finding {
    match machine.locked_max {
        Some(most) if most < LOCKED_GOOD => Finding::missing(
            "locked memory",
            format!("{most} B at most"),
            "ulimit -l unlimited as root, or LimitMEMLOCK=infinity in a systemd unit",
        ),
        Some(most) => Finding::ok("locked memory", format!("{most} B at most")),
        None => Finding::ok("locked memory", "no limit"),
    }
}

fn controllers(machine: &Machine) -> Finding {
    let folder = "/sys/bus/pci/devices";
    let is_nvme =
        |name: &String| machine.text(&format!("{folder}/{name}/class")).as_deref() == Some(CLASS_NVME);
    let found: Vec<_> = machine.names(folder).into_iter().filter(is_nvme).collect();
    let driver = |name: &String| machine.link(&format!("{folder}/{name}/driver"));
    if let Some(ready) = found.iter().find(|name| driver(name).as_deref() == Some("vfio-pci")) {
        return Finding::ok("NVMe controllers", format!("{ready} is bound to vfio-pci"));
    }
    match found.first() {
        None => Finding::missing("NVMe controllers", "none on PCI", "--vfio needs one in this machine"),
        Some(one) => {
            let held = driver(one).unwrap_or_else(|| "no driver".to_owned());
            let remedy = format!(
                "once nothing uses it: driverctl set-override {one} vfio-pci, which takes it from the kernel"
            );
            Finding::missing("NVMe controllers", format!("{one} is bound to {held}"), remedy)
        }
    }
}

fn packets(machine: &Machine) -> Finding {
    match machine.has_capability(CAP_NET_RAW) {
        true => Finding::ok("CAP_NET_RAW", "there"),
        false => Finding::missing(
            "CAP_NET_RAW",
            "not there: --from packets:INTERFACE is refused",
            "run as root, or once: setcap cap_net_raw+ep $(command -v farlane)",
        ),
    }
}

fn datagrams(machine: &Machine) -> Finding {
    let most = machine.number("/proc/sys/net/core/rmem_max").unwrap_or(0);
    match most >= BUFFER_GOOD {
        true => Finding::ok("datagram buffers", format!("{most} B at most")),
        false => Finding::weak(
            "datagram buffers",
            format!("{most} B at most: a burst overflows them"),
            format!("sysctl -w net.core.rmem_max={BUFFER_GOOD}"),
        ),
    }
}

fn hardware_clocks(machine: &Machine) -> Finding {
    let clocks = machine.names("/sys/class/ptp");
    match clocks.is_empty() {
        false => Finding::ok("PTP clocks", clocks.join(", ")),
        true => Finding::weak(
            "PTP clocks",
            "none: no network card has a clock that hosts can be synchronised by",
            "NTP is good for a millisecond; less takes a card with IEEE 1588 time stamps",
        ),
    }
}

fn synchronised(machine: &Machine) -> Finding {
    let places = ["/run/systemd/timesync/synchronized", "/run/chrony", "/run/ptp4l", "/run/ntpd.pid"];
    match places.into_iter().find(|place| machine.has(place)) {
        Some(place) => Finding::ok("synchronisation", format!("{place} is there")),
        None => Finding::weak(
            "synchronisation",
            "no known daemon keeps this clock",
            "install chrony or linuxptp; Farlane itself compares clocks over the tunnel and needs neither",
        ),
    }
}

fn tun(machine: &Machine) -> Finding {
    match machine.has("/dev/net/tun") {
        true => Finding::ok("TUN", "/dev/net/tun"),
        false => Finding::missing("TUN", "no /dev/net/tun", "modprobe tun"),
    }
}

fn network_rights(machine: &Machine) -> Finding {
    match machine.has_capability(CAP_NET_ADMIN) {
        true => Finding::ok("CAP_NET_ADMIN", "there"),
        false => Finding::missing(
            "CAP_NET_ADMIN",
            "not there: no interface can be made",
            "use sudo, or work within unshare --user --map-root-user --net --mount",
        ),
    }
}

fn initiator(machine: &Machine) -> Finding {
    match machine.has("/dev/nvme-fabrics") {
        true => Finding::ok("NVMe/TCP initiator", "/dev/nvme-fabrics"),
        false if is_built(machine, "nvme-tcp") => {
            Finding::missing("NVMe/TCP initiator", "not loaded", "modprobe nvme-tcp")
        }
        false => Finding::missing(
            "NVMe/TCP initiator",
            "this kernel has none",
            "install a kernel with CONFIG_NVME_TCP, such as a distribution's",
        ),
    }
}

/// The driver by which `farlane connect` makes block devices, unless it takes the initiator.
fn block_driver(machine: &Machine) -> Finding {
    let name = "user-space block driver";
    match machine.has("/dev/ublk-control") {
        true => Finding::ok(name, "/dev/ublk-control"),
        false if is_built(machine, "ublk-drv") => Finding::weak(name, "not loaded", "modprobe ublk_drv"),
        false => Finding::weak(
            name,
            "this kernel has none: farlane connect takes the NVMe/TCP initiator",
            "use Linux 6.5 or newer with CONFIG_BLK_DEV_UBLK, such as a distribution's",
        ),
    }
}

/// Whether the running kernel has a module, loaded or not.
fn is_built(machine: &Machine, module: &str) -> bool {
    let release = machine.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let list = machine.text(&format!("/lib/modules/{release}/modules.dep")).unwrap_or_default();
    let names = list.lines().filter_map(|line| line.split_once(':'));
    let stem = |path: &str| {
        let name = Path::new(path).file_name()?.to_str()?.split(".ko").next()?;
        Some(name.replace('_', "-"))
    };
    names.into_iter().any(|(path, _)| stem(path).as_deref() == Some(module))
}

fn rdma(machine: &Machine) -> Finding {
    let cards = machine.names("/sys/class/infiniband");
    match cards.is_empty() {
        false => match live::sys::verbs::present() {
            Ok(()) => Finding::ok("RDMA devices", cards.join(", ")),
            Err(why) => Finding::weak("RDMA devices", cards.join(", "), why.to_string()),
        },
        true => Finding::ok("RDMA devices", "none; iWARP and RoCEv2 of Farlane need none"),
    }
}
