//! A host with its card, as programs use it: packets go in and come out.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;

use engine::{Instant, Nanos};
use niq::{Card, HOST_MEMORY_BYTES, Host, HostConfig, HostFault, Received, SendError, registers};

use super::client::CardClient;
use super::shm::ROOM;
use super::wire::{Wire, WireError, WireUrl};
use super::{SLEEP_MAX, TEND_EVERY, new_memory, wait_for, window};
use crate::sys::clock::Clock;
use crate::sys::shared::SharedMemory;

/// After this many polls in a row that found nothing, the station looks at the clock and does the
/// work that costs system calls.
const POLLS_A_LOOK: u32 = 512;
/// After this many packets that were waited for, it looks as well: perhaps each was there at once.
const WAITS_A_LOOK: u32 = 64;

/// Where a station's card is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In another process, which serves it at this Unix socket.
    Socket(PathBuf),
    /// In this process, at an end of this wire.
    Wire(WireUrl),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("vfio-user:") {
            Some(path) if !path.is_empty() => Ok(Self::Socket(path.into())),
            _ => text.parse().map(Self::Wire).map_err(|error| match text.starts_with("udp:") {
                true => error,
                false => "expected a card's socket (vfio-user:PATH) or a wire (shm:PATH, udp:ADDRESS:PORT, eth:IFACE, loop:)"
                    .to_owned(),
            }),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Wire(url) => url.fmt(f),
        }
    }
}

