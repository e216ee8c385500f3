//! Requests for the same blocks by several controllers.

use super::*;

/// Two controllers over fabrics of a subsystem with two namespaces. Media keep their requests.
fn two() -> (Bench, ControllerKey, ControllerKey) {
    let mut bench = Bench::new();
    bench.subsystem.remove_controller(bench.now, bench.controller);
    let (first, second) = (bench.connect(1), bench.connect(2));
    bench.media_stuck = true;
    (bench, first, second)
}

/// Writes 512 B of `byte` to block `lba`, and does not wait for it.
fn begin_write(bench: &mut Bench, lba: u64, byte: u8) -> CommandToken {
    bench.host_data = vec![byte; 512];
    bench.send(IO, io(IoOpcode::Write, 1, lba, 1))
}

fn has_ended(bench: &Bench, token: CommandToken) -> bool {
    bench.completed.contains_key(&token.0)
}

/// Makes the medium execute one of the requests that it keeps.
fn carry_out(bench: &mut Bench, index: usize) {
    let request = bench.stuck.remove(index);
    bench.media_stuck = false;
    bench.on_media(request);
    bench.media_stuck = true;
    bench.drain();
}

#[test]
fn a_second_copy_waits_for_the_first_one() {
    let (mut bench, first, second) = two();
    let lost = begin_write(bench.of(first), 7, 1);
    let copy = begin_write(bench.of(second), 7, 1);
    let elsewhere = begin_write(&mut bench, 8, 9);
    assert_eq!(bench.stuck.len(), 2, "the copy's request has not been sent");
    // The host gives the path up with its commands in flight, but the medium still works for one
    // of them.
    bench.subsystem.remove_controller(bench.now, first);
    carry_out(&mut bench, 1);
    assert!(has_ended(&bench, elsewhere) && !has_ended(&bench, copy));
    carry_out(&mut bench, 0);
    assert!(!has_ended(&bench, lost), "it is abandoned");
    carry_out(&mut bench, 0);
    assert_eq!(bench.take(copy).status, Status::SUCCESS);
    begin_write(&mut bench, 7, 2);
    bench.release_media();
    bench.succeeds(IO, io(IoOpcode::Read, 1, 7, 1));
    assert_eq!(bench.pushed, [2; 512]);
    assert_eq!(bench.subsystem.all_media_outstanding(), 0);
}

#[test]
fn a_change_follows_the_requests_that_wait_for_its_blocks() {
    let (mut bench, first, second) = two();
    let begun = begin_write(bench.of(first), 7, 1);
    let waits = begin_write(bench.of(second), 7, 2);
    let later = begin_write(bench.of(first), 7, 3);
    assert_eq!(bench.stuck.len(), 1, "the first controller does not overtake the second one");
    carry_out(&mut bench, 0);
    assert_eq!((bench.take(begun).status, bench.stuck.len()), (Status::SUCCESS, 1));
    carry_out(&mut bench, 0);
    assert_eq!(bench.take(waits).status, Status::SUCCESS);
    assert!(!has_ended(&bench, later));
    // Its read waits for the change in progress, and the next change for the read.
    let read = bench.of(second).send(IO, io(IoOpcode::Read, 1, 7, 1));
    let last = begin_write(bench.of(first), 7, 4);
    assert_eq!(bench.stuck.len(), 1);
    carry_out(&mut bench, 0);
    assert_eq!((bench.take(later).status, bench.stuck.len()), (Status::SUCCESS, 2));
    carry_out(&mut bench, 0);
    assert_eq!(bench.take(read).status, Status::SUCCESS);
    assert_eq!(bench.pushed, [3; 512]);
    carry_out(&mut bench, 0);
    assert_eq!(bench.take(last).status, Status::SUCCESS);
}

