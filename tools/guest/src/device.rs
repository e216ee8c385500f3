//! The devices in a guest's PCI Express slots, as arguments of QEMU.

use std::path::{Path, PathBuf};

use serde_json::json;

/// A device to be plugged into a guest.
#[derive(Clone, Debug)]
pub struct Device {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    VfioUser(PathBuf),
    Nvme { image: PathBuf, serial: String },
    Other(String),
}

impl Device {
    /// A device that a vfio-user server emulates. The server must listen on `socket` before the
    /// guest starts.
    #[must_use]
    pub fn vfio_user(socket: impl AsRef<Path>) -> Self {
        Self { kind: Kind::VfioUser(socket.as_ref().to_owned()) }
    }

    /// QEMU's own NVMe controller, with one namespace that is kept in the file `image`.
    #[must_use]
    pub fn qemu_nvme(image: impl AsRef<Path>, serial: &str) -> Self {
        Self { kind: Kind::Nvme { image: image.as_ref().to_owned(), serial: serial.to_owned() } }
    }

    /// Any other device, as an argument of `-device` without `bus=`: `virtio-rng-pci`,
    /// `nvme,drive=d0,serial=1`.
    #[must_use]
    pub fn other(argument: &str) -> Self {
        Self { kind: Kind::Other(argument.to_owned()) }
    }

    /// The arguments that plug this device into `bus`, under `id` for the monitor.
    pub(crate) fn arguments(&self, id: &str, bus: &str) -> Vec<String> {
        match &self.kind {
            Kind::VfioUser(socket) => {
                let path = socket.to_string_lossy();
                let socket = json!({"type": "unix", "path": path});
                let device = json!({"driver": "vfio-user-pci", "id": id, "bus": bus, "socket": socket});
                vec!["-device".to_owned(), device.to_string()]
            }
            Kind::Nvme { image, serial } => {
                let file = json!({"driver": "file", "filename": image.to_string_lossy()});
                let drive = json!({"driver": "raw", "node-name": format!("{id}-file"), "file": file});
                let device = json!({
                    "driver": "nvme", "id": id, "bus": bus, "drive": format!("{id}-file"), "serial": serial,
                });
                let arguments = ["-blockdev", &drive.to_string(), "-device", &device.to_string()];
                arguments.map(str::to_owned).to_vec()
            }
            Kind::Other(argument) => {
                vec!["-device".to_owned(), format!("{argument},id={id},bus={bus}")]
            }
        }
    }
}

/// Where devices are plugged in.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// A device on the root complex itself.
    Root(Device),
    /// A root port, from which its device can be unplugged and plugged in again.
    RootPort(Option<Device>),
    /// A switch with each device below a downstream port of its own.
    Switch(Vec<Device>),
}

/// The arguments for all slots, in their order. Devices are called `device0`, `device1` and so on;
/// root ports are called by the number of their slot, such as `port0`.
pub(crate) fn topology(slots: &[Slot]) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut devices = 0;
    let mut plug = |arguments: &mut Vec<String>, device: &Device, bus: &str| {
        arguments.extend(device.arguments(&format!("device{devices}"), bus));
        devices += 1;
    };
    for (number, slot) in slots.iter().enumerate() {
        let port = format!("port{number}");
        // QEMU distinguishes ports by their chassis and slot numbers.
        let chassis = number * 0x20 + 1;
        let mut add = |argument: String| arguments.extend(["-device".to_owned(), argument]);
        match slot {
            Slot::Root(device) => plug(&mut arguments, device, "pcie.0"),
            Slot::RootPort(device) => {
                add(format!("pcie-root-port,id={port},chassis={chassis},slot=0"));
                if let Some(device) = device {
                    plug(&mut arguments, device, &port);
                }
            }
            Slot::Switch(below) => {
                add(format!("pcie-root-port,id={port},chassis={chassis},slot=0"));
                add(format!("x3130-upstream,id=switch{number},bus={port}"));
                for (position, device) in below.iter().enumerate() {
                    let downstream = format!("switch{number}port{position}");
                    let place = format!("chassis={},slot={position}", chassis + 1);
                    let argument = format!("xio3130-downstream,id={downstream},bus=switch{number},{place}");
                    arguments.extend(["-device".to_owned(), argument]);
                    plug(&mut arguments, device, &downstream);
                }
            }
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_holds_its_devices() {
        let below = vec![Device::vfio_user("/tmp/a b"), Device::other("virtio-rng-pci")];
        let arguments = topology(&[Slot::Root(Device::other("edu")), Slot::Switch(below)]);
        let expected = [
            "edu,id=device0,bus=pcie.0",
            "pcie-root-port,id=port1,chassis=33,slot=0",
            "x3130-upstream,id=switch1,bus=port1",
            "xio3130-downstream,id=switch1port0,bus=switch1,chassis=34,slot=0",
            r#"{"bus":"switch1port0","driver":"vfio-user-pci","id":"device1","socket":{"path":"/tmp/a b","type":"unix"}}"#,
            "xio3130-downstream,id=switch1port1,bus=switch1,chassis=34,slot=1",
            "virtio-rng-pci,id=device2,bus=switch1port1",
        ];
        assert!(arguments.iter().step_by(2).all(|flag| flag == "-device"));
        assert_eq!(arguments.into_iter().skip(1).step_by(2).collect::<Vec<_>>(), expected);
    }
}
