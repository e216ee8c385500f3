use alloc::vec::Vec;

use engine::Nanos;
use nvme::wire::{QueueId, StatusCode, SubmissionQueueEntry};
use rdma::{
    Disconnected, Done, Event, Exposure, Inline, Key, Limits, LocalConfig, LocalEndpoint, Operation,
    ReceiveRequest, Remote, SendRequest, WorkError,
};

use super::*;
use crate::tests::late::Late;
use crate::tests::{NOW, READ, WRITE, entry, pool};
use crate::wire::{Acceptance, Rejection};

const REQUEST: Request = Request { queue: QueueId(1), host_receives: 8, host_sends: 8, controller_id: 1 };

/// A controller, and an endpoint in place of its host.
fn asked(config: Config, private_data: &[u8]) -> (Connection<LocalEndpoint>, LocalEndpoint) {
    let [near, far] = LocalEndpoint::pair(&LocalConfig::default(), &pool(), private_data);
    (Connection::new(NOW, config, far), near)
}

fn ready(config: Config) -> (Connection<LocalEndpoint>, LocalEndpoint) {
    let (mut controller, mut near) = asked(config, &REQUEST.emit());
    assert!(matches!(controller.poll(), Some(Output::Initialized(_))));
    let accepted = Acceptance { controller_receives: 8 }.emit();
    assert_eq!(near.poll_event(), Some(Event::Established { private_data: accepted.to_vec() }));
    for id in 0..64 {
        near.post_receive(ReceiveRequest { id, length_max: 16 }).unwrap();
    }
    controller.set_queue(Queue { size: 8, capsule_data_max: 8192, success_flag: false });
    (controller, near)
}

fn send(near: &mut LocalEndpoint, bytes: &[u8], data: Buffer) {
    let inline = Inline::new(bytes);
    let operation = Operation::Send { inline, data, invalidate: None, immediate: None };
    near.post_send(SendRequest { id: 1000, operation, signalled: false }).unwrap();
}

fn submit(near: &mut LocalEndpoint, id: u16, opcode: u8, pointer: DataPointer, data: Buffer) {
    let entry = SubmissionQueueEntry { command_id: CommandId(id), ..entry(opcode, 0, 0, false) };
    send(near, &pointer.put(entry).emit(), data);
}

fn keyed(remote: Remote) -> DataPointer {
    DataPointer::Keyed { remote, invalidate: true }
}

/// The received responses, with the keys that they have invalidated.
fn responses(near: &mut LocalEndpoint) -> Vec<(u16, Status, Option<Key>)> {
    let mut found = Vec::new();
    while let Some(completion) = near.poll_completion() {
        if let Ok(Done::Received { data, invalidated, .. }) = completion.result {
            let entry = CompletionQueueEntry::parse(data.first_chunk().unwrap());
            found.push((entry.command_id.0, entry.status(), invalidated));
        }
    }
    found
}

fn command(controller: &mut Connection<LocalEndpoint>) -> Slot {
    match controller.poll() {
        Some(Output::Command { slot, .. }) => slot,
        other => panic!("{other:?}"),
    }
}

fn done() -> CompletionQueueEntry {
    CompletionQueueEntry::default()
}

#[test]
fn a_host_is_refused_for_every_reason() {
    let config = || Config { queue_size_max: 8, queue_id_max: 4, ..Config::new(pool()) };
    let refused = |config: Config, private_data: &[u8]| {
        let (mut controller, mut near) = asked(config, private_data);
        let Some(Output::Closed(Closed::Rejected(Some(why)))) = controller.poll() else {
            panic!("it was not refused")
        };
        let rejected = Event::Rejected { private_data: why.emit().to_vec() };
        assert_eq!(near.poll_event(), Some(rejected));
        why
    };
    for length in 0..Request::LENGTH {
        assert_eq!(refused(config(), &REQUEST.emit()[..length]), Rejection::PrivateDataLength);
    }
    assert_eq!(refused(config(), &[1; 32]), Rejection::RecordFormat);
    let with = |request: Request| refused(config(), &request.emit());
    assert_eq!(with(Request { queue: QueueId(5), ..REQUEST }), Rejection::QueueId);
    let long = Request { host_sends: 9, host_receives: 9, ..REQUEST };
    assert_eq!(with(long), Rejection::HostSendQueueSize);
    assert_eq!(with(Request { host_receives: 6, ..REQUEST }), Rejection::HostReceiveQueueSize);
    assert_eq!(with(Request { controller_id: 0xfff0, ..REQUEST }), Rejection::ControllerId);
    for why in [Rejection::NoResources, Rejection::InboundReads, Rejection::OutboundReads] {
        assert_eq!(refused(Config { refusal: Some(why), ..config() }, &REQUEST.emit()), why);
    }
}

