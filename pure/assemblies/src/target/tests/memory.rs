//! Hosts that read nothing, and the memory that is left for other hosts.

use alloc::vec::Vec;

use engine::{Buffer, Engine, Nanos};
use nvme::host::Data;
use nvme::wire::{AdminOpcode, IoOpcode};

use super::test_bench::{DISK, TestBench, directory};
use super::{admin, io, pattern};
use crate::target::memory::{LOOK_ON, LOOKED_AT_ONCE, UNCONNECTED_MAX};
use crate::target::{Close, Event, Input, UNREAD_MAX, UNREAD_MAX_UNDER_PRESSURE};

const BUDGET: u64 = 2 << 20;
/// Blocks of one command: 64 KiB.
const BLOCKS: u32 = 128;
const COMMAND: u64 = 64 << 10;
const DEPTH: u64 = 31;

/// A host with one I/O queue: the Admin Queue's connection and the I/O queue's.
fn host(bench: &mut TestBench) -> (usize, usize) {
    let admin = bench.connection();
    let controller = u16::try_from(bench.connect(admin, DISK, 0, 0xffff).unwrap()).unwrap();
    bench.enable(admin);
    (admin, bench.io_queue(DISK, 1, controller).unwrap())
}

/// The host asks for 2 MiB: as many commands as its queue has entries for.
fn ask_for_much(bench: &mut TestBench, queue: usize) -> Vec<u64> {
    let read = |index| io(IoOpcode::Read, index * u64::from(BLOCKS), BLOCKS);
    (0..DEPTH).map(|index| bench.submit(queue, read(index), Data::Read(64 << 10))).collect()
}

fn bench() -> TestBench {
    let mut bench = TestBench::new(directory());
    bench.keep_alive = 0;
    bench.target.set_memory_max(BUDGET);
    bench
}

#[test]
fn hosts_that_read_nothing_hold_what_the_budget_says_and_others_go_on() {
    let mut bench = bench();
    let strangers: Vec<_> = (0..8).map(|_| host(&mut bench)).collect();
    for (_, queue) in &strangers {
        bench.unread.push(*queue);
        ask_for_much(&mut bench, *queue);
        bench.run();
        // The budget may be exceeded by one command for each queue, because the length of a
        // command's data is known only once the command is taken.
        let used = bench.target.memory().used;
        assert!(used <= BUDGET / 2 + strangers.len() as u64 * 2 * COMMAND, "{used} B");
    }
    let shares: Vec<_> = bench.target.status().iter().map(|one| one.memory).collect();
    assert!(bench.target.memory().used >= BUDGET / 2 && bench.target.memory().waiting > 0, "{shares:?}");
    // Another host gets what it asks for once the others are known not to read.
    let (_, queue) = host(&mut bench);
    let cookies = ask_for_much(&mut bench, queue);
    bench.run();
    bench.pass(UNREAD_MAX_UNDER_PRESSURE);
    bench.pass(UNREAD_MAX_UNDER_PRESSURE);
    for cookie in cookies {
        assert!(bench.completed(queue, cookie).unwrap().entry.status().is_success());
    }
    let ended = |event: &&Event| matches!(event, Event::QueueGone { why: Close::Memory, .. });
    let ended = bench.events.iter().filter(ended).count();
    assert!((1..strangers.len()).contains(&ended), "{ended} of them had to go");
    // The other hosts' Admin Queues are alive, and hosts that held little still hold it.
    for (admin_queue, _) in &strangers {
        let alive = bench.ask(*admin_queue, admin(AdminOpcode::KeepAlive, 0, 0), Data::None);
        assert!(alive.entry.status().is_success());
    }
    assert!(bench.target.memory().used <= BUDGET / 2, "{:?}", bench.target.memory());
}

#[test]
fn a_host_that_reads_late_has_all_of_it_and_is_charged_with_nothing_then() {
    let mut bench = bench();
    let (admin_queue, queue) = host(&mut bench);
    bench.unread.push(queue);
    let mut cookies = ask_for_much(&mut bench, queue);
    bench.run();
    assert!(bench.target.memory().used < BUDGET / 2 + 2 * COMMAND + 4096, "{:?}", bench.target.memory());
    assert_eq!(bench.target.status()[0].memory, bench.target.memory().used);
    // The host's own I/O queue waits, but its association stays alive.
    let alive = bench.ask(admin_queue, admin(AdminOpcode::KeepAlive, 0, 0), Data::None);
    assert!(alive.entry.status().is_success());
    bench.unread.clear();
    bench.run();
    // Writes of more than the host's share wait for each other, and end.
    let write = |index| io(IoOpcode::Write, index * u64::from(BLOCKS), BLOCKS);
    let data = pattern(64 << 10, 7);
    for index in 0..DEPTH {
        let done = cookies.remove(0);
        assert!(bench.completed(queue, done).unwrap().entry.status().is_success());
        cookies.push(bench.submit(queue, write(index), Data::Write(data.clone())));
    }
    bench.run();
    for cookie in cookies {
        assert!(bench.completed(queue, cookie).unwrap().entry.status().is_success());
    }
    let left = bench.target.memory();
    assert_eq!((left.used, left.waiting), (0, 0));
}

