//! Fuzz targets: they accept any bytes, must not panic, and must not lose a descriptor.

use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

use engine::{Buffer, Engine as _, Instant, Nanos};

use crate::client::{self, Client};
use crate::server::{self, Cookie, InterruptConfig, RegionConfig, Server};
use crate::wire::{
    DeviceInfo, DmaAccess, DmaMap, DmaUnmap, HEADER_LENGTH, Header, InterruptInfo, RegionAccess, RegionInfo,
    RegionIoDescriptors, SetInterrupts, Version, WriteMultiple,
};
use crate::{Area, DATA_MAX, Errno, InterruptAction, InterruptData, InterruptIndex, RegionIndex};

/// A descriptor that can be counted by its references.
type Descriptor = Rc<()>;

const NOW: Instant = Instant::ZERO;

/// Parses the payload behind the first byte as the structure that this byte names. A structure that
/// parses must parse to the same after it is encoded again.
///
/// # Panics
/// When a property of the codec does not hold.
pub fn message(bytes: &[u8]) {
    let Some((what, payload)) = bytes.split_first() else { return };
    match what % 12 {
        0 => {
            let Some(header) = payload.first_chunk() else { return };
            if let Ok(header) = Header::parse(header) {
                assert_eq!(Header::parse(&header.emit()), Ok(header));
            }
        }
        1 => {
            if let Ok(version) = Version::parse(payload) {
                assert_eq!(Version::parse(&version.emit()), Ok(version));
            }
        }
        2 => same(DmaMap::parse(payload), |map| DmaMap::parse(&map.emit())),
        3 => same(DmaUnmap::parse(payload), |unmap| DmaUnmap::parse(&unmap.emit())),
        4 => same(DeviceInfo::parse(payload), |info| DeviceInfo::parse(&info.emit())),
        5 => {
            if let Ok(info) = RegionInfo::parse(payload) {
                let again = RegionInfo::parse(&info.emit(u32::MAX)).expect("an emitted structure parses");
                assert_eq!(again.areas, info.areas);
            }
        }
        6 => same(RegionIoDescriptors::parse(payload), |io| RegionIoDescriptors::parse(&io.emit())),
        7 => same(InterruptInfo::parse(payload), |info| InterruptInfo::parse(&info.emit())),
        8 => {
            if let Ok(set) = SetInterrupts::parse(payload) {
                let again = [&set.emit(), set.bools].concat();
                assert_eq!(SetInterrupts::parse(&again), Ok(set));
            }
        }
        9 => same(RegionAccess::parse(payload).map(|parsed| parsed.0), |access| {
            RegionAccess::parse(&access.emit()).map(|parsed| parsed.0)
        }),
        10 => same(DmaAccess::parse(payload).map(|parsed| parsed.0), |access| {
            DmaAccess::parse(&access.emit()).map(|parsed| parsed.0)
        }),
        _ => {
            if let Ok(multiple) = WriteMultiple::parse(payload) {
                assert_eq!(multiple.writes().count(), multiple.count());
                assert!(multiple.writes().all(|write| !write.data().is_empty()));
            }
        }
    }
}

fn same<T: PartialEq + core::fmt::Debug, E: PartialEq + core::fmt::Debug>(
    parsed: Result<T, E>,
    again: impl Fn(&T) -> Result<T, E>,
) {
    if let Ok(parsed) = parsed {
        assert_eq!(again(&parsed), Ok(parsed));
    }
}

