//! A function at the far end of a tunnel, which goes and comes back.

use alloc::collections::VecDeque;

use engine::Rng;
use tunnel::downstream::{self, ConnectionId};
use tunnel::session;
use tunnel::upstream::ConnectionIndex;

use super::*;
use crate::far::{self, Far};
use crate::tests::watch::Counts;

const FIRST: ConnectionIndex = ConnectionIndex(0);

/// A connection has the number of its port at the slot.
pub(super) fn connection(port: ConnectionIndex) -> ConnectionId {
    ConnectionId(port.0.into())
}
fn port(connection: ConnectionId) -> ConnectionIndex {
    ConnectionIndex(u8::try_from(connection.0).unwrap())
}

/// A slot with a tunnel, and the box at the other end while there is one.
pub(super) struct Pair {
    pub(super) bench: TestBench,
    far: Option<Far>,
    /// Delay to the far end, and back.
    pub(super) delay: Nanos,
    /// Additional delay of each connection, where there is any delay.
    pub(super) lag: [Nanos; tunnel::STRANDS_MAX],
    there: VecDeque<(Instant, ConnectionIndex, downstream::Input)>,
    back: VecDeque<(Instant, ConnectionIndex, Buffer)>,
    /// Connections that the slot has asked for and not got.
    dials: Vec<ConnectionIndex>,
    /// Pieces that the far end has sent.
    pub(super) pieces: Vec<Buffer>,
    session: session::Config,
    seed: u64,
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self::over(config(), Nanos::ZERO);
        pair.connect();
        pair
    }

    /// A slot whose function, if there is one, is `delay` away.
    pub(super) fn over(config: Config, delay: Nanos) -> Self {
        Self::with(config, delay, session::Config::default())
    }

    /// A slot whose function, if there is one, is `delay` away, over a given session.
    pub(super) fn with(config: Config, delay: Nanos, session: session::Config) -> Self {
        let now = Instant::from_nanos(1_000);
        let rng = Rng::from_seed(1);
        let session = session::Config { hold: Nanos::from_millis(50), ..session };
        let guest = Guest::over_tunnel(config, session.clone(), &rng);
        let (bench, there, back) = (TestBench::around(guest, None, now), VecDeque::new(), VecDeque::new());
        let (lag, dials, pieces) = ([Nanos::ZERO; tunnel::STRANDS_MAX], Vec::new(), Vec::new());
        let mut pair = Self { bench, far: None, delay, lag, there, back, dials, pieces, session, seed: 2 };
        pair.start_far(function_config());
        pair.until(|bench| bench.guest.takes_client());
        pair
    }

    pub(super) fn connect(&mut self) {
        self.bench.guest.handle_input(self.bench.now, Input::ClientConnected);
        self.bench.client.handle_input(self.bench.now, client::Input::Connected);
        self.until(|bench| bench.client.negotiated().is_some());
    }

    fn start_far(&mut self, function: function::Config) {
        self.seed += 1;
        let mut rng = Rng::from_seed(self.seed);
        let mut session = self.session.clone();
        rng.fill(&mut session.identity.instance.0);
        self.far = Some(Far::new(self.bench.now, session, function, rng));
    }

    /// The far end's process is killed.
    fn kill_far(&mut self) {
        self.far = None;
        self.there.clear();
        self.back.clear();
        self.bench.guest.handle_input(self.bench.now, Input::Disconnected(FIRST));
    }

    pub(super) fn until(&mut self, mut until: impl FnMut(&TestBench) -> bool) {
        for _ in 0..1_000_000 {
            if until(&self.bench) {
                return;
            }
            self.step();
        }
        panic!("nothing came of it: {:?}", self.bench.events);
    }

    pub(super) fn step(&mut self) {
        self.bench.now = self.bench.now + Nanos::from_micros(10);
        let now = self.bench.now;
        self.bench.guest.advance(now);
        self.bench.settle();
        let dials = core::mem::take(&mut self.dials);
        self.bench.to_far.extend(dials.into_iter().map(Output::Connect));
        for output in core::mem::take(&mut self.bench.to_far) {
            if self.far.is_none() {
                if let Output::Connect(port) = output {
                    self.dials.push(port);
                }
                continue;
            }
            let (port, input) = match output {
                Output::Connect(port) => {
                    self.bench.guest.handle_input(now, Input::Connected(port));
                    (
                        port,
                        downstream::Input::Accepted(connection(port), core::net::Ipv4Addr::LOCALHOST.into()),
                    )
                }
                Output::Transmit(port, bytes) => (port, downstream::Input::Received(connection(port), bytes)),
                Output::Close(port) => (port, downstream::Input::Disconnected(connection(port))),
                output => panic!("{output:?} is not for a far end"),
            };
            let at = due(&self.there, port, now + self.delay + self.lag[usize::from(port.0)]);
            self.there.push_back((at, port, input));
        }
        while let Some((_, port, bytes)) = take_due(&mut self.back, now) {
            self.bench.guest.handle_input(now, Input::Received(port, bytes));
        }
        let Some(far) = &mut self.far else { return };
        while let Some((_, _, input)) = take_due(&mut self.there, now) {
            far.handle_input(now, far::Input::Network(input));
        }
        if far.poll_timeout().is_some_and(|at| at <= now) {
            far.handle_timeout(now);
        }
        let mut done: Vec<media::Completion> = Vec::new();
        loop {
            for completion in done.drain(..) {
                far.handle_input(now, far::Input::Device(completion));
            }
            let Some(output) = far.poll_output() else { break };
            match output {
                far::Output::Transmit(connection, bytes) => {
                    self.pieces.push(bytes.clone());
                    let port = port(connection);
                    if self.delay == Nanos::ZERO {
                        self.bench.guest.handle_input(now, Input::Received(port, bytes));
                    } else {
                        let at = due(&self.back, port, now + self.delay + self.lag[usize::from(port.0)]);
                        self.back.push_back((at, port, bytes));
                    }
                }
                far::Output::Device(far::Storage::Media(request)) => {
                    self.bench.disk.submit(request, &mut |completion| done.push(completion));
                }
                far::Output::Close(connection) => {
                    self.bench.guest.handle_input(now, Input::Disconnected(port(connection)));
                }
                far::Output::Event(..) | far::Output::Device(far::Storage::Notify(_)) => {}
            }
        }
    }

    pub(super) fn read(&mut self, region: RegionIndex, at: u64) -> u32 {
        let request = self.bench.client.read(self.bench.now, region, at, 4);
        self.until(|bench| bench.answers.contains_key(&request));
        match self.bench.answers.remove(&request).unwrap().unwrap() {
            Answer::Data(data) => u32::from_le_bytes(data[..].try_into().unwrap()),
            answer => panic!("{answer:?}"),
        }
    }

    pub(super) fn write(&mut self, region: RegionIndex, at: u64, value: u32) {
        let request = self.bench.client.write(self.bench.now, region, at, &value.to_le_bytes());
        self.until(|bench| bench.answers.contains_key(&request));
    }

    /// A client with memory at `base` enables the controller, with an interrupt for the admin
    /// queue.
    pub(super) fn bring_up(&mut self, base: u64) {
        self.bench.base = base;
        self.bench.memory = Ram::new(base, usize::try_from(BYTES).unwrap());
        let map = DmaMap { readable: true, writable: true, offset: 0, address: base, length: BYTES };
        let mapped = self.bench.client.map(self.bench.now, map, Some(MEMORY_FILE));
        let data = InterruptData::Descriptors([EVENTS].into());
        let (now, kind) = (self.bench.now, InterruptIndex::Msix);
        self.bench.client.set_interrupts(now, kind, InterruptAction::Trigger, (0, 1), data);
        self.until(|bench| bench.answers.contains_key(&mapped));
        self.write(RegionIndex::CONFIG, 0x04, 0b110);
        // Drivers do this first, to learn where the doorbells are.
        self.read(RegionIndex::BAR0, u64::from(offset::CAPABILITIES) + 4);
        for (register, value) in self.bench.queue_registers() {
            self.write(RegionIndex::BAR0, register.into(), value);
        }
        while self.read(RegionIndex::BAR0, offset::STATUS.into()) & 1 == 0 {}
    }

    pub(super) fn has_event(&self, is_it: impl Fn(&Event) -> bool) -> bool {
        self.bench.events.iter().any(is_it)
    }
}

