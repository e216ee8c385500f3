//! Hosts that read nothing, and the memory that is left for other hosts.

use alloc::vec::Vec;

use engine::Nanos;
use nvme::host::Data;
use nvme::wire::{AdminOpcode, IoOpcode};

use super::rig::{DISK, Rig, directory};
use super::{admin, io, pattern};
use crate::target::{Close, Event, UNREAD_MAX, UNREAD_MAX_UNDER_PRESSURE};

const BUDGET: u64 = 2 << 20;
/// Blocks of one command: 64 KiB.
const BLOCKS: u32 = 128;
const COMMAND: u64 = 64 << 10;
const DEPTH: u64 = 31;

/// A host with one I/O queue: the Admin Queue's connection and the I/O queue's.
fn host(rig: &mut Rig) -> (usize, usize) {
    let admin = rig.connection();
    let controller = u16::try_from(rig.connect(admin, DISK, 0, 0xffff).unwrap()).unwrap();
    rig.enable(admin);
    (admin, rig.io_queue(DISK, 1, controller).unwrap())
}

/// The host asks for 2 MiB: as many commands as its queue has entries for.
fn ask_for_much(rig: &mut Rig, queue: usize) -> Vec<u64> {
    let read = |index| io(IoOpcode::Read, index * u64::from(BLOCKS), BLOCKS);
    (0..DEPTH).map(|index| rig.submit(queue, read(index), Data::Read(64 << 10))).collect()
}

fn rig() -> Rig {
    let mut rig = Rig::new(directory());
    rig.keep_alive = 0;
    rig.target.set_memory_max(BUDGET);
    rig
}

#[test]
fn hosts_that_read_nothing_hold_what_the_budget_says_and_others_go_on() {
    let mut rig = rig();
    let strangers: Vec<_> = (0..8).map(|_| host(&mut rig)).collect();
    for (_, queue) in &strangers {
        rig.unread.push(*queue);
        ask_for_much(&mut rig, *queue);
        rig.run();
        // The budget may be exceeded by one command for each queue, because the length of a
        // command's data is known only once the command is taken.
        let used = rig.target.memory().used;
        assert!(used <= BUDGET / 2 + strangers.len() as u64 * 2 * COMMAND, "{used} B");
    }
    let shares: Vec<_> = rig.target.status().iter().map(|one| one.memory).collect();
    assert!(rig.target.memory().used >= BUDGET / 2 && rig.target.memory().waiting > 0, "{shares:?}");
    // Another host gets what it asks for once the others are known not to read.
    let (_, queue) = host(&mut rig);
    let cookies = ask_for_much(&mut rig, queue);
    rig.run();
    rig.pass(UNREAD_MAX_UNDER_PRESSURE);
    rig.pass(UNREAD_MAX_UNDER_PRESSURE);
    for cookie in cookies {
        assert!(rig.completed(queue, cookie).unwrap().entry.status().is_success());
    }
    let ended = |event: &&Event| matches!(event, Event::QueueGone { why: Close::Memory, .. });
    let ended = rig.events.iter().filter(ended).count();
    assert!((1..strangers.len()).contains(&ended), "{ended} of them had to go");
    // The other hosts' Admin Queues are alive, and hosts that held little still hold it.
    for (admin_queue, _) in &strangers {
        let alive = rig.ask(*admin_queue, admin(AdminOpcode::KeepAlive, 0, 0), Data::None);
        assert!(alive.entry.status().is_success());
    }
    assert!(rig.target.memory().used <= BUDGET / 2, "{:?}", rig.target.memory());
}

#[test]
fn a_host_that_reads_late_has_all_of_it_and_is_charged_with_nothing_then() {
    let mut rig = rig();
    let (admin_queue, queue) = host(&mut rig);
    rig.unread.push(queue);
    let mut cookies = ask_for_much(&mut rig, queue);
    rig.run();
    assert!(rig.target.memory().used < BUDGET / 2 + 2 * COMMAND + 4096, "{:?}", rig.target.memory());
    assert_eq!(rig.target.status()[0].memory, rig.target.memory().used);
    // The host's own I/O queue waits, but its association stays alive.
    let alive = rig.ask(admin_queue, admin(AdminOpcode::KeepAlive, 0, 0), Data::None);
    assert!(alive.entry.status().is_success());
    rig.unread.clear();
    rig.run();
    // Writes of more than the host's share wait for each other, and end.
    let write = |index| io(IoOpcode::Write, index * u64::from(BLOCKS), BLOCKS);
    let data = pattern(64 << 10, 7);
    for index in 0..DEPTH {
        let done = cookies.remove(0);
        assert!(rig.completed(queue, done).unwrap().entry.status().is_success());
        cookies.push(rig.submit(queue, write(index), Data::Write(data.clone())));
    }
    rig.run();
    for cookie in cookies {
        assert!(rig.completed(queue, cookie).unwrap().entry.status().is_success());
    }
    let left = rig.target.memory();
    assert_eq!((left.used, left.waiting), (0, 0));
}

#[test]
fn a_queue_that_is_not_read_ends_without_a_keep_alive_timeout() {
    let mut rig = rig();
    let (admin_queue, queue) = host(&mut rig);
    rig.unread.push(queue);
    rig.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    rig.run();
    rig.pass(UNREAD_MAX.saturating_sub(Nanos::from_millis(1)));
    assert!(!rig.is_closed(queue));
    rig.pass(Nanos::from_millis(1));
    assert!(rig.is_closed(queue) && !rig.is_closed(admin_queue));
    assert!(matches!(rig.events.last(), Some(Event::QueueGone { why: Close::Unread, .. })));
    assert_eq!(rig.target.memory().used, 0);
    // A host that has nothing to read may be silent for as long as it likes.
    rig.pass(UNREAD_MAX * 100);
    assert!(!rig.is_closed(admin_queue));
}
