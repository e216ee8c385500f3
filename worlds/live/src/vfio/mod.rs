//! PCI functions of this machine, driven from this process: Linux VFIO.
//!
//! A group of devices that the IOMMU can tell from others is put into a container, whose address space holds what the
//! process maps for them and nothing else: a device can't reach beyond it, whatever it is told.

mod abi;
mod address;
mod error;
mod memory;
mod registers;

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::event::{EventfdFlags, eventfd};

pub use address::PciAddress;
pub use error::OpenError;
pub use memory::DmaMemory;
pub use registers::Registers;

/// Bytes of BAR0 that are mapped: the controller's registers and the first page of doorbells.
const REGISTERS_LENGTH: u64 = 0x2000;
/// The Command register in configuration space.
const COMMAND: u64 = 0x04;
/// Memory Space Enable and Bus Master Enable, and INTx Disable.
const COMMAND_BITS: u16 = 1 << 1 | 1 << 2 | 1 << 10;
/// Where in a device's address space memory may begin. IOMMUs differ in which addresses they have; none has the window of
/// interrupts below 4 GiB.
const IOVAS: [u64; 3] = [0x1_0000_0000, 0x1000_0000, 0x10_0000];

/// An NVMe controller of this machine that this process drives. When dropped, the kernel takes its access to memory away
/// and resets it.
#[derive(Debug)]
pub struct Device {
    address: PciAddress,
    // In the order in which they are to be closed.
    registers: Registers,
    device: File,
    _group: File,
    container: File,
    interrupts: Vec<OwnedFd>,
    configuration: u64,
    resets: bool,
}

impl Device {
    /// Takes the controller at `address`, and resets it where it can be.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(address: PciAddress) -> Result<Self, OpenError> {
        let number = address.group()?;
        let container = open(Path::new("/dev/vfio/vfio"), address)?;
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
            Some(libc::EPERM) => OpenError::UnsafeInterrupts(address),
            _ => OpenError::Io { what: "choosing the IOMMU's model", error },
        })?;
        let name = CString::new(address.to_string()).expect("an address has no zero bytes");
        let device = abi::device(&group, &name).map_err(OpenError::io("opening the device"))?;
        // SAFETY: the kernel has just made this descriptor for us, and nobody else has it.
        let device = unsafe { File::from_raw_fd(device) };
        Self::prepare(address, device, group, container)
    }

    fn prepare(address: PciAddress, device: File, group: File, container: File) -> Result<Self, OpenError> {
        let info = abi::device_info(&device).map_err(OpenError::io("asking for the device"))?;
        let resets = info.flags & abi::DEVICE_RESETS != 0;
        if resets {
            abi::reset(&device).map_err(OpenError::io("resetting the device"))?;
        }
        let region = |index| abi::region_info(&device, index);
        let configuration =
            region(abi::CONFIGURATION).map_err(OpenError::io("asking for its configuration space"))?;
        let configuration = configuration.offset;
        enable(&device, configuration).map_err(OpenError::io("enabling the device"))?;
        let bar = region(abi::BAR0).map_err(OpenError::io("asking for its registers"))?;
        if bar.flags & abi::REGION_MAPS == 0 || bar.size < REGISTERS_LENGTH {
            let error = io::ErrorKind::Unsupported.into();
            return Err(OpenError::Io { what: "mapping its registers", error });
        }
        let length = usize::try_from(REGISTERS_LENGTH).expect("two pages fit memory");
        let registers =
            Registers::map(&device, bar.offset, length).map_err(OpenError::io("mapping its registers"))?;
        let interrupts = interrupts(&device).map_err(OpenError::io("enabling its interrupts"))?;
        Ok(Self { address, registers, device, _group: group, container, interrupts, configuration, resets })
    }

    /// Where it is.
    pub const fn address(&self) -> PciAddress {
        self.address
    }

    /// Its registers in BAR0.
    pub const fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Descriptors that become readable with MSI-X vectors 0, 1 and so on; none where it has too few vectors.
    pub fn interrupts(&self) -> impl Iterator<Item = RawFd> {
        self.interrupts.iter().map(AsRawFd::as_raw_fd)
    }

    /// `length` bytes of memory, whole pages, that the device reaches from [`DmaMemory::iova`] on. Once a device.
    ///
    /// # Errors
    /// [`OpenError::LockedMemory`] when so much may not be held in place.
    pub fn memory(&self, length: usize) -> Result<DmaMemory, OpenError> {
        let size = u64::try_from(length).expect("memory has 64-bit addresses at most");
        let mut refused = io::Error::from(io::ErrorKind::InvalidInput);
        for iova in IOVAS {
            let memory = DmaMemory::new(length, iova).map_err(OpenError::io("allocating memory"))?;
            // SAFETY: `DmaMemory` accesses its mapping through raw pointers only. The kernel holds the pages until the
            // container is closed, so that the device never reaches memory of another use.
            match unsafe { abi::map_dma(&self.container, memory.base(), iova, size) } {
                Ok(()) => return Ok(memory),
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                    return Err(OpenError::LockedMemory { needed: size });
                }
                Err(error) => refused = error,
            }
        }
        Err(OpenError::Io { what: "letting the device reach memory", error: refused })
    }

    /// Resets the function, if it can be, and lets it reach memory again.
    ///
    /// # Errors
    /// When the kernel fails to.
    pub fn reset(&self) -> io::Result<()> {
        if self.resets {
            abi::reset(&self.device)?;
        }
        enable(&self.device, self.configuration)
    }
}

/// Lets the device answer accesses of its registers, reach memory and send messages.
fn enable(device: &File, configuration: u64) -> io::Result<()> {
    let mut command = [0; 2];
    device.read_exact_at(&mut command, configuration + COMMAND)?;
    let command = u16::from_le_bytes(command) | COMMAND_BITS;
    device.write_all_at(&command.to_le_bytes(), configuration + COMMAND)
}

/// A descriptor for each of the vectors that are used; none where the device has fewer.
fn interrupts(device: &File) -> io::Result<Vec<OwnedFd>> {
    let used = u32::try_from(abi::VECTORS_MAX).expect("vectors are few");
    if abi::msix_vectors(device)? < used {
        return Ok(Vec::new());
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let events = [eventfd(0, flags)?, eventfd(0, flags)?];
    abi::set_msix(device, [events[0].as_raw_fd(), events[1].as_raw_fd()])?;
    Ok(events.into())
}

fn open(path: &Path, address: PciAddress) -> Result<File, OpenError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(|error| {
        let path = path.display().to_string();
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => OpenError::NoVfio { path },
            Some(libc::EACCES | libc::EPERM) => OpenError::Permission { path },
            Some(libc::EBUSY) => OpenError::InUse(address),
            _ => OpenError::Io { what: "opening VFIO's group", error },
        }
    })
}
