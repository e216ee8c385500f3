use engine::{Engine, Instant, Nanos};
use nvme::wire::QueueId;
use rdma::{
    AccessError, Disconnected, Done, Event, Inline, LocalConfig, LocalEndpoint, Operation, ReceiveRequest,
    Remote, SendRequest, WorkError,
};

use super::*;
use crate::SharedPool;
use crate::tests::{NOW, READ, entry, pool};
use crate::wire::{Acceptance, PrivateDataError, Rejection, Request};

/// A host, and an endpoint in the place of its controller.
fn host(config: Config) -> (Connection<LocalEndpoint>, LocalEndpoint) {
    let [near, mut far] = LocalEndpoint::pair(&LocalConfig::default(), &pool(), &config.private_data());
    let asked = far.poll_event();
    assert!(
        matches!(asked, Some(Event::Requested { private_data }) if private_data == config.private_data())
    );
    for id in 0..64 {
        far.post_receive(ReceiveRequest { id, length_max: 1 << 16 }).unwrap();
    }
    (Connection::new(NOW, config, near), far)
}

fn ready(config: Config) -> (Connection<LocalEndpoint>, LocalEndpoint) {
    let (mut host, mut far) = host(config);
    far.accept(&Acceptance { controller_receives: 32 }.emit());
    assert!(matches!(host.poll(), Some(Output::Initialized(_))));
    (host, far)
}

fn closed(host: &mut Connection<LocalEndpoint>) -> Closed {
    let Some(Output::Closed(why)) = host.poll() else { panic!("it goes on") };
    assert!(host.poll().is_none());
    assert_eq!(host.endpoint().regions(), 0, "no memory stays lent");
    assert_eq!(host.submit(9, entry(READ, 0, 0, false), Data::None), Err(SubmitError::NotReady));
    why
}

fn post(far: &mut LocalEndpoint, operation: Operation) {
    far.post_send(SendRequest { id: 0, operation, signalled: false }).unwrap();
}

fn respond(far: &mut LocalEndpoint, id: CommandId, invalidate: Option<Key>) {
    let response = nvme::wire::CompletionQueueEntry { command_id: id, ..Default::default() };
    let inline = Inline::new(&response.emit());
    post(far, Operation::Send { inline, data: Buffer::EMPTY, invalidate, immediate: None });
}

/// The command that has come, with where its data belong.
fn command(far: &mut LocalEndpoint) -> (SubmissionQueueEntry, DataPointer) {
    while let Some(completion) = far.poll_completion() {
        if let Ok(Done::Received { data, .. }) = completion.result {
            let entry = SubmissionQueueEntry::parse(data.first_chunk().unwrap());
            return (entry, DataPointer::of(&entry));
        }
    }
    panic!("no command has come");
}

fn keyed(pointer: DataPointer) -> Remote {
    let DataPointer::Keyed { remote, .. } = pointer else { panic!("{pointer:?}") };
    remote
}

#[test]
fn a_controller_may_refuse_for_every_reason() {
    for status in 0..=10 {
        let (mut host, mut far) = host(Config::new());
        far.reject(&[0, 0, status, 0]);
        let why = Rejection::parse(&[0, 0, status, 0]);
        assert_eq!(closed(&mut host), Closed::Rejected(why));
    }
    for length in 0..Rejection::LENGTH {
        let (mut host, mut far) = host(Config::new());
        far.reject(&Rejection::NoResources.emit()[..length]);
        assert_eq!(closed(&mut host), Closed::Rejected(None));
    }
}

#[test]
fn a_broken_acceptance_ends_the_connection() {
    let whole = Acceptance { controller_receives: 32 }.emit();
    for length in 0..whole.len() {
        let (mut host, mut far) = host(Config::new());
        far.accept(&whole[..length]);
        let fault = Fault::PrivateData(PrivateDataError::Length(length));
        assert_eq!(closed(&mut host), Closed::PeerFault(fault));
    }
}