#[test]
fn a_connection_that_had_enough_to_do_is_listened_to_again() {
    let mut bench = TestBench::new(directory());
    bench.keep_alive = 0;
    let (_, queue) = host(&mut bench);
    // Media take long. Room for more than a connection may have under way leaves commands unread.
    bench.is_held = true;
    let read = |index: u64| io(IoOpcode::Read, index * 8, 8);
    let cookies: Vec<_> =
        (0..12).map(|index| bench.submit(queue, read(index), Data::Read(1 << 20))).collect();
    bench.run();
    assert!(!bench.target.wants_input(TestBench::id(queue)));
    assert!(bench.listened.is_empty());
    bench.release();
    assert!(bench.target.wants_input(TestBench::id(queue)));
    assert_eq!(bench.listened, [TestBench::id(queue)]);
    for cookie in cookies {
        assert!(bench.completed(queue, cookie).unwrap().entry.status().is_success());
    }
}

#[test]
fn a_stranger_that_reads_nothing_holds_little_and_goes_on_when_it_reads() {
    let mut bench = TestBench::new(directory());
    let stranger = bench.connection();
    let connection = TestBench::id(stranger);
    bench.unread.push(stranger);
    // A command capsule of 72 B. Its command is refused with a response of 24 B.
    let mut capsule = [0_u8; 72];
    (capsule[0], capsule[2], capsule[4]) = (4, 72, 72);
    let bytes = Buffer::from(capsule.repeat(4000));
    bench.target.handle_input(bench.now, Input::Received { connection, bytes });
    let unsent = bench.target.outbox(connection).unwrap().len();
    assert!((UNCONNECTED_MAX..UNCONNECTED_MAX + 24).contains(&unsent), "{unsent} B");
    assert!(!bench.target.wants_input(connection));
    bench.target.sent(bench.now, connection, unsent);
    bench.run();
    assert_eq!(bench.target.outbox(connection).unwrap().len(), 4000 * 24 - unsent);
    assert!(bench.target.wants_input(connection));
    assert_eq!(bench.listened, [connection]);
}

#[test]
fn a_queue_that_is_not_read_ends_without_a_keep_alive_timeout() {
    let mut bench = bench();
    let (admin_queue, queue) = host(&mut bench);
    bench.unread.push(queue);
    bench.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    bench.run();
    bench.pass(UNREAD_MAX.saturating_sub(Nanos::from_millis(1)));
    assert!(!bench.is_closed(queue));
    bench.pass(Nanos::from_millis(1));
    assert!(bench.is_closed(queue) && !bench.is_closed(admin_queue));
    assert!(matches!(bench.events.last(), Some(Event::QueueGone { why: Close::Unread, .. })));
    assert_eq!(bench.target.memory().used, 0);
    // A host that has nothing to read may be silent for as long as it likes.
    bench.pass(UNREAD_MAX * 100);
    assert!(!bench.is_closed(admin_queue));
}

#[test]
fn many_connections_are_looked_at_in_several_goes_and_none_is_passed_over() {
    let mut bench = bench();
    let unread = |bench: &mut TestBench| {
        let (_, queue) = host(bench);
        bench.unread.push(queue);
        bench.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
        bench.run();
        queue
    };
    let first = unread(&mut bench);
    // These never say who they are; their names stay.
    for _ in 0..LOOKED_AT_ONCE {
        bench.connection();
    }
    let last = unread(&mut bench);
    bench.pass(UNREAD_MAX);
    assert!(bench.is_closed(first) && !bench.is_closed(last), "the first go ends before the last one");
    // Meanwhile a connection begins that the look has passed.
    let (_, later) = host(&mut bench);
    bench.unread.push(later);
    bench.submit(later, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    bench.run();
    bench.pass(LOOK_ON);
    assert!(bench.is_closed(last) && !bench.is_closed(later));
    bench.pass(UNREAD_MAX);
    bench.pass(LOOK_ON);
    assert!(bench.is_closed(later));
    assert_eq!(bench.target.memory().used, 0);
}
