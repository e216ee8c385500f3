//! A user and servers of all kinds, up to the point where the driver has the function.

use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;

use engine::{Engine, Instant, Watcher};
use nvme_pcie::host;
use pcie::config::ClassCode;
use pcie::memory::Ram;
use vfio_user::server::{self, InterruptConfig, RegionConfig, Server};
use vfio_user::{Area, Errno, InterruptData, InterruptIndex, RegionIndex, client};

use crate::watch::{Connection, Direction, Port, Seen};

use super::{Config, Event, Failure, Input, Output, User};

/// Names a descriptor.
type Descriptor = u32;
const MEMORY: Descriptor = 1;
const DOORBELLS: Descriptor = 2;
const ARENA: (u64, u64) = (0x10_0000, 1 << 20);
const NOW: Instant = Instant::ZERO;

/// A server's view of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Descriptors(usize),
    Enabled(bool),
}

/// A server, and the function's configuration space.
struct Far {
    server: Server<Descriptor>,
    space: Vec<u8>,
    mapped: Option<(u64, u64, Option<Descriptor>)>,
    /// The changes of interrupts, in order: how many vectors have descriptors, whether MSI-X is
    /// enabled.
    interrupts: Vec<Setting>,
    /// Reads and writes of BAR0 that arrived: the offset, and the length or the bytes.
    reads: Vec<(u64, u32)>,
    writes: Vec<(u64, Vec<u8>)>,
    map: Result<(), Errno>,
    /// Bytes that came from the user, and bytes that went to the user.
    moved: [usize; 2],
}

fn far(class: ClassCode, vectors: u32, areas: &[Area]) -> Far {
    let mut config = server::Config::default();
    config.regions[0] = RegionConfig { areas: areas.to_vec(), ..RegionConfig::new(0x4000) };
    config.regions[7] = RegionConfig::new(4096);
    config.interrupts[InterruptIndex::Msix.slot()] = InterruptConfig { count: vectors, all_at_once: false };
    let mut space = std::vec![0; 4096];
    space[8..12].copy_from_slice(&(class.0 << 8 | 1).to_le_bytes());
    // Two capabilities: some other one, then MSI-X.
    space[0x34] = 0x40;
    space[0x40..0x42].copy_from_slice(&[0x01, 0x50]);
    space[0x50..0x52].copy_from_slice(&[0x11, 0x00]);
    Far {
        server: Server::new(config),
        space,
        mapped: None,
        interrupts: Vec::new(),
        reads: Vec::new(),
        writes: Vec::new(),
        map: Ok(()),
        moved: [0; 2],
    }
}

fn user() -> User<Descriptor, Ram> {
    let driver = host::Config::new(ARENA.0, ARENA.1);
    let config = Config { client: client::Config::default(), driver };
    User::new(config, Ram::new(ARENA.0, 1 << 20), MEMORY)
}

impl Far {
    /// Serves the server's requests, and returns the server's messages.
    fn serve(&mut self) -> Vec<(Vec<u8>, Vec<Descriptor>)> {
        let mut said = Vec::new();
        while let Some(output) = self.server.poll_output() {
            match output {
                server::Output::Transmit { bytes, shared } => {
                    said.push((bytes.to_vec(), shared.map(|_| DOORBELLS).into_iter().collect()));
                }
                server::Output::Map { token, map, descriptor } => {
                    self.mapped = Some((map.address, map.length, descriptor));
                    self.server.map_done(token, self.map);
                }
                server::Output::RegionRead { token, region: RegionIndex::CONFIG, offset, length } => {
                    let at = usize::try_from(offset).unwrap();
                    self.server.read_done(token, Ok(&self.space[at..at + length as usize]));
                }
                server::Output::RegionRead { offset, length, .. } => self.reads.push((offset, length)),
                server::Output::RegionWrite { token, region, offset, data } => {
                    if region == RegionIndex::CONFIG {
                        let at = usize::try_from(offset).unwrap();
                        self.space[at..at + data.len()].copy_from_slice(&data);
                        if at == 0x52 {
                            self.interrupts.push(Setting::Enabled(data[1] & 0x80 != 0));
                        }
                    } else {
                        self.writes.push((offset, data.to_vec()));
                    }
                    if let Some(token) = token {
                        self.server.write_done(token, Ok(()));
                    }
                }
                server::Output::SetInterrupts { data: InterruptData::Descriptors(descriptors), .. } => {
                    self.interrupts.push(Setting::Descriptors(descriptors.len()));
                }
                _ => {}
            }
        }
        said
    }
}