/// When something sent on `port` arrives: at `at`, but not before earlier packets.
fn due<T>(
    under_way: &VecDeque<(Instant, ConnectionIndex, T)>,
    port: ConnectionIndex,
    at: Instant,
) -> Instant {
    let before = under_way.iter().rev().find(|(_, other, _)| *other == port);
    before.map_or(at, |(before, ..)| at.max(*before))
}
/// Takes the first piece that is due.
fn take_due<T>(
    under_way: &mut VecDeque<(Instant, ConnectionIndex, T)>,
    now: Instant,
) -> Option<(Instant, ConnectionIndex, T)> {
    let index = under_way.iter().position(|(at, ..)| *at <= now)?;
    under_way.remove(index)
}

const VERSION: u64 = offset::VERSION as u64;
const ALL_ONES: u32 = u32::MAX;

#[test]
fn a_function_that_goes_is_all_ones_and_is_what_it_was_when_it_is_back() {
    let mut pair = Pair::new();
    pair.write(RegionIndex::CONFIG, 0x10, 0xfebf_8000);
    pair.write(RegionIndex::CONFIG, 0x04, 0b110);
    assert_eq!(pair.read(RegionIndex::BAR0, VERSION), 0x0002_0000);
    // A read is under way when the far end goes.
    let request = pair.bench.client.read(pair.bench.now, RegionIndex::BAR0, 0, 8);
    pair.bench.settle();
    pair.kill_far();
    pair.until(|bench| bench.answers.contains_key(&request));
    assert!(pair.has_event(|event| matches!(event, Event::Gone)), "{:?}", pair.bench.events);
    assert_eq!(pair.read(RegionIndex::BAR0, VERSION), ALL_ONES);
    assert_eq!(pair.read(RegionIndex::CONFIG, 0x00), ALL_ONES);
    pair.write(RegionIndex::CONFIG, 0x10, 0);
    let reset = pair.bench.client.reset(pair.bench.now);
    pair.until(|bench| bench.answers.contains_key(&reset));

    pair.start_far(function_config());
    pair.until(|bench| bench.events.iter().any(|event| matches!(event, Event::Back(_))));
    assert_eq!(pair.read(RegionIndex::CONFIG, 0x00), 0x0010_fa1a);
    assert_eq!(pair.read(RegionIndex::CONFIG, 0x10), 0xfebf_8004);
    assert_eq!(pair.read(RegionIndex::CONFIG, 0x04) & 0b110, 0b110);
    assert_eq!(pair.read(RegionIndex::BAR0, VERSION), 0x0002_0000);
}

