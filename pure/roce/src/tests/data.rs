//! Messages, writes and reads, over good networks and bad ones.

use super::*;
use rdma::{AccessError, Disconnected, Exposure, Key, WorkError};

/// The messages that a peer must receive, in order.
#[derive(Default)]
struct Expected {
    messages: Vec<Buffer>,
    seen: usize,
}

#[test]
fn messages_writes_and_reads_arrive() {
    for mtu in [PathMtu::B256, PathMtu::B512, PathMtu::B1024, PathMtu::B2048, PathMtu::B4096] {
        let mut net = Net::new(mtu as u64, |config| config.mtu = mtu);
        let [mut here, mut there] = net.connect();
        let mut rng = Rng::from_seed(7);
        for length in [0, 1, 255, 256, 257, 4096, 4097, 100_001, 1 << 20] {
            let data = bytes(&mut rng, length);
            there.post_receive(receive(1, 1 << 20)).unwrap();
            let lent = there.register(Exposure::Read(data.clone())).unwrap();
            let room = there.register(Exposure::Write(u32::try_from(length).unwrap())).unwrap();
            let write = Operation::Write { data: data.clone(), remote: room };
            here.post_send(SendRequest { id: 2, operation: write, signalled: true }).unwrap();
            let read = Operation::Read { remote: lent };
            here.post_send(SendRequest { id: 3, operation: read, signalled: false }).unwrap();
            let inline = Inline::new(&[9; 37]);
            let send = Operation::Send {
                inline,
                data: data.slice(0..length.min((1 << 20) - 37)),
                invalidate: Some(lent.key),
                immediate: None,
            };
            here.post_send(SendRequest { id: 4, operation: send, signalled: true }).unwrap();
            let mut done = Vec::new();
            net.run("completions", |_| {
                done.extend(completions(&mut here));
                done.len() == 3
            });
            assert_eq!(done.iter().map(|one| one.id).collect::<Vec<_>>(), [2, 3, 4]);
            assert_eq!(done[1].result, Ok(Done::Read(data.clone())));
            let came = completions(&mut there);
            let Ok(Done::Received { data: came, invalidated, immediate: None }) = &came[0].result else {
                panic!("{came:?}")
            };
            assert_eq!(*invalidated, Some(lent.key));
            assert_eq!(came[..37], [9; 37]);
            assert_eq!(came[37..], data[..came.len() - 37]);
            assert_eq!(there.deregister(room.key).unwrap(), data);
            assert_eq!(there.deregister(lent.key).unwrap(), data);
        }
        assert_eq!(net.devices[0].borrow().counters().repeated, 0, "nothing is sent twice without a reason");
    }
}

#[test]
fn immediate_data_comes_with_its_message() {
    let mut net = Net::new(1, |_| ());
    let [mut here, mut there] = net.connect();
    there.post_receive(receive(1, 4096)).unwrap();
    let data = Buffer::copy_from_slice(&[5; 1000]);
    let operation =
        Operation::Send { inline: Inline::EMPTY, data, invalidate: None, immediate: Some(0x0102_0304) };
    here.post_send(SendRequest { id: 1, operation: operation.clone(), signalled: false }).unwrap();
    let mut came = Vec::new();
    net.run("the message", |_| {
        came.extend(completions(&mut there));
        !came.is_empty()
    });
    assert!(matches!(&came[0].result, Ok(Done::Received { immediate: Some(0x0102_0304), .. })), "{came:?}");
    let Operation::Send { inline, data, immediate, .. } = operation else { unreachable!() };
    let operation = Operation::Send { inline, data, invalidate: Some(Key(1)), immediate };
    let both = SendRequest { id: 2, operation, signalled: false };
    assert_eq!(here.post_send(both), Err(rdma::PostError::Unsupported));
}

