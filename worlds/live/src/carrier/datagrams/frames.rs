//! Frames at one interface, or the same frames at several (IEEE 802.1CB).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use datagrams::redundancy::{self, Merge, TAG_BYTES};
use engine::{Instant, Nanos};
use rustix::event::epoll;

use super::copies::Copies;
use super::ethernet::{self, Ethernet};
use super::info::{self, Path};
use super::launching::Launching;
use super::options::Options;
use crate::sys::outgoing;
use crate::sys::precedence::{Priority, set_priority};
use crate::sys::station::{Claim, Departing, Head, Mac, Station, Tag};
use crate::sys::xdp::{self, Lane, Receiver, Wanted};

/// The most datagrams of one send.
const SEND_MAX: usize = 64;
/// The pause between two looks for an interface that was deleted.
const AGAIN_EVERY: Nanos = Nanos::from_secs(1);

/// The message when another process sends copies to the same peer.
const OTHER_COPIES: &str =
    "another process sends copies over several paths there; give this one a VLAN of its own";
/// The message when another process has taken an end's place at an interface that was made anew.
const OTHER_END: &str = "another process has this end's port or peer there; end that process, or give this end \
                         a VLAN of its own";

/// How the interfaces of an end are opened.
#[derive(Clone, Copy, Debug)]
struct Opening {
    ether_type: u16,
    /// The least MTU: first the one that peers need to meet, later the one of the frames sent to
    /// them.
    least: usize,
    priority: Option<Priority>,
}

impl Opening {
    /// Opens `interface`. Peers know this end by one address, over all paths: `own`, or that of the
    /// interface.
    fn open(self, interface: &str, own: Option<Mac>) -> io::Result<Station> {
        let Self { ether_type, least, priority } = self;
        let mut station = Station::open(interface, ether_type)?;
        if station.mtu() < least {
            let why = format!("its MTU is {} bytes, and at least {least} are needed", station.mtu());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if let Some(priority) = priority {
            set_priority(&station, priority)?;
        }
        if let Some(own) = own {
            station.answer_as(own)?;
        }
        Ok(station)
    }
}

/// An interface that was deleted while others work.
#[derive(Debug)]
struct Absence {
    /// When to look for it next.
    at: Instant,
    /// The last logged reason why it can't be used.
    logged: String,
}

/// Frames at one interface or several.
#[derive(Debug)]
pub(super) struct Frames {
    stations: Vec<Station>,
    /// Those of several that were deleted, in the order of the stations.
    absences: Vec<Option<Absence>>,
    opening: Opening,
    /// The address of this end, and the number of the interface that stands for all. Both stay the
    /// same even if the interfaces change.
    mac: Mac,
    index: u32,
    place: Ethernet,
    tag: Option<Tag>,
    launching: Option<Launching>,
    /// Heads of the frames that are sent at once.
    heads: Vec<Head>,
    copies: Option<Copies>,
    lane: Option<Lane>,
    /// Wakes a thread that waits for any of several sockets.
    any: Option<OwnedFd>,
    /// Claims that keep other far ends from this one's port: each claimed name, and its claim at
    /// each interface.
    claims: Vec<(String, Vec<Claim>)>,
}

impl Frames {
    /// Opens the interfaces that `place` names.
    pub(super) fn open(place: Ethernet, options: &Options) -> io::Result<Self> {
        let is_several = place.interfaces.len() > 1;
        let ether_type = if is_several { redundancy::ETHER_TYPE } else { ethernet::ETHER_TYPE };
        let least = datagrams::MEETING_BYTES + if is_several { TAG_BYTES } else { 0 };
        let priority = options.precedence.priority.or(place.priority);
        let opening = Opening { ether_type, least, priority };
        let mut stations: Vec<Station> = Vec::new();
        for interface in &place.interfaces {
            let own = stations.first().map(Station::mac);
            stations.push(opening.open(interface, own).map_err(|error| explain(interface, &error))?);
        }
        let first = stations.first().expect("a place names an interface");
        let (mac, index, absences) = (first.mac(), first.index(), stations.iter().map(|_| None).collect());
        let copies = is_several.then(Copies::default);
        let any = is_several.then(|| any_of(stations.iter().map(Station::as_fd))).transpose()?;
        let tag = place.tag(options.precedence);
        let (launching, heads, lane, claims) = (None, Vec::new(), None, Vec::new());
        let mut frames = Self {
            stations,
            absences,
            opening,
            mac,
            index,
            place,
            tag,
            launching,
            heads,
            copies,
            lane,
            any,
            claims,
        };
        let longest = frames.datagram_max();
        // An interface that is made anew must take the frames that are sent by then.
        frames.opening.least = longest + if is_several { TAG_BYTES } else { 0 };
        if let Some(launch) = &options.launch {
            let head = if is_several { TAG_BYTES as u64 } else { 0 };
            let launching = Launching::new(launch, frames.stations.iter(), longest, head);
            frames.launching = Some(launching.map_err(|error| explain(&frames.place.names(), &error))?);
        }
        Ok(frames)
    }