/// Takes bytes from the front of an input.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }
    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }
    /// The next piece of a stream: raw bytes, or a message with a header that fits it. Also returns
    /// the number of descriptors with the piece.
    fn piece(&mut self) -> Option<(Vec<u8>, usize)> {
        let control = self.byte()?;
        let descriptors = usize::from(control >> 6);
        if control & 0x20 != 0 {
            return Some((self.bytes(usize::from(control & 0x1f)).to_vec(), descriptors));
        }
        let [id, command, flags, length] = [self.byte()?, self.byte()?, self.byte()?, self.byte()?];
        let payload = self.bytes(length.into());
        let mut message = vec![0; HEADER_LENGTH];
        let size = u32::try_from(HEADER_LENGTH + payload.len()).expect("a short message");
        (message[0], message[2], message[8]) = (id, command, flags);
        message[4..8].copy_from_slice(&size.to_le_bytes());
        message.extend_from_slice(payload);
        Some((message, descriptors))
    }
}

/// Feeds a stream with descriptors to a server whose world answers every other request.
///
/// # Panics
/// When the server panics, emits an unchecked value, or loses a descriptor.
pub fn server(bytes: &[u8]) {
    let open = Descriptor::default();
    let mut config = server::Config::default();
    let areas = vec![Area { offset: 4096, length: 4096 }];
    config.regions[0] = RegionConfig { areas, ..RegionConfig::new(8192) };
    config.regions[7] = RegionConfig::new(4096);
    config.interrupts[0] = InterruptConfig { count: 1, all_at_once: false };
    config.interrupts[2] = InterruptConfig { count: 9, all_at_once: true };
    let mut server = Server::new(config);
    let mut now = NOW;
    server.handle_input(now, server::Input::Connected);
    let mut script = Script(bytes);
    let mut number = 0;
    while let Some((piece, count)) = script.piece() {
        let descriptors = vec![Descriptor::clone(&open); count];
        server.handle_input(now, server::Input::Received { bytes: &piece, descriptors });
        while let Some(output) = server.poll_output() {
            number += 1;
            on_server_output(&mut server, now, output, number);
        }
        now = now + Nanos::from_millis(1);
        server.handle_timeout(now);
        assert!(server.poll_timeout().is_none_or(|at| at > now), "a deadline outlived its timeout");
    }
    server.handle_input(now, server::Input::Disconnected);
    while server.poll_output().is_some() {}
    assert_eq!(Rc::strong_count(&open), 1, "a descriptor leaked");
}

fn on_server_output(
    server: &mut Server<Descriptor>,
    now: Instant,
    output: server::Output<Descriptor>,
    number: u64,
) {
    use server::Output as Out;
    let answers = !number.is_multiple_of(2);
    match output {
        Out::Transmit { bytes, .. } => check_transmitted(&bytes),
        Out::Map { token, map: DmaMap { address, length, .. }, .. } => {
            assert!(length > 0 && address.checked_add(length - 1).is_some());
            let result = if number.is_multiple_of(5) { Err(Errno::ENODEV) } else { Ok(()) };
            server.map_done(token, result);
            let length = usize::try_from(length.min(5000)).expect("a small number");
            server.dma_read(now, Cookie(number), address, length);
            server.dma_write(now, Cookie(number), address, Buffer::zeroed(length.min(9)));
        }
        Out::Unmap { token: Some(token), .. } if answers => server.unmap_done(token),
        Out::RegionRead { token, region, offset, length } => {
            check_access(server, region, offset, length as usize);
            if answers {
                server.read_done(token, Ok(&vec![7; length as usize]));
            }
        }
        Out::RegionWrite { token, region, offset, data } => {
            check_access(server, region, offset, data.len());
            if let Some(token) = token
                && answers
            {
                server.write_done(token, if number.is_multiple_of(3) { Err(Errno::EIO) } else { Ok(()) });
            }
        }
        Out::SetInterrupts { index, start, count, data, .. } => {
            let available = server.config().interrupts[index.slot()].count;
            assert!(start.checked_add(count).is_some_and(|end| end <= available));
            match data {
                InterruptData::None => {}
                InterruptData::Bools(bools) => assert_eq!(bools.len(), count as usize),
                InterruptData::Descriptors(list) => assert!(list.is_empty() || list.len() == count as usize),
            }
        }
        Out::Reset { token } => server.reset_done(token, Ok(())),
        _ => {}
    }
}