#[test]
fn one_watcher_fits_a_slot_and_its_far_end() {
    let mut pair = Pair::new();
    let (slot, device) = (Counts::shared(), Counts::shared());
    pair.bench.guest.watch().add(slot.clone());
    pair.far.as_mut().unwrap().watch().add(device.clone());
    pair.write(RegionIndex::CONFIG, 0x04, 0b110);
    assert_eq!(pair.read(RegionIndex::BAR0, VERSION), 0x0002_0000);
    pair.write(RegionIndex::BAR0, 0x0c, 1);
    assert_eq!(pair.read(RegionIndex::BAR0, VERSION), 0x0002_0000);
    let (slot, device) = (slot.borrow(), device.borrow());
    assert_eq!((slot.down.requests, slot.up.requests), (3, 0));
    assert_eq!((device.down.requests, device.up.requests), (3, 0));
    // The device answers both reads, and the slot's accesses to its configuration space.
    assert_eq!(slot.up.packets, device.up.packets);
    assert!(slot.up.packets > 2);
    assert_eq!((slot.down.bytes, slot.up.bytes), (device.down.bytes, device.up.bytes));
}

#[test]
fn another_function_is_kept_from_a_client_that_knows_the_former_one() {
    let mut pair = Pair::new();
    pair.kill_far();
    pair.until(|bench| bench.events.iter().any(|event| matches!(event, Event::Gone)));
    let mut other = function_config();
    other.identity.device = 0x4242;
    pair.start_far(other);
    pair.until(|bench| bench.events.iter().any(|event| matches!(event, Event::Changed(_))));
    assert_eq!(pair.read(RegionIndex::CONFIG, 0x00), ALL_ONES);
    pair.bench.disconnect();
    pair.until(|bench| bench.guest.takes_client());
    pair.bench.connect();
    assert_eq!(pair.read(RegionIndex::CONFIG, 0x00), 0x4242_fa1a);
}