    /// Has packets for `receiver`, or for the dialled peer, go around the network stack, if the
    /// place says so. Greetings, and packets that this lane does not take, go as before. If the
    /// lane can't be opened, all packets go as before, and the log says so.
    pub(super) fn open_lane(&mut self, receiver: Option<[u8; 8]>) {
        if !self.place.xdp {
            return;
        }
        let (mac, ether_type, kinds) = (self.mac, ethernet::ETHER_TYPE, datagrams::PACKET_KINDS);
        let dialled = Receiver::Begins(datagrams::names_of(self.place.port));
        let receiver = receiver.map_or(dialled, Receiver::Named);
        let wanted = Wanted { mac, ether_type, kinds, receiver };
        let opened = match self.launching {
            Some(_) => Err(io::Error::other("times of launch need a queueing discipline")),
            None if self.datagram_max() > xdp::PAYLOAD_MAX => {
                Err(io::Error::other(format!("the MTU is more than {} bytes", xdp::PAYLOAD_MAX)))
            }
            None => Lane::open(self.index, &wanted),
        };
        let opened = opened.and_then(|lane| {
            let any = any_of([self.first().as_fd(), lane.as_fd()].into_iter())?;
            Ok((lane, any))
        });
        let place = &self.place;
        match opened {
            Ok((lane, any)) => {
                tracing::info!("{}: packets go by {lane}", place.names());
                (self.lane, self.any) = (Some(lane), Some(any));
            }
            Err(error) => {
                let why = explain_lane(&error);
                tracing::warn!(
                    "{}: packets go by AF_PACKET, because AF_XDP can't be used: {why}",
                    place.names()
                );
            }
        }
    }

    /// The address that stands for this end.
    pub(super) fn address(&self) -> SocketAddr {
        ethernet::link_local(self.mac, self.index)
    }

    /// The address of the station that is called `address` at any interface, at this one.
    pub(super) fn reached(&self, address: SocketAddr) -> SocketAddr {
        ethernet::station(address).map_or(address, |mac| ethernet::link_local(mac, self.index))
    }

    /// The port of the far end.
    pub(super) const fn port(&self) -> u16 {
        self.place.port
    }

    /// Keeps other processes of this network from this end's place: its port if it is to be
    /// dialled, and the numbers of copies, to `peer` or to all. A receiver of copies knows their
    /// sender by its address only: the frames of two processes with the same numbers would
    /// eliminate each other.
    ///
    /// # Errors
    /// When another process has the place.
    pub(super) fn claim(&mut self, peer: Option<SocketAddr>) -> io::Result<()> {
        let Ethernet { port, vlan, .. } = self.place;
        let vlan = vlan.unwrap_or(0);
        if peer.is_none() {
            let free = u16::from(port == 0);
            let other =
                format!("another far end has port {port} there; give this one its own, such as port={free}");
            let what = format!("{vlan}-{port}");
            let claims = self.claim_each(&what, &other)?;
            self.claims.push((what, claims));
        }
        if self.copies.is_some() {
            match peer.and_then(ethernet::station) {
                Some(peer) => self.claim_peer(peer)?,
                None => {
                    let what = format!("{vlan}-copies");
                    let claims = self.claim_each(&what, OTHER_COPIES)?;
                    self.claims.push((what, claims));
                }
            }
        }
        Ok(())
    }

