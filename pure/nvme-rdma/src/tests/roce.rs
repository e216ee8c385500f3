//! Both ends over RoCE, with lost, duplicated and late datagrams.

use core::cell::Cell;
use core::net::IpAddr;

use ::roce::{Config, Datagram, Device, Input, Output, Received, RoceEndpoint, SharedDevice};
use engine::{Engine, Entropy, Nanos, settle};
use nvme_fabrics::transport::HostEnd;
use rdma::{Key, ProtectionDomain, Remote, SharedDomain};

use super::*;

const PORT: u16 = 4420;
/// How much later it is after each step.
const STEP: Nanos = Nanos::from_micros(20);

/// An end of a connection, with a device of its own.
#[derive(Debug)]
struct Radio {
    end: RoceEndpoint,
    device: Address,
    /// Datagrams that are late.
    late: Vec<Datagram>,
    /// Out of this many datagrams, one is lost, one duplicated, one late, and one marked as of a
    /// congested network; 0 for none.
    trouble: u64,
    now: Rc<Cell<Instant>>,
}

/// A device, and the memory that it lends.
#[derive(Clone)]
struct Address(SharedDevice, SharedDomain);

impl core::fmt::Debug for Address {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a device")
    }
}

impl Address {
    fn new(address: IpAddr, settings: &Settings, seed: u64) -> Self {
        let (shared, entropy) = (pool(), Entropy::Seeded(Rng::from_seed(settings.seed ^ seed)));
        let domain = ProtectionDomain::new(64, Rc::clone(&shared), entropy.fork("keys"));
        let domain = Rc::new(RefCell::new(domain));
        let mut config = Config::new(address);
        config.send_depth = settings.queue_size + settings.spare;
        config.receive_depth = settings.queue_size;
        config.reads = u8::try_from(settings.reads_max).unwrap();
        Self(Rc::new(RefCell::new(Device::new(config, Rc::clone(&domain), shared, entropy))), domain)
    }

    /// The device's outgoing datagrams.
    fn send(&self, now: Instant) -> Vec<Datagram> {
        let mut datagrams = Vec::new();
        settle(&mut *self.0.borrow_mut(), now, |Output::Datagram(one)| datagrams.push(one));
        datagrams
    }

    fn receive(&self, now: Instant, one: &Datagram, is_marked: bool) {
        let bytes = Buffer::from(one.slices().concat());
        let received = Received { from: one.from, to: one.to, identification: Some(0), is_marked, bytes };
        self.0.borrow_mut().handle_input(now, Input::Datagram(received));
    }
}

/// Two ends, of which the first requests the connection.
fn ends(settings: &Settings, trouble: u64, private_data: &[u8]) -> [Radio; 2] {
    let addresses: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
    let near = Address::new(addresses[0], settings, 1);
    let far = Address::new(addresses[1], settings, 2);
    far.0.borrow_mut().listen(PORT);
    let now = Rc::new(Cell::new(Instant::from_nanos(1_000)));
    let end = RoceEndpoint::connect(&near.0, addresses[1], PORT, private_data).unwrap();
    for one in near.send(now.get()) {
        far.receive(now.get(), &one, false);
    }
    let requested = RoceEndpoint::next_requested(&far.0).expect("the host has requested it");
    let radio = |end, device| Radio { end, device, late: Vec::new(), trouble, now: Rc::clone(&now) };
    [radio(end, near), radio(requested, far)]
}

impl Endpoint for Radio {
    fn limits(&self) -> Limits {
        self.end.limits()
    }
    fn poll_event(&mut self) -> Option<rdma::Event> {
        self.end.poll_event()
    }
    fn accept(&mut self, private_data: &[u8]) {
        self.end.accept(private_data);
    }
    fn reject(&mut self, private_data: &[u8]) {
        self.end.reject(private_data);
    }
    fn disconnect(&mut self) {
        self.end.disconnect();
    }
    fn post_send(&mut self, request: rdma::SendRequest) -> Result<(), rdma::PostError> {
        self.end.post_send(request)
    }
    fn post_receive(&mut self, request: rdma::ReceiveRequest) -> Result<(), rdma::PostError> {
        self.end.post_receive(request)
    }
    fn poll_completion(&mut self) -> Option<rdma::WorkCompletion> {
        self.end.poll_completion()
    }
    fn register(&mut self, exposure: rdma::Exposure) -> Result<Remote, rdma::RegisterError> {
        self.end.register(exposure)
    }
    fn peek(&mut self, key: Key, offset: u32, into: &mut [u8]) -> bool {
        self.end.peek(key, offset, into)
    }
    fn deregister(&mut self, key: Key) -> Option<Buffer> {
        self.end.deregister(key)
    }
}

impl TestEndpoint for Radio {
    fn carry(from: &mut Self, to: &mut Self, rng: &mut Rng) {
        from.now.set(from.now.get() + STEP);
        let now = from.now.get();
        let mut happens = || from.trouble > 0 && rng.one_in(from.trouble);
        for one in from.device.send(now) {
            if happens() {
                continue;
            }
            if happens() {
                from.late.push(one);
                continue;
            }
            to.device.receive(now, &one, happens());
            if happens() {
                to.device.receive(now, &one, false);
            }
        }
        if rng.one_in(4) {
            from.late.drain(..).for_each(|one| to.device.receive(now, &one, false));
        }
    }

    fn regions(&self) -> usize {
        self.device.1.borrow().len()
    }
}

fn connect(settings: &Settings, trouble: u64) -> Pair<Radio> {
    let host = settings.host();
    let [near, far] = ends(settings, trouble, &host.private_data());
    Pair::new(settings.seed, (settings.controller(), far), (host, near))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    /// The same over datagrams.
    #[test]
    fn every_command_ends_once_over_roce(
        settings in settings(),
        commands in steps(),
        trouble in prop::sample::select(&[0_u64, 50][..]),
    ) {
        let mut pair = connect(&settings, trouble);
        run(&mut pair, settings.capsule_data_max, &commands);
        let invalidated = pair.host.statistics().invalidated;
        prop_assert_eq!(invalidated, pair.controller.statistics().invalidated);
        let both = settings.invalidate.0 && settings.invalidate.1;
        prop_assert_eq!(invalidated, if both { keys(settings.capsule_data_max, &commands) } else { 0 });
    }
}

/// A network that has stopped working: the host gives up, and no memory stays lent.
#[test]
fn a_peer_that_is_gone_is_given_up_over_roce() {
    let settings = Settings {
        seed: 5,
        invalidate: (true, true, true),
        queue_size: 8,
        capsule_data_max: 0,
        message_bytes: 1 << 20,
        reads_max: 4,
        spare: 8,
    };
    let mut pair = connect(&settings, 0);
    for cookie in 0..8 {
        pair.host.submit(cookie, entry(READ, 1, 4096, false), Data::Read(4096)).unwrap();
    }
    assert_eq!(pair.host.endpoint().regions(), 8);
    let start = pair.host.endpoint().now.get();
    let mut now = start;
    let why = loop {
        now = now + Nanos::from_millis(10);
        drop(pair.host.endpoint().device.send(now));
        match pair.host.poll() {
            Some(host::Output::Closed(why)) => break why,
            other => assert!(other.is_none(), "{other:?}"),
        }
        assert!(now < start + Nanos::from_secs(60), "the host waits for ever");
    };
    assert!(matches!(why, host::Closed::Disconnected(rdma::Disconnected::TimedOut)), "{why}");
    assert_eq!((pair.host.endpoint().regions(), pair.host.outstanding()), (0, 0));
}
