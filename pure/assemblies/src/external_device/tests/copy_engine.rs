//! A device other than an SSD: it copies the host's memory, and signals the end of a copy with an
//! interrupt.
//!
//! BAR0 has the registers, BAR2 the MSI-X table, BAR4 the pending bits. A vendor-specific
//! capability at 40h has a double word that can be written.

use std::vec;
use std::vec::Vec;

use engine::{Buffer, Engine, Instant};
use vfio_user::server::{Config, Cookie, Input, InterruptConfig, Output, RegionConfig};
use vfio_user::{Errno, InterruptData, InterruptIndex, RegionIndex, Server};

pub(crate) const VENDOR: u16 = 0xfa1a;
pub(crate) const DEVICE: u16 = 0x00c0;
pub(crate) const SERIAL: u64 = 0x0123_4567_89ab_cdef;
/// Offsets of the registers in BAR0.
pub(crate) const SOURCE: u64 = 0x00;
pub(crate) const DESTINATION: u64 = 0x08;
pub(crate) const LENGTH: u64 = 0x10;
pub(crate) const GO: u64 = 0x14;
pub(crate) const STATUS: u64 = 0x18;
/// Values of STATUS.
pub(crate) const DONE: u32 = 2;
pub(crate) const FAILED: u32 = 3;
/// The vector that signals the end of a copy.
pub(crate) const VECTOR: usize = 3;
pub(crate) const VECTORS: u32 = 20;
const REGISTERS: usize = 0x100;

/// The device's requests to the world.
#[derive(Debug)]
pub(crate) enum Wish {
    Transmit(Buffer),
    /// Signal the descriptor of this vector in [`CopyEngine::vectors`].
    Signal(usize),
    Close,
}

pub(crate) struct CopyEngine<D: 'static> {
    server: Server<D>,
    config: Vec<u8>,
    registers: Vec<u8>,
    copy: Vec<u8>,
    pub(crate) vectors: Vec<Option<D>>,
    pub(crate) resets: u32,
    /// The device answers nothing any more.
    pub(crate) stuck: bool,
    /// Bytes of the longest piece of memory that the device takes, and how many pieces it has.
    pub(crate) piece_max: u64,
    pub(crate) pieces: u32,
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn configuration() -> Vec<u8> {
    let mut config = vec![0; 4096];
    put(&mut config, 0x00, &VENDOR.to_le_bytes());
    put(&mut config, 0x02, &DEVICE.to_le_bytes());
    put(&mut config, 0x06, &[0x10]);
    // Class: base system peripheral, other.
    put(&mut config, 0x08, &[7, 0x00, 0x80, 0x08]);
    put(&mut config, 0x18, &[0b1100]);
    put(&mut config, 0x2c, &[0x1a, 0xfa, 0xc0, 0x00]);
    put(&mut config, 0x34, &[0x40]);
    // A vendor-specific capability of 12 B, where the endpoint has power management.
    put(&mut config, 0x40, &[0x09, 0x50, 12, 0xaa, 1, 2, 3, 4, 5, 6, 7, 8]);
    put(&mut config, 0x50, &[0x11, 0x00, 19, 0, 2, 0, 0, 0, 4, 0, 0, 0]);
    put(&mut config, 0x100, &[3, 0, 1, 0]);
    put(&mut config, 0x104, &SERIAL.to_le_bytes());
    config
}