    /// Claims the numbers of copies to `peer`, unless this end has them.
    fn claim_peer(&mut self, peer: Mac) -> io::Result<()> {
        if self.copies.as_ref().is_none_or(|copies| copies.has_claimed(peer)) {
            return Ok(());
        }
        let claims = self.claim_each(&self.numbers_to(peer), OTHER_COPIES)?;
        if let Some(copies) = &mut self.copies {
            copies.keep(peer, claims);
        }
        Ok(())
    }

    /// The name to claim for the numbers of copies to `peer`.
    fn numbers_to(&self, peer: Mac) -> String {
        format!("{}-copies-{}", self.place.vlan.unwrap_or(0), ethernet::mac_text(peer))
    }

    /// Whether frames may go to `peer`: over several paths, its numbers must be this end's alone.
    /// A far end learns of its peers only when they dial it.
    fn may_send_to(&mut self, peer: Mac) -> bool {
        if self.copies.as_ref().is_some_and(|copies| !copies.has_number_for(peer)) {
            return false;
        }
        let Err(error) = self.claim_peer(peer) else { return true };
        if self.copies.as_mut().is_some_and(|copies| copies.refuse(peer)) {
            tracing::warn!("{} is not answered: {error}", ethernet::mac_text(peer));
        }
        false
    }

    /// Gives up the numbers of copies to peers that are not `known` any more.
    pub(super) fn keep_peers(&mut self, known: impl Fn(SocketAddr) -> bool) {
        let index = self.index;
        if let Some(copies) = &mut self.copies {
            copies.keep_peers(|peer| known(ethernet::link_local(peer, index)));
        }
    }

    /// Claims `what` at each interface. Where another process has it, the error says so by `other`.
    fn claim_each(&self, what: &str, other: &str) -> io::Result<Vec<Claim>> {
        let one =
            |(station, interface): (&Station, &String)| claim_at((station, interface.as_str()), what, other);
        self.stations.iter().zip(&self.place.interfaces).map(one).collect()
    }

    /// Where this end is: `IFACE[+IFACE][,vlan=N][,pcp=N][,port=N]/MAC`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.place, ethernet::mac_text(self.mac))
    }

    /// The carrier of the frames, in words.
    pub(super) fn carried_by(&self) -> String {
        self.lane.as_ref().map_or_else(|| "AF_PACKET".to_owned(), Lane::to_string)
    }

    /// The interfaces with the counts of `peer`'s frames, and where there are several, the counts
    /// of all together.
    pub(super) fn paths(&self, peer: SocketAddr) -> (Vec<Path>, Option<info::Copies>) {
        let merge = self.copies.as_ref().and_then(|all| all.merge(ethernet::station(peer)?));
        let mut each = merge.into_iter().flat_map(Merge::paths);
        let mut failing = merge.into_iter().flat_map(Merge::failing);
        let others_work = self.copies.is_some() && !self.is_down();
        let path = |(station, interface): (&Station, &String)| {
            let is_out = others_work && station.is_down();
            Path {
                interface: interface.clone(),
                dropped: station.dropped(),
                copies: each.next(),
                is_failing: failing.next().unwrap_or(false) || is_out,
            }
        };
        let paths = self.stations.iter().zip(&self.place.interfaces).map(path).collect();
        (paths, merge.map(Merge::counters))
    }

    /// How many frames have missed their times of launch.
    pub(super) fn missed(&self) -> u64 {
        self.launching.as_ref().map_or(0, Launching::missed)
    }

    /// Whether all interfaces are down or gone, as far as that was noticed.
    pub(super) fn is_down(&self) -> bool {
        self.stations.iter().all(Station::is_down)
    }

    /// Whether all interfaces are gone. None of them comes back to this socket.
    pub(super) fn is_gone(&self) -> bool {
        self.stations.iter().all(Station::is_gone)
    }

