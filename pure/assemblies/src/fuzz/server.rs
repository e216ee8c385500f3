//! A vfio-user server whose answers are correct, or changed by the input.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

use engine::fuzz::Source;
use vfio_user::wire::{
    Capabilities, Command, DeviceInfo, DmaAccess, HEADER_LENGTH, Header, InterruptInfo, Kind, RegionAccess,
    RegionInfo, Version,
};
use vfio_user::{Area, Errno, RegionIndex};

use super::Descriptor;

/// Bytes of the configuration space.
const SPACE: usize = 4096;
/// Maximum number of changes to the configuration space.
const PATCHES_MAX: u8 = 16;

/// A request of the client.
struct Asked {
    id: u16,
    command: Command,
    payload: Vec<u8>,
}

/// A message, and the descriptors that come with it.
pub(super) type Said = (Vec<u8>, Vec<Descriptor>);

/// A vfio-user server. The first bytes of an input choose its description of the device.
pub(super) struct Server {
    asked: VecDeque<Asked>,
    space: Vec<u8>,
    regions: [u64; 9],
    /// The part of BAR0 that may be mapped.
    area: Option<Area>,
    vectors: u32,
    data_max: u64,
    open: Descriptor,
}

impl Server {
    pub(super) fn new(source: &mut Source<'_>, open: &Descriptor) -> Self {
        let [limits, vectors, area] = [source.byte(), source.byte(), source.byte()];
        let mut regions = [0; 9];
        regions[0] = 0x4000;
        regions[RegionIndex::CONFIG.0 as usize] = SPACE as u64;
        for region in &mut regions[..5] {
            match source.byte() {
                0 => {}
                byte => *region = (1 << (byte % 64)) + u64::from(byte / 64) - 1,
            }
        }
        let mut space = space(u16::from(vectors));
        for _ in 0..source.byte() % PATCHES_MAX {
            let at = usize::from(source.half());
            space[at % SPACE] = source.byte();
        }
        let area = match area {
            0 => None,
            1 => Some(Area { offset: 0x1000, length: 0x1000 }),
            _ => Some(Area { offset: u64::from(area) * 0x200, length: 1 << (area % 64) }),
        };
        let data_max = if limits == 0 { 1 << 20 } else { 1 << (limits % 24) };
        let vectors = if vectors == u8::MAX { u32::MAX } else { u32::from(vectors) + 1 };
        Self { asked: VecDeque::new(), space, regions, area, vectors, data_max, open: Rc::clone(open) }
    }

    /// The connection has ended: forgets the requests.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
    }
    /// Whether the client waits for an answer.
    pub(super) fn owes(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Takes a message of the client. Returns the access and its data if the message is a write to
    /// a region.
    ///
    /// # Panics
    /// When `bytes` are not a message.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Option<(RegionAccess, Vec<u8>)> {
        let header = bytes.first_chunk().expect("a message has a header");
        let Header { id, command, size, kind } = Header::parse(header).expect("a header is in form");
        assert_eq!(size as usize, bytes.len(), "a header has the length");
        let payload = bytes[HEADER_LENGTH..].to_vec();
        let Kind::Command { no_reply } = kind else { return None };
        let write = match command {
            Command::RegionWrite => {
                let (access, data) = RegionAccess::parse(&payload).expect("a write is in form");
                assert!(data.len() as u64 <= self.data_max, "more than the server takes");
                Some((access, data.to_vec()))
            }
            _ => None,
        };
        if !no_reply {
            self.asked.push_back(Asked { id, command, payload });
        }
        write
    }

    /// Answers a request correctly; `bar` provides the bytes of BARs.
    pub(super) fn answer(&mut self, which: usize, bar: impl FnMut(u64, &mut [u8])) -> Option<Said> {
        let asked = self.asked.remove(which % self.asked.len().max(1))?;
        let (payload, descriptors) = self.right(&asked, bar);
        Some((message(asked.id, asked.command, 1, 0, &payload), descriptors))
    }

    /// Answers the oldest request with an error, or with bytes of the input.
    pub(super) fn answer_badly(&mut self, source: &mut Source<'_>) -> Option<Said> {
        let asked = self.asked.pop_front()?;
        let how = source.byte();
        if how < 64 {
            return Some((message(asked.id, asked.command, 1 | 1 << 5, how.into(), &[]), Vec::new()));
        }
        let (mut payload, descriptors) = self.right(&asked, |_, bytes| bytes.fill(how));
        if asked.command == Command::Version {
            // The client's limit is unknown after a changed answer.
            self.data_max = u64::MAX;
        }
        // Some bytes are changed, are missing, or come twice.
        let at = usize::from(source.byte());
        if let Some(rest) = payload.get_mut(at..) {
            let others = source.bytes((usize::from(how) % 9).min(rest.len()));
            rest[..others.len()].copy_from_slice(others);
        }
        match how % 4 {
            0 => payload.truncate(at),
            1 => payload.extend_from_within(..at.min(payload.len())),
            _ => {}
        }
        Some((message(asked.id, asked.command, 1, 0, &payload), descriptors))
    }

    fn right(&self, asked: &Asked, mut bar: impl FnMut(u64, &mut [u8])) -> (Vec<u8>, Vec<Descriptor>) {
        let payload = &asked.payload[..];
        match asked.command {
            Command::Version => {
                let capabilities = Capabilities {
                    descriptors: Some(8),
                    data: Some(self.data_max),
                    maps: None,
                    page_sizes: None,
                    write_multiple: Some(true),
                };
                (Version { major: 0, minor: 1, capabilities: Some(capabilities) }.emit(), Vec::new())
            }
            Command::DeviceGetInfo => {
                let info = DeviceInfo { resettable: true, pci: true, regions: 9, interrupts: 5 };
                (info.emit().to_vec(), Vec::new())
            }
            Command::DeviceGetRegionInfo => self.region(payload),
            Command::DeviceGetIrqInfo => {
                let asked = InterruptInfo::parse(payload).expect("a question is in form");
                let count = self.vectors;
                (InterruptInfo { count, descriptors: true, ..asked }.emit().to_vec(), Vec::new())
            }
            Command::RegionRead => {
                let (access, _) = RegionAccess::parse(payload).expect("a read is in form");
                let mut data = vec![0; access.count as usize];
                if access.region == RegionIndex::CONFIG.0 {
                    let start = usize::try_from(access.offset).map_or(SPACE, |start| start.min(SPACE));
                    let there = &self.space[start..SPACE.min(start + data.len())];
                    data[..there.len()].copy_from_slice(there);
                } else {
                    bar(access.offset, &mut data);
                }
                ([&access.emit()[..], &data].concat(), Vec::new())
            }
            Command::RegionWrite => (payload[..RegionAccess::LENGTH].to_vec(), Vec::new()),
            Command::DmaUnmap => (payload.to_vec(), Vec::new()),
            _ => (Vec::new(), Vec::new()),
        }
    }

    fn region(&self, payload: &[u8]) -> (Vec<u8>, Vec<Descriptor>) {
        let asked = RegionInfo::parse(payload).expect("a question is in form");
        let size = self.regions.get(asked.index as usize).copied().unwrap_or(0);
        let areas: Vec<Area> = self.area.filter(|_| asked.index == 0).into_iter().collect();
        let mappable = !areas.is_empty();
        let descriptors = areas.iter().map(|_| Rc::clone(&self.open)).collect();
        let room = asked.argsz;
        let info = RegionInfo { size, areas, mappable, readable: true, writable: true, ..asked };
        (info.emit(room), descriptors)
    }

    /// `count` handles of the shared descriptor.
    pub(super) fn descriptors(&self, count: usize) -> Vec<Descriptor> {
        vec![Rc::clone(&self.open); count]
    }
}

