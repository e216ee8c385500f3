use alloc::vec;
use alloc::vec::Vec;

use engine::{Engine, Instant, Nanos};
use nvme::wire::QueueId;
use rdma::{
    AccessError, Disconnected, Done, Event, Inline, Limits, LocalConfig, LocalEndpoint, Operation,
    QueuePairId, ReceiveRequest, Remote, SendRequest, WorkCompletion, WorkError,
};

use super::*;
use crate::tests::late::Late;
use crate::tests::{NOW, READ, entry, pool};
use crate::wire::{Acceptance, PrivateDataError, Rejection, Request};

/// A host, and an endpoint in place of its controller.
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
    let Some(Output::Closed(why)) = host.poll() else { panic!("the connection continues") };
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

/// The received command, with its data pointer.
fn command(far: &mut LocalEndpoint) -> (SubmissionQueueEntry, DataPointer) {
    while let Some(completion) = far.poll_completion() {
        if let Ok(Done::Received { data, .. }) = completion.result {
            let entry = SubmissionQueueEntry::parse(data.first_chunk().unwrap());
            return (entry, DataPointer::of(&entry));
        }
    }
    panic!("no command was received");
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
    // To an unknown command; twice to the same; a short one.
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
            // A stale key ends the connection, and does not affect the returned data.
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
        // The fate of answered commands is known; that of the others is not.
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

/// A host over an endpoint that delays some events, with a queue of one command and `places` in the
/// send queue.
fn late(places: u16) -> (Connection<Late>, LocalEndpoint) {
    let config = Config { queue_size: 1, ..Config::new() };
    let limits = Limits { send_requests: places, ..LocalConfig::default().limits };
    let local = LocalConfig { limits, ..LocalConfig::default() };
    let [inner, mut far] = LocalEndpoint::pair(&local, &pool(), &config.private_data());
    for id in 0..64 {
        far.post_receive(ReceiveRequest { id, length_max: 1 << 16 }).unwrap();
    }
    let endpoint = Late::new(inner);
    let mut host = Connection::new(NOW, config, endpoint);
    far.accept(&Acceptance { controller_receives: 32 }.emit());
    assert!(matches!(host.poll(), Some(Output::Initialized(_))));
    (host, far)
}

#[test]
fn a_failure_without_an_event_names_the_failed_request() {
    let (mut host, mut far) = late(1);
    host.endpoint_mut().no_events = true;
    far.break_off(Disconnected::TimedOut);
    let Some(Output::Closed(why)) = host.poll() else { panic!("the connection continues") };
    assert_eq!(why, Closed::Failed(WorkError::Flushed));
}

#[test]
fn a_response_may_come_before_the_completion_of_its_command() {
    let (mut host, mut far) = late(1);
    host.endpoint_mut().no_sent = true;
    for cookie in 0..3 {
        let id = host.submit(cookie, entry(READ, 0, 0, false), Data::None).unwrap();
        let _ = command(&mut far);
        respond(&mut far, id, None);
        assert!(matches!(host.poll(), Some(Output::Completed(one)) if one.cookie == cookie));
        // The command has ended, and its place in the send queue is still occupied.
        assert_eq!(host.outstanding(), 0);
        assert!(!host.has_room());
        let entry = entry(READ, 0, 0, false);
        assert_eq!(host.submit(9, entry, Data::None), Err(SubmitError::Busy));
        host.endpoint_mut().no_sent = false;
        assert!(host.poll().is_none() && host.has_room());
        host.endpoint_mut().no_sent = true;
    }
}

#[test]
fn most_commands_have_no_completion() {
    let (mut host, mut far) = late(16);
    host.endpoint_mut().no_sent = true;
    for cookie in 0..16 {
        let id = host.submit(cookie, entry(READ, 0, 0, false), Data::None).unwrap();
        let _ = command(&mut far);
        respond(&mut far, id, None);
        assert!(matches!(host.poll(), Some(Output::Completed(_))));
    }
    assert_eq!(host.endpoint().kept.len(), 1);
    assert!(!host.has_room());
    host.endpoint_mut().no_sent = false;
    assert!(host.poll().is_none() && host.has_room());
}

#[test]
fn memory_that_the_controller_leaves_out_is_wiped() {
    let config = Config::new();
    let shared = pool();
    let [near, mut far] = LocalEndpoint::pair(&LocalConfig::default(), &shared, &config.private_data());
    let mut host = Connection::new(NOW, config, near);
    far.accept(&Acceptance { controller_receives: 32 }.emit());
    assert!(matches!(host.poll(), Some(Output::Initialized(_))));
    for id in 0..64 {
        far.post_receive(ReceiveRequest { id, length_max: 1 << 16 }).unwrap();
    }
    // Blocks of the pool have secrets of earlier users.
    let mut blocks: Vec<_> = (0..8).map(|_| shared.borrow_mut().take(512)).collect();
    blocks.iter_mut().for_each(|block| block.fill(0xee));
    for block in blocks {
        drop(shared.borrow_mut().seal(block));
    }
    for (offset, length) in [(0, 0), (0, 100), (500, 12), (511, 1), (200, 8)] {
        let id = host.submit(1, entry(READ, 0, 512, false), Data::Read(512)).unwrap();
        let lent = keyed(command(&mut far).1);
        let remote =
            Remote { address: lent.address + offset as u64, length: u32::try_from(length).unwrap(), ..lent };
        post(&mut far, Operation::Write { data: Buffer::copy_from_slice(&vec![7; length]), remote });
        respond(&mut far, id, None);
        let Some(Output::Completed(completed)) = host.poll() else { panic!("no completion") };
        let mut expected = vec![0; offset];
        expected.extend(vec![7; length]);
        let expected = if length == 0 { Vec::new() } else { expected };
        assert_eq!(completed.data[..], expected);
    }
}

#[test]
fn an_owner_ends_a_connection_in_order() {
    let (mut host, mut far) = ready(Config::new());
    host.submit(0, entry(READ, 0, 4096, false), Data::Read(4096)).unwrap();
    host.endpoint_mut().disconnect();
    assert_eq!(closed(&mut host), Closed::Disconnected(Disconnected::InOrder));
    assert!(matches!(far.poll_event(), Some(Event::Established { .. })));
    assert_eq!(far.poll_event(), Some(Event::Disconnected(Disconnected::InOrder)));
}

#[test]
fn an_endpoint_that_reports_an_unknown_request_ends_the_connection() {
    for result in [Done::Sent, Done::Written, Done::Read(Buffer::EMPTY)] {
        let (mut host, _far) = late(4);
        host.endpoint_mut().kept.push_back(WorkCompletion {
            id: 77,
            queue_pair: QueuePairId(1),
            result: Ok(result),
        });
        let Some(Output::Closed(why)) = host.poll() else { panic!("the connection continues") };
        assert_eq!(why, Closed::Failed(WorkError::BadResponse));
    }
}

#[test]
fn a_host_waits_while_no_more_memory_can_be_lent() {
    let config = Config::new();
    let local = LocalConfig { regions_max: 1, ..LocalConfig::default() };
    let [near, mut far] = LocalEndpoint::pair(&local, &pool(), &config.private_data());
    for id in 0..4 {
        far.post_receive(ReceiveRequest { id, length_max: 1 << 16 }).unwrap();
    }
    let mut host = Connection::new(NOW, config, near);
    far.accept(&Acceptance { controller_receives: 32 }.emit());
    assert!(matches!(host.poll(), Some(Output::Initialized(_))));
    let id = host.submit(1, entry(READ, 0, 8, false), Data::Read(8)).unwrap();
    assert_eq!(host.submit(2, entry(READ, 0, 8, false), Data::Read(8)), Err(SubmitError::Busy));
    // A command without data needs no memory.
    host.submit(3, entry(READ, 0, 0, false), Data::None).unwrap();
    assert_eq!((host.outstanding(), host.statistics().submitted), (2, 2));
    respond(&mut far, id, None);
    assert!(matches!(host.poll(), Some(Output::Completed(Completed { cookie: 1, .. }))));
    host.submit(2, entry(READ, 0, 8, false), Data::Read(8)).unwrap();
}
