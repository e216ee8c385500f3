//! RoCE in the virtual world: the devices of a node, one at each lane, and a network that loses,
//! doubles, delays, cuts and changes their datagrams.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use engine::{Buffer, Engine, Entropy, Instant, Rng, drain, fire, next_wake};
use rdma::{ProtectionDomain, SharedPool};
use roce::{Config, Device, PathMtu, RoceEndpoint, SharedDevice};
use sim::Context;
use sim::direct::PortId;

use crate::weather::Weather;

/// The port of every subsystem.
pub(super) const SERVICE: u16 = 4420;
/// Requests of a queue pair: more than any queue has commands.
const DEPTH: u16 = 256;

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Parcel {
    /// The bytes that distinguish runs.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The address of a station at a lane.
pub(super) fn address(station: u8, lane: u8) -> IpAddr {
    Ipv4Addr::new(10, lane, 0, station).into()
}

/// The devices of a station, and the way from them to others.
#[derive(Debug)]
pub(super) struct Air {
    station: u8,
    /// Settings of each device but for its address.
    config: Config,
    devices: Vec<SharedDevice>,
    /// Where the network leads to each other address, and the weather there.
    ways: BTreeMap<IpAddr, (PortId, Weather)>,
    /// Datagrams that others overtake, by when they leave.
    late: BTreeMap<(Instant, u64), (PortId, Parcel)>,
    parcels: u64,
    rng: Rng,
}

impl Air {
    /// Devices at `lanes` lanes, with settings drawn from `rng`. `shared` is the same of
    /// all stations.
    pub(super) fn new(station: u8, lanes: u8, mut shared: Rng, mut rng: Rng) -> Self {
        let few = |rng: &mut Rng, most: u64| u8::try_from(rng.below(most)).expect("a few");
        let mtus = [PathMtu::B256, PathMtu::B512, PathMtu::B1024, PathMtu::B2048, PathMtu::B4096];
        let config = Config {
            // A target refuses packets that are longer than its own.
            mtu: mtus[usize::from(few(&mut shared, 5))],
            reads: 1 + few(&mut rng, 16),
            ack_timeout: 9 + few(&mut rng, 5),
            retries: 3 + few(&mut rng, 5),
            response_timeout: engine::Nanos::from_millis(5 + rng.below(100)),
            send_depth: DEPTH,
            receive_depth: DEPTH,
            ..Config::new(address(station, 0))
        };
        let (ways, late) = (BTreeMap::new(), BTreeMap::new());
        let mut air = Self { station, config, devices: Vec::new(), ways, late, parcels: 0, rng };
        air.devices = air.make(lanes);
        air
    }

    pub(super) const fn station(&self) -> u8 {
        self.station
    }

    fn make(&mut self, lanes: u8) -> Vec<SharedDevice> {
        let device = |lane| {
            let pool = SharedPool::default();
            let [keys, numbers] = ["keys", "numbers"].map(|name| Entropy::from(self.rng.fork(name)));
            let domain = ProtectionDomain::new(1 << 16, Rc::clone(&pool), keys);
            let config = Config { address: address(self.station, lane), ..self.config.clone() };
            let device = Device::new(config, Rc::new(RefCell::new(domain)), pool, numbers);
            Rc::new(RefCell::new(device))
        };
        let devices = (0..lanes).map(device).collect();
        // The devices of the next life differ.
        self.rng.next_u64();
        devices
    }

    /// New devices, after the station was killed and is back.
    pub(super) fn restart(&mut self) {
        let lanes = u8::try_from(self.devices.len()).expect("few lanes");
        self.devices = self.make(lanes);
        self.late.clear();
    }

    /// The network leads from here to `to` by `port`, with weather of `rng`.
    pub(super) fn lead(&mut self, to: IpAddr, port: PortId, rng: Rng) {
        self.ways.insert(to, (port, Weather::new(rng, true)));
    }

    /// From now on little goes wrong.
    pub(super) fn clear_up(&mut self) {
        self.ways.values_mut().for_each(|(_, weather)| weather.clear_up());
    }

    /// Takes requests for connections at each lane.
    pub(super) fn listen(&self) {
        self.devices.iter().for_each(|device| device.borrow_mut().listen(SERVICE));
    }

    /// Asks for a connection to the station at the other end of a lane; `None` if the device has
    /// too many.
    pub(super) fn connect(&self, lane: u8, station: u8, private_data: &[u8]) -> Option<RoceEndpoint> {
        let device = &self.devices[usize::from(lane)];
        RoceEndpoint::connect(device, address(station, lane), SERVICE, private_data).ok()
    }

    /// The next connection that a peer has requested, and its lane.
    pub(super) fn next_requested(&self) -> Option<(u8, RoceEndpoint)> {
        (0..)
            .zip(&self.devices)
            .find_map(|(lane, device)| Some((lane, RoceEndpoint::next_requested(device)?)))
    }

    /// Takes a datagram; returns whether it is for a device here.
    pub(super) fn handle(&self, now: Instant, parcel: &Parcel) -> bool {
        let its = |device: &&SharedDevice| device.borrow().config().address == parcel.to.ip();
        let Some(device) = self.devices.iter().find(its) else { return false };
        let received = roce::Received {
            from: parcel.from,
            to: parcel.to,
            identification: Some(self.config.identification),
            is_marked: false,
            bytes: Buffer::copy_from_slice(&parcel.bytes),
        };
        device.borrow_mut().handle_input(now, roce::Input::Datagram(received));
        true
    }

    /// Fires due deadlines, and sends. Returns whether connections may have news.
    pub(super) fn exchange(&mut self, context: &mut Context<'_, Parcel>) -> bool {
        let now = context.now();
        let mut fired = false;
        for device in &self.devices {
            let mut device = device.borrow_mut();
            fired |= fire(&mut *device, now);
            let from = SocketAddr::new(device.config().address, roce::PORT);
            drain(&mut *device, |roce::Output::Datagram(datagram)| {
                let bytes = datagram.slices().concat();
                let to = datagram.to;
                let Some((port, weather)) = self.ways.get_mut(&to.ip()) else { return };
                weather.pass(now, &bytes, |delay, bytes| {
                    self.parcels += 1;
                    self.late.insert((now + delay, self.parcels), (*port, Parcel { from, to, bytes }));
                });
            });
        }
        while let Some(first) = self.late.first_entry().filter(|first| first.key().0 <= now) {
            let (port, parcel) = first.remove();
            context.send_packet_at(port, parcel, now);
        }
        fired
    }

    /// When [`Air::exchange`] is due.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let devices = self.devices.iter().filter_map(|device| next_wake(&*device.borrow(), now));
        devices.chain(self.late.keys().next().map(|(at, _)| *at)).min()
    }
}
