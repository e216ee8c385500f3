//! Host memory, as seen by the root complex and by a host's driver.

use alloc::vec::Vec;
use core::fmt;

/// An access outside the mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmapped {
    /// First address of the access.
    pub address: u64,
    /// Length of the access in bytes.
    pub length: usize,
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory is mapped at {:#x}..+{:#x}", self.address, self.length)
    }
}

impl core::error::Error for Unmapped {}

/// Host memory that devices can reach.
pub trait Memory {
    /// Copies the bytes at `address` into `bytes`.
    ///
    /// # Errors
    /// When any byte of the range is not mapped; the contents of `bytes` are then unspecified.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Unmapped>;

    /// Copies `bytes` to `address`.
    ///
    /// # Errors
    /// When any byte of the range is not mapped; nothing is then written.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unmapped>;
}

/// A piece of host memory, held in a vector.
pub struct Ram {
    base: u64,
    bytes: Vec<u8>,
}

impl Ram {
    /// Memory of `length` zero bytes that starts at address `base`.
    pub fn new(base: u64, length: usize) -> Self {
        Self { base, bytes: alloc::vec![0; length] }
    }
    /// The first address of the memory.
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// The `length` bytes at `address`, in place.
    ///
    /// # Errors
    /// When any byte of the range is outside the memory.
    pub fn slice(&self, address: u64, length: usize) -> Result<&[u8], Unmapped> {
        let start = self.offset(address, length)?;
        Ok(&self.bytes[start..start + length])
    }

    /// The `length` bytes at `address`, in place, for writing.
    ///
    /// # Errors
    /// When any byte of the range is outside the memory.
    pub fn slice_mut(&mut self, address: u64, length: usize) -> Result<&mut [u8], Unmapped> {
        let start = self.offset(address, length)?;
        Ok(&mut self.bytes[start..start + length])
    }
    fn offset(&self, address: u64, length: usize) -> Result<usize, Unmapped> {
        address
            .checked_sub(self.base)
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|offset| offset.checked_add(length).is_some_and(|end| end <= self.bytes.len()))
            .ok_or(Unmapped { address, length })
    }
}

impl fmt::Debug for Ram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ram({:#x}..+{:#x})", self.base, self.bytes.len())
    }
}

impl Memory for Ram {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        bytes.copy_from_slice(self.slice(address, bytes.len())?);
        Ok(())
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        self.slice_mut(address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }
}
