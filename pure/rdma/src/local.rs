//! Two endpoints in one thread, joined without a wire.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Buffer, Engine, Entropy, Instant, Rng};

use crate::{
    AccessError, Config, Disconnected, Done, Endpoint, Event, Exposure, Key, Limits, Operation, PostError,
    ProtectionDomain, QueuePair, QueuePairId, ReceiveRequest, RegisterError, Remote, SendRequest,
    SharedCompletionQueue, SharedPool, State, WorkCompletion, WorkError,
};

/// The settings of a pair of [`LocalEndpoint`]s.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// The capabilities of both endpoints.
    pub limits: Limits,
    /// Maximum number of memory regions that an endpoint lends at a time.
    pub regions_max: usize,
    /// The seed of the keys; and of delays, if there are any.
    pub seed: u64,
    /// Whether requests and completions wait for a random time, as on a wire. Completions of one
    /// queue stay in order. A completion of the send queue may come after the peer's answer to the
    /// same message.
    pub delays: bool,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            limits: Limits {
                send_requests: 4096,
                receive_requests: 2048,
                message_bytes: 1 << 30,
                invalidate: true,
                immediate: true,
            },
            regions_max: 4096,
            seed: 0,
            delays: false,
        }
    }
}

#[derive(Debug)]
struct Side {
    pair: QueuePair,
    domain: ProtectionDomain,
    completions: SharedCompletionQueue,
    events: VecDeque<Event>,
}

impl Side {
    fn fail(&mut self, error: WorkError, why: Disconnected) {
        if self.pair.state() == State::Error {
            return;
        }
        self.pair.fail(error);
        self.domain.release(self.pair.id());
        self.events.push_back(Event::Disconnected(why));
    }
}

#[derive(Debug)]
struct Link {
    sides: [Side; 2],
    pool: SharedPool,
}

/// Why a request failed, which ends the connection.
struct Trouble {
    /// The reason reported to the peer.
    why: Disconnected,
    /// The result of the request.
    error: WorkError,
    /// The reason reported to the side that posted the request.
    reported: &'static str,
}

impl From<AccessError> for Trouble {
    fn from(error: AccessError) -> Self {
        let reported = "an access to memory that the peer has not lent";
        Self { why: Disconnected::Access(error), error: WorkError::RemoteAccess, reported }
    }
}

impl Link {
    /// The side of `index`, and the other.
    const fn both(&mut self, index: usize) -> (&mut Side, &mut Side) {
        let [first, second] = &mut self.sides;
        if index == 0 { (first, second) } else { (second, first) }
    }

    /// Performs the next request of the side of `index`. Returns whether there was one.
    fn carry(&mut self, index: usize) -> bool {
        let pool = Rc::clone(&self.pool);
        let (from, to) = self.both(index);
        let Some(request) = from.pair.next_send() else { return false };
        let sends = matches!(request.operation, Operation::Send { .. });
        if sends && to.pair.receives_posted() == 0 {
            return false;
        }
        let Some(SendRequest { operation, .. }) = from.pair.take_send() else { return false };
        match perform(to, &pool, operation) {
            Ok(done) => from.pair.complete_send(done),
            Err(Trouble { why, error, reported }) => {
                to.fail(WorkError::Flushed, why);
                from.fail(error, Disconnected::Reported(reported));
            }
        }
        true
    }
}

/// Performs `operation` of the peer on the side `to`.
fn perform(to: &mut Side, pool: &SharedPool, operation: Operation) -> Result<Done, Trouble> {
    let owner = to.pair.id();
    match operation {
        Operation::Send { inline, data, invalidate, immediate } => {
            let length = inline.len() + data.len();
            let request = to.pair.take_receive().ok_or(Trouble {
                why: Disconnected::PeerFault("a message arrived without a posted receive request"),
                error: WorkError::ReceiverNotReady,
                reported: "no receive request was posted for a message",
            })?;
            if length > request.length_max as usize {
                to.pair.fail_receive(request, WorkError::LocalLength);
                return Err(Trouble {
                    why: Disconnected::PeerFault("a message is longer than its receive request"),
                    error: WorkError::RemoteInvalidRequest,
                    reported: "a message is too long",
                });
            }
            if let Some(key) = invalidate {
                to.domain.invalidate(owner, key)?;
            }
            let message = if data.is_empty() {
                pool.borrow_mut().copy(&inline)
            } else if inline.is_empty() {
                data
            } else {
                let mut whole = pool.borrow_mut().take(length);
                whole[..inline.len()].copy_from_slice(&inline);
                whole[inline.len()..].copy_from_slice(&data);
                pool.borrow_mut().seal(whole)
            };
            to.pair.complete_receive(request, message, invalidate, immediate);
            Ok(Done::Sent)
        }
        Operation::Write { data, remote } => {
            to.domain.write(owner, remote, &data)?;
            Ok(Done::Written)
        }
        Operation::Read { remote } => Ok(Done::Read(to.domain.read(owner, remote)?)),
    }
}

