//! PCI functions of this machine, driven from this process through Linux VFIO.
//!
//! The device is put into an address space that holds only memory that the process maps for it. The
//! device can't reach anything else, regardless of its commands. Kernels have two interfaces for
//! that; see [`Way`].

mod abi;
mod address;
mod error;
mod memory;
mod registers;
mod space;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use rustix::event::{EventfdFlags, eventfd};

pub use address::PciAddress;
pub use error::OpenError;
pub use memory::DmaMemory;
pub use registers::Registers;
pub use space::Way;

use space::Space;

/// Bytes of BAR0 that are mapped: the controller's registers and the first page of doorbells.
const REGISTERS_LENGTH: u64 = 0x2000;
/// The Command register in configuration space.
const COMMAND: u64 = 0x04;
/// Memory Space Enable and Bus Master Enable, and INTx Disable.
const COMMAND_BITS: u16 = 1 << 1 | 1 << 2 | 1 << 10;

/// An NVMe controller of this machine that this process drives. When it is dropped, the kernel
/// takes away its access to memory and resets it.
#[derive(Debug)]
pub struct Device {
    address: PciAddress,
    // In the order in which they must be closed.
    registers: Registers,
    device: File,
    space: Space,
    interrupts: Vec<OwnedFd>,
    configuration: u64,
    resets: bool,
}

impl Device {
    /// Takes the controller at `address`, and resets it if the kernel can.
    ///
    /// # Errors
    /// When the controller can't be taken, for one of the reasons of [`OpenError`].
    pub fn open(address: PciAddress) -> Result<Self, OpenError> {
        let (device, space) = Space::open(address)?;
        Self::prepare(address, device, space)
    }

    fn prepare(address: PciAddress, device: File, space: Space) -> Result<Self, OpenError> {
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
        Ok(Self { address, registers, device, space, interrupts, configuration, resets })
    }

    /// The address of the controller.
    pub const fn address(&self) -> PciAddress {
        self.address
    }

    /// The controller's registers in BAR0.
    pub const fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The descriptors that become readable with MSI-X vectors 0 and 1. Empty when the device has
    /// too few vectors.
    pub fn interrupts(&self) -> impl Iterator<Item = RawFd> {
        self.interrupts.iter().map(AsRawFd::as_raw_fd)
    }

    /// The interface of the kernel through which the device was taken.
    pub const fn way(&self) -> &Way {
        self.space.way()
    }

    /// Allocates `length` bytes of memory, whole pages, that the device reaches from
    /// [`DmaMemory::iova`] on. May be called once for each device.
    ///
    /// # Errors
    /// [`OpenError::LockedMemory`] when so much memory may not be pinned.
    pub fn memory(&self, length: usize) -> Result<DmaMemory, OpenError> {
        self.space.map(length)
    }

    /// Resets the function, if the kernel can, and lets it reach memory again.
    ///
    /// # Errors
    /// When the kernel fails to reset or to enable it.
    pub fn reset(&self) -> io::Result<()> {
        if self.resets {
            abi::reset(&self.device)?;
        }
        enable(&self.device, self.configuration)
    }
}

/// Lets the device answer accesses to its registers, reach memory and send messages.
fn enable(device: &File, configuration: u64) -> io::Result<()> {
    let mut command = [0; 2];
    device.read_exact_at(&mut command, configuration + COMMAND)?;
    let command = u16::from_le_bytes(command) | COMMAND_BITS;
    device.write_all_at(&command.to_le_bytes(), configuration + COMMAND)
}

/// A descriptor for each vector that is used; none if the device has fewer vectors.
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