/// The configuration space of an NVMe controller with MSI-X, and with capabilities that do not
/// belong to the link.
fn space(vectors: u16) -> Vec<u8> {
    let mut space = vec![0; SPACE];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0x1a, 0xfa, 0x10, 0x00]);
    // Status: there is a list of capabilities. Class; a memory BAR of 64 bits.
    put(6, &[0x10, 0x00, 0x01, 0x02, 0x08, 0x01]);
    put(0x10, &[0b100]);
    put(0x34, &[0x40]);
    // A vendor-specific capability of 12 bytes; MSI-X with its table at 0x2000 and pending bits at
    // 0x3000 of BAR0; vital product data.
    put(0x40, &[0x09, 0x50, 12]);
    let [low, high] = vectors.to_le_bytes();
    put(0x50, &[0x11, 0x80, low, high & 7, 0, 0x20, 0, 0, 0, 0x30, 0, 0]);
    put(0x80, &[0x03, 0]);
    put(0x100, &[0x03, 0, 1, 0, 0x11, 0x22]);
    space
}

/// A message with any header whose size is correct.
pub(super) fn message(id: u16, command: Command, flags: u32, error: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LENGTH];
    let size = u32::try_from(HEADER_LENGTH + payload.len()).expect("a short message");
    bytes[..2].copy_from_slice(&id.to_le_bytes());
    bytes[2..4].copy_from_slice(&u16::from(command).to_le_bytes());
    bytes[4..8].copy_from_slice(&size.to_le_bytes());
    bytes[8..12].copy_from_slice(&flags.to_le_bytes());
    bytes[12..].copy_from_slice(&error.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A message of any kind with bytes of the input.
pub(super) fn any_message(source: &mut Source<'_>) -> Vec<u8> {
    let [id, command, flags, length] = [source.byte(), source.byte(), source.byte(), source.byte()];
    let payload = source.bytes(length.into());
    message(id.into(), u16::from(command % 20).into(), flags.into(), Errno::EIO.0, payload)
}

/// A server's read or write of the client's memory.
pub(super) fn dma(source: &mut Source<'_>) -> Vec<u8> {
    let how = source.byte();
    let address = match how & 3 {
        0 => u64::from(source.word()) << 4,
        1 => u64::MAX - u64::from(source.half()),
        2 => (1 << 32) - u64::from(source.half()),
        _ => source.long(),
    };
    let count = match how >> 2 & 3 {
        0 => u64::from(source.byte()),
        1 => u64::from(source.half()),
        2 => u64::from(source.half()) << 5,
        _ => 4096,
    };
    let access = DmaAccess { address, count }.emit();
    if how & 1 << 4 == 0 {
        return message(how.into(), Command::DmaRead, 0, 0, &access);
    }
    let data = vec![how; usize::try_from(count).expect("a few megabytes")];
    let flags = u32::from(how & 1 << 5) >> 1;
    message(how.into(), Command::DmaWrite, flags, 0, &[&access, &data[..]].concat())
}