/// An endpoint whose peer is in the same thread: for tests, simulations and measurements, and to
/// join two engines of one process. Polling either end performs the requests of both.
///
/// Where a wire would repeat a message until the peer has a receive request, the message waits.
#[derive(Debug)]
pub struct LocalEndpoint {
    link: Rc<RefCell<Link>>,
    index: usize,
    limits: Limits,
    /// Completions that are being delayed: those of the send queue, and those of the receive queue.
    waiting: [VecDeque<WorkCompletion>; 2],
    delays: Option<Rng>,
}

impl LocalEndpoint {
    /// Creates two endpoints. The first requests the connection, with `private_data`.
    ///
    /// # Panics
    /// When the settings name more regions than [`ProtectionDomain::REGIONS_MAX`].
    pub fn pair(config: &LocalConfig, pool: &SharedPool, private_data: &[u8]) -> [Self; 2] {
        let rng = Rng::from_seed(config.seed);
        let side = |number: u32, name: &str| {
            let completions = SharedCompletionQueue::default();
            let mut pair = QueuePair::new(Config {
                id: QueuePairId(number),
                send_depth: config.limits.send_requests,
                receive_depth: config.limits.receive_requests,
                shared_receives: None,
                completions: Rc::clone(&completions),
            });
            pair.modify(State::Initialised).expect("a new queue pair may be initialised");
            let entropy = Entropy::Seeded(rng.fork(name));
            let domain = ProtectionDomain::new(config.regions_max, Rc::clone(pool), entropy);
            Side { pair, domain, completions, events: VecDeque::new() }
        };
        let mut link = Link { sides: [side(1, "first"), side(2, "second")], pool: Rc::clone(pool) };
        link.sides[1].events.push_back(Event::Requested { private_data: Vec::from(private_data) });
        let link = Rc::new(RefCell::new(link));
        [0, 1].map(|index| Self {
            link: Rc::clone(&link),
            index,
            limits: config.limits,
            waiting: [VecDeque::new(), VecDeque::new()],
            delays: config
                .delays
                .then(|| rng.fork(if index == 0 { "delays of the first" } else { "delays" })),
        })
    }

    /// Ends the connection as a fault of the wire would: both ends report `why`.
    pub fn break_off(&mut self, why: Disconnected) {
        for side in &mut self.link.borrow_mut().sides {
            side.fail(WorkError::RetryExceeded, why);
        }
    }

    /// Number of regions that this end lends.
    pub fn regions(&self) -> usize {
        self.link.borrow().sides[self.index].domain.len()
    }

    /// Number of receive requests that this end has posted.
    pub fn receives_posted(&self) -> usize {
        self.link.borrow().sides[self.index].pair.receives_posted()
    }

    /// Performs requests of both ends: all of them, or a few if there are delays.
    fn carry(&mut self) {
        let mut link = self.link.borrow_mut();
        match &mut self.delays {
            None => while link.carry(0) | link.carry(1) {},
            Some(rng) => {
                for _ in 0..rng.below(3) {
                    link.carry(usize::from(rng.one_in(2)));
                }
            }
        }
    }

    fn establish(&mut self, private_data: &[u8]) {
        let link = &mut *self.link.borrow_mut();
        let (own, peer) = link.both(self.index);
        for side in [own, peer] {
            for state in [State::ReadyToReceive, State::ReadyToSend] {
                if side.pair.modify(state).is_err() {
                    return;
                }
            }
        }
        let (own, peer) = link.both(self.index);
        own.events.push_back(Event::Established { private_data: Vec::new() });
        peer.events.push_back(Event::Established { private_data: Vec::from(private_data) });
    }