#[test]
fn requests_from_before_a_reset_delay_the_same_controller_too() {
    let (mut bench, first, _) = two();
    begin_write(bench.of(first), 7, 1);
    // Without a reset, commands of one controller may overtake each other.
    begin_write(&mut bench, 7, 2);
    assert_eq!(bench.stuck.len(), 2);
    bench.subsystem.reset(bench.now, first);
    let later = begin_write(&mut bench, 7, 3);
    assert_eq!(bench.stuck.len(), 2);
    carry_out(&mut bench, 1);
    assert_eq!(bench.stuck.len(), 1);
    carry_out(&mut bench, 0);
    carry_out(&mut bench, 0);
    assert_eq!(bench.take(later).status, Status::SUCCESS);
}

#[test]
fn every_access_to_blocks_waits_for_a_change_by_another_controller() {
    let (mut bench, first, second) = two();
    begin_write(bench.of(first), 7, 1);
    bench.of(second);
    let mut tokens = vec![bench.send(IO, io(IoOpcode::WriteZeroes, 1, 0, 8))];
    bench.host_data = vec![0; 16];
    (bench.host_data[4], bench.host_data[8]) = (1, 7); // One block, from block 7.
    let deallocate = SubmissionQueueEntry { cdw11: 1 << 2, ..io(IoOpcode::DatasetManagement, 1, 0, 1) };
    tokens.push(bench.send(IO, deallocate));
    tokens.push(bench.send(IO, io(IoOpcode::Read, 1, 6, 2)));
    tokens.push(bench.send(IO, io(IoOpcode::Verify, 1, 7, 1)));
    bench.host_data = vec![1; 512];
    tokens.push(bench.send(IO, io(IoOpcode::Compare, 1, 7, 1)));
    assert_eq!(bench.stuck.len(), 1);
    // A Copy of block 20 to block 7 reads first.
    bench.host_data = vec![0; 32];
    bench.host_data[8] = 20;
    tokens.push(bench.send(IO, SubmissionQueueEntry { cdw12: 0, ..io(IoOpcode::Copy, 1, 7, 1) }));
    assert_eq!(bench.stuck.len(), 2);
    carry_out(&mut bench, 1);
    bench.send(IO, io(IoOpcode::Write, 2, 7, 1));
    bench.send(IO, io(IoOpcode::Read, 1, 8, 1));
    assert_eq!(bench.stuck.len(), 3, "another namespace, and another block");
    carry_out(&mut bench, 0);
    // All requests are from one controller, so that none waits for another.
    assert_eq!(bench.stuck.len(), 2 + tokens.len());
    let compare = tokens[4];
    carry_out(&mut bench, 4);
    bench.release_media();
    for token in tokens {
        let expected = if token == compare { bench.completed[&token.0].status } else { Status::SUCCESS };
        assert_eq!(bench.take(token).status, expected);
    }
}

/// A controller is removed while a medium still executes its write. No host may read the block
/// first without and then with that write.
fn a_read_sees_earlier_writes(lose: impl FnOnce(&mut Bench, ControllerKey)) {
    let (mut bench, first, second) = two();
    let lost = begin_write(bench.of(first), 7, 1);
    lose(&mut bench, first);
    let read = bench.of(second).send(IO, io(IoOpcode::Read, 1, 7, 1));
    let elsewhere = bench.send(IO, io(IoOpcode::Read, 1, 8, 1));
    assert_eq!(bench.stuck.len(), 2, "the read of the block has not been sent");
    carry_out(&mut bench, 1);
    assert_eq!(bench.take(elsewhere).status, Status::SUCCESS);
    carry_out(&mut bench, 0);
    assert!(!has_ended(&bench, lost), "it is abandoned");
    carry_out(&mut bench, 0);
    assert_eq!(bench.take(read).status, Status::SUCCESS);
    assert_eq!(bench.pushed, [1; 512]);
    assert_eq!(bench.subsystem.all_media_outstanding(), 0);
}

