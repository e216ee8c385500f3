//! The same watcher at the near host, at the far end, and at both ends of a fabric.

use alloc::rc::Rc;
use core::cell::RefCell;

use engine::Watcher;
use nvme::wire::CommandId;
use pcie::wire::Kind;

use super::*;
use crate::watch::{Direction, Port, Seen};

/// The packets and bytes that passed one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Requests to memory and registers. Nothing but the two ends of a tunnel answers these.
    pub(crate) requests: u64,
    /// All packets.
    pub(crate) packets: u64,
    /// Bytes of connections.
    pub(crate) bytes: usize,
}

/// Counts the packets and bytes that pass a port.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) down: Count,
    pub(crate) up: Count,
    submitted: Vec<u64>,
    completed: Vec<u64>,
    /// Identifier and opcode of each command on a connection.
    commands: Vec<(CommandId, u8)>,
    responses: Vec<CommandId>,
}

impl Counts {
    pub(crate) fn shared() -> Rc<RefCell<Self>> {
        Rc::default()
    }
    fn of(&mut self, direction: Direction) -> &mut Count {
        match direction {
            Direction::Down => &mut self.down,
            Direction::Up => &mut self.up,
        }
    }
}

impl Watcher<Port> for Counts {
    fn on_seen(&mut self, _: Instant, seen: Seen<'_>) {
        match seen {
            Seen::Packet { direction, packet, .. } => {
                let count = self.of(direction);
                count.packets += 1;
                count.requests += u64::from(matches!(packet.header.kind, Kind::Memory(_)));
            }
            Seen::Bytes { direction, bytes, .. } => self.of(direction).bytes += bytes.len(),
            Seen::Submitted { submission, .. } => self.submitted.push(submission.cookie),
            Seen::Completed { completed, .. } => self.completed.push(completed.cookie),
            Seen::Command { entry, .. } => self.commands.push((entry.command_id, entry.opcode)),
            Seen::Response { entry, .. } => self.responses.push(entry.command_id),
        }
    }
}

#[test]
fn both_ends_see_every_packet_byte_and_command() {
    let mut pair = Pair::new();
    let (near, far) = (Counts::shared(), Counts::shared());
    pair.near.watch().add(near.clone());
    pair.far.watch().add(far.clone());
    pair.run(ready);
    let data =
        Data { address: pair.near.driver(ControllerIndex(0)).unwrap().data_region().base, length: 4096 };
    for cookie in [3, 4] {
        let read = Submission::on_blocks(IoOpcode::Read, QueueId(1), NamespaceId(1), 0, 8, data, cookie);
        pair.near.submit(pair.now, ControllerIndex(0), read).unwrap();
    }
    pair.run(|events| completed(events, 3) && completed(events, 4));
    pair.step();
    {
        let (near, far) = (near.borrow(), far.borrow());
        assert_eq!((near.down.requests, near.up.requests), (far.down.requests, far.up.requests));
        assert_eq!((near.down.bytes, near.up.bytes), (far.down.bytes, far.up.bytes));
        let sent = |pieces: &[engine::Buffer]| pieces.iter().map(|piece| piece.len()).sum::<usize>();
        assert_eq!([near.down.bytes, near.up.bytes], [sent(&pair.pieces[0]), sent(&pair.pieces[1])]);
        // The switch answers for its own ports.
        assert!(near.down.packets > far.down.packets && far.down.packets > far.down.requests);
        assert!(near.down.requests > 0 && far.up.requests > 2);
        assert_eq!((&near.submitted[..], &near.completed[..]), (&[3, 4][..], &[3, 4][..]));
        assert!(far.submitted.is_empty());
    }
    // A removed watcher is shown nothing.
    let seen = near.borrow().down;
    pair.near.watch().clear();
    assert!(Rc::strong_count(&near) == 1);
    let (_, bdf) = pair.near.controllers().next().unwrap();
    pair.near.config_read(pair.now, bdf, 0, 5).unwrap();
    pair.step();
    assert_eq!(near.borrow().down, seen);
    assert!(far.borrow().down.packets > 0);
}

#[test]
fn both_ends_of_a_fabric_see_every_byte_and_command() {
    let mut pair = authentication::Pair::new(None, None);
    let (host, target) = (Counts::shared(), Counts::shared());
    pair.initiator.watch().add(host.clone());
    pair.target.watch().add(target.clone());
    pair.until(|pair| pair.is_up);
    pair.read_on_every_queue();
    {
        let (host, target) = (host.borrow(), target.borrow());
        assert_eq!((host.down.bytes, host.up.bytes), (target.down.bytes, target.up.bytes));
        assert!(host.down.bytes > 0 && host.up.bytes > 4 * 512);
        // The commands of several connections may arrive in another order than they were sent.
        let sorted = |commands: &[(CommandId, u8)]| {
            let mut commands: Vec<_> = commands.iter().map(|(id, opcode)| (id.0, *opcode)).collect();
            commands.sort_unstable();
            commands
        };
        assert_eq!(sorted(&host.commands), sorted(&target.commands));
        let reads =
            |of: &Counts| of.commands.iter().filter(|(_, code)| *code == IoOpcode::Read.into()).count();
        assert!(reads(&host) >= 4, "{:?}", host.commands);
        // The Asynchronous Event Requests have no response yet.
        let open = host.commands.iter().filter(|(_, code)| *code == 0x0c).count();
        assert_eq!(host.responses.len() + open, host.commands.len());
    }
    let seen = (host.borrow().down, target.borrow().commands.len());
    pair.initiator.watch().clear();
    pair.target.watch().clear();
    assert_eq!((Rc::strong_count(&host), Rc::strong_count(&target)), (1, 1));
    pair.read_on_every_queue();
    assert_eq!((host.borrow().down, target.borrow().commands.len()), seen);
}
