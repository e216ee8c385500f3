//! The surroundings of the engine that serves a card: its client, and what the client reaches.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use engine::{Buffer, Instant};
use niq::{Card, Counts, WINDOW_BYTES, registers};
use pcie::config::{Bar, BarIndex, Builder, ClassCode, ConfigSpace, Identity, Link, PortType, ids};
use vfio_user::server::{CloseReason, Config, InterruptConfig, Output, RegionConfig, Server};
use vfio_user::wire::DmaMap;
use vfio_user::{Area, Errno, InterruptIndex, RegionIndex};

use super::served::Served;
use super::vectors::Vectors;
use super::{WINDOW, window};
use crate::drivers::guest::errno_of;
use crate::reactor::{Attention, Shell, Sources};
use crate::sys::shared::{Mapping, SharedMemory};
use crate::sys::unix::Connection;

/// Bytes of the configuration space.
const CONFIG_BYTES: u64 = 4096;

/// The card, its client, and the memory that both reach.
pub(super) struct CardShell<F> {
    pub(super) connection: Option<Connection>,
    space: ConfigSpace,
    pub(super) card: Card,
    /// The counts of the card before it was reset.
    past: Counts,
    pub(super) vectors: Vectors,
    pub(super) window: SharedMemory,
    window_file: OwnedFd,
    /// The client's memory.
    pub(super) memory: SharedMemory,
    pub(super) report: F,
}

/// The shell for one exchange, with the sources of the loop.
pub(super) struct Exchange<'a, F> {
    pub(super) shell: &'a mut CardShell<F>,
    pub(super) sources: &'a Sources,
}

/// The regions and interrupts of a card.
pub(super) fn config() -> Config {
    let mut config = Config::default();
    config.regions[0] = RegionConfig::new(registers::LENGTH.into());
    let window = RegionConfig::new(WINDOW_BYTES as u64);
    let area = Area { offset: 0, length: WINDOW_BYTES as u64 };
    config.regions[WINDOW.0 as usize] = RegionConfig { areas: vec![area], ..window };
    config.interrupts[InterruptIndex::Msix.slot()] =
        InterruptConfig { count: Vectors::COUNT.into(), all_at_once: false };
    config.regions[RegionIndex::CONFIG.0 as usize] = RegionConfig::new(CONFIG_BYTES);
    config
}

fn space() -> ConfigSpace {
    let identity = Identity {
        vendor: ids::VENDOR,
        device: ids::LOW_LATENCY_NIC,
        revision: 1,
        class: ClassCode::NETWORK,
        subsystem_vendor: ids::VENDOR,
        subsystem: ids::LOW_LATENCY_NIC,
    };
    Builder::endpoint(identity)
        .bar(BarIndex::ZERO, Bar::memory64(registers::LENGTH.into()))
        .bar(BarIndex::new(2), Bar::memory64(WINDOW_BYTES as u64).prefetchable())
        .msix(BarIndex::ZERO, Vectors::COUNT, registers::MSIX_TABLE, registers::MSIX_PENDING)
        .express(PortType::Endpoint, Link::default(), None)
        .build()
}

impl<F: FnMut(Served)> CardShell<F> {
    /// The shell of a card with `address`, which has no client yet.
    ///
    /// # Errors
    /// When the system has no memory or descriptors left.
    pub(super) fn new(address: [u8; 6], report: F) -> io::Result<Self> {
        let (window, window_file) = window()?;
        Ok(Self {
            connection: None,
            space: space(),
            card: Card::new(address),
            past: Counts::default(),
            vectors: Vectors::default(),
            window,
            window_file,
            memory: SharedMemory::new(),
            report,
        })
    }

