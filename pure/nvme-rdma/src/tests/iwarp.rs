//! Both ends over iWARP, with the stream divided at any place.

use ::iwarp::{Config, Connection, Input};
use engine::{Engine, Entropy};
use nvme_fabrics::transport::HostEnd;
use rdma::{Disconnected, Key, ProtectionDomain, QueuePairId, Remote, SharedDomain};

use super::*;
use crate::connection::Closed;

/// An end of a stream, and the memory that it lends.
#[derive(Debug)]
struct Wired {
    end: Connection,
    domain: SharedDomain,
}

impl Wired {
    fn config(settings: &Settings, number: u64) -> (Config, SharedDomain) {
        let shared = pool();
        let entropy = Entropy::Seeded(Rng::from_seed(settings.seed ^ number));
        let domain = SharedDomain::new(RefCell::new(ProtectionDomain::new(64, shared.clone(), entropy)));
        let mut config = Config::new(Rc::clone(&domain), shared, QueuePairId(1));
        config.send_depth = settings.queue_size + settings.spare;
        config.receive_depth = settings.queue_size;
        config.reads_outstanding_max = settings.reads_max;
        config.segment_bytes = settings.message_bytes.min(config.segment_bytes);
        config.crc = settings.invalidate.2;
        (config, domain)
    }

    /// Two ends of a stream, of which the first requests the connection.
    fn pair(settings: &Settings, private_data: &[u8]) -> [Self; 2] {
        let (config, domain) = Self::config(settings, 1);
        let near = Self { end: Connection::connect(NOW, config, private_data), domain };
        let (config, domain) = Self::config(settings, 2);
        [near, Self { end: Connection::accept(NOW, config), domain }]
    }
}

impl Endpoint for Wired {
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

impl TestEndpoint for Wired {
    fn carry(from: &mut Self, to: &mut Self, rng: &mut Rng) {
        let bytes: Vec<u8> = from.end.outbox().slices().flatten().copied().collect();
        if bytes.is_empty() {
            return;
        }
        let most = if rng.one_in(3) { 7 } else { bytes.len() as u64 };
        let count = usize::try_from(1 + rng.below(most.min(bytes.len() as u64))).unwrap();
        from.end.sent(count);
        to.end.handle_input(NOW, Input::Received(Buffer::copy_from_slice(&bytes[..count])));
    }

    fn regions(&self) -> usize {
        self.domain.borrow().len()
    }
}

fn connect(settings: &Settings) -> Pair<Wired> {
    let host = settings.host();
    let [near, far] = Wired::pair(settings, &host.private_data());
    Pair::new(settings.seed, (settings.controller(), far), (host, near))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    /// The same over a stream of bytes.
    #[test]
    fn every_command_ends_once_over_iwarp(settings in settings(), commands in steps()) {
        let mut pair = connect(&settings);
        run(&mut pair, settings.capsule_data_max, &commands);
        let invalidated = pair.host.statistics().invalidated;
        prop_assert_eq!(invalidated, pair.controller.statistics().invalidated);
        let both = settings.invalidate.0 && settings.invalidate.1;
        prop_assert_eq!(invalidated, if both { keys(settings.capsule_data_max, &commands) } else { 0 });
    }
}

const SETTINGS: Settings = Settings {
    seed: 3,
    invalidate: (true, true, true),
    queue_size: 32,
    capsule_data_max: 8192,
    message_bytes: 1 << 20,
    reads_max: 4,
    spare: 16,
};

#[test]
fn a_stream_that_ends_leaves_nothing_lent() {
    let mut pair = connect(&SETTINGS);
    for cookie in 0..64 {
        if !pair.host.has_room() {
            pair.step();
            continue;
        }
        let data = Data::Write(Buffer::from(pattern(7, 9000)));
        pair.host.submit(cookie, entry(WRITE, 7, 9000, false), data).unwrap();
    }
    assert!(pair.host.endpoint().regions() > 0);
    pair.host.endpoint_mut().end.handle_input(NOW, Input::Closed);
    let closed = core::iter::from_fn(|| pair.host.poll()).find_map(|output| match output {
        host::Output::Closed(why) => Some(why),
        _ => None,
    });
    assert!(matches!(closed, Some(Closed::Disconnected(_))), "{closed:?}");
    assert_eq!((pair.host.endpoint().regions(), pair.host.outstanding()), (0, 0));
}

#[test]
fn a_controller_refuses_over_iwarp() {
    let host = host::Config { queue_size: 33, ..SETTINGS.host() };
    let [near, far] = Wired::pair(&Settings { queue_size: 33, ..SETTINGS }, &host.private_data());
    let config = controller::Config { queue_size_max: 32, ..SETTINGS.controller() };
    let mut controller = controller::Connection::new(NOW, config, far);
    let mut host = host::Connection::new(NOW, host, near);
    let mut rng = Rng::from_seed(1);
    let why = loop {
        Wired::carry(host.endpoint_mut(), controller.endpoint_mut(), &mut rng);
        Wired::carry(controller.endpoint_mut(), host.endpoint_mut(), &mut rng);
        while controller.poll().is_some() {}
        if let Some(host::Output::Closed(why)) = host.poll() {
            break why;
        }
    };
    assert_eq!(why, Closed::Rejected(Some(crate::wire::Rejection::HostSendQueueSize)));
}

/// The data that the controller holds for a host that does not read stay bounded.
#[test]
fn a_host_that_does_not_read_is_bounded_over_iwarp() {
    let mut pair = connect(&SETTINGS);
    let mut most = 0;
    for cookie in 0..2000 {
        if pair.host.has_room() {
            pair.host.submit(cookie, entry(READ, 1, 4096, false), Data::Read(4096)).unwrap();
        }
        let (near, far) = (pair.host.endpoint_mut(), pair.controller.endpoint_mut());
        Wired::carry(near, far, &mut pair.rng);
        while let Some(output) = pair.controller.poll() {
            pair.on_controller(output);
        }
        pair.work();
        most = most.max(pair.controller.endpoint().end.outbox().len());
    }
    // The backlog, a command more, and headers.
    assert!((4096..20_000 + 2 * 4096 + 4096).contains(&most), "{most} B");
    assert_eq!(pair.host.outstanding(), 32);
    for _ in 0..100_000 {
        if pair.host.outstanding() == 0 {
            break;
        }
        pair.step();
    }
    assert_eq!(pair.done.len(), 32);
}

/// A controller that reads memory that is not lent loses its own connection, and reports the
/// reason.
#[test]
fn a_wrong_key_ends_the_connection_over_iwarp() {
    let mut pair = connect(&SETTINGS);
    pair.host.submit(1, entry(WRITE, 7, 9000, false), Data::Write(Buffer::from(pattern(7, 9000)))).unwrap();
    let key = Key(0x1234_5678);
    let remote = Remote { key, address: 0, length: 64 };
    let request =
        rdma::SendRequest { id: 1 << 40, operation: rdma::Operation::Read { remote }, signalled: true };
    pair.controller.endpoint_mut().post_send(request).unwrap();
    let why = loop {
        let (near, far) = (pair.host.endpoint_mut(), pair.controller.endpoint_mut());
        Wired::carry(near, far, &mut pair.rng);
        Wired::carry(far, near, &mut pair.rng);
        if let Some(host::Output::Closed(why)) = pair.host.poll() {
            break why;
        }
    };
    assert!(matches!(why, Closed::Disconnected(Disconnected::Access(_))), "{why}");
    assert_eq!(pair.host.endpoint().regions(), 0);
}