/// Runs traffic in both directions over a network with faults. Checks that everything arrives once
/// and in order, and that every read and write has the right bytes.
fn campaign(seed: u64, faults: Faults, configure: impl Fn(&mut Config)) -> u64 {
    let mut net = Net::new(seed, configure);
    net.faults = faults;
    let mut ends = net.connect();
    let mut rng = Rng::from_seed(seed).fork("traffic");
    let mut expected = [Expected::default(), Expected::default()];
    // For each direction: the memory lent for reading, and the bytes read and written.
    let lent = [0, 1].map(|_| bytes(&mut rng, 70_000));
    let regions = [0, 1].map(|side| ends[side].register(Exposure::Read(lent[side].clone())).unwrap());
    let rooms = [0, 1].map(|side| ends[side].register(Exposure::Write(70_000)).unwrap());
    let mut written = [vec![0_u8; 70_000], vec![0_u8; 70_000]];
    let mut reads: [Vec<(u64, usize, usize)>; 2] = [Vec::new(), Vec::new()];
    let (mut posted, mut done) = ([0_u64; 2], [0_u64; 2]);
    const REQUESTS: u64 = 24;
    net.run(&format!("seed {seed}"), |_| {
        for side in 0..2 {
            if rng.one_in(3) {
                // Sometimes there is no receive request.
                let _ = ends[side].post_receive(receive(7, 3000));
            }
            if posted[side] < REQUESTS && rng.one_in(2) {
                posted[side] += 1;
                let (id, other) = (posted[side], 1 - side);
                let offset = usize::try_from(rng.below(30_000)).unwrap();
                let length = usize::try_from(rng.below(40_000) >> rng.below(12)).unwrap();
                let place = |region: rdma::Remote| rdma::Remote {
                    address: region.address + offset as u64,
                    length: u32::try_from(length).unwrap(),
                    ..region
                };
                let data = bytes(&mut rng, length);
                let operation = match rng.below(3) {
                    0 => {
                        reads[side].push((id, offset, length));
                        Operation::Read { remote: place(regions[other]) }
                    }
                    1 => {
                        written[other][offset..offset + length].copy_from_slice(&data);
                        Operation::Write { data, remote: place(rooms[other]) }
                    }
                    _ => {
                        let data = data.slice(0..length.min(3000));
                        expected[other].messages.push(data.clone());
                        message(id, data).operation
                    }
                };
                // In every second session, some requests have no completion.
                let signalled = seed.is_multiple_of(2) || id == REQUESTS || rng.one_in(2);
                ends[side].post_send(SendRequest { id, operation, signalled }).unwrap();
            }
            assert_eq!(ends[side].poll_event(), None);
            for completion in completions(&mut ends[side]) {
                if let Some(data) = received(&completion) {
                    let expected = &mut expected[side];
                    assert_eq!(*data, expected.messages[expected.seen], "message {}", expected.seen);
                    expected.seen += 1;
                    continue;
                }
                let skips = if seed.is_multiple_of(2) { 1 } else { REQUESTS };
                let next = done[side] + 1..=done[side] + skips;
                assert!(next.contains(&completion.id), "completions are in order");
                done[side] = completion.id;
                if let Ok(Done::Read(data)) = &completion.result {
                    let (id, offset, length) = reads[side].remove(0);
                    assert_eq!(id, completion.id);
                    assert_eq!(**data, lent[1 - side][offset..offset + length]);
                }
                assert!(completion.result.is_ok(), "{completion:?}");
            }
        }
        done == [REQUESTS; 2]
    });
    net.pass(Nanos::from_millis(50));
    for side in 0..2 {
        let left = completions(&mut ends[side]);
        assert!(left.iter().all(|one| received(one).is_none()), "seed {seed}: twice: {left:?}");
        assert_eq!(expected[side].seen, expected[side].messages.len());
        let room = ends[side].deregister(rooms[side].key).unwrap();
        assert_eq!(room[..], written[side][..room.len()], "seed {seed}");
        assert!(written[side][room.len()..].iter().all(|byte| *byte == 0));
    }
    net.devices.iter().map(|device| device.borrow().counters().repeated).sum()
}