fn check_access(server: &Server<Descriptor>, region: RegionIndex, offset: u64, length: usize) {
    let region = &server.config().regions[region.0 as usize];
    assert!(length > 0 && offset + length as u64 <= region.length);
}

fn check_transmitted(bytes: &[u8]) {
    let header = bytes.first_chunk().expect("a message has a header");
    assert_eq!(Header::parse(header).map(|header| header.size as usize), Ok(bytes.len()));
}

/// Feeds a stream with descriptors to a client that makes requests of each kind.
///
/// # Panics
/// When the client panics, loses a descriptor, or leaves a request without an answer.
pub fn client(bytes: &[u8]) {
    let open = Descriptor::default();
    let mut client = Client::new(client::Config::default());
    client.handle_input(NOW, client::Input::Connected);
    let mut script = Script(bytes);
    let (mut asked, mut answered) = (0, 0);
    let mut token = None;
    while let Some((piece, count)) = script.piece() {
        let descriptors = vec![Descriptor::clone(&open); count];
        client.handle_input(NOW, client::Input::Received { bytes: &piece, descriptors });
        asked += ask(&mut client, count, &open);
        while let Some(output) = client.poll_output() {
            match output {
                client::Output::Transmit { bytes, .. } => check_transmitted(&bytes),
                client::Output::Answered { .. } => answered += 1,
                client::Output::DmaRead { token, address, length } => {
                    assert!(
                        (1..=DATA_MAX).contains(&length)
                            && address.checked_add(u64::from(length) - 1).is_some()
                    );
                    client.dma_read_done(token, Ok(&vec![3; length as usize]));
                }
                client::Output::DmaWrite { token: next, data, .. } => {
                    assert!(!data.is_empty());
                    if let Some(former) = core::mem::replace(&mut token, next) {
                        client.dma_write_done(former, Err(Errno::EFAULT));
                    }
                }
                _ => {}
            }
        }
    }
    client.handle_input(NOW, client::Input::Disconnected);
    while let Some(output) = client.poll_output() {
        answered += u64::from(matches!(output, client::Output::Answered { .. }));
    }
    assert_eq!(asked, answered, "each request is answered");
    assert_eq!(Rc::strong_count(&open), 1, "a descriptor leaked");
}

/// Makes requests. Returns how many.
fn ask(client: &mut Client<Descriptor>, what: usize, open: &Descriptor) -> u64 {
    let (bar, msix) = (RegionIndex::BAR0, InterruptIndex::Msix);
    match what {
        0 => {
            client.device_info(NOW);
            client.region_info(NOW, bar);
            client.interrupt_info(NOW, msix);
            3
        }
        1 => {
            client.read(NOW, bar, 0, 16);
            client.write(NOW, bar, 0, &[1, 2, 3]);
            2
        }
        2 => {
            let map = DmaMap { readable: true, writable: true, offset: 0, address: 0, length: 4096 };
            client.map(NOW, map, Some(Descriptor::clone(open)));
            client.unmap(NOW, DmaUnmap::all());
            2
        }
        _ => {
            let data = InterruptData::Descriptors(vec![Descriptor::clone(open); 2]);
            client.set_interrupts(NOW, msix, InterruptAction::Trigger, (0, 2), data);
            client.reset(NOW);
            2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input in the expected form reaches the expected state.
    #[test]
    fn targets_accept_valid_and_invalid_input() {
        // Version 0.1, then GET_INFO, then raw bytes that are no header.
        let script = [
            &[0, 1, 1, 0, 4, 0, 0, 1, 0][..],
            &[0, 2, 4, 0, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0xe4, 1, 2, 3, 4],
        ]
        .concat();
        for length in 0..=script.len() {
            server(&script[..length]);
            client(&script[..length]);
            message(&script[..length]);
        }
    }
}