impl<D: 'static> CopyEngine<D> {
    pub(crate) fn new() -> Self {
        let mut config = Config::default();
        for (region, length) in [(0, REGISTERS as u64), (2, 0x1000), (4, 0x1000), (7, 4096)] {
            config.regions[region] = RegionConfig::new(length);
        }
        config.interrupts[InterruptIndex::Msix.slot()] =
            InterruptConfig { count: VECTORS, all_at_once: false };
        Self {
            server: Server::new(config),
            config: configuration(),
            registers: vec![0; REGISTERS],
            copy: Vec::new(),
            vectors: Vec::new(),
            resets: 0,
            stuck: false,
            piece_max: u64::MAX,
            pieces: 0,
        }
    }

    pub(crate) fn config(&self) -> &[u8] {
        &self.config
    }

    pub(crate) fn handle_input(&mut self, now: Instant, input: Input<'_, D>) {
        self.server.handle_input(now, input);
    }

    fn register(&self, at: u64) -> u64 {
        let at = usize::try_from(at).unwrap();
        u64::from_le_bytes(self.registers[at..at + 8].try_into().unwrap())
    }

    fn set_status(&mut self, status: u32) {
        put(&mut self.registers, usize::try_from(STATUS).unwrap(), &status.to_le_bytes());
    }

    fn memory(&mut self, region: RegionIndex) -> Option<&mut Vec<u8>> {
        match region {
            RegionIndex::BAR0 => Some(&mut self.registers),
            RegionIndex::CONFIG => Some(&mut self.config),
            _ => None,
        }
    }

    fn on_write(&mut self, now: Instant, region: RegionIndex, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let memory = self.memory(region).ok_or(Errno::EINVAL)?;
        let at = usize::try_from(offset).unwrap();
        put(memory, at, data);
        if region == RegionIndex::BAR0 && offset == GO {
            self.set_status(1);
            let length = self.register(LENGTH) & 0xffff_ffff;
            self.copy = vec![0; usize::try_from(length).unwrap()];
            self.server.dma_read(now, Cookie(0), self.register(SOURCE), self.copy.len());
        }
        Ok(())
    }

    pub(crate) fn poll(&mut self, now: Instant) -> Option<Wish> {
        if self.stuck {
            return None;
        }
        loop {
            match self.server.poll_output()? {
                Output::Transmit { bytes, .. } => return Some(Wish::Transmit(bytes)),
                Output::Close { .. } => return Some(Wish::Close),
                Output::Map { token, map, descriptor } => {
                    assert!(descriptor.is_none());
                    let fits = map.length <= self.piece_max;
                    self.pieces += u32::from(fits);
                    self.server.map_done(token, if fits { Ok(()) } else { Err(Errno::ENOSPC) });
                }
                Output::Unmap { token: Some(token), .. } => self.server.unmap_done(token),
                Output::RegionRead { token, region, offset, length } => {
                    let at = usize::try_from(offset).unwrap();
                    let bytes = self.memory(region).cloned();
                    let bytes = bytes.ok_or(Errno::EINVAL);
                    let part = bytes.as_ref().map(|bytes| &bytes[at..at + length as usize]);
                    self.server.read_done(token, part.map_err(|error| *error));
                }
                Output::RegionWrite { token, region, offset, data } => {
                    let result = self.on_write(now, region, offset, &data);
                    if let Some(token) = token {
                        self.server.write_done(token, result);
                    }
                }
                Output::SetInterrupts { index: InterruptIndex::Msix, start, count, data, .. } => {
                    self.vectors.resize_with(VECTORS as usize, || None);
                    match data {
                        InterruptData::Descriptors(descriptors) => {
                            let start = start as usize;
                            for (slot, descriptor) in self.vectors[start..].iter_mut().zip(descriptors) {
                                *slot = Some(descriptor);
                            }
                        }
                        _ if count == 0 => self.vectors.clear(),
                        _ => {}
                    }
                }
                Output::Reset { token } => {
                    self.resets += 1;
                    self.registers.fill(0);
                    self.config = configuration();
                    self.server.reset_done(token, Ok(()));
                }
                Output::DmaData { offset, data, last, .. } => {
                    put(&mut self.copy, offset, &data);
                    if last {
                        let data = Buffer::copy_from_slice(&self.copy);
                        self.server.dma_write(now, Cookie(1), self.register(DESTINATION), data);
                    }
                }
                Output::DmaWritten { .. } => {
                    self.set_status(DONE);
                    return Some(Wish::Signal(VECTOR));
                }
                Output::DmaFailed { .. } => {
                    self.set_status(FAILED);
                    return Some(Wish::Signal(VECTOR));
                }
                _ => {}
            }
        }
    }
}