#[test]
fn a_connection_must_be_made_in_time() {
    let (mut host, _far) = host(Config::new());
    let due = host.poll_timeout().unwrap();
    assert_eq!(due, NOW + Nanos::from_secs(10));
    host.handle_timeout(Instant::from_nanos(1));
    assert!(host.poll_output().is_none());
    host.handle_timeout(due);
    assert_eq!(closed(&mut host), Closed::InitialiseTimeout);
    assert_eq!(host.poll_timeout(), None);
}

#[test]
fn no_more_commands_are_sent_than_the_controller_has_receives_for() {
    let (mut host, mut far) = host(Config::new());
    far.accept(&Acceptance { controller_receives: 2 }.emit());
    assert!(matches!(host.poll(), Some(Output::Initialized(_))));
    for cookie in 0..2 {
        host.submit(cookie, entry(READ, 0, 0, false), Data::None).unwrap();
    }
    assert!(!host.has_room());
    assert_eq!(host.submit(2, entry(READ, 0, 0, false), Data::None), Err(SubmitError::Busy));
}

#[test]
fn data_go_where_the_queue_allows() {
    let admin = Config { capsule_data_max: 4096, ..Config::new() };
    let io = Config::new().for_queue(QueueId(1), 5, 32, 4096);
    assert_eq!(Request::parse(&io.private_data()).map(|request| request.controller_id), Ok(5));
    for (config, length, is_inside) in
        [(admin, 512, false), (io, 512, true), (io, 4096, true), (io, 4097, false), (io, 0, false)]
    {
        let (mut host, mut far) = ready(config);
        let data = Data::Write(Buffer::zeroed(length));
        host.submit(1, entry(1, 0, 0, false), data).unwrap();
        let (sent, pointer) = command(&mut far);
        assert_eq!(pointer.length() as usize, length);
        assert_eq!(matches!(pointer, DataPointer::InCapsule { offset: 0, .. }), is_inside, "{length} B");
        let lent = usize::from(!is_inside && length > 0);
        assert_eq!(host.endpoint().regions(), lent);
        respond(&mut far, sent.command_id, None);
        assert!(matches!(host.poll(), Some(Output::Completed(Completed { cookie: 1, .. }))));
        assert_eq!(host.endpoint().regions(), 0);
    }
}

#[test]
fn a_response_must_be_to_an_outstanding_command() {
    // To none; twice to the same; a short one.
    let (mut host, mut far) = ready(Config::new());
    respond(&mut far, CommandId(3), None);
    assert_eq!(closed(&mut host), Closed::PeerFault(Fault::UnknownCommand(CommandId(3))));

    let (mut host, mut far) = ready(Config::new());
    let id = host.submit(1, entry(READ, 0, 512, false), Data::Read(512)).unwrap();
    host.submit(2, entry(READ, 0, 512, false), Data::Read(512)).unwrap();
    respond(&mut far, id, None);
    respond(&mut far, id, None);
    assert!(matches!(host.poll(), Some(Output::Completed(Completed { cookie: 1, .. }))));
    assert_eq!(closed(&mut host), Closed::PeerFault(Fault::UnknownCommand(id)));

    let (mut host, mut far) = ready(Config::new());
    let inline = Inline::new(&[0; 15]);
    post(&mut far, Operation::Send { inline, data: Buffer::EMPTY, invalidate: None, immediate: None });
    assert_eq!(closed(&mut host), Closed::PeerFault(Fault::CapsuleLength(15)));

    let (mut host, mut far) = ready(Config::new());
    let inline = Inline::new(&[0; 17]);
    post(&mut far, Operation::Send { inline, data: Buffer::EMPTY, invalidate: None, immediate: None });
    assert!(matches!(closed(&mut host), Closed::Disconnected(Disconnected::PeerFault(_))));
}

#[test]
fn a_key_is_invalidated_by_its_own_response_only() {
    let (mut host, mut far) = ready(Config::new());
    let first = host.submit(1, entry(READ, 0, 512, false), Data::Read(512)).unwrap();
    host.submit(2, entry(READ, 0, 512, false), Data::Read(512)).unwrap();
    let _ = command(&mut far);
    let other = keyed(command(&mut far).1);
    respond(&mut far, first, Some(other.key));
    assert_eq!(closed(&mut host), Closed::PeerFault(Fault::ForeignKey(first)));
}