#[test]
fn a_host_must_go_on_in_time() {
    let (mut controller, _near) = asked(Config::new(pool()), &REQUEST.emit());
    assert_eq!(controller.poll_timeout(), Some(NOW + Nanos::from_secs(10)));
    controller.handle_timeout(NOW + Nanos::from_secs(10));
    assert!(matches!(controller.poll(), Some(Output::Closed(Closed::InitialiseTimeout))));
}

#[test]
fn wrong_descriptors_fail_their_command_only() {
    let (mut controller, mut near) = ready(Config::new(pool()));
    let lent = near.register(Exposure::Write(512)).unwrap();
    let given = near.register(Exposure::Read(Buffer::zeroed(512))).unwrap();
    let inside = |offset, length| DataPointer::InCapsule { offset, length };
    let typed = |identifier: u64| {
        let raw = SubmissionQueueEntry {
            flags: 0x40,
            data_pointer: [0, identifier << 56],
            ..entry(WRITE, 0, 0, false)
        };
        DataPointer::of(&raw)
    };
    assert_eq!(typed(0), DataPointer::Invalid(StatusCode::SglDescriptorTypeInvalid));
    use StatusCode::{DataSglLengthInvalid, SglDescriptorTypeInvalid, SglOffsetInvalid};
    let cases = [
        (WRITE, keyed(given), DataSglLengthInvalid),
        (READ, keyed(lent), DataSglLengthInvalid),
        (READ, inside(0, 1024), SglDescriptorTypeInvalid),
        (WRITE, inside(0, 512), DataSglLengthInvalid),
        (WRITE, inside(512, 1024), DataSglLengthInvalid),
        (WRITE, inside(0, u32::MAX), DataSglLengthInvalid),
        (WRITE, inside(1025, 1024), SglOffsetInvalid),
        (WRITE, inside(u64::MAX, 1024), SglOffsetInvalid),
    ];
    for (id, (opcode, pointer, expected)) in (0..).zip(cases) {
        let is_inside = matches!(pointer, DataPointer::InCapsule { .. });
        let data = if is_inside { Buffer::zeroed(1024) } else { Buffer::EMPTY };
        submit(&mut near, id, opcode, pointer, data);
        let slot = command(&mut controller);
        let result = match opcode {
            WRITE => controller.pull(slot, 1024).map(|_| ()),
            _ => controller.push(slot, 0, 1024, Buffer::zeroed(1024)),
        };
        let status = result.unwrap_err();
        assert_eq!(status.code(), expected, "{pointer:?}");
        controller.complete(slot, done().with_status(status, false));
        let invalidated = if is_inside { None } else { pointer.key_to_invalidate() };
        assert_eq!(responses(&mut near), [(id, status, invalidated)]);
    }
    // Without SGL, and with a segment: the command's own fault, too.
    for flags in [0, 0x40] {
        let raw = SubmissionQueueEntry { flags, data_pointer: [0, 0x30 << 56], ..entry(WRITE, 0, 0, false) };
        send(&mut near, &raw.emit(), Buffer::EMPTY);
        let slot = command(&mut controller);
        let status = controller.pull(slot, 512).unwrap_err();
        let expected = if flags == 0 { StatusCode::InvalidField } else { SglDescriptorTypeInvalid };
        assert_eq!(status.code(), expected);
        controller.complete(slot, done().with_status(status, false));
        assert_eq!(responses(&mut near).len(), 1);
    }
    assert_eq!(controller.held(), Held::default());
}

#[test]
fn capsules_have_data_at_an_offset() {
    let (mut controller, mut near) = ready(Config::new(pool()));
    let data = Buffer::copy_from_slice(b"....inside..");
    submit(&mut near, 1, WRITE, DataPointer::InCapsule { offset: 4, length: 6 }, data);
    let slot = command(&mut controller);
    assert!(controller.held().to_host >= 12);
    let data = controller.pull(slot, 6).unwrap().unwrap();
    assert_eq!(data[..], *b"inside");
}