#[test]
fn another_function_that_has_gone_as_well_is_not_offered_before_it_is_back() {
    let mut other = function_config();
    other.identity.device = 0x4242;
    let mut pair = Pair::new();
    pair.kill_far();
    pair.until(|bench| bench.events.iter().any(|event| matches!(event, Event::Gone)));
    pair.start_far(other.clone());
    pair.until(|bench| bench.events.iter().any(|event| matches!(event, Event::Changed(_))));
    pair.kill_far();
    pair.until(|bench| !bench.guest.link_up);
    pair.bench.disconnect();
    for _ in 0..1000 {
        pair.step();
    }
    assert!(!pair.bench.guest.takes_client());
    pair.start_far(other);
    pair.until(|bench| bench.guest.takes_client());
    pair.bench.connect();
    assert_eq!(pair.read(RegionIndex::CONFIG, 0x00), 0x4242_fa1a);
}

#[test]
fn a_client_that_goes_while_the_far_end_is_gone_is_followed_by_another_when_it_is_back() {
    let mut pair = Pair::new();
    pair.write(RegionIndex::CONFIG, 0x10, 0xfebf_8000);
    pair.kill_far();
    pair.until(|bench| bench.events.iter().any(|event| matches!(event, Event::Gone)));
    pair.bench.disconnect();
    for _ in 0..1000 {
        pair.step();
    }
    assert!(!pair.bench.guest.takes_client());
    pair.start_far(function_config());
    pair.until(|bench| bench.guest.takes_client());
    pair.bench.connect();
    assert_eq!(pair.read(RegionIndex::CONFIG, 0x10), 0b100);
    assert_eq!(pair.read(RegionIndex::BAR0, VERSION), 0x0002_0000);
}

#[test]
fn a_reset_that_the_link_interrupts_comes_to_an_end() {
    let mut pair = Pair::new();
    let reset = pair.bench.client.reset(pair.bench.now);
    for _ in 0..100 {
        pair.step();
    }
    pair.kill_far();
    pair.until(|bench| bench.answers.contains_key(&reset));
    pair.start_far(function_config());
    pair.until(|bench| bench.events.iter().any(|event| matches!(event, Event::Back(_))));
    assert_eq!(pair.read(RegionIndex::BAR0, VERSION), 0x0002_0000);
}

/// The client resets the function, and the connection is lost when the function should be ready,
/// for longer than the root complex waits. Returns how often the function was asked for patience,
/// and how many requests timed out.
fn lost_during_reset(config_cache: bool) -> (Option<u64>, u64) {
    let mut config = config();
    config.root.timeout = CompletionTimeout::A2;
    let session = session::Config { config_cache, ..session::Config::default() };
    let mut pair = Pair::with(config, Nanos::ZERO, session);
    pair.connect();
    let asked = pair.bench.now;
    let reset = pair.bench.client.reset(asked);
    let until = |pair: &mut Pair, after| pair.until(|bench| bench.now - asked >= Nanos::from_millis(after));
    until(&mut pair, 90);
    let mut far = pair.far.take().unwrap();
    far.handle_input(pair.bench.now, far::Input::Network(downstream::Input::Disconnected(connection(FIRST))));
    pair.bench.guest.handle_input(pair.bench.now, Input::Disconnected(FIRST));
    until(&mut pair, 125);
    pair.far = Some(far);
    pair.until(|bench| bench.answers.contains_key(&reset));
    assert!(!pair.has_event(|event| matches!(event, Event::Gone)));
    if config_cache {
        assert!(pair.bench.answers[&reset].is_ok(), "{:?}", pair.bench.events);
        assert_eq!(pair.read(RegionIndex::CONFIG, 0), 0x0010_fa1a);
    }
    let retries = pair.bench.guest.upstream().unwrap().config_cache().map(|cache| cache.retries);
    (retries, timeouts(&pair))
}

fn timeouts(pair: &Pair) -> u64 {
    pair.bench.guest.root().requester_statistics().timeouts
}