    /// The next completion. Those of the two queues are delayed independently.
    fn delayed_completion(&mut self) -> Option<WorkCompletion> {
        let queue = Rc::clone(&self.link.borrow().sides[self.index].completions);
        while let Some(completion) = queue.borrow_mut().poll() {
            let is_received = matches!(completion.result, Ok(Done::Received { .. }));
            // The queue of a failed request is unknown, so no other completion may overtake it.
            if completion.result.is_err() {
                let received = core::mem::take(&mut self.waiting[1]);
                self.waiting[0].extend(received);
            }
            self.waiting[usize::from(is_received)].push_back(completion);
        }
        let rng = self.delays.as_mut()?;
        if rng.one_in(4) {
            return None;
        }
        let first = usize::from(rng.one_in(2));
        self.waiting[first].pop_front().or_else(|| self.waiting[1 - first].pop_front())
    }
}

impl Endpoint for LocalEndpoint {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.link.borrow_mut().sides[self.index].events.pop_front()
    }

    fn accept(&mut self, private_data: &[u8]) {
        self.establish(private_data);
    }

    fn reject(&mut self, private_data: &[u8]) {
        let link = &mut *self.link.borrow_mut();
        let (own, peer) = link.both(self.index);
        own.pair.fail(WorkError::Flushed);
        peer.pair.fail(WorkError::Flushed);
        peer.events.push_back(Event::Rejected { private_data: Vec::from(private_data) });
    }

    fn disconnect(&mut self) {
        for side in &mut self.link.borrow_mut().sides {
            side.fail(WorkError::Flushed, Disconnected::InOrder);
        }
    }

    fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        let (length, can) = match &request.operation {
            Operation::Send { inline, data, invalidate, immediate } => {
                let can_invalidate = invalidate.is_none() || (self.limits.invalidate && immediate.is_none());
                let can = can_invalidate && (immediate.is_none() || self.limits.immediate);
                (inline.len() + data.len(), can)
            }
            Operation::Write { data, .. } => (data.len(), true),
            Operation::Read { remote } => (remote.length as usize, true),
        };
        if !can || length > self.limits.message_bytes as usize {
            return Err(PostError::Unsupported);
        }
        self.link.borrow_mut().sides[self.index].pair.post_send(request)
    }

    fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        self.link.borrow_mut().sides[self.index].pair.post_receive(request)
    }

    fn poll_completion(&mut self) -> Option<WorkCompletion> {
        if self.delays.is_some() {
            self.carry();
            return self.delayed_completion();
        }
        let queue = Rc::clone(&self.link.borrow().sides[self.index].completions);
        let completion = queue.borrow_mut().poll();
        completion.or_else(|| {
            self.carry();
            queue.borrow_mut().poll()
        })
    }

    fn register(&mut self, exposure: Exposure) -> Result<Remote, RegisterError> {
        let side = &mut self.link.borrow_mut().sides[self.index];
        side.domain.register(side.pair.id(), exposure)
    }

    fn peek(&mut self, key: Key, offset: u32, into: &mut [u8]) -> bool {
        if self.delays.is_some() {
            self.carry();
        }
        let side = &mut self.link.borrow_mut().sides[self.index];
        side.domain.peek(side.pair.id(), key, offset, into)
    }

    fn deregister(&mut self, key: Key) -> Option<Buffer> {
        let side = &mut self.link.borrow_mut().sides[self.index];
        side.domain.deregister(side.pair.id(), key)
    }
}

/// This engine has no inputs or outputs: the peer is in the same thread.
impl Engine for LocalEndpoint {
    type Input<'a> = ();
    type Output = core::convert::Infallible;

    fn handle_input(&mut self, _now: Instant, (): ()) {}

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_output(&mut self) -> Option<Self::Output> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Inline;