#[test]
fn memory_that_is_not_lent_ends_the_connection() {
    let (mut controller, mut near) = ready(Config::new(pool()));
    let stale = near.register(Exposure::Read(Buffer::zeroed(512))).unwrap();
    near.deregister(stale.key);
    submit(&mut near, 1, WRITE, keyed(stale), Buffer::EMPTY);
    let slot = command(&mut controller);
    assert_eq!(controller.pull(slot, 512), Ok(None));
    let Some(Output::Closed(Closed::Disconnected(Disconnected::Reported(_)))) = controller.poll() else {
        panic!("the connection continues")
    };
    // The owner may still answer commands that it has begun.
    controller.complete(slot, done());
    assert!(controller.poll().is_none() && !controller.wants_input());
    assert_eq!((controller.outstanding(), controller.held()), (0, Held::default()));
}

#[test]
fn commands_are_bounded_by_queue_and_receives() {
    let (mut controller, mut near) = ready(Config::new(pool()));
    for id in 0..8 {
        submit(&mut near, id, 0, DataPointer::NONE, Buffer::EMPTY);
    }
    submit(&mut near, 8, 0, DataPointer::NONE, Buffer::EMPTY);
    let slots: Vec<Slot> = (0..8).map(|_| command(&mut controller)).collect();
    // The ninth waits until a response has freed a place.
    assert!(controller.poll().is_none());
    assert_eq!(controller.endpoint().receives_posted(), 0);
    controller.complete(slots[3], done());
    assert_eq!(command(&mut controller), slots[3]);
    assert_eq!(controller.outstanding(), 8);

    // A queue shorter than the host announced in its request.
    let (mut controller, mut near) = asked(Config::new(pool()), &REQUEST.emit());
    assert!(matches!(controller.poll(), Some(Output::Initialized(_))));
    submit(&mut near, 0, 0, DataPointer::NONE, Buffer::EMPTY);
    submit(&mut near, 1, 0, DataPointer::NONE, Buffer::EMPTY);
    command(&mut controller);
    let Some(Output::Closed(why)) = controller.poll() else { panic!("the connection continues") };
    assert_eq!(why, Closed::PeerFault(Fault::TooManyCommands));
}

#[test]
fn a_short_capsule_ends_the_connection() {
    for length in [0, 1, 63] {
        let (mut controller, mut near) = ready(Config::new(pool()));
        send(&mut near, &[0; 64][..length], Buffer::EMPTY);
        let Some(Output::Closed(why)) = controller.poll() else { panic!("the connection continues") };
        assert_eq!(why, Closed::PeerFault(Fault::CapsuleLength(length)));
        assert!(matches!(near.poll_event(), Some(Event::Disconnected(_))));
    }
}

#[test]
fn an_identifier_is_used_once_at_a_time() {
    let (mut controller, mut near) = ready(Config::new(pool()));
    let lent = near.register(Exposure::Write(512)).unwrap();
    submit(&mut near, 7, READ, keyed(lent), Buffer::EMPTY);
    submit(&mut near, 7, READ, keyed(lent), Buffer::EMPTY);
    let slot = command(&mut controller);
    assert!(controller.poll().is_none());
    let conflict = StatusCode::CommandIdConflict.into();
    // The key is still needed: its command continues.
    assert_eq!(responses(&mut near), [(7, conflict, None)]);
    controller.push(slot, 0, 512, Buffer::zeroed(512)).unwrap();
    controller.complete(slot, done());
    assert_eq!(responses(&mut near), [(7, Status::SUCCESS, Some(lent.key))]);
    let statistics = controller.statistics();
    assert_eq!((statistics.commands, statistics.refused), (2, 1));
    assert_eq!(statistics.last_conflict, Some(CommandId(7)));
}