#[test]
fn a_read_waits_for_the_requests_of_a_reset_controller() {
    a_read_sees_earlier_writes(|bench, first| bench.subsystem.reset(bench.now, first));
}

#[test]
fn a_read_waits_for_the_requests_of_a_removed_controller() {
    a_read_sees_earlier_writes(|bench, first| bench.subsystem.remove_controller(bench.now, first));
}

#[test]
fn a_read_waits_for_the_requests_of_a_lost_queue() {
    a_read_sees_earlier_writes(|bench, first| bench.subsystem.drop_queue(bench.now, first, IO));
}

#[test]
fn hosts_that_come_again_and_again_leave_a_stuck_medium_no_more_than_a_bound() {
    let (mut bench, first, _) = two();
    let most = 2 * bench.subsystem.config.commands_max as usize;
    for _ in 0..most {
        let lost = bench.of(first).send(IO, io(IoOpcode::Read, 1, 7, 1));
        assert!(!has_ended(&bench, lost));
        bench.subsystem.reset(bench.now, first);
    }
    let refused = bench.send(IO, io(IoOpcode::Read, 1, 7, 1));
    assert_eq!(bench.take(refused).status.code(), StatusCode::NamespaceNotReady);
    assert_eq!(bench.stuck.len(), most);
    bench.release_media();
    bench.succeeds(IO, io(IoOpcode::Read, 1, 7, 1));
    assert_eq!(bench.subsystem.all_media_outstanding(), 0);
}

#[test]
fn a_stuck_medium_leaves_the_others_their_share() {
    let (mut bench, first, _) = two();
    let commands = bench.subsystem.config.commands_max as usize;
    for (namespace, count) in [(1, 2 * commands), (2, commands)] {
        for _ in 0..count {
            let lost = bench.of(first).send(IO, io(IoOpcode::Read, namespace, 7, 1));
            assert!(!has_ended(&bench, lost), "namespace {namespace}");
            bench.subsystem.reset(bench.now, first);
        }
        let refused = bench.send(IO, io(IoOpcode::Read, namespace, 7, 1));
        assert_eq!(bench.take(refused).status.code(), StatusCode::NamespaceNotReady);
    }
    assert_eq!(bench.stuck.len(), 3 * commands);
    bench.release_media();
    for (namespace, medium) in [(1, MediumId(0)), (2, MediumId(1))] {
        bench.succeeds(IO, io(IoOpcode::Read, namespace, 7, 1));
        assert_eq!(bench.subsystem.flow.slots.strays.of(medium), 0);
    }
    assert_eq!(bench.subsystem.all_media_outstanding(), 0);
}

#[test]
fn a_request_that_a_medium_has_for_long_is_not_taken_for_another_one() {
    let (mut bench, first, second) = two();
    let lost = bench.of(first).send(IO, io(IoOpcode::Read, 1, 7, 1));
    bench.subsystem.reset(bench.now, first);
    // As after 65,535 further requests of the same slot.
    let slot = bench.subsystem.flow.slots.of(lost);
    slot.generation = slot.generation.wrapping_sub(1);
    bench.next = lost.0;
    let read = bench.of(second).send(IO, io(IoOpcode::Read, 1, 7, 1));
    assert_eq!((read, bench.stuck.len()), (lost, 2));
    carry_out(&mut bench, 0);
    assert!(!has_ended(&bench, read), "the other one has ended");
    carry_out(&mut bench, 0);
    assert_eq!(bench.take(read).status, Status::SUCCESS);
    assert_eq!(bench.subsystem.all_media_outstanding(), 0);
}

#[test]
fn a_reconnected_queue_follows_its_earlier_requests() {
    let (mut bench, first, _) = two();
    let lost = begin_write(bench.of(first), 7, 1);
    bench.subsystem.drop_queue(bench.now, first, IO);
    let after = begin_write(&mut bench, 7, 2);
    assert_eq!(bench.stuck.len(), 1);
    bench.release_media();
    assert!(!has_ended(&bench, lost));
    assert_eq!(bench.take(after).status, Status::SUCCESS);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 7, 1));
    assert_eq!(bench.pushed, [2; 512]);
}