/// Why a card can't be used.
#[derive(Debug)]
pub enum PlaceError {
    /// The wire can't be used.
    Wire(WireError),
    /// The card's server can't be used.
    Server(io::Error),
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PlaceError {}

/// Why a station works no more.
#[derive(Debug)]
pub enum StationError {
    /// The card is at fault.
    Card(HostFault),
    /// A packet can't be sent.
    Send(SendError),
    /// The card is gone, or its wire.
    Gone(String),
}

impl fmt::Display for StationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Card(fault) => write!(f, "the card is at fault: {fault}"),
            Self::Send(error) => error.fmt(f),
            Self::Gone(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StationError {}

#[derive(Debug)]
enum Reach {
    Own { card: Box<Card>, wire: Wire },
    Served(Box<CardClient>),
}

/// A host with its card.
#[derive(Debug)]
pub struct Station {
    host: Host,
    window: SharedMemory,
    memory: SharedMemory,
    reach: Reach,
    /// How many packets were sent with the last one of [`Station::send_last`].
    last: u64,
    /// The packet that leaves.
    leaving: Vec<u8>,
    /// The packet that comes, perhaps in parts. Packets that leave meanwhile have no place here.
    coming: Vec<u8>,
    address: [u8; 6],
    clock: Clock,
    spin: Nanos,
    /// How often a packet was waited for, modulo 2^32.
    waits: u32,
    tended_at: Instant,
}

impl Station {
    /// A station whose card is at `place`. A card of this process has `address`. A waiting station
    /// spins for `spin` and then sleeps until it is woken.
    ///
    /// # Errors
    /// When the card or the wire can't be used.
    pub fn open(
        place: &Place,
        address: [u8; 6],
        config: HostConfig,
        spin: Nanos,
    ) -> Result<Self, PlaceError> {
        let clock = Clock::start();
        let (reach, window, memory) = match place {
            Place::Wire(url) => {
                let wire = Wire::open(url).map_err(PlaceError::Wire)?;
                let (window, _) = window().map_err(PlaceError::Server)?;
                let (memory, _) =
                    new_memory("farlane-niq-host", HOST_MEMORY_BYTES).map_err(PlaceError::Server)?;
                (Reach::Own { card: Box::new(Card::new(address)), wire }, window, memory)
            }
            Place::Socket(path) => {
                let (client, window, memory) =
                    CardClient::connect(path, config.queue, clock).map_err(PlaceError::Server)?;
                (Reach::Served(Box::new(client)), window, memory)
            }
        };
        let mut station = Self {
            host: Host::new(config),
            window,
            memory,
            reach,
            last: 0,
            leaving: vec![0; ROOM],
            coming: vec![0; ROOM],
            address,
            clock,
            spin,
            waits: 0,
            tended_at: Instant::ZERO,
        };
        station.begin().map_err(PlaceError::Server)?;
        Ok(station)
    }

    fn begin(&mut self) -> io::Result<()> {
        for (register, value) in self.host.start(&mut self.memory).map_err(io::Error::other)? {
            match &mut self.reach {
                Reach::Own { card, .. } => {
                    card.register_write(&mut self.window, register.into(), &value.to_le_bytes());
                }
                Reach::Served(client) => client.write(register, value)?,
            }
        }
        if let Reach::Served(client) = &mut self.reach {
            let low = client.read(registers::ADDRESS)?.to_le_bytes();
            let high = client.read(registers::ADDRESS + 4)?.to_le_bytes();
            self.address = [low[0], low[1], low[2], low[3], high[0], high[1]];
        }
        Ok(())
    }

    /// The card's address.
    pub const fn address(&self) -> [u8; 6] {
        self.address
    }

    /// The MTU of the interface at whose cable a card of this process is. Packets that are longer
    /// than this and an Ethernet header are lost there.
    pub fn mtu(&self) -> Option<usize> {
        match &self.reach {
            Reach::Own { wire, .. } => wire.mtu(),
            Reach::Served(_) => None,
        }
    }

    /// The station's clock.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Sends packets of up to `bytes` in a line, at most 60, and others by DMA.
    pub fn set_inline_max(&mut self, bytes: usize) {
        self.host.set_inline_max(bytes);
    }

    /// Whether the other end of the wire is there.
    ///
    /// # Errors
    /// When the card or its wire is gone.
    pub fn is_up(&mut self) -> Result<bool, StationError> {
        self.tend()?;
        match &mut self.reach {
            Reach::Own { wire, .. } if wire.is_up() => Ok(true),
            Reach::Own { .. } => {
                // Another end is let in once the packets of the last one are taken from the wire.
                for _ in 0..POLLS_A_LOOK {
                    if !self.pull() {
                        break;
                    }
                }
                Ok(false)
            }
            Reach::Served(client) => {
                let status = client.read(registers::STATUS);
                Ok(status.map_err(|error| StationError::Gone(error.to_string()))? & registers::LINK_UP != 0)
            }
        }
    }

    /// Checks the other end behind the card.
    fn tend(&mut self) -> Result<(), StationError> {
        self.tended_at = self.clock.now();
        match &mut self.reach {
            Reach::Own { card, wire } => {
                wire.tend(self.tended_at).map_err(|error| StationError::Gone(error.to_string()))?;
                card.set_link(wire.is_up());
                Ok(())
            }
            Reach::Served(client) if client.is_alive() => {
                client.hear().map_err(|error| StationError::Gone(error.to_string()))
            }
            Reach::Served(_) => {
                Err(StationError::Gone("the process that serves the card is gone".to_owned()))
            }
        }
    }

    /// Sends a packet; returns false if there is no room for it now.
    ///
    /// # Errors
    /// When the card is at fault, or no packet has such a length.
    #[inline]
    pub fn send(&mut self, packet: &[u8]) -> Result<bool, StationError> {
        self.put(packet, false)
    }

    /// Sends a packet as [`Self::send`] does. [`Self::has_left`] returns whether it has left.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn send_last(&mut self, packet: &[u8]) -> Result<bool, StationError> {
        self.put(packet, true)
    }

    /// Whether the packet of [`Self::send_last`] and all before it are on the wire, or were dropped
    /// because its other end is not there. Packets that have not left are lost with the station.
    ///
    /// # Errors
    /// When the card is at fault.
    pub fn has_left(&mut self) -> Result<bool, StationError> {
        self.push();
        let completed = self.host.poll_completed(&self.window, &self.memory).map_err(StationError::Card)?;
        let is_on_wire = match &mut self.reach {
            Reach::Own { wire, .. } => {
                // The rest of a packet may leave here.
                let has_room = wire.has_room();
                wire.wake();
                has_room
            }
            Reach::Served(_) => true,
        };
        Ok(is_on_wire && completed >= self.last)
    }

    /// How many packets the card has taken, as far as is known; [`Self::has_left`] asks.
    pub const fn taken(&self) -> u64 {
        self.host.taken()
    }

    #[inline]
    fn put(&mut self, packet: &[u8], is_last: bool) -> Result<bool, StationError> {
        let sent = match self.host.send(&mut self.window, &mut self.memory, packet, is_last) {
            Ok(number) => {
                if is_last {
                    self.last = number;
                }
                true
            }
            Err(SendError::Full) => false,
            Err(SendError::Fault(fault)) => return Err(StationError::Card(fault)),
            Err(error) => return Err(StationError::Send(error)),
        };
        self.push();
        if let Reach::Served(client) = &mut self.reach
            && let Some((register, value)) = self.host.poll_wake(&self.window).map_err(StationError::Card)?
        {
            client.post(register, value).map_err(|error| StationError::Gone(error.to_string()))?;
        }
        Ok(sent)
    }

    /// Lets a card of this process send the packets in its window.
    #[inline]
    fn push(&mut self) {
        let Reach::Own { card, wire } = &mut self.reach else { return };
        while wire.has_room() {
            let Some(length) = card.poll_transmit(&mut self.window, &mut self.memory, &mut self.leaving)
            else {
                break;
            };
            wire.send(&self.leaving[..length]);
        }
        wire.wake();
    }

    /// Lets a card of this process take a packet from the wire; returns whether one had come.
    #[inline]
    fn pull(&mut self) -> bool {
        let Reach::Own { card, wire } = &mut self.reach else { return false };
        let Some(length) = wire.receive(&mut self.coming) else { return false };
        card.receive(&mut self.window, &mut self.memory, &self.coming[..length]);
        wire.wake();
        true
    }

    /// Takes the next packet, if there is one, into the beginning of `packet`, which has room for
    /// the largest.
    ///
    /// # Errors
    /// When the card is at fault.
    #[inline]
    pub fn poll(&mut self, packet: &mut [u8]) -> Result<Option<Received>, StationError> {
        if !self.pull() {
            self.push();
        }
        self.host.receive(&mut self.window, &mut self.memory, packet).map_err(StationError::Card)
    }

    /// Waits for the next packet until `deadline`, or until `is_over` says that waiting is over.
    ///
    /// # Errors
    /// When the card is at fault, or it or its wire is gone.
    pub fn wait(
        &mut self,
        packet: &mut [u8],
        deadline: Instant,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<Option<Received>, StationError> {
        self.waits = self.waits.wrapping_add(1);
        if self.waits.is_multiple_of(WAITS_A_LOOK) && self.clock.now() - self.tended_at >= TEND_EVERY {
            self.tend()?;
        }
        let mut since = None;
        loop {
            for _ in 0..POLLS_A_LOOK {
                if let Some(received) = self.poll(packet)? {
                    return Ok(Some(received));
                }
                std::hint::spin_loop();
            }
            let now = self.clock.now();
            if now >= deadline || is_over() {
                return Ok(None);
            }
            if now - self.tended_at >= TEND_EVERY {
                self.tend()?;
            }
            // Others may need the processor: the peer, on a small machine.
            if now - *since.get_or_insert(now) < self.spin {
                std::thread::yield_now();
            } else if let Some(received) = self.sleep(packet, (deadline - now).min(SLEEP_MAX))? {
                return Ok(Some(received));
            }
        }
    }

    /// Sleeps for `length` at most; returns a packet that came on the way to sleep.
    #[cold]
    fn sleep(&mut self, packet: &mut [u8], length: Nanos) -> Result<Option<Received>, StationError> {
        match &mut self.reach {
            Reach::Own { wire, .. } => wire.sleep(true),
            Reach::Served(_) => self.host.await_interrupt(&mut self.window).map_err(StationError::Card)?,
        }
        let received = self.poll(packet)?;
        let slept = match &self.reach {
            _ if received.is_some() => Ok(()),
            Reach::Own { wire, .. } => wait_for(&[wire.as_fd()], length),
            Reach::Served(client) => wait_for(&client.descriptors(), length),
        };
        slept.map_err(|error| StationError::Gone(format!("this process can't wait: {error}")))?;
        match &mut self.reach {
            Reach::Own { wire, .. } => wire.sleep(false),
            Reach::Served(client) => client.clear_interrupt(),
        }
        self.tend()?;
        Ok(received)
    }
}
