//! An SSD of the machine itself, used through VFIO. The machine is a guest, whose SSD is QEMU's
//! NVMe controller.

use std::time::Duration;

use guest::{Device, Guest, Kit, skip};

use crate::support::stripped;

/// The script of the guest.
const SCRIPT: &str = include_str!("scripts/vfio.sh");

/// Has a guest of `kit` give its SSD to a far end and take it back. `way` is what the far end says
/// of how it took the SSD; `module` is the kernel module that insists on interrupt remapping.
fn export_and_give_back(kit: &Kit, module: &str, way: &str) {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("ssd");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut builder = Guest::builder(kit)
        .unwrap()
        .memory_mib(768)
        .limit(Duration::from_secs(120))
        .iommu()
        .modules(["vfio-pci", "vfio_iommu_type1"])
        .unwrap()
        .device(Device::qemu_nvme(&image, "THIRDPARTY"));
    builder.initramfs().program("usr/bin/farlane", &stripped(directory.path())).unwrap();
    let script = format!("MODULE={module}\n{SCRIPT}");
    let outcome = builder.script(script).run().unwrap().expect_success();
    let output = &outcome.output;
    for line in [
        "there is no PCI function 0000:7f:1f.7",
        "is not an NVMe controller: its class code is 06",
        "belongs to the driver nvme, not to vfio-pci",
        "driver_override",
        "does not remap interrupts",
        "another process has 0000:",
        "exporting 1 namespace of SSD",
        way,
        "what the kernel wrote is read",
        "written and compared",
        "bench verified",
        "there after a kill",
        "bench asleep",
        "interrupts came",
        "ended in order",
        "the kernel reads what was written",
        "all of it",
        "nothing in the kernel's log",
    ] {
        assert!(output.contains(line), "{line:?} in {output}");
    }
    // The near end sent ahead what the far end's controller asked for.
    let loads: Vec<serde_json::Value> =
        output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let ahead: Vec<_> = loads.iter().filter_map(|load| load.get("lookahead")).collect();
    let count = |of: &serde_json::Value, name: &str| of[name].as_u64().unwrap();
    assert!(ahead.len() == 3, "{output}");
    for ahead in ahead {
        let (entries, reads) = (count(ahead, "entries"), count(ahead, "reads"));
        eprintln!("{way}: {ahead}");
        assert!(entries > 20 && reads < entries / 10, "{ahead}");
    }
    // Long lines are broken for people, so compare without white space.
    let parameter = format!("/sys/module/{module}/parameters/allow_unsafe_interrupts");
    assert!(output.replace(char::is_whitespace, "").contains(&parameter), "{output}");
}

#[test]
fn an_ssd_of_the_machine_is_exported_and_given_back() {
    let Some(kit) = skip::kit_or_skip("a machine's SSD through VFIO") else { return };
    export_and_give_back(kit, "vfio_iommu_type1", "was taken by its IOMMU group, as /dev/vfio/");
}

#[test]
fn an_ssd_of_the_machine_is_exported_through_iommufd_and_given_back() {
    let Some(kit) = skip::built_kit_or_skip("a machine's SSD through VFIO's iommufd") else { return };
    export_and_give_back(kit, "iommufd", "was taken by iommufd, as /dev/vfio/devices/vfio0");
}