#[test]
fn a_command_of_many_steps_stops_with_its_queue() {
    let (mut bench, first, _) = two();
    bench.of(first).host_data = vec![0; 32];
    bench.host_data[8] = 20;
    bench.send(IO, SubmissionQueueEntry { cdw12: 0, ..io(IoOpcode::Copy, 1, 7, 1) });
    assert_eq!(bench.stuck.len(), 1, "it reads first");
    bench.subsystem.drop_queue(bench.now, first, IO);
    carry_out(&mut bench, 0);
    assert_eq!((bench.stuck.len(), bench.subsystem.all_media_outstanding()), (0, 0));
}

#[test]
fn waiting_requests_end_with_their_controller() {
    let (mut bench, first, second) = two();
    let kept = begin_write(bench.of(first), 7, 1);
    begin_write(bench.of(second), 7, 2);
    bench.subsystem.reset(bench.now, second);
    assert_eq!(bench.subsystem.all_media_outstanding(), 1);
    bench.release_media();
    assert_eq!(bench.take(kept).status, Status::SUCCESS);
    bench.of(first).succeeds(IO, io(IoOpcode::Read, 1, 7, 1));
    assert_eq!(bench.pushed, [1; 512]);
}

#[test]
fn a_command_that_must_be_alone_waits_for_those_that_wait() {
    let (mut bench, first, second) = two();
    begin_write(bench.of(first), 7, 1);
    let behind = begin_write(bench.of(second), 7, 2);
    let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    let format = bench.send(ADMIN, format);
    carry_out(&mut bench, 0);
    assert!(!has_ended(&bench, format) && !has_ended(&bench, behind));
    bench.release_media();
    assert_eq!(bench.take(behind).status, Status::SUCCESS);
    assert_eq!(bench.take(format).status, Status::SUCCESS);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 7, 1));
    assert_eq!(bench.pushed, [0; 512]);
}

/// The hosts that are gone and have requests with media.
fn draining(bench: &Bench) -> Vec<(&str, usize)> {
    bench.subsystem.draining().collect()
}

#[test]
fn a_host_is_known_until_media_have_ended_its_last_request() {
    const HOST: &str = "nqn.2014-08.org.nvmexpress:host1";
    let (mut bench, first, second) = two();
    begin_write(bench.of(first), 7, 1);
    let waits = begin_write(bench.of(second), 7, 2);
    // Both a lost queue and a reset leave requests behind, and the end of the association, too.
    bench.subsystem.drop_queue(bench.now, first, IO);
    begin_write(bench.of(first), 8, 1);
    bench.subsystem.reset(bench.now, first);
    begin_write(bench.of(first), 9, 1);
    assert!(draining(&bench).is_empty(), "its controller is there");
    bench.subsystem.remove_controller(bench.now, first);
    assert_eq!((bench.stuck.len(), draining(&bench)), (3, vec![(HOST, 3)]));
    // Another association of the host changes nothing about the former one.
    let again = bench.connect(1);
    carry_out(&mut bench, 1);
    assert_eq!(draining(&bench), [(HOST, 2)]);
    bench.subsystem.remove_controller(bench.now, again);
    carry_out(&mut bench, 1);
    assert_eq!(draining(&bench), [(HOST, 1)]);
    carry_out(&mut bench, 0);
    assert!(draining(&bench).is_empty() && !has_ended(&bench, waits));
    // The other host's request had to wait, and is with the medium now.
    bench.subsystem.remove_controller(bench.now, second);
    assert_eq!(draining(&bench), [("nqn.2014-08.org.nvmexpress:host2", 1)]);
    carry_out(&mut bench, 0);
    assert!(draining(&bench).is_empty());
}