#[test]
fn everything_arrives_once_and_in_order_over_any_network() {
    let faults = [
        Faults::default(),
        Faults { lost: 30, ..Faults::default() },
        Faults { doubled: 5, ..Faults::default() },
        Faults { late: 8, ..Faults::default() },
        Faults { corrupt: 30, ..Faults::default() },
        Faults { lost: 40, doubled: 10, late: 10, corrupt: 40 },
    ];
    let mut repeated = 0;
    for seed in 0..180 {
        let mtu = if seed % 5 == 0 { PathMtu::B4096 } else { PathMtu::B256 };
        repeated += campaign(seed, faults[usize::try_from(seed).unwrap() % faults.len()], |config| {
            config.mtu = mtu;
            config.reads = u8::try_from(seed % 4 + 1).unwrap();
        });
    }
    assert!(repeated > 1000, "packets were lost: {repeated}");
}

#[test]
fn sequence_numbers_wrap_while_packets_are_lost() {
    for seed in 0..12 {
        let mut net = Net::new(seed, |_| ());
        // Identifiers and numbers of all ones, apart from a few.
        let near_end = Entropy::System(|bytes| {
            bytes.fill(0xff);
            bytes[0] = 0xf0;
        });
        for (index, address) in net.addresses.iter().enumerate() {
            let mut config = Config::new(*address);
            config.mtu = PathMtu::B256;
            net.devices[index] = device(config, near_end.clone());
        }
        net.faults = Faults { lost: 15, doubled: 15, late: 15, ..Faults::default() };
        let [mut here, mut there] = net.connect();
        let mut rng = Rng::from_seed(seed);
        let data: Vec<_> = (0..40).map(|_| bytes(&mut rng, 700)).collect();
        for (id, one) in (0..).zip(&data) {
            there.post_receive(receive(id, 1000)).unwrap();
            here.post_send(message(id, one.clone())).unwrap();
        }
        let mut came = Vec::new();
        net.run("the messages", |_| {
            came.extend(completions(&mut there));
            came.len() == data.len()
        });
        assert_eq!(came.iter().filter_map(received).collect::<Vec<_>>(), data.iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_receiver_that_is_never_ready_is_asked_as_often_as_agreed() {
    let mut net = Net::new(0, |config| config.rnr_retries = 3);
    let [mut here, mut there] = net.connect();
    here.post_send(message(1, Buffer::copy_from_slice(b"one"))).unwrap();
    net.pass(Nanos::from_millis(2));
    there.post_receive(receive(1, 64)).unwrap();
    let mut done = Vec::new();
    net.run("the message", |_| {
        done.extend(completions(&mut here));
        !done.is_empty()
    });
    assert_eq!(done[0].result, Ok(Done::Sent));
    here.post_send(message(2, Buffer::copy_from_slice(b"two"))).unwrap();
    done.clear();
    net.run("the failure", |_| {
        done.extend(completions(&mut here));
        !done.is_empty()
    });
    assert_eq!((done[0].id, &done[0].result), (2, &Err(WorkError::ReceiverNotReady)));
    assert!(matches!(here.poll_event(), Some(Event::Disconnected(Disconnected::Reported(_)))));
}

/// The peer reports its receive requests: a sender with more messages does not repeat them.
#[test]
fn credits_keep_a_sender_from_asking_in_vain() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    there.post_receive(receive(0, 64)).unwrap();
    for id in 0..20 {
        here.post_send(message(id, Buffer::copy_from_slice(&[1; 40]))).unwrap();
    }
    let mut count = 0;
    net.run("all messages", |_| {
        for _ in completions(&mut there) {
            count += 1;
            there.post_receive(receive(0, 64)).unwrap();
            there.post_receive(receive(0, 64)).unwrap();
        }
        count == 20
    });
    let repeated = net.devices[0].borrow().counters().repeated;
    assert!(repeated <= 20, "{repeated} packets repeated");
}

#[test]
fn a_peer_that_falls_silent_is_given_up() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    there.post_receive(receive(1, 64)).unwrap();
    net.faults.lost = 1;
    here.post_send(message(1, Buffer::copy_from_slice(b"one"))).unwrap();
    here.post_send(message(2, Buffer::copy_from_slice(b"two"))).unwrap();
    let mut done = Vec::new();
    net.run("the failure", |_| {
        done.extend(completions(&mut here));
        done.len() == 2
    });
    assert_eq!(done[0].result, Err(WorkError::RetryExceeded));
    assert_eq!(done[1].result, Err(WorkError::Flushed));
    assert_eq!(here.poll_event(), Some(Event::Disconnected(Disconnected::TimedOut)));
    drop(here);
    net.run("the end of the connection", |net| net.devices[0].borrow().connections() == 0);
}

#[test]
fn a_wrong_access_ends_its_connection_and_no_other() {
    type Wrong = fn(rdma::Remote, rdma::Remote) -> Operation;
    let data = || Buffer::copy_from_slice(&[1; 600]);
    let cases: [(Wrong, AccessError); 5] = [
        (
            |read, _| Operation::Read { remote: rdma::Remote { key: Key(read.key.0 ^ 1 << 25), ..read } },
            AccessError::Key,
        ),
        (
            |read, _| Operation::Read { remote: rdma::Remote { length: read.length + 1, ..read } },
            AccessError::Bounds,
        ),
        (|_, write| Operation::Read { remote: write }, AccessError::Right),
        (
            |read, _| Operation::Write { data: Buffer::copy_from_slice(&[1; 600]), remote: read },
            AccessError::Right,
        ),
        (
            |_, write| Operation::Write {
                data: Buffer::copy_from_slice(&[1; 600]),
                remote: rdma::Remote { address: write.address + 1, ..write },
            },
            AccessError::Bounds,
        ),
    ];
    for (wrong, error) in cases {
        let mut net = Net::new(4, |_| ());
        let [mut good, mut good_there] = net.connect();
        let [mut here, mut there] = net.connect();
        let read = there.register(Exposure::Read(data())).unwrap();
        let write = there.register(Exposure::Write(600)).unwrap();
        here.post_send(SendRequest { id: 1, operation: wrong(read, write), signalled: false }).unwrap();
        let mut done = Vec::new();
        net.run("the failure", |_| {
            done.extend(completions(&mut here));
            !done.is_empty()
        });
        assert_eq!(done[0].result, Err(WorkError::RemoteAccess), "{error:?}");
        assert_eq!(there.poll_event(), Some(Event::Disconnected(Disconnected::Access(error))));
        assert!(matches!(here.poll_event(), Some(Event::Disconnected(Disconnected::Reported(_)))));
        assert_eq!(there.deregister(write.key).unwrap().len(), 0, "nothing was written");
        good_there.post_receive(receive(1, 64)).unwrap();
        good.post_send(message(1, Buffer::copy_from_slice(b"still here"))).unwrap();
        net.run("the other connection", |_| !completions(&mut good_there).is_empty());
    }
}

#[test]
fn a_message_that_is_too_long_ends_the_connection() {
    for length in [65, 300, 1000] {
        let mut net = Net::new(0, |_| ());
        let [mut here, mut there] = net.connect();
        there.post_receive(receive(1, 64)).unwrap();
        here.post_send(message(1, Buffer::zeroed(length))).unwrap();
        let mut done = Vec::new();
        net.run("the failure", |_| {
            done.extend(completions(&mut here));
            !done.is_empty()
        });
        assert_eq!(done[0].result, Err(WorkError::RemoteInvalidRequest));
        assert_eq!(completions(&mut there)[0].result, Err(WorkError::LocalLength));
        assert!(matches!(there.poll_event(), Some(Event::Disconnected(Disconnected::PeerFault(_)))));
    }
}

/// A network that marks packets slows the sender down, and loses none.
#[test]
fn marked_packets_slow_their_sender_down() {
    let time = |is_congested: bool| {
        let mut net = Net::new(0, |config| config.line_rate = 100_000_000);
        let [mut here, mut there] = net.connect();
        net.is_congested = is_congested;
        let data = bytes(&mut Rng::from_seed(1), 1 << 20);
        let room = there.register(Exposure::Write(1 << 20)).unwrap();
        let lent = there.register(Exposure::Read(data.clone())).unwrap();
        for operation in
            [Operation::Write { data: data.clone(), remote: room }, Operation::Read { remote: lent }]
        {
            here.post_send(SendRequest { id: 1, operation, signalled: true }).unwrap();
        }
        let start = net.now;
        let mut done = Vec::new();
        net.run("the data", |_| {
            done.extend(completions(&mut here));
            done.len() == 2
        });
        assert_eq!(done[1].result, Ok(Done::Read(data.clone())));
        assert_eq!(there.deregister(room.key).unwrap(), data);
        let notifications = net.seen.iter().filter(|(_, one)| one.slices()[0][0] == 0x81).count();
        assert_eq!(notifications > 0, is_congested, "{notifications} notifications");
        net.now - start
    };
    let [free, congested] = [false, true].map(time);
    assert!(congested > free * 4, "{free} without marks, {congested} with them");
}

/// The operation codes of the packets that the device with this index has sent since `from`.
fn codes(net: &Net, index: usize, from: usize) -> Vec<u8> {
    let sent = net.seen[from..].iter().filter(|(_, one)| one.from.ip() == net.addresses[index]);
    sent.map(|(_, one)| one.slices().concat()[0]).collect()
}

const SEND_ONLY: u8 = 4;
const ACKNOWLEDGE: u8 = 17;

#[test]
fn an_answer_goes_before_the_acknowledgement() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    there.post_receive(receive(1, 100)).unwrap();
    here.post_receive(receive(1, 100)).unwrap();
    let from = net.seen.len();
    here.post_send(message(1, Buffer::zeroed(9))).unwrap();
    net.run("the answer", |_| {
        if !completions(&mut there).is_empty() {
            there.post_send(message(1, Buffer::zeroed(9))).unwrap();
        }
        completions(&mut here).len() == 2
    });
    assert_eq!(codes(&net, 1, from), [SEND_ONLY, ACKNOWLEDGE]);
}

