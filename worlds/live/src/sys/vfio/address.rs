//! A PCI function of this machine, and the system's information on it before anything is opened.

use pcie::config::ClassCode;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::OpenError;

/// Where the system lists its PCI functions.
const DEVICES: &str = "/sys/bus/pci/devices";
/// The most devices of a group that an error names.
const NEIGHBOURS_MAX: usize = 8;

/// The address of a PCI function, such as `0000:01:00.0`. When parsed, the domain is 0 if left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl FromStr for PciAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            format!("'{text}' is not the address of a PCI function; expected one such as 0000:01:00.0")
        })
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let hexadecimal = |text: &str, digits: usize| {
        let right = (1..=digits).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        right.then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    let small = |text, digits, limit: u8| {
        u8::try_from(hexadecimal(text, digits)?).ok().filter(|value| *value <= limit)
    };
    Some(PciAddress {
        domain: hexadecimal(domain, 8)?,
        bus: small(bus, 2, u8::MAX)?,
        device: small(device, 2, 31)?,
        function: small(function, 1, 7)?,
    })
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl PciAddress {
    fn directory(self) -> PathBuf {
        Path::new(DEVICES).join(self.to_string())
    }

    /// The IOMMU group of the function, if the function exists, is an NVMe controller, and is bound
    /// to vfio-pci.
    pub(super) fn group(self) -> Result<u32, OpenError> {
        let directory = self.directory();
        if !directory.exists() {
            return Err(OpenError::NoSuchDevice(self));
        }
        let class = fs::read_to_string(directory.join("class")).unwrap_or_default();
        let class = u32::from_str_radix(class.trim().trim_start_matches("0x"), 16)
            .map_or_else(|_| ClassCode::default(), ClassCode);
        if class != ClassCode::NVME {
            return Err(OpenError::NotNvme { address: self, class });
        }
        // Without an IOMMU, vfio-pci does not take the device.
        let group = link_name(&directory.join("iommu_group"));
        let group = group.and_then(|name| name.parse().ok()).ok_or(OpenError::NoIommu(self))?;
        let driver = link_name(&directory.join("driver"));
        if driver.as_deref() != Some("vfio-pci") {
            return Err(OpenError::NotBound { address: self, driver });
        }
        Ok(group)
    }

    /// The function's name below `/dev/vfio/devices`, where the kernel offers devices without their
    /// group.
    pub(super) fn device_name(self) -> Option<String> {
        let entries = fs::read_dir(self.directory().join("vfio-dev")).ok()?;
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).next()
    }

    /// The functions of this function's IOMMU group that are bound to a driver with which VFIO does
    /// not share a group.
    pub(super) fn neighbours(self) -> Vec<String> {
        let entries = fs::read_dir(self.directory().join("iommu_group/devices"));
        let names = entries.into_iter().flatten().flatten();
        names
            .filter_map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                let driver = link_name(&entry.path().join("driver"))?;
                let shared = ["vfio-pci", "pci-stub", "pcieport"].contains(&driver.as_str());
                (!shared).then(|| format!("{name} ({driver})"))
            })
            .take(NEIGHBOURS_MAX)
            .collect()
    }
}

/// The last component of a symbolic link's target.
fn link_name(link: &Path) -> Option<String> {
    fs::read_link(link).ok()?.file_name().map(|name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written_elsewhere() {
        for (text, written) in [
            ("0000:01:00.0", "0000:01:00.0"),
            ("3b:1f.7", "0000:3b:1f.7"),
            ("10000:E1:00.0", "10000:e1:00.0"),
        ] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), written);
        }
        for wrong in
            ["", "01:00", "01.0", "0000:01:20.0", "01:00.8", "x:00.0", "+1:00.0", "1:2:3:4.0", "é:0.0"]
        {
            assert!(wrong.parse::<PciAddress>().unwrap_err().contains("0000:01:00.0"), "{wrong}");
        }
    }

    #[test]
    fn a_function_that_is_not_there_is_recognised() {
        let address: PciAddress = "ffff:ff:1f.7".parse().unwrap();
        assert!(matches!(address.group(), Err(OpenError::NoSuchDevice(_))));
        assert!(address.neighbours().is_empty());
        assert_eq!(address.device_name(), None);
    }
}
