//! `farlane measure nic`: low-latency network cards between processes.

mod crossover;
mod latency;
pub(crate) mod measure;
pub(crate) mod packets;
pub(crate) mod serve;

use std::time::Duration;

use engine::{Instant, Nanos};
use live::drivers::nic::{Place, PlaceError, Station, StationError, WireError, WireUrl};
use live::reactor::{Reactor, Stop};
use live::sys::clock::Clock;
use niq::{HostConfig, Received};

use crate::args::{CardOptions, NicAction, NicArgs};
use crate::error::Error;
use crate::processor::stay_on;

/// Length of a packet's Ethernet header in bytes.
const HEADER: usize = 14;
/// The EtherType of our packets: that for experiments of one's own (IEEE 802, 9.2.4).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
/// Offset of the EtherType in a packet.
const ETHER_TYPE_AT: usize = 12;
/// The destination of packets to every station at the other end.
const BROADCAST: [u8; 6] = [0xff; 6];

pub(crate) fn run(args: &NicArgs) -> Result<(), Error> {
    match &args.action {
        None => serve::run(&args.serve),
        Some(NicAction::Serve(args)) => serve::run(args),
        Some(NicAction::Ping(args)) => measure::ping(args),
        Some(NicAction::Bench(args)) => measure::bench(args),
        Some(NicAction::Send(args)) => packets::send(args),
        Some(NicAction::Receive(args)) => packets::receive(args),
    }
}

/// A unique address of its own (locally administered).
fn address() -> [u8; 6] {
    let mut address = [0; 6];
    live::sys::entropy::system().fill(&mut address);
    address[0] = address[0] & 0xfc | 2;
    address
}

/// A station that a signal may interrupt.
struct Bench {
    station: Station,
    place: String,
    patience: Nanos,
    /// Signals come through a loop that never turns.
    stop: Stop,
    _reactor: Reactor,
}

impl Bench {
    /// Opens the card, without waiting for the wire's other end.
    fn open(options: &CardOptions) -> Result<Self, Error> {
        stay_on(options.spin.cpu)?;
        let spin = Nanos::from(options.spin.spin);
        let reactor = Reactor::new(Clock::start(), spin).map_err(Error::System)?;
        let stop = reactor.stop();
        stop.on_signals().map_err(Error::System)?;
        let place = options.card.to_string();
        let station = Station::open(&options.card, address(), HostConfig::default(), spin);
        let station = station.map_err(|error| match (error, &options.card) {
            (PlaceError::Wire(error), Place::Wire(url)) => no_wire(url, error),
            (error, _) => Error::NoCard { place: place.clone(), why: error.to_string() },
        })?;
        Ok(Self { station, place, patience: options.timeout.into(), stop, _reactor: reactor })
    }

    fn failed(&self, why: impl ToString) -> Error {
        Error::Card { place: self.place.clone(), why: why.to_string() }
    }

    fn check<T>(&self, result: Result<T, StationError>) -> Result<T, Error> {
        result.map_err(|error| self.failed(error))
    }

    /// Checks that the wire carries packets of `sizes`, which the option `what` has given.
    fn check_sizes(&self, what: &'static str, sizes: &[usize]) -> Result<(), Error> {
        let (Some(mtu), Some(size)) = (self.station.mtu(), sizes.iter().copied().max()) else {
            return Ok(());
        };
        let longest = mtu + HEADER;
        if size <= longest {
            return Ok(());
        }
        let interface = self.place.strip_prefix("eth:").unwrap_or(&self.place);
        let expected = format!(
            "at most {longest}, as the MTU of {interface} is {mtu} and a header has {HEADER} bytes; for longer packets, raise the MTU at both ends, here with ip link set {interface} mtu {}",
            size - HEADER
        );
        Err(Error::Range { what, value: size as u64, expected })
    }