#[test]
fn a_host_that_takes_nothing_gets_no_more_to_do() {
    let config = Config { backlog_bytes_max: 10_000, ..Config::new(pool()) };
    let (mut controller, mut near) = ready(config);
    for id in 0..8 {
        let lent = near.register(Exposure::Write(4096)).unwrap();
        submit(&mut near, id, READ, keyed(lent), Buffer::EMPTY);
    }
    // The third is one too many already, but only the next sees it.
    let slots = [(); 3].map(|()| command(&mut controller));
    assert!(controller.poll().is_none() && !controller.wants_input());
    assert_eq!(controller.held().to_host, 3 * 4096 + 5 * 64);
    for slot in slots {
        controller.push(slot, 0, 4096, Buffer::zeroed(4096)).unwrap();
        controller.complete(slot, done());
    }
    let mut slot = command(&mut controller);
    // Without permission, no command begins.
    controller.permit(Permission { commands: false, data: true });
    controller.push(slot, 0, 4096, Buffer::zeroed(4096)).unwrap();
    controller.complete(slot, done());
    assert!(controller.poll().is_none() && !controller.wants_input());
    controller.permit(Permission::ALL);
    slot = command(&mut controller);
    controller.complete(slot, done());
    assert_eq!(responses(&mut near).len(), 5);
}

/// Either limit lets two of four transfers begin.
#[test]
fn reads_are_few_at_a_time_and_wait_for_permission() {
    reads_are_few(Config { reads_max: 2, ..Config::new(pool()) });
    reads_are_few(Config { pull_bytes_max: 6000, ..Config::new(pool()) });
}