#[test]
fn a_loan_ends_with_the_response() {
    for (invalidates, late) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut host, mut far) = ready(Config::new());
        let id = host.submit(1, entry(READ, 0, 8, false), Data::Read(8)).unwrap();
        let remote = keyed(command(&mut far).1);
        let write = |text: &[u8]| Operation::Write { data: Buffer::copy_from_slice(text), remote };
        post(&mut far, write(b"data"));
        respond(&mut far, id, invalidates.then_some(remote.key));
        let Some(Output::Completed(completed)) = host.poll() else { panic!("no completion") };
        // As many bytes as were written, and no more.
        assert_eq!(completed.data[..], *b"data");
        assert_eq!(host.statistics().invalidated, u64::from(invalidates));
        if late {
            // A stale key ends the connection, and does not touch what was handed over.
            post(&mut far, write(b"late"));
            assert_eq!(closed(&mut host), Closed::Disconnected(Disconnected::Access(AccessError::Key)));
        }
        assert_eq!(completed.data[..], *b"data");
    }
}

#[test]
fn an_end_of_the_connection_ends_every_loan() {
    let why = [Disconnected::InOrder, Disconnected::TimedOut];
    for why in why {
        let (mut host, mut far) = ready(Config::new());
        for cookie in 0..5 {
            host.submit(cookie, entry(READ, 0, 4096, false), Data::Read(4096)).unwrap();
        }
        // What the controller has answered is known; the fate of the others is not.
        let (first, _) = command(&mut far);
        respond(&mut far, first.command_id, None);
        assert!(matches!(host.poll(), Some(Output::Completed(Completed { cookie: 0, .. }))));
        far.break_off(why);
        assert_eq!(closed(&mut host), Closed::Disconnected(why));
    }
    let (mut host, _far) = ready(Config::new());
    host.submit(0, entry(READ, 0, 4096, false), Data::Read(4096)).unwrap();
    host.terminate(Fault::Command);
    assert_eq!(closed(&mut host), Closed::PeerFault(Fault::Command));
}

#[test]
fn a_failure_without_an_event_says_what_failed() {
    /// An endpoint whose connection breaks, of which completions tell before the event.
    #[derive(Debug)]
    struct Late(LocalEndpoint, bool);
    impl Endpoint for Late {
        fn limits(&self) -> rdma::Limits {
            self.0.limits()
        }
        fn poll_event(&mut self) -> Option<Event> {
            if self.1 { None } else { self.0.poll_event() }
        }
        fn accept(&mut self, private_data: &[u8]) {
            self.0.accept(private_data);
        }
        fn reject(&mut self, private_data: &[u8]) {
            self.0.reject(private_data);
        }
        fn disconnect(&mut self) {
            self.0.disconnect();
        }
        fn post_send(&mut self, request: SendRequest) -> Result<(), rdma::PostError> {
            self.0.post_send(request)
        }
        fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), rdma::PostError> {
            self.0.post_receive(request)
        }
        fn poll_completion(&mut self) -> Option<rdma::WorkCompletion> {
            self.0.poll_completion()
        }
        fn register(&mut self, exposure: Exposure) -> Result<Remote, rdma::RegisterError> {
            self.0.register(exposure)
        }
        fn deregister(&mut self, key: Key) -> Option<Buffer> {
            self.0.deregister(key)
        }
    }
    let config = Config::new();
    let shared = SharedPool::default();
    let [near, mut far] = LocalEndpoint::pair(&LocalConfig::default(), &shared, &config.private_data());
    let mut host = Connection::new(NOW, config, Late(near, false));
    far.accept(&Acceptance { controller_receives: 32 }.emit());
    assert!(matches!(host.poll(), Some(Output::Initialized(_))));
    host.endpoint_mut().1 = true;
    far.break_off(Disconnected::TimedOut);
    let Some(Output::Closed(why)) = host.poll() else { panic!("it goes on") };
    assert_eq!(why, Closed::Failed(WorkError::Flushed));
}
