//! The access to a controller that the driver of an NVMe medium needs.

use std::io;
use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};

use nvme_pcie::registers::{configuration, offset, status};
use pcie::memory::Memory;

use crate::sys::vfio::{Device, DmaMemory, OpenError, PciAddress, Way};

/// How long a controller may take to write out its cache before it is reset.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);
/// The interval at which the controller is asked whether its shutdown is complete.
const SHUTDOWN_POLL: Duration = Duration::from_millis(1);
/// Shutdown Notification (CC.SHN): normal shutdown.
const SHUTDOWN_NORMAL: u64 = 0b01;
/// The value that registers of a removed device read as.
const GONE: u32 = u32::MAX;

/// Access to a controller: its registers, and the memory that it can reach.
pub trait Port {
    /// The type of the memory that the controller can reach.
    type Memory: Memory;
    /// The memory that the controller can reach.
    fn memory(&mut self) -> &mut Self::Memory;
    /// Reads the `length` (4 or 8) bytes at `offset` of BAR0, which are the first bytes of the
    /// result. `None` where there is no such register.
    fn read_register(&mut self, offset: u32, length: u32) -> Option<[u8; 8]>;
    /// Writes 4 or 8 bytes at `offset` of BAR0.
    fn write_register(&mut self, offset: u32, bytes: &[u8]);
    /// The descriptors that become readable with the controller's interrupts; empty when it has no
    /// interrupts.
    fn interrupts(&self) -> impl Iterator<Item = RawFd>;
}

/// A controller of this machine. Dropping the port shuts the controller down in order and resets
/// it.
#[derive(Debug)]
pub struct VfioPort {
    // Dropped first: once the device is closed, it reaches no memory.
    device: Device,
    memory: DmaMemory,
}

impl VfioPort {
    /// Takes the controller at `address` and gives it `length` bytes of memory.
    ///
    /// # Errors
    /// When the device can't be taken or the memory is not available; see [`OpenError`].
    pub fn open(address: PciAddress, length: usize) -> Result<Self, OpenError> {
        let device = Device::open(address)?;
        let memory = device.memory(length)?;
        Ok(Self { device, memory })
    }

    /// The first address of the memory, as the controller sees it.
    pub const fn memory_base(&self) -> u64 {
        self.memory.iova()
    }

    /// The interface of the kernel through which the controller was taken.
    pub const fn way(&self) -> &Way {
        self.device.way()
    }

    /// Lets the controller write out its cache, as before its power is switched off, and resets it.
    fn shut_down(&self) -> io::Result<()> {
        let registers = self.device.registers();
        let Some(before) = registers.read(offset::CONFIGURATION).filter(|value| *value != GONE) else {
            return Ok(());
        };
        let mut value = u64::from(before);
        let mut write = |field: nvme_pcie::registers::Field, bits| {
            value = field.replace(value, bits);
            registers.write(offset::CONFIGURATION, u32::try_from(value).unwrap_or(0));
        };
        if configuration::ENABLE.of(u64::from(before)) == 1 {
            write(configuration::SHUTDOWN, SHUTDOWN_NORMAL);
            let until = Instant::now() + SHUTDOWN_MAX;
            let complete = |value: u32| {
                value == GONE || status::SHUTDOWN.of(u64::from(value)) == status::SHUTDOWN_COMPLETE
            };
            while !registers.read(offset::STATUS).is_none_or(complete) && Instant::now() < until {
                thread::sleep(SHUTDOWN_POLL);
            }
            write(configuration::ENABLE, 0);
        }
        self.device.reset()
    }
}

impl Drop for VfioPort {
    fn drop(&mut self) {
        // The kernel resets the device once more when it is closed. If the shutdown fails, only
        // that reset remains.
        let _ = self.shut_down();
    }
}

impl Port for VfioPort {
    type Memory = DmaMemory;

    fn memory(&mut self) -> &mut DmaMemory {
        &mut self.memory
    }

    fn read_register(&mut self, offset: u32, length: u32) -> Option<[u8; 8]> {
        let registers = self.device.registers();
        let low = registers.read(offset)?;
        let high = if length == 8 { registers.read(offset + 4)? } else { 0 };
        Some((u64::from(high) << 32 | u64::from(low)).to_le_bytes())
    }

    fn write_register(&mut self, offset: u32, bytes: &[u8]) {
        // The low half comes first, as in every driver that writes 8 bytes as two halves.
        for (word, offset) in bytes.as_chunks().0.iter().zip((offset..).step_by(4)) {
            self.device.registers().write(offset, u32::from_le_bytes(*word));
        }
    }

    fn interrupts(&self) -> impl Iterator<Item = RawFd> {
        self.device.interrupts()
    }
}
