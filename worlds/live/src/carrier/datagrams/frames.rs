//! Frames at one interface, or the same frames at several (IEEE 802.1CB).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use datagrams::redundancy::{self, Merge, TAG_BYTES, Tag as Redundancy};
use engine::Instant;
use rustix::event::epoll;

use super::ethernet::{self, Ethernet};
use super::launching::Launching;
use super::options::Options;
use crate::sys::clock::Clock;
use crate::sys::precedence::set_priority;
use crate::sys::station::{Came, Departing, Frame, Mac, Station, Tag};

/// The most frames received at one interface in one look.
const FRAMES_MAX: usize = 64;
/// Room for the longest frame.
const FRAME_BYTES: usize = 64 << 10;
/// The most peers whose numbers are remembered. A new one takes the place of all of them, which
/// costs each a frame or two.
const PEERS_MAX: usize = 256;

/// Frames at one interface or several.
#[derive(Debug)]
pub(super) struct Frames {
    stations: Vec<Station>,
    place: Ethernet,
    tag: Option<Tag>,
    room: Vec<u8>,
    launching: Option<Launching>,
    copies: Option<Copies>,
}

/// What is needed to send and receive each frame several times.
#[derive(Debug)]
struct Copies {
    clock: Clock,
    /// The number of the latest frame to each peer.
    sent: HashMap<Mac, u16>,
    received: HashMap<Mac, Merge>,
    /// Wakes whoever waits for any of the interfaces.
    any: OwnedFd,
}

impl Copies {
    fn of(stations: &[Station]) -> io::Result<Self> {
        let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for station in stations {
            epoll::add(&any, station, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { clock: Clock::start(), sent: HashMap::new(), received: HashMap::new(), any })
    }

    /// The number of the next frame to `peer`.
    fn number(&mut self, peer: Mac) -> u16 {
        if self.sent.len() >= PEERS_MAX && !self.sent.contains_key(&peer) {
            self.sent.clear();
        }
        let number = self.sent.entry(peer).or_default();
        *number = number.wrapping_add(1);
        *number
    }

    /// Whether a frame that `peer` has numbered so, and that came over the path of this index,
    /// is new.
    fn is_new(&mut self, now: Instant, peer: Mac, path: usize, paths: usize, number: u16) -> bool {
        if self.received.len() >= PEERS_MAX && !self.received.contains_key(&peer) {
            self.received.clear();
        }
        self.received.entry(peer).or_insert_with(|| Merge::new(paths)).accept(now, path, number)
    }
}

impl Frames {
    /// Opens the interfaces that `place` names.
    pub(super) fn open(place: Ethernet, options: &Options) -> io::Result<Self> {
        let is_several = place.interfaces.len() > 1;
        let ether_type = if is_several { redundancy::ETHER_TYPE } else { ethernet::ETHER_TYPE };
        let mut stations: Vec<Station> = Vec::new();
        for interface in &place.interfaces {
            let open = || {
                let mut station = Station::open(interface, ether_type)?;
                if let Some(priority) = options.precedence.priority.or(place.priority) {
                    set_priority(&station, priority)?;
                }
                // Peers know this end by one address, over whichever path.
                if let Some(first) = stations.first() {
                    station.answer_as(first.mac())?;
                }
                Ok(station)
            };
            stations.push(open().map_err(|error| explain(interface, &error))?);
        }
        let copies = is_several.then(|| Copies::of(&stations)).transpose()?;
        let tag = place.tag(options.precedence);
        let mut frames = Self { stations, place, tag, room: vec![0; FRAME_BYTES], launching: None, copies };
        let longest = frames.datagram_max();
        if let Some(launch) = &options.launch {
            let head = if is_several { TAG_BYTES as u64 } else { 0 };
            let launching = Launching::new(launch, frames.stations.iter(), longest, head);
            frames.launching = Some(launching.map_err(|error| explain(&frames.place.names(), &error))?);
        }
        Ok(frames)
    }

    /// The address that stands for this end.
    pub(super) fn address(&self) -> SocketAddr {
        let first = self.first();
        ethernet::link_local(first.mac(), first.index())
    }