    fn connect(config: &LocalConfig) -> [LocalEndpoint; 2] {
        let [mut host, mut controller] = LocalEndpoint::pair(config, &SharedPool::default(), b"hello");
        assert_eq!(controller.poll_event(), Some(Event::Requested { private_data: b"hello".to_vec() }));
        controller.accept(b"welcome");
        assert_eq!(controller.poll_event(), Some(Event::Established { private_data: Vec::new() }));
        assert_eq!(host.poll_event(), Some(Event::Established { private_data: b"welcome".to_vec() }));
        [host, controller]
    }

    fn post(end: &mut LocalEndpoint, id: u64, operation: Operation) {
        end.post_send(SendRequest { id, operation, signalled: true }).unwrap();
    }

    fn message(text: &[u8], invalidate: Option<Key>) -> Operation {
        let data = Buffer::copy_from_slice(text);
        Operation::Send { inline: Inline::new(b"> "), data, invalidate, immediate: None }
    }

    fn results(end: &mut LocalEndpoint) -> Vec<(u64, Result<Done, WorkError>)> {
        core::iter::from_fn(|| end.poll_completion()).map(|one| (one.id, one.result)).collect()
    }

    #[test]
    fn messages_wait_for_receives_and_data_pass_by_key() {
        let [mut host, mut controller] = connect(&LocalConfig::default());
        let lent = host.register(Exposure::Write(8)).unwrap();
        let given = host.register(Exposure::Read(Buffer::copy_from_slice(b"given"))).unwrap();
        post(
            &mut controller,
            1,
            Operation::Write { data: Buffer::copy_from_slice(b"data"), remote: Remote { length: 4, ..lent } },
        );
        post(&mut controller, 2, Operation::Read { remote: given });
        post(&mut controller, 3, message(b"done", Some(lent.key)));
        let read = Done::Read(Buffer::copy_from_slice(b"given"));
        assert_eq!(results(&mut controller), [(1, Ok(Done::Written)), (2, Ok(read))]);
        host.post_receive(ReceiveRequest { id: 9, length_max: 16 }).unwrap();
        let received = Done::Received {
            data: Buffer::copy_from_slice(b"> done"),
            invalidated: Some(lent.key),
            immediate: None,
        };
        assert_eq!(results(&mut host), [(9, Ok(received))]);
        assert_eq!(results(&mut controller), [(3, Ok(Done::Sent))]);
        assert_eq!(host.deregister(lent.key).as_deref(), Some(&b"data"[..]));
        assert_eq!(host.regions(), 1);
    }

    #[test]
    fn a_wrong_key_ends_the_connection_of_both() {
        let [mut host, mut controller] = connect(&LocalConfig::default());
        let lent = host.register(Exposure::Write(8)).unwrap();
        host.deregister(lent.key);
        post(&mut controller, 1, Operation::Read { remote: lent });
        post(&mut controller, 2, message(b"after", None));
        let expected = [(1, Err(WorkError::RemoteAccess)), (2, Err(WorkError::Flushed))];
        assert_eq!(results(&mut controller), expected);
        let access = Disconnected::Access(AccessError::Key);
        assert_eq!(host.poll_event(), Some(Event::Disconnected(access)));
        assert!(matches!(controller.poll_event(), Some(Event::Disconnected(Disconnected::Reported(_)))));
    }

    #[test]
    fn delays_keep_each_queue_in_order() {
        for seed in 0..50 {
            let [mut host, mut controller] =
                connect(&LocalConfig { seed, delays: true, ..LocalConfig::default() });
            for id in 0..20 {
                host.post_receive(ReceiveRequest { id: 100 + id, length_max: 16 }).unwrap();
                controller.post_receive(ReceiveRequest { id: 100 + id, length_max: 16 }).unwrap();
                post(&mut host, id, message(b"to", None));
                post(&mut controller, id, message(b"fro", None));
            }
            let mut seen: [Vec<u64>; 2] = Default::default();
            for _ in 0..10_000 {
                for (end, seen) in [&mut host, &mut controller].into_iter().zip(&mut seen) {
                    seen.extend(end.poll_completion().map(|one| one.id));
                }
            }
            for seen in seen {
                let (sent, received): (Vec<u64>, Vec<u64>) = seen.into_iter().partition(|id| *id < 100);
                assert_eq!(sent, (0..20).collect::<Vec<_>>());
                assert_eq!(received, (100..120).collect::<Vec<_>>());
            }
        }
    }
}
