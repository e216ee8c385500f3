//! What the medium's driver reaches its controller through.

use std::io;
use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};

use nvme_pcie::registers::{configuration, offset, status};
use pcie::memory::Memory;

use crate::vfio::{Device, DmaMemory, OpenError, PciAddress, Way};

/// How long a controller may take to put what it keeps in order before it is reset.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);
/// How often it is asked meanwhile.
const SHUTDOWN_POLL: Duration = Duration::from_millis(1);
/// Shutdown Notification: normal.
const SHUTDOWN_NORMAL: u64 = 0b01;
/// What a device that is gone answers.
const GONE: u32 = u32::MAX;

/// A controller: its registers, and the memory that it reaches.
pub trait Port {
    /// The memory.
    type Memory: Memory;
    /// The memory that the controller reaches.
    fn memory(&mut self) -> &mut Self::Memory;
    /// The first `length` (4 or 8) of these bytes are those at `offset` of BAR0; none where there is no such register.
    fn read_register(&mut self, offset: u32, length: u32) -> Option<[u8; 8]>;
    /// Writes 4 or 8 bytes at `offset` of BAR0.
    fn write_register(&mut self, offset: u32, bytes: &[u8]);
    /// Descriptors that become readable with its interrupts; none where it has none.
    fn interrupts(&self) -> impl Iterator<Item = RawFd>;
}

/// A controller of this machine. When dropped, it is shut down in order, and reset.
#[derive(Debug)]
pub struct VfioPort {
    // Closed first: then it reaches no memory.
    device: Device,
    memory: DmaMemory,
}

impl VfioPort {
    /// Takes the controller at `address`, with `length` bytes of memory.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(address: PciAddress, length: usize) -> Result<Self, OpenError> {
        let device = Device::open(address)?;
        let memory = device.memory(length)?;
        Ok(Self { device, memory })
    }

    /// The first address of its memory, as the controller knows it.
    pub const fn memory_base(&self) -> u64 {
        self.memory.iova()
    }

    /// Which of the kernel's ways the controller was taken.
    pub const fn way(&self) -> &Way {
        self.device.way()
    }

    /// Lets the controller write what it keeps in its cache, as before the power is switched off.
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
        // The kernel resets the device once more when it is closed; if this fails, that is what remains.
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
        // The low half first, as drivers have always done it where they write halves.
        for (word, offset) in bytes.as_chunks().0.iter().zip((offset..).step_by(4)) {
            self.device.registers().write(offset, u32::from_le_bytes(*word));
        }
    }

    fn interrupts(&self) -> impl Iterator<Item = RawFd> {
        self.device.interrupts()
    }
}