    /// Waits for the wire's other end.
    fn meet(&mut self) -> Result<(), Error> {
        let start = self.station.clock().now();
        loop {
            let is_up = self.station.is_up();
            if self.check(is_up)? {
                return Ok(());
            }
            if self.stop.is_asked_for() {
                return Err(Error::Interrupted);
            }
            let waited = self.station.clock().now() - start;
            if waited >= self.patience {
                let patience = humantime::format_duration(Duration::from(self.patience));
                return Err(self.failed(format!(
                    "no card appeared at the other end of the wire within {patience}, or two others use the wire"
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the next packet of our EtherType; `None` if none comes by `deadline`. An interface
    /// also brings frames of others.
    fn wait(&mut self, packet: &mut [u8], deadline: Instant) -> Result<Option<Received>, Error> {
        loop {
            // A packet that is there already ends the wait before it looks for a signal.
            if self.stop.is_asked_for() {
                return Err(Error::Interrupted);
            }
            let stop = &self.stop;
            let received = self.station.wait(packet, deadline, || stop.is_asked_for());
            match self.check(received)? {
                Some(received) if is_ours(&packet[..received.length]) => return Ok(Some(received)),
                _ if self.stop.is_asked_for() => return Err(Error::Interrupted),
                Some(_) if self.station.clock().now() < deadline => {}
                _ => return Ok(None),
            }
        }
    }

    /// Sends a packet, as soon as there is room. A card that takes none for too long is given up.
    fn send(&mut self, packet: &[u8]) -> Result<(), Error> {
        let mut since = None;
        while !self.try_send(packet, false, &mut since)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sends a packet, perhaps the last; returns false if there is no room for it now. `since` is
    /// as for [`Self::have_patience`].
    fn try_send(&mut self, packet: &[u8], is_last: bool, since: &mut Option<Instant>) -> Result<bool, Error> {
        let sent = match is_last {
            true => self.station.send_last(packet),
            false => self.station.send(packet),
        };
        let is_sent = self.check(sent)?;
        if !is_sent {
            self.have_patience(since)?;
        }
        Ok(is_sent)
    }

    /// Looks for a signal, and for the wire's other end. A card that has taken no packet `since`
    /// too long is given up; the first call sets the time.
    fn have_patience(&mut self, since: &mut Option<Instant>) -> Result<(), Error> {
        if self.stop.is_asked_for() {
            return Err(Error::Interrupted);
        }
        let is_up = self.station.is_up();
        self.check(is_up)?;
        let now = self.station.clock().now();
        if now - *since.get_or_insert(now) >= self.patience {
            let patience = humantime::format_duration(Duration::from(self.patience));
            return Err(self.failed(format!("the card took no packet within {patience}")));
        }
        Ok(())
    }
}

/// The error that the wire at `url` can't be used.
fn no_wire(url: &WireUrl, error: WireError) -> Error {
    match (url, error) {
        (WireUrl::Shm(path), WireError::Bind(error)) => Error::Bind { path: path.clone(), error },
        (url, error) => Error::NoWire { place: url.to_string(), why: error.to_string() },
    }
}

/// Whether `packet` has our EtherType.
fn is_ours(packet: &[u8]) -> bool {
    packet.get(ETHER_TYPE_AT..HEADER) == Some(&ETHER_TYPE[..])
}

/// A packet of `size` bytes from `source`; its payload begins with `number` as far as it fits.
fn packet(source: [u8; 6], size: usize, number: u32, flags: u8) -> Vec<u8> {
    let header = BROADCAST.into_iter().chain(source).chain(ETHER_TYPE);
    let payload = number.to_le_bytes().into_iter().chain([flags]).chain(std::iter::repeat(0x5a));
    header.chain(payload).take(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_others_are_none_of_ours() {
        assert!(is_ours(&packet([2; 6], HEADER, 1, 0)));
        let mut arp = packet([2; 6], 60, 1, 0);
        arp[ETHER_TYPE_AT..HEADER].copy_from_slice(&[0x08, 0x06]);
        for other in [&arp[..], &arp[..HEADER - 1], &[]] {
            assert!(!is_ours(other), "{other:?}");
        }
    }
}
