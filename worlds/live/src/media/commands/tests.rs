use nvme::wire::IoOpcode;

use super::*;

const MIB: u64 = 1 << 20;

/// A device with one namespace of a mebibyte, whose commands move 128 KiB at most.
fn commands() -> Commands {
    let extent = Extent {
        id: NamespaceId(1),
        offset: 0,
        bytes: MIB,
        block: 4096,
        zeroes_deallocate: true,
        deallocated_reads_zero: true,
    };
    let abilities = Abilities {
        write_zeroes: true,
        dataset_management: true,
        volatile_cache: true,
        transfer_max: u64::from(PIECE_BYTES),
        zeroes_max: u64::MAX,
    };
    Commands::new(vec![extent], abilities, 16)
}

fn request(id: u32, operation: Operation) -> Request {
    Request { id: IoId(id), medium: nvme::media::MediumId(0), operation }
}

/// The commands that are submitted now: name, opcode and first block of each.
fn submitted(commands: &mut Commands) -> Vec<(u32, u8, u64)> {
    let mut all = Vec::new();
    let taken = commands.fill(
        |piece, entry, _| {
            all.push((piece, entry.opcode, u64::from(entry.cdw10) | u64::from(entry.cdw11) << 32));
            Ok(())
        },
        &mut |_| (),
    );
    taken.unwrap();
    all
}

fn sorted(all: &[(u32, u8, u64)]) -> Vec<(u8, u64)> {
    let mut all: Vec<_> = all.iter().map(|(_, opcode, lba)| (*opcode, *lba)).collect();
    all.sort_unstable();
    all
}

#[test]
fn what_got_no_answer_is_submitted_again_and_what_has_ended_is_not() {
    let mut commands = commands();
    let data = Buffer::zeroed(2 * PIECE_BYTES as usize);
    commands.submit(request(1, Operation::Read { offset: 0, length: 3 * PIECE_BYTES }));
    commands.submit(request(2, Operation::Write { offset: MIB / 2, data, durable: true }));
    commands.submit(request(3, Operation::Flush));
    let first = submitted(&mut commands);
    assert_eq!(first.len(), 6);
    // The first piece of the read has its answer.
    let mut reported = Vec::new();
    let answer = Buffer::zeroed(PIECE_BYTES as usize);
    commands.on_ended(first[0].0, Ok(answer), &mut |one| reported.push(one));
    assert!(matches!(reported.as_slice(), [Completion::Data { id: IoId(1), offset: 0, .. }]), "{reported:?}");
    commands.take_back_all();
    let again = submitted(&mut commands);
    assert_eq!(sorted(&again), sorted(&first[1..]));
    let mut ended = Vec::new();
    for (piece, opcode, _) in again {
        let is_read = opcode == u8::from(IoOpcode::Read);
        let data = if is_read { Buffer::zeroed(PIECE_BYTES as usize) } else { Buffer::EMPTY };
        commands.on_ended(piece, Ok(data), &mut |one| {
            if let Completion::Done { id, result } = one {
                ended.push((id.0, result));
            }
        });
    }
    ended.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(ended, [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
    assert_eq!(commands.in_flight(), 0);
}

#[test]
fn what_is_submitted_again_keeps_to_a_limit_that_has_become_lower() {
    let mut commands = commands();
    commands.submit(request(1, Operation::Read { offset: 0, length: PIECE_BYTES }));
    assert_eq!(submitted(&mut commands).len(), 1);
    commands.take_back_all();
    commands.abilities.transfer_max = u64::from(PIECE_BYTES / 4);
    let again = submitted(&mut commands);
    let (read, blocks) = (u8::from(IoOpcode::Read), u64::from(PIECE_BYTES / 4 / 4096));
    assert_eq!(sorted(&again), [(read, 0), (read, blocks), (read, 2 * blocks), (read, 3 * blocks)]);
    let mut ended = Vec::new();
    for (piece, ..) in again {
        let data = Buffer::zeroed(PIECE_BYTES as usize / 4);
        commands.on_ended(piece, Ok(data), &mut |one| {
            if let Completion::Done { id, result } = one {
                ended.push((id.0, result));
            }
        });
    }
    assert_eq!((ended, commands.in_flight()), (vec![(1, Ok(()))], 0));
}

#[test]
fn what_was_taken_back_is_given_up_once() {
    let mut commands = commands();
    commands.submit(request(1, Operation::Read { offset: 0, length: 3 * PIECE_BYTES }));
    commands.submit(request(2, Operation::Flush));
    assert_eq!(submitted(&mut commands).len(), 4);
    commands.take_back_all();
    commands.submit(request(3, Operation::Read { offset: 0, length: 4096 }));
    let mut ended = Vec::new();
    commands.give_up(&mut |one| {
        if let Completion::Done { id, result } = one {
            ended.push((id.0, result));
        }
    });
    ended.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(ended, [1, 2, 3].map(|id| (id, Err(MediaError::Unreachable))));
    assert_eq!((commands.in_flight(), submitted(&mut commands).len()), (0, 0));
}

#[test]
fn a_request_fails_once_when_one_of_its_commands_fails_after_others_were_taken_back() {
    let mut commands = commands();
    commands.submit(request(1, Operation::Read { offset: 0, length: 3 * PIECE_BYTES }));
    let first = submitted(&mut commands);
    commands.take_back(first[0].0);
    let mut ended = 0;
    for (piece, ..) in &first[1..] {
        let status = Status::from(StatusCode::UnrecoveredReadError);
        commands.on_ended(*piece, Err(status), &mut |_| ended += 1);
    }
    assert_eq!((ended, commands.in_flight(), submitted(&mut commands).len()), (1, 0, 0));
}

#[test]
fn a_discard_is_a_hint_where_that_is_enough() {
    for (is_hint, opcode) in [(true, IoOpcode::DatasetManagement), (false, IoOpcode::WriteZeroes)] {
        let mut commands = commands();
        commands.deallocates_as_hint = is_hint;
        commands.submit(request(1, Operation::Deallocate { offset: 4096, length: MIB / 2 }));
        let all = submitted(&mut commands);
        assert_eq!(all.iter().map(|one| one.1).collect::<Vec<_>>(), [u8::from(opcode)]);
    }
}

#[test]
fn a_request_beyond_the_limit_fails_and_the_others_stay() {
    let mut commands = commands();
    for _ in 0..REQUESTS_MAX {
        commands.submit(request(1, Operation::Read { offset: 0, length: 4096 }));
    }
    commands.submit(request(2, Operation::Flush));
    let mut ended = Vec::new();
    commands.take_ended(&mut |one| {
        if let Completion::Done { id, result } = one {
            ended.push((id.0, result));
        }
    });
    assert_eq!(ended, [(2, Err(MediaError::Unreachable))]);
    assert_eq!(commands.in_flight(), REQUESTS_MAX);
}
