//! Machines made of files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

/// Writes files of a machine in `root`.
fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let place = root.join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }
}

fn states(machine: &Machine, purpose: Purpose) -> Vec<(&'static str, State)> {
    let examined = examine(machine, &[purpose]);
    all(&examined).map(|one| (one.name, one.state)).collect()
}

#[test]
fn an_empty_machine_lacks_what_it_needs_and_each_lack_has_a_remedy() {
    let root = tempfile::tempdir().unwrap();
    let mut machine = Machine::at(root.path().to_owned());
    machine.no_ring = Some("not permitted".to_owned());
    (machine.locked_max, machine.descriptors_max) = (Some(1 << 16), Some(256));
    let examined = examine(&machine, Purpose::value_variants());
    let missing: Vec<_> =
        all(&examined).filter(|one| one.state == State::Missing).map(|one| one.name).collect();
    assert_eq!(
        missing,
        [
            "IOMMU",
            "vfio-pci",
            "locked memory",
            "NVMe controllers",
            "CAP_NET_RAW",
            "TUN",
            "CAP_NET_ADMIN",
            "NVMe/TCP initiator"
        ]
    );
    for one in all(&examined) {
        assert_eq!(one.remedy.is_some(), one.state != State::Ok, "{one:?}");
        assert!(!one.found.is_empty(), "{one:?}");
    }
    let reported = text(&examined);
    assert!(reported.contains("  missing  IOMMU"), "{reported}");
    assert!(reported.contains("-> modprobe vfio-pci\n"), "{reported}");
}

#[test]
fn a_controller_is_ready_once_it_is_bound_to_vfio_pci() {
    let root = tempfile::tempdir().unwrap();
    let folder = "sys/bus/pci/devices/0000:01:00.0";
    write(root.path(), &[(&format!("{folder}/class"), "0x010802\n"), ("dev/vfio/vfio", "")]);
    write(
        root.path(),
        &[("sys/kernel/iommu_groups/7/type", "DMA\n"), ("drivers/nvme/x", ""), ("drivers/vfio-pci/x", "")],
    );
    let driver = root.path().join(folder).join("driver");
    symlink(root.path().join("drivers/nvme"), &driver).unwrap();
    let machine = Machine::at(root.path().to_owned());
    let examined = examine(&machine, &[Purpose::Vfio]);
    let held = all(&examined).find(|one| one.state == State::Missing).unwrap();
    assert_eq!(held.found, "0000:01:00.0 is bound to nvme");
    fs::remove_file(&driver).unwrap();
    symlink(root.path().join("drivers/vfio-pci"), &driver).unwrap();
    assert!(states(&machine, Purpose::Vfio).iter().all(|(_, state)| *state == State::Ok));
}

#[test]
fn settings_of_the_kernel_are_judged_by_their_values() {
    let root = tempfile::tempdir().unwrap();
    let machine = Machine::at(root.path().to_owned());
    let ipv4 = |name: &str| format!("proc/sys/net/ipv4/{name}");
    write(
        root.path(),
        &[
            (&ipv4("tcp_rmem"), "4096\t131072\t6291456\n"),
            (&ipv4("tcp_wmem"), "4096\t16384\t65536\n"),
            (&ipv4("tcp_congestion_control"), "cubic\n"),
            (&ipv4("tcp_available_congestion_control"), "reno cubic bbr\n"),
            (&ipv4("tcp_slow_start_after_idle"), "1\n"),
            ("proc/sys/kernel/osrelease", "5.14.21-default\n"),
            ("proc/self/status", "Name:\tfarlane\nCapEff:\t0000000000003000\n"),
            (
                "lib/modules/5.14.21-default/modules.dep",
                "kernel/drivers/nvme/host/nvme-tcp.ko.xz: kernel/x.ko\n",
            ),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpufreq/policy0", ""),
        ],
    );
    let network = [
        ("receive buffers", State::Ok),
        ("send buffers", State::Weak),
        ("congestion control", State::Ok),
        ("after a pause", State::Weak),
    ];
    assert_eq!(states(&machine, Purpose::Network), network);
    let examined = examine(&machine, &[Purpose::Network]);
    let remedy = all(&examined).find_map(|one| one.remedy.clone()).unwrap();
    assert_eq!(remedy, "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 4194304\"");
    assert_eq!(states(&machine, Purpose::Serving)[0], ("kernel", State::Missing));
    assert_eq!(states(&machine, Purpose::Record)[0], ("CAP_NET_RAW", State::Ok));
    assert_eq!(states(&machine, Purpose::Emulate)[1], ("CAP_NET_ADMIN", State::Ok));
    assert_eq!(states(&machine, Purpose::Latency)[1], ("processor governor", State::Weak));
    let examined = examine(&machine, &[Purpose::Initiator]);
    assert_eq!(all(&examined).next().unwrap().remedy.as_deref(), Some("modprobe nvme-tcp"));
}
