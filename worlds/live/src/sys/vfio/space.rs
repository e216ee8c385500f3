//! Taking a device and letting it reach memory, through iommufd or through its IOMMU group.

use std::ffi::CString;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::FromRawFd;
use std::path::Path;

use super::{DmaMemory, OpenError, PciAddress, abi};

/// The device file that makes address spaces, in newer kernels.
const IOMMUFD: &str = "/dev/iommu";
/// The device file that makes address spaces in all other kernels.
const CONTAINER: &str = "/dev/vfio/vfio";
/// Where memory may begin in a device's address space, if the kernel does not choose. IOMMUs differ
/// in the addresses that they support. None of these lies in the window of interrupts below 4 GiB.
const IOVAS: [u64; 3] = [0x1_0000_0000, 0x1000_0000, 0x10_0000];

/// The interface of the kernel through which a device was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// The device alone, as `/dev/vfio/devices/NAME`, with an address space of `/dev/iommu` (Linux
    /// 6.6, `CONFIG_VFIO_DEVICE_CDEV`).
    Iommufd {
        /// The device's name.
        name: String,
    },
    /// The device with all those that its IOMMU can't distinguish from it, as `/dev/vfio/NUMBER`,
    /// in a container of `/dev/vfio/vfio`.
    Group {
        /// The number of the IOMMU group.
        number: u32,
    },
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iommufd { name } => write!(f, "iommufd, as /dev/vfio/devices/{name}"),
            Self::Group { number } => write!(f, "its IOMMU group, as /dev/vfio/{number}"),
        }
    }
}

/// The address space of a device, to be dropped after the device. The kernel then takes the memory
/// away from the device.
#[derive(Debug)]
pub(super) struct Space {
    way: Way,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Iommufd { iommufd: File, id: u32 },
    Group { _group: File, container: File },
}

impl Space {
    /// Takes the device at `address`: through iommufd if the kernel has it and this user may use
    /// it, otherwise through its group. The group also serves devices behind an IOMMU that does not
    /// keep caches coherent; iommufd refuses these with the same error as devices in use.
    pub(super) fn open(address: PciAddress) -> Result<(File, Self), OpenError> {
        let number = address.group()?;
        let Some(name) = address.device_name() else { return Self::open_group(address, number) };
        match Self::open_iommufd(address, name) {
            Err(error @ (OpenError::NoVfio { .. } | OpenError::Permission { .. } | OpenError::InUse(_))) => {
                Self::open_group(address, number).map_err(|other| match other {
                    // The kernel lacks the older interface.
                    OpenError::NoVfio { .. } => error,
                    other => other,
                })
            }
            result => result,
        }
    }

    fn open_iommufd(address: PciAddress, name: String) -> Result<(File, Self), OpenError> {
        let iommufd = open(Path::new(IOMMUFD), address)?;
        let device = open(&Path::new("/dev/vfio/devices").join(&name), address)?;
        abi::bind(&device, &iommufd).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::UnsafeInterrupts { address, module: "iommufd" },
            // Another process has it, through either interface, or has another device of its group.
            Some(libc::EINVAL | libc::EBUSY) => match address.neighbours() {
                others if others.is_empty() => OpenError::InUse(address),
                others => OpenError::NotViable { address, others },
            },
            _ => OpenError::Io { what: "binding the device to an iommufd", error },
        })?;
        let id = abi::address_space(&iommufd).map_err(OpenError::io("making an address space"))?;
        abi::attach(&device, id).map_err(OpenError::io("putting the device into an address space"))?;
        Ok((device, Self { way: Way::Iommufd { name }, kind: Kind::Iommufd { iommufd, id } }))
    }

    fn open_group(address: PciAddress, number: u32) -> Result<(File, Self), OpenError> {
        let container = open(Path::new(CONTAINER), address)?;
        if !abi::check(&container).map_err(OpenError::io("asking VFIO for its version"))? {
            return Err(OpenError::Io {
                what: "asking VFIO for IOMMUs of type 1",
                error: io::ErrorKind::Unsupported.into(),
            });
        }
        let group = open(Path::new(&format!("/dev/vfio/{number}")), address)?;
        let status = abi::group_status(&group).map_err(OpenError::io("asking for the group's status"))?;
        if status.flags & abi::GROUP_VIABLE == 0 {
            return Err(OpenError::NotViable { address, others: address.neighbours() });
        }
        abi::set_container(&group, &container)
            .map_err(OpenError::io("putting the group into a container"))?;
        abi::set_iommu(&container).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::UnsafeInterrupts { address, module: "vfio_iommu_type1" },
            _ => OpenError::Io { what: "choosing the IOMMU's model", error },
        })?;
        let name = CString::new(address.to_string()).expect("an address has no zero bytes");
        let device = abi::device(&group, &name).map_err(OpenError::io("opening the device"))?;
        // SAFETY: the kernel has just made this descriptor for us, and no other code has it.
        let device = unsafe { File::from_raw_fd(device) };
        Ok((device, Self { way: Way::Group { number }, kind: Kind::Group { _group: group, container } }))
    }

    pub(super) const fn way(&self) -> &Way {
        &self.way
    }

    /// Allocates `length` bytes of memory, whole pages, that the device reaches from
    /// [`DmaMemory::iova`] on. May be called once for each device.
    pub(super) fn map(&self, length: usize) -> Result<DmaMemory, OpenError> {
        let size = u64::try_from(length).expect("memory has 64-bit addresses at most");
        let allocate = |iova| DmaMemory::new(length, iova).map_err(OpenError::io("allocating memory"));
        let refused = match &self.kind {
            Kind::Iommufd { iommufd, id } => {
                let mut memory = allocate(0)?;
                // SAFETY: `DmaMemory` accesses its mapping through raw pointers only. The kernel
                // holds the pages until the address space is gone, so that the device never reaches
                // memory of another use.
                match unsafe { abi::map(iommufd, *id, memory.base(), size) } {
                    Ok(iova) => {
                        memory.set_iova(iova);
                        return Ok(memory);
                    }
                    Err(error) => error,
                }
            }
            Kind::Group { container, .. } => {
                let mut refused = io::Error::from(io::ErrorKind::InvalidInput);
                for iova in IOVAS {
                    let memory = allocate(iova)?;
                    // SAFETY: as above, until the container is closed.
                    match unsafe { abi::map_dma(container, memory.base(), iova, size) } {
                        Ok(()) => return Ok(memory),
                        Err(error) => refused = error,
                    }
                    if refused.raw_os_error() == Some(libc::ENOMEM) {
                        break;
                    }
                }
                refused
            }
        };
        match refused.raw_os_error() {
            Some(libc::ENOMEM) => Err(OpenError::LockedMemory { needed: size }),
            _ => Err(OpenError::Io { what: "letting the device reach memory", error: refused }),
        }
    }
}

fn open(path: &Path, address: PciAddress) -> Result<File, OpenError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(|error| {
        let path = path.display().to_string();
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => OpenError::NoVfio { path },
            Some(libc::EACCES | libc::EPERM) => OpenError::Permission { path },
            Some(libc::EBUSY) => OpenError::InUse(address),
            _ => OpenError::Io { what: "opening VFIO's files", error },
        }
    })
}