    /// The address of the station that is called `address` at any interface, at this one.
    pub(super) fn reached(&self, address: SocketAddr) -> SocketAddr {
        ethernet::station(address).map_or(address, |mac| ethernet::link_local(mac, self.first().index()))
    }

    /// Where this end is: `IFACE[+IFACE][,vlan=N][,pcp=N]/MAC`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.place, ethernet::mac_text(self.first().mac()))
    }

    fn first(&self) -> &Station {
        self.stations.first().expect("a place names an interface")
    }

    /// The most bytes of a datagram: what all interfaces take.
    pub(super) fn datagram_max(&self) -> usize {
        let mtu = self.stations.iter().map(Station::mtu).min().unwrap_or(0);
        mtu - if self.copies.is_some() { TAG_BYTES.min(mtu) } else { 0 }
    }

    /// Hands what has come to `each`; returns whether there was anything.
    ///
    /// # Errors
    /// When no interface is left.
    pub(super) fn look(&mut self, mut each: impl FnMut(SocketAddr, &[u8])) -> io::Result<bool> {
        let (mut seen, mut failed) = (false, None);
        let count = self.stations.len();
        let mut working = count;
        for (path, station) in self.stations.iter().enumerate() {
            if let Some(launching) = &self.launching {
                launching.heed(station);
            }
            for _ in 0..FRAMES_MAX {
                let frame = match station.receive(&mut self.room) {
                    Ok(Came::Nothing) => break,
                    Ok(Came::Frame(frame)) => frame,
                    Ok(Came::Other) => {
                        seen = true;
                        continue;
                    }
                    // The interface is down, and may come up again.
                    Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => break,
                    Err(error) => {
                        working -= 1;
                        failed = Some(explain(&self.place.interfaces[path], &error));
                        break;
                    }
                };
                seen = true;
                if !self.place.admits(frame.vlan) {
                    continue;
                }
                let Frame { from, length, .. } = frame;
                let whole = &self.room[..length];
                let payload = match &mut self.copies {
                    None => Some(whole),
                    Some(copies) => Redundancy::parse(whole)
                        .filter(|(tag, _)| tag.ether_type == ethernet::ETHER_TYPE)
                        .filter(|(tag, _)| copies.is_new(copies.clock.now(), from, path, count, tag.sequence))
                        .map(|(_, payload)| payload),
                };
                if let Some(payload) = payload {
                    each(ethernet::link_local(from, self.stations[0].index()), payload);
                }
            }
        }
        failed.filter(|_| working == 0).map_or(Ok(seen), Err)
    }

    /// Sends `bytes` to `to`, over all paths. Returns whether the system took them over one of
    /// them; what it loses counts as taken.
    pub(super) fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool {
        let Some(to) = ethernet::station(to) else { return true };
        let launch = self.launching.as_mut().map(|launching| launching.next(bytes.len()));
        let plain = ethernet::ETHER_TYPE.to_be_bytes();
        let mut numbered = [0; 2 + TAG_BYTES];
        let head = match &mut self.copies {
            None => &plain[..],
            Some(copies) => {
                let tag = Redundancy { sequence: copies.number(to), ether_type: ethernet::ETHER_TYPE };
                numbered[..2].copy_from_slice(&redundancy::ETHER_TYPE.to_be_bytes());
                numbered[2..].copy_from_slice(&tag.emit());
                &numbered[..]
            }
        };
        let frame = Departing { from: self.first().mac(), to, tag: self.tag, head };
        let mut taken = false;
        for station in &self.stations {
            let sent = station.send(&frame, bytes, launch);
            taken |= !sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        }
        taken
    }
}

impl AsRawFd for Frames {
    fn as_raw_fd(&self) -> RawFd {
        self.copies.as_ref().map_or_else(|| self.first().as_raw_fd(), |copies| copies.any.as_raw_fd())
    }
}

fn explain(interface: &str, error: &io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "bare frames need the capability CAP_NET_RAW: run as root, or with setcap cap_net_raw+ep"
                .to_owned()
        }
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("{interface}: {why}"))
}