/// Lets both ends go on until neither says anything more. Returns the user's other outputs.
fn run(user: &mut User<Descriptor, Ram>, far: &mut Far) -> Vec<Output<Descriptor>> {
    far.server.handle_input(NOW, server::Input::Connected);
    user.handle_input(NOW, Input::Connected);
    exchange(user, far)
}

fn exchange(user: &mut User<Descriptor, Ram>, far: &mut Far) -> Vec<Output<Descriptor>> {
    let mut rest = Vec::new();
    loop {
        let mut quiet = true;
        while let Some(output) = user.poll_output() {
            quiet = false;
            match output {
                Output::Transmit { bytes, descriptors } => {
                    far.moved[0] += bytes.len();
                    far.server.handle_input(NOW, server::Input::Received { bytes: &bytes, descriptors });
                }
                Output::MapDoorbells { .. } => {
                    rest.push(output);
                    user.doorbells_mapped(true);
                }
                output => rest.push(output),
            }
        }
        for (bytes, descriptors) in far.serve() {
            quiet = false;
            far.moved[1] += bytes.len();
            user.handle_input(NOW, Input::Received { bytes: &bytes, descriptors });
        }
        if quiet {
            return rest;
        }
    }
}

fn failure(outputs: &[Output<Descriptor>]) -> Option<Failure> {
    assert!(matches!(outputs.last(), Some(Output::Close)), "{outputs:?}");
    outputs.iter().find_map(|output| match output {
        Output::Event(Event::Failed(failure)) => Some(*failure),
        _ => None,
    })
}

/// Bytes of the connection: to the server, to the user.
#[derive(Debug, Default, PartialEq, Eq)]
struct Passed([usize; 2]);

impl Watcher<Port> for Passed {
    fn on_seen(&mut self, _: Instant, seen: Seen<'_>) {
        if let Seen::Bytes { direction, connection: Connection::VfioUser, bytes, .. } = seen {
            self.0[usize::from(direction == Direction::Up)] += bytes.len();
        }
    }
}

#[test]
fn who_watches_sees_every_message() {
    let (mut user, mut far) = (user(), far(ClassCode::NVME, 9, &[]));
    let passed = Rc::new(RefCell::new(Passed::default()));
    user.watch().add(passed.clone());
    assert!(run(&mut user, &mut far).is_empty());
    // The requests that the set-up of this function takes, counted by the server.
    assert_eq!(passed.borrow().0, far.moved);
    assert!(far.moved.iter().all(|bytes| *bytes > 200), "{:?}", far.moved);
    user.watch().clear();
    user.nudge(NOW);
    assert!(exchange(&mut user, &mut far).is_empty());
    assert!(passed.borrow().0[0] < far.moved[0], "a removed watcher is shown nothing");
}

#[test]
fn a_function_is_set_up_and_the_driver_has_it() {
    let (mut user, mut far) = (user(), far(ClassCode::NVME, 9, &[]));
    assert!(run(&mut user, &mut far).is_empty());
    assert_eq!(far.mapped, Some((ARENA.0, ARENA.1, Some(MEMORY))));
    // Memory space, bus mastering, no pin. No MSI-X without a listener.
    assert_eq!((far.space[4..6].to_vec(), far.space[0x53]), (std::vec![0x06, 0x04], 0x00));
    assert_eq!((user.vectors(), user.has_doorbells()), (2, false));
    assert_eq!(far.reads, [(0, 8)], "the driver reads CAP first");
}