    /// Whether nothing wakes a thread that waits for interfaces: all are down, or one is gone.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_down() || self.stations.iter().any(Station::is_gone)
    }

    fn first(&self) -> &Station {
        self.stations.first().expect("a place names an interface")
    }

    /// The most bytes of a datagram that all interfaces take.
    pub(super) fn datagram_max(&self) -> usize {
        let mtu = self.stations.iter().map(Station::mtu).min().unwrap_or(0);
        mtu - if self.copies.is_some() { TAG_BYTES.min(mtu) } else { 0 }
    }

    /// The most datagrams that one send takes. With a time of launch, each leaves by itself.
    pub(super) const fn segments(&self) -> usize {
        if self.launching.is_some() { 1 } else { SEND_MAX }
    }

    /// Hands the datagrams that have come by `now` to `each`; returns whether there were any. Of
    /// several interfaces, those that were deleted are used again once they are back.
    ///
    /// # Errors
    /// When no interface is left.
    pub(super) fn look(&mut self, now: Instant, mut each: impl FnMut(SocketAddr, &[u8])) -> io::Result<bool> {
        let Self { stations, place, launching, copies, lane, index, .. } = self;
        let (mut seen, mut failed) = (false, None);
        let (count, index) = (stations.len(), *index);
        if let Some(lane) = lane {
            seen = lane.look(|from, bytes| each(ethernet::link_local(from, index), bytes));
        }
        let mut working = count;
        for (path, station) in stations.iter_mut().enumerate() {
            if let Some(launching) = launching {
                launching.heed(station);
            }
            let looked = station.look(now, |frame| {
                let is_ours = place.admits(frame.vlan);
                let payload = match copies {
                    _ if !is_ours => None,
                    None => Some(frame.bytes),
                    Some(copies) => copies.take(now, (path, &place.interfaces), frame.from, frame.bytes),
                };
                if let Some(payload) = payload {
                    each(ethernet::link_local(frame.from, index), payload);
                }
            });
            match looked {
                Ok(any) => seen |= any,
                Err(error) => {
                    working -= 1;
                    failed = Some((path, error));
                }
            }
        }
        match failed {
            None => Ok(seen),
            Some((path, error)) if working == 0 => Err(explain(&place.interfaces[path], &error)),
            Some(_) => {
                self.look_for_deleted(now);
                Ok(seen)
            }
        }
    }

    /// Logs which interfaces were deleted while others work. Uses them again once they are back and
    /// up: an interface has its MTU before it is up.
    fn look_for_deleted(&mut self, now: Instant) {
        for path in 0..self.stations.len() {
            let (station, name) = (&self.stations[path], self.place.interfaces[path].as_str());
            if !station.is_gone() {
                continue;
            }
            let Some(absence) = &mut self.absences[path] else {
                tracing::warn!(
                    path = name,
                    "{name}: the interface was deleted; frames go by the others alone until it is back"
                );
                self.absences[path] = Some(Absence { at: now + AGAIN_EVERY, logged: String::new() });
                continue;
            };
            if now < absence.at {
                continue;
            }
            absence.at = now + AGAIN_EVERY;
            if !station.is_back(name) {
                continue;
            }
            let reopened = self.reopen(path);
            let name = self.place.interfaces[path].as_str();
            match (reopened, &mut self.absences[path]) {
                (Err(error), Some(absence)) => {
                    let why = error.to_string();
                    if why != absence.logged {
                        tracing::warn!(path = name, "{why}; trying again every second");
                        absence.logged = why;
                    }
                }
                (_, absence) => {
                    tracing::info!(path = name, "{name}: the interface is back, and frames go by it again");
                    *absence = None;
                }
            }
        }
    }

    /// Opens the interface of a path anew. It gets all that the deleted one had.
    fn reopen(&mut self, path: usize) -> io::Result<()> {
        let interface = &self.place.interfaces[path];
        let explained = |error: io::Error| explain(interface, &error);
        let station = self.opening.open(interface, Some(self.mac)).map_err(explained)?;
        if self.launching.is_some() {
            outgoing::enable_launch(&station).map_err(explained)?;
        }
        if let Some(any) = &self.any {
            epoll::add(any, &station, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        // Claims are at the number of an interface, which may be the same as before.
        if station.index() != self.stations[path].index() {
            self.claim_anew(path, &station)?;
        }
        station.succeed(&self.stations[path]);
        self.stations[path] = station;
        Ok(())
    }

    /// Claims at `station` all names that this end has claimed at the former one of a path, or none
    /// of them.
    fn claim_anew(&mut self, path: usize, station: &Station) -> io::Result<()> {
        let interface = self.place.interfaces[path].as_str();
        let claim = |what: &str| claim_at((station, interface), what, OTHER_END);
        let own = self.claims.iter().map(|(what, _)| claim(what)).collect::<io::Result<Vec<_>>>()?;
        let peers = self.copies.as_ref().map(Copies::claimed).unwrap_or_default();
        let numbers = peers.iter().map(|peer| claim(&self.numbers_to(*peer)));
        let numbers = numbers.collect::<io::Result<Vec<_>>>()?;
        for ((_, claims), claim) in self.claims.iter_mut().zip(own) {
            claims[path] = claim;
        }
        if let Some(copies) = &mut self.copies {
            peers.into_iter().zip(numbers).for_each(|(peer, claim)| copies.replace(peer, path, claim));
        }
        Ok(())
    }

    /// Sends `bytes`, which are datagrams of `length` bytes, to `to`, over all paths. Returns how
    /// many bytes the system took over one of them; bytes that it loses count as taken.
    pub(super) fn send(&mut self, to: SocketAddr, bytes: &[u8], length: usize) -> usize {
        let Some(to) = ethernet::station(to) else { return bytes.len() };
        if self.copies.is_some() && !self.may_send_to(to) {
            return bytes.len();
        }
        let from = self.mac;
        let Self { stations, tag, launching, copies, heads, lane, .. } = self;
        let plain = ethernet::ETHER_TYPE.to_be_bytes();
        let mut head = || {
            let numbered = copies.as_mut().map(|copies| copies.before(to));
            let behind = numbered.as_ref().map_or(&plain[..], |numbered| &numbered[..]);
            Departing { from, to, tag: *tag, behind }.head()
        };
        let mut taken = 0;
        if let Some(lane) = lane {
            let head = head();
            taken = lane.send_all(bytes.chunks(length).map(|piece| (&head, piece)));
        } else if bytes.len() <= length {
            let (head, launch) = (head(), launching.as_mut().map(|launching| launching.next(bytes.len())));
            for station in stations {
                let sent = station.send(&head, bytes, launch);
                taken |= usize::from(!sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
            }
        } else {
            heads.clear();
            heads.extend(bytes.chunks(length).map(|_| head()));
            for station in stations {
                taken = taken.max(station.send_all(heads.iter().zip(bytes.chunks(length))));
            }
        }
        (taken * length).min(bytes.len())
    }
}

impl AsRawFd for Frames {
    fn as_raw_fd(&self) -> RawFd {
        self.any.as_ref().map_or_else(|| self.first().as_raw_fd(), OwnedFd::as_raw_fd)
    }
}

/// A descriptor with the news of several.
fn any_of<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<OwnedFd> {
    let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for descriptor in descriptors {
        epoll::add(&any, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(any)
}

/// Claims `what` at an interface. Where another process has it, the error says so by `other`.
fn claim_at((station, interface): (&Station, &str), what: &str, other: &str) -> io::Result<Claim> {
    station.claim(what).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => io::Error::new(error.kind(), format!("{interface}: {other}")),
        _ => explain(interface, &error),
    })
}

fn explain_lane(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            "it needs the capabilities CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and --no-sandbox \
                              where a command has that option"
                .to_owned()
        }
        Some(libc::EBUSY | libc::EEXIST) => {
            "another program has the interface's queue, or its place for XDP".to_owned()
        }
        Some(libc::EAFNOSUPPORT | libc::ENOSYS | libc::EOPNOTSUPP) => {
            "this kernel, or the interface's driver, has no AF_XDP".to_owned()
        }
        _ => error.to_string(),
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
