//! Why a PCI function can't be driven from this process.

use pcie::config::ClassCode;
use std::fmt;
use std::io;

use super::PciAddress;

/// Why a PCI function can't be driven from this process.
#[derive(Debug)]
pub enum OpenError {
    /// There is no function at this address.
    NoSuchDevice(PciAddress),
    /// The function is not an NVMe controller.
    NotNvme {
        /// The address of the function.
        address: PciAddress,
        /// The class code of the function.
        class: ClassCode,
    },
    /// The system has no IOMMU for the function, or does not use it.
    NoIommu(PciAddress),
    /// The function is bound to another driver than vfio-pci, or to none.
    NotBound {
        /// The address of the function.
        address: PciAddress,
        /// The driver to which the function is bound, if any.
        driver: Option<String>,
    },
    /// The kernel has no VFIO, or its modules are not loaded.
    NoVfio {
        /// The path of the missing file.
        path: String,
    },
    /// This user may not open a file of VFIO.
    Permission {
        /// The path that this user may not open.
        path: String,
    },
    /// Another process drives the function.
    InUse(PciAddress),
    /// The system uses other functions of the same IOMMU group.
    NotViable {
        /// The address of the function.
        address: PciAddress,
        /// The other functions, with their drivers.
        others: Vec<String>,
    },
    /// The IOMMU does not remap interrupts, and so can't keep those of devices apart.
    UnsafeInterrupts {
        /// The address of the function.
        address: PciAddress,
        /// The kernel module that refuses the function for that reason.
        module: &'static str,
    },
    /// This user may pin no more memory for the device.
    LockedMemory {
        /// The number of bytes that would have to be pinned.
        needed: u64,
    },
    /// The kernel refuses another request.
    Io {
        /// The refused request.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

impl OpenError {
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { what, error }
    }

    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            Self::NoSuchDevice(_) | Self::NotNvme { .. } => {
                "lspci -D -d ::0108 lists the NVMe controllers of this machine".to_owned()
            }
            Self::NoIommu(_) => {
                "switch it on in the firmware's setup (VT-d, AMD-Vi), and start the kernel with \
                intel_iommu=on where that is needed"
                    .to_owned()
            }
            Self::NotBound { address, driver } => bind(*address, driver.as_deref()),
            Self::NoVfio { .. } => "load the modules: modprobe vfio-pci".to_owned(),
            Self::Permission { path } => {
                format!("run as root, or let this user have it: chown $USER {path}")
            }
            Self::InUse(_) => "end the other process: a device has one driver".to_owned(),
            Self::NotViable { .. } => {
                "bind those to vfio-pci too: the IOMMU can't distinguish the devices of a group".to_owned()
            }
            Self::UnsafeInterrupts { module, .. } => format!(
                "switch interrupt remapping on in the firmware's setup; or, as root, where \
                every device and every user of VFIO is trusted: \
                echo 1 > /sys/module/{module}/parameters/allow_unsafe_interrupts"
            ),
            Self::LockedMemory { needed } => {
                format!("run as root, or allow more: ulimit -l {} (KiB)", needed.div_ceil(1024) + 1024)
            }
            Self::Io { .. } => "the kernel's log (dmesg) may say more".to_owned(),
        }
    }
}

/// The shell commands that bind a device to vfio-pci.
fn bind(address: PciAddress, driver: Option<&str>) -> String {
    let device = format!("/sys/bus/pci/devices/{address}");
    let unbind = driver.map(|_| format!("    echo {address} > {device}/driver/unbind\n")).unwrap_or_default();
    format!(
        "as root, with none of its namespaces mounted:\n    modprobe vfio-pci\n    \
        echo vfio-pci > {device}/driver_override\n{unbind}    echo {address} > /sys/bus/pci/drivers_probe"
    )
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchDevice(address) => write!(f, "there is no PCI function {address}"),
            Self::NotNvme { address, class } => {
                write!(
                    f,
                    "{address} is not an NVMe controller: its class code is {class}h, not {}h",
                    ClassCode::NVME
                )
            }
            Self::NoIommu(address) => write!(f, "{address} is behind no IOMMU"),
            Self::NotBound { address, driver: Some(driver) } => {
                write!(f, "{address} belongs to the driver {driver}, not to vfio-pci")
            }
            Self::NotBound { address, driver: None } => write!(f, "{address} does not belong to vfio-pci"),
            Self::NoVfio { path } => write!(f, "there is no {path}"),
            Self::Permission { path } => write!(f, "this user may not open {path}"),
            Self::InUse(address) => write!(f, "another process has {address}"),
            Self::NotViable { address, others } => {
                let others = others.join(", ");
                write!(f, "{address} shares its IOMMU group with devices that are in use: {others}")
            }
            Self::UnsafeInterrupts { address, .. } => {
                write!(f, "the IOMMU of {address} does not remap interrupts, so that it could send any")
            }
            Self::LockedMemory { needed } => {
                write!(f, "this user may not hold {needed} bytes of memory in place for a device")
            }
            Self::Io { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_another_driver_comes_with_the_commands_that_change_that() {
        let address = "01:00.0".parse().unwrap();
        let error = OpenError::NotBound { address, driver: Some("nvme".to_owned()) };
        assert_eq!(error.to_string(), "0000:01:00.0 belongs to the driver nvme, not to vfio-pci");
        let remedy = error.remedy();
        for command in [
            "echo vfio-pci > /sys/bus/pci/devices/0000:01:00.0/driver_override\n",
            "echo 0000:01:00.0 > /sys/bus/pci/devices/0000:01:00.0/driver/unbind\n",
            "echo 0000:01:00.0 > /sys/bus/pci/drivers_probe",
        ] {
            assert!(remedy.contains(command), "{remedy}");
        }
        let remedy = OpenError::NotBound { address, driver: None }.remedy();
        assert!(!remedy.contains("unbind"), "{remedy}");
    }
}