#[test]
fn interrupts_are_enabled_only_while_there_is_a_receiver() {
    let (mut user, mut far) = (user(), far(ClassCode::NVME, 9, &[]));
    // A previous client left MSI-X enabled.
    far.space[0x53] = 0xc0;
    run(&mut user, &mut far);
    assert_eq!(far.interrupts, [Setting::Enabled(false)]);
    assert_eq!(far.space[0x53], 0);
    for (descriptors, expected) in [
        (std::vec![7, 8], [Setting::Descriptors(2), Setting::Enabled(true)]),
        (Vec::new(), [Setting::Enabled(false), Setting::Descriptors(0)]),
        (std::vec![7, 8], [Setting::Descriptors(2), Setting::Enabled(true)]),
    ] {
        far.interrupts.clear();
        user.listen(NOW, descriptors);
        let outputs = exchange(&mut user, &mut far);
        assert_eq!(far.interrupts, expected);
        assert!(matches!(outputs[..], [Output::Event(Event::Listening(true))]), "{outputs:?}");
    }
}

#[test]
fn doorbells_are_mapped_where_they_are_offered_and_whole() {
    for (areas, mapped) in [
        (&[Area { offset: 0x1000, length: 0x1000 }][..], true),
        (&[Area { offset: 0x2000, length: 0x1000 }, Area { offset: 0x3000, length: 0x1000 }], false),
        (&[Area { offset: 0, length: 0x1000 }, Area { offset: 0x1000, length: 0x2000 }], true),
        (&[Area { offset: 0x1000, length: 8 }], false),
    ] {
        let (mut user, mut far) = (user(), far(ClassCode::NVME, 0, areas));
        let outputs = run(&mut user, &mut far);
        assert_eq!((user.has_doorbells(), outputs.len()), (mapped, usize::from(mapped)), "{areas:?}");
        if mapped {
            assert!(
                matches!(outputs[0], Output::MapDoorbells { descriptor: DOORBELLS, offset: 0x1000, .. }),
                "{outputs:?}"
            );
        }
        assert_eq!(user.vectors(), 0, "there are no interrupts");
    }
}

#[test]
fn what_can_not_be_used_fails_once_and_is_left() {
    let (mut user_one, mut disk) = (user(), far(ClassCode(0x01_0601), 0, &[]));
    assert_eq!(failure(&run(&mut user_one, &mut disk)), Some(Failure::Class(ClassCode(0x01_0601))));
    let (mut user_two, mut refusing) = (user(), far(ClassCode::NVME, 0, &[]));
    refusing.map = Err(Errno::ENOSPC);
    let refused = Failure::Refused { what: "to share memory", error: Errno::ENOSPC };
    assert_eq!(failure(&run(&mut user_two, &mut refusing)), Some(refused));
    let (mut user_three, mut small) = (user(), far(ClassCode::NVME, 0, &[]));
    let mut config = small.server.config().clone();
    config.regions[0].length = 0x1000;
    small.server = Server::new(config);
    assert_eq!(failure(&run(&mut user_three, &mut small)), Some(Failure::Registers(0x1000)));
    // A loop of capabilities means no MSI-X, and must not hang.
    let (mut user_four, mut circle) = (user(), far(ClassCode::NVME, 9, &[]));
    circle.space[0x41] = 0x40;
    assert!(run(&mut user_four, &mut circle).is_empty());
    assert_eq!(user_four.vectors(), 0);
}

#[test]
fn a_server_that_goes_is_reported_once() {
    let (mut user, mut far) = (user(), far(ClassCode::NVME, 9, &[]));
    run(&mut user, &mut far);
    for _ in 0..2 {
        user.handle_input(NOW, Input::Disconnected);
    }
    let outputs: Vec<_> = core::iter::from_fn(|| user.poll_output()).collect();
    assert_eq!(failure(&outputs), Some(Failure::Gone));
    assert_eq!(outputs.len(), 2, "{outputs:?}");
    assert!(user.driver().is_none() && user.poll_timeout().is_none());
}