#[test]
fn a_function_that_is_away_after_its_reset_is_waited_for() {
    let (retries, timeouts) = lost_during_reset(true);
    assert!(retries.is_some_and(|retries| retries > 1) && timeouts == 0, "{retries:?} {timeouts}");
    let (retries, timeouts) = lost_during_reset(false);
    assert!(retries.is_none() && timeouts > 0, "{timeouts}");
}

#[test]
fn a_connection_that_is_cut_and_back_in_time_goes_unnoticed() {
    let mut pair = Pair::new();
    for round in 0..20 {
        let request = pair.bench.client.read(pair.bench.now, RegionIndex::BAR0, VERSION, 4);
        for _ in 0..round % 5 {
            pair.step();
        }
        pair.bench.guest.handle_input(pair.bench.now, Input::Disconnected(FIRST));
        if let Some(far) = &mut pair.far {
            let input = downstream::Input::Disconnected(connection(FIRST));
            far.handle_input(pair.bench.now, far::Input::Network(input));
        }
        pair.until(|bench| bench.answers.contains_key(&request));
        let Some(Ok(Answer::Data(data))) = pair.bench.answers.remove(&request) else { panic!("no data") };
        assert_eq!(data[..], 0x0002_0000_u32.to_le_bytes(), "round {round}");
    }
    assert!(!pair.has_event(|event| matches!(event, Event::Gone)));
}

#[test]
fn a_far_end_that_stalls_is_slow_and_not_gone() {
    let mut pair = Pair::new();
    let before = pair.read(RegionIndex::BAR0, u64::from(offset::STATUS));
    let status = pair.read(RegionIndex::CONFIG, 0x04);
    // The far end is not dead, only stalled for a while.
    let stalled = pair.far.take();
    let asked = pair.bench.now;
    let register = pair.bench.client.read(asked, RegionIndex::BAR0, offset::STATUS.into(), 4);
    let config = pair.bench.client.read(asked, RegionIndex::CONFIG, 0x04, 4);
    let unknown = pair.bench.client.read(asked, RegionIndex::BAR0, 0x1800, 4);
    for request in [register, config, unknown] {
        pair.until(|bench| bench.answers.contains_key(&request));
    }
    assert!(pair.bench.now - asked < Nanos::from_millis(510));
    let mut value = |request| match pair.bench.answers.remove(&request).unwrap().unwrap() {
        Answer::Data(data) => u32::from_le_bytes(data[..].try_into().unwrap()),
        answer => panic!("{answer:?}"),
    };
    assert_eq!((value(register), value(config), value(unknown)), (before, status, ALL_ONES));
    assert!(!pair.has_event(|event| matches!(event, Event::Gone)));
    // Once the connection is known to be lost, reads are answered without delay.
    pair.bench.guest.handle_input(pair.bench.now, Input::Disconnected(FIRST));
    let asked = pair.bench.now;
    assert_eq!(pair.read(RegionIndex::BAR0, u64::from(offset::STATUS)), before);
    assert!(pair.bench.now - asked < Nanos::from_millis(1));
    pair.far = stalled;
}

#[test]
fn a_guest_that_writes_on_without_answers_is_stopped() {
    let mut pair = Pair::new();
    pair.far = None;
    let mut written = 0;
    while pair.bench.guest.takes_bytes() {
        pair.bench.client.post(RegionIndex::BAR0, 0x1800, &[0; 4]);
        pair.bench.settle();
        written += 1;
        assert!(written < 1_000_000, "it goes on for ever");
    }
    assert!(!pair.bench.guest.takes_rings());
    // Once the far end is given up, there is nothing to wait for.
    pair.kill_far();
    pair.until(|bench| bench.guest.takes_bytes());
}

#[test]
fn a_guest_may_have_memory_where_our_root_complex_has_the_function() {
    // At the function's own registers, at the interrupt addresses of PCs, and at unused addresses.
    for base in [0xc000_0000, 0xfee0_0000, 0x8000_0000] {
        let mut pair = Pair::new();
        pair.bring_up(base);
        pair.bench.send_identify(0);
        pair.until(|bench| bench.completion(0).is_some());
        assert_eq!(pair.bench.memory.slice(base + DATA + 4, 4).unwrap(), b"TEST");
        pair.until(|bench| bench.signals == [EVENTS]);
    }
}