#[test]
fn an_acknowledgement_does_not_wait_for_an_endless_stream() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    there.post_receive(receive(1, 100)).unwrap();
    let room = here.register(Exposure::Write(100_000)).unwrap();
    let from = net.seen.len();
    here.post_send(message(1, Buffer::zeroed(9))).unwrap();
    net.run("the acknowledgement", |_| {
        if !completions(&mut there).is_empty() {
            let operation = Operation::Write { data: Buffer::zeroed(100_000), remote: room };
            there.post_send(SendRequest { id: 2, operation, signalled: true }).unwrap();
        }
        !completions(&mut here).is_empty()
    });
    let codes = codes(&net, 1, from);
    assert!(codes.iter().position(|code| *code == ACKNOWLEDGE).unwrap() <= 8, "{codes:?}");
}

#[test]
fn a_write_and_the_message_behind_it_are_acknowledged_at_once() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    there.post_receive(receive(1, 100)).unwrap();
    let room = there.register(Exposure::Write(600)).unwrap();
    let from = net.seen.len();
    let operation = Operation::Write { data: Buffer::zeroed(600), remote: room };
    here.post_send(SendRequest { id: 1, operation: operation.clone(), signalled: true }).unwrap();
    here.post_send(message(2, Buffer::zeroed(9))).unwrap();
    let mut done = Vec::new();
    net.run("both", |_| {
        done.extend(completions(&mut here).iter().map(|one| one.id));
        done.len() == 2
    });
    assert_eq!((done, codes(&net, 1, from)), (vec![1, 2], vec![ACKNOWLEDGE]));
    // A write with nothing behind it requests its own acknowledgement.
    here.post_send(SendRequest { id: 3, operation, signalled: true }).unwrap();
    net.run("the write", |_| !completions(&mut here).is_empty());
    assert_eq!(codes(&net, 1, from), [ACKNOWLEDGE; 2]);
}