fn reads_are_few(config: Config) {
    let (mut controller, mut near) = ready(config);
    let mut slots = Vec::new();
    for id in 0..4 {
        let data = Buffer::copy_from_slice(&[u8::try_from(id).unwrap(); 4096]);
        let given = near.register(Exposure::Read(data)).unwrap();
        submit(&mut near, id, WRITE, keyed(given), Buffer::EMPTY);
        slots.push(command(&mut controller));
    }
    controller.permit(Permission { commands: true, data: false });
    for slot in &slots {
        assert_eq!(controller.pull(*slot, 4096), Ok(None));
    }
    assert!(!controller.is_owed_data() && controller.poll().is_none());
    controller.permit(Permission::ALL);
    assert_eq!(controller.held().from_host, 2 * 4096);
    // The first is given up while its data are coming: its response waits for them.
    controller.complete(slots[0], done());
    assert!(responses(&mut near).is_empty() || controller.outstanding() == 4);
    for (number, slot) in (1..).zip(&slots[1..]) {
        let Some(Output::HostData { slot: found, data }) = controller.poll() else { panic!("no data") };
        assert_eq!((found, &data[..]), (*slot, &[number; 4096][..]));
        controller.complete(found, done());
    }
    assert!(controller.poll().is_none());
    assert_eq!(responses(&mut near).iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(controller.held(), Held::default());
}

#[test]
fn giving_up_is_silent() {
    let (mut controller, mut near) = ready(Config::new(pool()));
    submit(&mut near, 0, 0, DataPointer::NONE, Buffer::EMPTY);
    let slot = command(&mut controller);
    submit(&mut near, 1, 0, DataPointer::NONE, Buffer::EMPTY);
    controller.give_up();
    assert!(controller.poll().is_none() && !controller.wants_input());
    controller.complete(slot, done());
    assert_eq!(controller.held(), Held::default());
    assert!(responses(&mut near).is_empty());
    assert!(matches!(near.poll_event(), Some(Event::Disconnected(Disconnected::InOrder))));
}

#[test]
fn an_endpoint_that_fails_a_request_ends_the_connection() {
    let (mut controller, mut near) = ready(Config::new(pool()));
    near.break_off(Disconnected::TimedOut);
    let Some(Output::Closed(why)) = controller.poll() else { panic!("the connection continues") };
    assert!(matches!(why, Closed::Disconnected(Disconnected::TimedOut) | Closed::Failed(WorkError::Flushed)));
}

#[test]
fn a_read_that_brings_other_bytes_ends_the_connection() {
    let twists: [fn(Buffer) -> Buffer; 2] =
        [|data| data.slice(0..data.len() - 1), |data| Buffer::zeroed(data.len() + 1)];
    for twist in twists {
        let [mut near, inner] = LocalEndpoint::pair(&LocalConfig::default(), &pool(), &REQUEST.emit());
        let endpoint = Late { twist, ..Late::new(inner) };
        let mut controller = Connection::new(NOW, Config::new(pool()), endpoint);
        assert!(matches!(controller.poll(), Some(Output::Initialized(_))));
        let given = near.register(Exposure::Read(Buffer::zeroed(512))).unwrap();
        submit(&mut near, 1, WRITE, keyed(given), Buffer::EMPTY);
        let Some(Output::Command { slot, .. }) = controller.poll() else { panic!("no command") };
        assert_eq!(controller.pull(slot, 512), Ok(None));
        let Some(Output::Closed(why)) = controller.poll() else { panic!("the connection continues") };
        assert_eq!(why, Closed::Failed(WorkError::BadResponse));
    }
}

#[test]
fn commands_may_come_before_the_connection_is_known_to_be_made() {
    let [mut near, inner] = LocalEndpoint::pair(&LocalConfig::default(), &pool(), &REQUEST.emit());
    let mut controller = Connection::new(NOW, Config::new(pool()), Late::new(inner));
    assert!(controller.core.poll().is_some_and(|news| controller.on_news(news).is_none()));
    controller.endpoint_mut().no_events = true;
    submit(&mut near, 1, 0, DataPointer::NONE, Buffer::EMPTY);
    assert!(controller.poll().is_none());
    assert_eq!(controller.held().to_host, 64);
    controller.endpoint_mut().no_events = false;
    assert!(matches!(controller.poll(), Some(Output::Initialized(_))));
    assert!(matches!(controller.poll(), Some(Output::Command { .. })));
}

#[test]
fn data_come_while_no_command_may_be_taken() {
    let (mut controller, mut near) = ready(Config::new(pool()));
    let given = near.register(Exposure::Read(Buffer::zeroed(512))).unwrap();
    submit(&mut near, 1, WRITE, keyed(given), Buffer::EMPTY);
    let slot = command(&mut controller);
    assert_eq!(controller.pull(slot, 512), Ok(None));
    controller.permit(Permission { commands: false, data: false });
    submit(&mut near, 2, 0, DataPointer::NONE, Buffer::EMPTY);
    assert!(controller.wants_input() && controller.is_owed_data());
    let Some(Output::HostData { slot: found, .. }) = controller.poll() else { panic!("no data") };
    assert_eq!(found, slot);
    assert!(controller.poll().is_none());
    assert!(!controller.wants_input() && controller.held().to_host == 64);
}

/// Each response takes little memory, but their number for a host that does not read is limited.
#[test]
fn responses_that_wait_are_bounded() {
    let limits = Limits { send_requests: 4, ..LocalConfig::default().limits };
    let local = LocalConfig { limits, ..LocalConfig::default() };
    let [mut near, far] = LocalEndpoint::pair(&local, &pool(), &REQUEST.emit());
    let mut controller = Connection::new(NOW, Config::new(pool()), far);
    assert!(matches!(controller.poll(), Some(Output::Initialized(_))));
    controller.set_queue(Queue { size: 8, capsule_data_max: 8192, success_flag: false });
    let mut taken = 0;
    for id in 0..3 * u16::try_from(SENDS_WAITING_MAX).unwrap() {
        let entry = SubmissionQueueEntry { command_id: CommandId(id), ..entry(0, 0, 0, false) };
        let inline = Inline::new(&DataPointer::NONE.put(entry).emit());
        let operation = Operation::Send { inline, data: Buffer::EMPTY, invalidate: None, immediate: None };
        if near.post_send(SendRequest { id: 0, operation, signalled: false }).is_err() {
            break;
        }
        while let Some(Output::Command { slot, .. }) = controller.poll() {
            taken += 1;
            controller.complete(slot, done());
        }
    }
    assert!(!controller.wants_input());
    assert_eq!(taken, SENDS_WAITING_MAX + 1 + usize::from(limits.send_requests));
    // The host reads them after all, and its commands of the meantime complete, too.
    for id in 0..2000 {
        near.post_receive(ReceiveRequest { id, length_max: 16 }).unwrap();
    }
    let mut answered = 0;
    for _ in 0..1000 {
        while let Some(Output::Command { slot, .. }) = controller.poll() {
            taken += 1;
            controller.complete(slot, done());
        }
        answered += responses(&mut near).len();
    }
    assert_eq!(answered, taken);
    assert!(controller.wants_input() && taken > SENDS_WAITING_MAX + 8);
}