    /// The counts of the card for all its clients.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.past;
        counts += *self.card.counts();
        counts
    }

    fn reset_card(&mut self) {
        self.past += *self.card.counts();
        self.card.reset();
    }

    fn write_register(&mut self, offset: u64, data: &[u8]) {
        let before = *self.card.counts();
        self.card.register_write(&mut self.window, offset, data);
        if *self.card.counts() == Counts::default() {
            // The client has reset the card, or nothing was counted.
            self.past += before;
        }
    }

    /// Takes a client. It gets a window of its own: the one before may go on writing into its own.
    pub(super) fn admit(&mut self, connection: Connection, sources: &Sources) -> io::Result<()> {
        let (window, window_file) = window()?;
        sources.add(connection.as_raw_fd(), Attention::OnNews)?;
        (self.window, self.window_file) = (window, window_file);
        (self.report)(Served::Client(connection.peer_process()));
        self.connection = Some(connection);
        Ok(())
    }

    /// Forgets the client.
    pub(super) fn lose_client(&mut self, sources: &Sources, reason: Option<CloseReason>) {
        let Some(connection) = self.connection.take() else { return };
        sources.remove(connection.as_raw_fd());
        self.memory.clear();
        self.reset_card();
        self.space = space();
        self.vectors = Vectors::default();
        (self.report)(Served::Gone(reason));
    }

    /// Sends waiting messages to the client.
    pub(super) fn flush(&mut self) {
        if let Some(connection) = &mut self.connection {
            // A client that is gone is found by the next receive.
            let _ = connection.flush();
        }
    }

    fn reply(&mut self, bytes: Buffer, shared: Option<RegionIndex>) {
        let file = shared.filter(|region| *region == WINDOW).and_then(|_| self.window_file.try_clone().ok());
        if let Some(connection) = &mut self.connection
            && connection.send(bytes, file.into_iter().collect()).is_err()
        {
            // The client no longer reads; the next receive finds the end of the connection.
            connection.abort();
        }
    }

    fn map(&mut self, map: DmaMap, descriptor: Option<OwnedFd>) -> Result<(), Errno> {
        let DmaMap { readable, writable, offset, address, length } = map;
        let descriptor = descriptor.ok_or(Errno::EOPNOTSUPP)?;
        let mapping = Mapping { address, length, offset, readable, writable };
        self.memory.map(descriptor, mapping).map_err(|error| errno_of(&error))
    }

    fn read(&self, region: RegionIndex, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        match region {
            RegionIndex::BAR0 if Vectors::has(offset) => self.vectors.read(offset, bytes),
            RegionIndex::BAR0 => self.card.register_read(offset, bytes),
            WINDOW => self.window.read(offset, bytes).map_err(|_| Errno::EINVAL)?,
            _ => {
                for (at, byte) in (offset..).zip(bytes) {
                    let word = u16::try_from(at & !3).map_or(0, |at| self.space.read(at));
                    *byte = word.to_le_bytes()[(at & 3) as usize];
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, region: RegionIndex, offset: u64, data: &[u8]) -> Result<(), Errno> {
        match region {
            RegionIndex::BAR0 if Vectors::has(offset) => self.vectors.write(offset, data),
            RegionIndex::BAR0 => self.write_register(offset, data),
            WINDOW => self.window.write(offset, data).map_err(|_| Errno::EINVAL)?,
            _ => {
                for (at, byte) in (offset..).zip(data) {
                    let Ok(word) = u16::try_from(at & !3) else { break };
                    let lane = (at & 3) as u32;
                    self.space.write(word, u32::from(*byte) << (8 * lane), 1 << lane);
                }
            }
        }
        Ok(())
    }
}

impl<F: FnMut(Served)> Shell<Server<OwnedFd>> for Exchange<'_, F> {
    /// Carries out a request of the client.
    fn pass(&mut self, _: Instant, output: Output<OwnedFd>, server: &mut Server<OwnedFd>) {
        let shell = &mut *self.shell;
        match output {
            Output::Transmit { bytes, shared } => shell.reply(bytes, shared),
            Output::Map { token, map, descriptor } => {
                let result = shell.map(map, descriptor);
                server.map_done(token, result);
            }
            Output::Unmap { token, address, length } => {
                shell.memory.unmap(address, length);
                if let Some(token) = token {
                    server.unmap_done(token);
                }
            }
            Output::RegionRead { token, region, offset, length } => {
                let mut bytes = vec![0; length as usize];
                let result = shell.read(region, offset, &mut bytes).map(|()| &bytes[..]);
                server.read_done(token, result);
            }
            Output::RegionWrite { token, region, offset, data } => {
                let result = shell.write(region, offset, &data);
                if let Some(token) = token {
                    server.write_done(token, result);
                }
            }
            Output::Reset { token } => {
                shell.reset_card();
                shell.space = space();
                shell.vectors.reset();
                server.reset_done(token, Ok(()));
            }
            Output::Close { reason } => {
                // It gets the reason, if the protocol has an answer for that.
                shell.flush();
                shell.lose_client(self.sources, Some(reason));
            }
            Output::SetInterrupts { index: InterruptIndex::Msix, action, start, count, data } => {
                shell.vectors.set(action, (start, count), data);
            }
            // There are no other interrupts, and the card reaches memory by its file alone.
            Output::Negotiated(_)
            | Output::SetInterrupts { .. }
            | Output::DmaData { .. }
            | Output::DmaWritten { .. }
            | Output::DmaFailed { .. } => {}
        }
    }
}