/// A message without a completion.
fn quiet(id: u64, data: Buffer) -> SendRequest {
    SendRequest { signalled: false, ..message(id, data) }
}

/// Acknowledgements that were sent since `from`.
fn acknowledgements(net: &Net, from: usize) -> usize {
    let code = crate::wire::opcode::ACKNOWLEDGE;
    net.seen[from..].iter().filter(|(_, datagram)| datagram.slices()[0][0] == code).count()
}

#[test]
fn messages_without_completion_are_acknowledged_now_and_then() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    let mut come = 0;
    for id in 0..100 {
        there.post_receive(receive(id, 64)).unwrap();
    }
    let mut exchange = |net: &mut Net, request: SendRequest| {
        here.post_send(request).unwrap();
        net.pass(Nanos::from_micros(100));
        come += completions(&mut there).len();
        assert_eq!(completions(&mut here).len(), 0);
        come
    };
    let before = net.seen.len();
    for id in 1..=64 {
        assert_eq!(exchange(&mut net, quiet(id, Buffer::copy_from_slice(b"a command"))), come_of(id));
    }
    assert_eq!(acknowledgements(&net, before), 4, "each sixteenth packet asks");
    // Then the traffic stops. The last packet is sent again with a request for an acknowledgement.
    let id = 65;
    assert_eq!(exchange(&mut net, quiet(id, Buffer::copy_from_slice(b"the last"))), come_of(id));
    let repeated = |net: &Net| net.devices[0].borrow().counters().repeated;
    assert_eq!((acknowledgements(&net, before), repeated(&net)), (4, 0));
    net.pass(Nanos::from_millis(20));
    assert_eq!((acknowledgements(&net, before), repeated(&net)), (5, 1));
    net.pass(Nanos::from_secs(1));
    assert_eq!((acknowledgements(&net, before), repeated(&net)), (5, 1), "once is enough");
    assert!(there.poll_event().is_none() && here.poll_event().is_none());
}

const fn come_of(id: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "a small number")]
    let come = id as usize;
    come
}

#[test]
fn a_lost_message_without_completion_arrives_before_the_time_out() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    for id in 0..10 {
        there.post_receive(receive(id, 64)).unwrap();
    }
    for lost in [1, 2] {
        for id in 0..lost {
            here.post_send(quiet(id, Buffer::copy_from_slice(b"a command"))).unwrap();
        }
        net.faults.lost = 1;
        net.pass(Nanos::from_micros(100));
        net.faults.lost = 0;
        assert_eq!(completions(&mut there).len(), 0);
        net.pass(Nanos::from_millis(20));
        assert_eq!(completions(&mut there).len() as u64, lost);
    }
}

/// Places of a short send queue are freed, and a peer with few receive requests reports credits.
#[test]
fn an_end_that_is_about_to_run_out_asks_for_acknowledgements() {
    for (send_depth, receives) in [(2, 64), (5, 64), (64, 1), (64, 3)] {
        let mut net = Net::new(0, |config| config.send_depth = send_depth);
        let [mut here, mut there] = net.connect();
        for _ in 0..receives {
            there.post_receive(receive(0, 64)).unwrap();
        }
        let (mut posted, mut come) = (0, 0);
        net.run("the messages", |_| {
            while posted < 200
                && posted - come < receives
                && here.post_send(quiet(posted, Buffer::copy_from_slice(b"a command"))).is_ok()
            {
                posted += 1;
            }
            for _ in completions(&mut there) {
                come += 1;
                there.post_receive(receive(0, 64)).unwrap();
            }
            come == 200
        });
        let repeated = net.devices[0].borrow().counters().repeated;
        assert_eq!(repeated, 0, "{send_depth}, {receives}: nothing waits until it is time to ask");
    }
}
