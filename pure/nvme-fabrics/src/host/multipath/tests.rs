//! Paths to a subsystem that the test simulates: the subsystem keeps acknowledged writes, and no
//! command ends twice.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos, Rng, next_wake};
use nvme::wire::{
    AdminOpcode, CompletionQueueEntry, IoOpcode, NamespaceId, StatusCode, SubmissionQueueEntry,
};

use super::*;
use crate::host::{self, Failure, Loss};
use crate::wire::{
    ConnectData, FABRICS_OPCODE, FabricsCommand, FabricsStatus, HostId, Nqn, Parameter, PropertySize,
    property,
};

const NAMESPACE: NamespaceId = NamespaceId(1);
/// Bytes of a block of the namespace.
const BLOCK: usize = 512;

/// A controller of the subsystem, on one path.
#[derive(Debug, Default)]
struct Controller {
    /// Queues that are connected.
    queues: Vec<QueueId>,
    configuration: u32,
    reachable: bool,
    /// The controller accepts commands and answers none.
    silent: bool,
    /// Status of every Connect, if the controller refuses.
    refusal: Option<FabricsStatus>,
    /// Status of every I/O command, if all of them fail.
    failure: Option<StatusCode>,
    /// Number of Connects of I/O queues that the controller refuses as if their association
    /// had ended.
    forgets: u32,
    /// ANA state of the namespace.
    ana: u8,
    /// The controller returns too little of its ANA log.
    hides_ana: bool,
    event: Option<u64>,
    keep_alives: u32,
    connects: u32,
}

/// A subsystem with several controllers, and a host that uses it.
struct World {
    now: Instant,
    host: Multipath,
    controllers: Vec<Controller>,
    blocks: BTreeMap<u64, Vec<u8>>,
    /// Commands that are on their way, with their arrival times.
    flying: Vec<(Instant, Dispatch)>,
    done: BTreeMap<u64, Completed>,
    outputs: Vec<Output>,
    rng: Rng,
    latency: Vec<Nanos>,
    /// Maximum number of commands that a connection accepts at a time, if it reports one.
    receives: Option<u16>,
    /// Whether controllers report how long they continue with their commands (CQT).
    quiesces: bool,
    /// Whether any command keeps controllers alive (TBKAS).
    counts_traffic: bool,
    /// Whether controllers can end each other; if so, whether they do so at once.
    resets: Option<bool>,
    /// Controllers that had to end, and the paths whose controllers were asked to end them.
    ended: Vec<(u32, u16)>,
}

fn association() -> host::Config {
    let name = |text: &str| text.parse::<Nqn>().unwrap();
    let (subsystem, host) = (name("nqn.2014-08.org.example:disk"), name("nqn.2014-08.org.example:host"));
    host::Config {
        io_queues: 2,
        queue_size: 8,
        controller_loss_timeout: Some(Nanos::from_secs(30)),
        ..host::Config::new(subsystem, host, HostId([7; 16]))
    }
}

impl World {
    fn new(paths: usize, config: Config, association: &host::Config) -> Self {
        let mut world = Self::idle(paths, config, association);
        world.host.start(world.now);
        world.drain();
        world
    }

    fn idle(paths: usize, config: Config, association: &host::Config) -> Self {
        let associations: Vec<_> = (0..paths).map(|_| Association::new(association.clone())).collect();
        let controller = || Controller { reachable: true, ana: 1, ..Controller::default() };
        Self {
            now: Instant::from_nanos(1),
            host: Multipath::new(config, associations),
            controllers: (0..paths).map(|_| controller()).collect(),
            blocks: BTreeMap::new(),
            flying: Vec::new(),
            done: BTreeMap::new(),
            outputs: Vec::new(),
            rng: Rng::from_seed(paths as u64),
            receives: None,
            quiesces: false,
            counts_traffic: false,
            resets: None,
            ended: Vec::new(),
            latency: core::iter::repeat_n(Nanos::from_micros(50), paths).collect(),
        }
    }

    fn drain(&mut self) {
        loop {
            self.host.settle(self.now);
            let Some(output) = self.host.poll_output() else { break };
            self.on_output(output);
        }
    }

    fn fly(&mut self, dispatch: Dispatch) {
        let length = self.latency[dispatch.path.usize()];
        self.flying.push((self.now + length + Nanos::new(self.rng.below(20_000)), dispatch));
    }

    fn on_output(&mut self, output: Output) {
        match output {
            Output::OpenQueue { path, queue, .. } if self.controllers[path.usize()].reachable => {
                if let Some(commands) = self.receives {
                    self.host.limit_queue(path, queue, commands);
                }
                self.host.on_queue_open(self.now, path, queue);
            }
            Output::OpenQueue { path, queue, .. } => self.host.on_queue_lost(self.now, path, queue),
            Output::CloseQueues { path, .. } => {
                self.flying.retain(|(_, dispatch)| dispatch.path != path);
                let controller = &mut self.controllers[path.usize()];
                controller.queues.clear();
                (controller.configuration, controller.event) = (0, None);
            }
            Output::Dispatch(dispatch) => self.fly(dispatch),
            Output::Completed(completed) => self.on_done(completed),
            other => self.outputs.push(other),
        }
    }

    fn on_done(&mut self, completed: Completed) {
        let cookie = completed.cookie;
        assert!(self.done.insert(cookie, completed).is_none(), "command {cookie} ended twice");
    }

    /// Lets `until` pass, or less if `met` becomes true.
    fn run(&mut self, until: Nanos, met: impl Fn(&Self) -> bool) {
        let end = self.now + until;
        while self.now < end && !met(self) {
            let arrival = self.flying.iter().map(|(at, _)| *at).min();
            let wake = [arrival, next_wake(&self.host, self.now)].into_iter().flatten().min();
            self.now = wake.unwrap_or(end).min(end).max(self.now);
            if self.host.poll_timeout().is_some_and(|at| at <= self.now) {
                self.host.handle_timeout(self.now);
                self.drain();
            }
            while let Some(index) = self.flying.iter().position(|(at, _)| *at <= self.now) {
                let (_, dispatch) = self.flying.swap_remove(index);
                self.arrive(dispatch);
                self.drain();
            }
        }
    }

    fn arrive(&mut self, dispatch: Dispatch) {
        let path = dispatch.path.usize();
        if !self.controllers[path].reachable || self.controllers[path].silent {
            return;
        }
        let Dispatch { path, queue, token, entry, data } = dispatch;
        let Some((entry, data)) = self.answer(path, queue, token, entry, data) else { return };
        if let Some(completed) = self.host.on_completed(self.now, path, token, entry, data) {
            self.on_done(completed);
        }
    }

    /// The answer of a controller, if it answers.
    fn answer(
        &mut self,
        path: PathIndex,
        queue: QueueId,
        token: u64,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Option<(CompletionQueueEntry, Buffer)> {
        let good = CompletionQueueEntry::default();
        let controller = &mut self.controllers[path.usize()];
        if entry.opcode == FABRICS_OPCODE {
            return Some(fabrics(controller, queue, path, entry, &data));
        }
        assert!(controller.queues.contains(&queue), "a command on a queue that is connected");
        if !queue.is_admin() {
            if let Some(code) = controller.failure {
                return Some((good.with_status(code.into(), false), Buffer::EMPTY));
            }
            if controller.ana != 1 && controller.ana != 2 {
                let code = StatusCode::AsymmetricAccessInaccessible;
                return Some((good.with_status(code.into(), false), Buffer::EMPTY));
            }
            let lba = entry.starting_lba();
            return Some(match data {
                Data::Write(data) => {
                    self.blocks.insert(lba, data.to_vec());
                    (good, Buffer::EMPTY)
                }
                Data::Read(length) => {
                    let bytes = self.blocks.get(&lba).cloned();
                    let bytes = bytes.unwrap_or_else(|| std::vec![0; length as usize]);
                    (good, Buffer::from(bytes))
                }
                Data::None => (good, Buffer::EMPTY),
            });
        }
        match AdminOpcode::from(entry.opcode) {
            AdminOpcode::AsynchronousEventRequest => {
                controller.event = Some(token);
                return None;
            }
            AdminOpcode::KeepAlive => controller.keep_alives += 1,
            AdminOpcode::SetFeatures if entry.cdw10 == 7 => {
                return Some((CompletionQueueEntry { dw0: entry.cdw11, ..good }, Buffer::EMPTY));
            }
            AdminOpcode::Identify => {
                let mut page = identify(&entry);
                if entry.cdw10 == 1 {
                    page[96] = u8::from(self.counts_traffic) << 6;
                    page[386] = u8::from(self.quiesces);
                    (page[135], page[136], page[1807]) = (7, 9, u8::from(self.resets.is_some()));
                }
                return Some((good, Buffer::copy_from_slice(&page[..])));
            }
            AdminOpcode::CrossControllerReset => {
                assert_eq!((entry.cdw12, entry.cdw13), (9, 0));
                self.ended.push((entry.cdw10, path.0));
                let dw0 = u32::from(self.resets == Some(true));
                return Some((CompletionQueueEntry { dw0, ..good }, Buffer::EMPTY));
            }
            AdminOpcode::GetLogPage => {
                let mut log = std::vec![0; data.len()];
                (log[8], log[16], log[20], log[32], log[48]) = (1, 1, 1, controller.ana, 1);
                log.truncate(if controller.hides_ana { 8 } else { data.len() });
                return Some((good, Buffer::from(log)));
            }
            _ => {}
        }
        Some((good, Buffer::EMPTY))
    }

    /// Has the controller of `path` report that its ANA state has changed.
    fn change_ana(&mut self, path: u16, state: u8) {
        let controller = &mut self.controllers[usize::from(path)];
        controller.ana = state;
        if let Some(token) = controller.event.take() {
            // A notice (2) of an Asymmetric Namespace Access change (3), log page 0Ch.
            let entry = CompletionQueueEntry { dw0: 0x000c_0302, ..CompletionQueueEntry::default() };
            assert!(self.host.on_completed(self.now, PathIndex(path), token, entry, Buffer::EMPTY).is_none());
            self.drain();
        }
    }

    fn submit(&mut self, cookie: u64, lba: u64, write: Option<u8>) -> Result<(), SubmitError> {
        let opcode = if write.is_some() { IoOpcode::Write } else { IoOpcode::Read };
        let entry =
            SubmissionQueueEntry { opcode: opcode.into(), namespace: NAMESPACE, ..Default::default() };
        let data = match write {
            Some(byte) => Data::Write(Buffer::from(std::vec![byte; BLOCK])),
            None => Data::Read(512),
        };
        let queue = u16::try_from(cookie % 7).unwrap();
        let request = Request { cookie, entry: entry.with_starting_lba(lba), data, queue };
        if let Some(dispatch) = self.host.submit(self.now, request)? {
            self.fly(dispatch);
        }
        Ok(())
    }

    /// Cuts or heals a path. Commands on their way over a path that is cut are lost.
    fn set_reachable(&mut self, path: u16, reachable: bool) {
        self.controllers[usize::from(path)].reachable = reachable;
        if !reachable {
            self.flying.retain(|(_, dispatch)| dispatch.path.0 != path);
            self.host.on_queue_lost(self.now, PathIndex(path), QueueId(1));
            self.drain();
        }
    }

    fn live(&self) -> usize {
        self.host.paths().filter(|path| path.live).count()
    }
}

/// Executes a fabrics command: Connect, Property Get or Property Set.
fn fabrics(
    controller: &mut Controller,
    queue: QueueId,
    path: PathIndex,
    entry: SubmissionQueueEntry,
    data: &Data,
) -> (CompletionQueueEntry, Buffer) {
    let good = CompletionQueueEntry::default();
    let value = |value: u32| (CompletionQueueEntry { dw0: value, ..good }, Buffer::EMPTY);
    match FabricsCommand::parse(&entry).unwrap() {
        FabricsCommand::Connect(connect) => {
            controller.connects += 1;
            if let Some(status) = controller.refusal {
                return (good.with_status(status.into(), false), Buffer::EMPTY);
            }
            if !queue.is_admin() && controller.forgets > 0 {
                controller.forgets -= 1;
                // Linux's target answers with Do Not Retry.
                let dw0 = Parameter::CONTROLLER.dw0();
                let gone = FabricsStatus::InvalidParameters.into();
                return (CompletionQueueEntry { dw0, ..good }.with_status(gone, false), Buffer::EMPTY);
            }
            let Data::Write(data) = data else { panic!("Connect has data") };
            let parsed = ConnectData::parse(data).unwrap();
            let id = 100 + path.0;
            assert_eq!(parsed.controller, if queue.is_admin() { 0xffff } else { id });
            assert!(connect.queue == queue && connect.attributes.disables_flow_control());
            assert_eq!(connect.submission_queue_size, if queue.is_admin() { 31 } else { 7 });
            controller.queues.push(queue);
            value(id.into())
        }
        FabricsCommand::PropertySet(set) => {
            assert_eq!((set.offset, set.size), (property::CONFIGURATION, PropertySize::Dword));
            controller.configuration = u32::try_from(set.value).unwrap();
            value(0)
        }
        FabricsCommand::PropertyGet(get) => match get.offset {
            property::CAPABILITIES => value(0x0f00_03ff),
            property::STATUS if property::SHUTDOWN.is_set(controller.configuration) => value(0b1001),
            property::STATUS => value(property::ENABLE.of(controller.configuration)),
            property::CONFIGURATION => value(controller.configuration),
            _ => value(property::VERSION_2_0),
        },
        other => panic!("{other:?}"),
    }
}

fn identify(entry: &SubmissionQueueEntry) -> Box<[u8; 4096]> {
    let mut page = Box::new([0; 4096]);
    match entry.cdw10 {
        // A controller with ANA, MDTS of 1 MiB, ANA change notices, KAS, NANAGRPID 1, MAXCMD 64,
        // and IOCCSZ of 8 KiB and 64 B.
        1 => {
            (page[76], page[77], page[93]) = (8, 8, 8);
            (page[320], page[348], page[514], page[540]) = (10, 1, 64, 1);
            page[1792..1794].copy_from_slice(&516_u16.to_le_bytes());
        }
        2 => page[0] = 1,
        // A namespace of 1000 blocks of 512 bytes.
        _ => {
            page[..2].copy_from_slice(&1000_u16.to_le_bytes());
            page[130] = 9;
        }
    }
    page
}

fn up(paths: usize) -> World {
    let mut world = World::new(paths, Config::default(), &association());
    world.run(Nanos::from_secs(5), |world| world.live() == paths);
    assert_eq!(world.live(), paths);
    // The event request is on its way.
    world.run(Nanos::from_millis(1), |_| false);
    world
}

#[test]
fn a_controller_is_brought_up_kept_alive_and_shut_down() {
    let mut world = up(1);
    let identity = world.host.paths().next().unwrap().identity.unwrap();
    assert_eq!((identity.queue_size, identity.controller_id.0, identity.capsule_data_max()), (8, 100, 8192));
    let reported = world.host.identity().unwrap();
    assert_eq!((reported.io_queues, reported.transfer_bytes_max), (2, 1 << 20));
    assert_eq!((reported.namespaces[0].blocks, reported.namespaces[0].block_bytes), (1000, 512));
    assert_eq!(world.controllers[0].queues.len(), 3);
    world.run(Nanos::from_secs(26), |_| false);
    assert_eq!(world.controllers[0].keep_alives, 10);
    world.host.shut_down(world.now);
    world.drain();
    world.run(Nanos::from_secs(1), |world| world.host.is_over());
    assert!(matches!(world.outputs.last(), Some(Output::PathEnded(PathIndex(0), None))));
    assert_eq!(world.submit(1, 0, None), Err(SubmitError::NoPath));
}

#[test]
fn a_keep_alive_follows_the_last_command_within_half_of_the_timeout() {
    let mut world = World::idle(1, Config::default(), &association());
    world.counts_traffic = true;
    world.host.start(world.now);
    world.drain();
    world.run(Nanos::from_secs(5), |world| world.live() == 1);
    for cookie in 0..127 {
        world.submit(cookie, cookie, None).unwrap();
        world.run(Nanos::from_millis(100), |_| false);
    }
    assert_eq!(world.controllers[0].keep_alives, 0);
    let silent = world.now;
    world.run(Nanos::from_secs(5), |world| world.controllers[0].keep_alives > 0);
    assert!(world.now - silent <= association().keep_alive / 2, "{}", world.now - silent);
}

#[test]
fn a_permanent_refusal_of_a_controller_is_not_retried() {
    let mut world = World::new(1, Config::default(), &association());
    world.controllers[0].refusal = Some(FabricsStatus::InvalidHost);
    world.run(Nanos::from_secs(5), |world| world.host.is_over());
    let Some(Output::PathEnded(_, Some(Failure::Connect { queue, status, .. }))) = world.outputs.last()
    else {
        panic!("{:?}", world.outputs)
    };
    assert_eq!((*queue, FabricsStatus::of(*status)), (QueueId::ADMIN, Some(FabricsStatus::InvalidHost)));
    assert_eq!(world.controllers[0].connects, 1);
    // A busy controller is tried again.
    let mut world = World::new(1, Config::default(), &association());
    world.controllers[0].refusal = Some(FabricsStatus::ControllerBusy);
    world.run(Nanos::from_secs(5), |_| false);
    assert!(world.controllers[0].connects > 3);
    world.controllers[0].refusal = None;
    world.run(Nanos::from_secs(20), |world| world.live() == 1);
    assert_eq!(world.live(), 1);
}

#[test]
fn a_controller_that_has_forgotten_the_association_is_connected_anew() {
    let mut world = World::new(1, Config::default(), &association());
    world.controllers[0].forgets = 2;
    world.run(Nanos::from_secs(20), |world| world.live() == 1);
    assert_eq!((world.live(), world.controllers[0].forgets), (1, 0), "{:?}", world.outputs);
    let lost = |output: &&Output| matches!(output, Output::PathLost(_, Loss::Refused(_)));
    assert_eq!(world.outputs.iter().filter(lost).count(), 2);
}

#[test]
fn commands_wait_for_a_lost_controller_and_are_sent_again() {
    let mut world = up(1);
    for cookie in 0..8 {
        world.submit(cookie, cookie, Some(9)).unwrap();
    }
    world.set_reachable(0, false);
    world.submit(8, 8, Some(9)).unwrap();
    world.run(Nanos::from_secs(10), |_| false);
    assert!(world.done.is_empty());
    world.set_reachable(0, true);
    world.run(Nanos::from_secs(20), |world| world.done.len() == 9);
    assert!(world.done.values().all(|completed| completed.entry.status().is_success()));
    assert_eq!(world.blocks.len(), 9);
    assert_eq!(world.host.statistics().stranded, 8);
}

#[test]
fn commands_that_fail_make_room_for_those_that_wait() {
    let config = Config { retries_max: 0, ..Config::default() };
    let mut world = World::new(1, config, &association());
    world.run(Nanos::from_secs(5), |world| world.live() == 1);
    world.controllers[0].failure = Some(StatusCode::InternalPathError);
    // The two queues hold 16 commands.
    for cookie in 0..24 {
        world.submit(cookie, cookie, None).unwrap();
    }
    world.run(Nanos::from_secs(1), |world| world.done.len() == 24);
    let failed = |completed: &Completed| completed.entry.status().code() == StatusCode::InternalPathError;
    assert!(world.done.len() == 24 && world.done.values().all(failed), "{} have ended", world.done.len());
    assert_eq!(world.host.outstanding(), 0);
}

#[test]
fn a_queue_has_no_more_commands_than_its_connection_takes() {
    let size = |world: &World| world.host.paths().next().unwrap().identity.unwrap().queue_size;
    let mut world = World::idle(1, Config::default(), &association());
    world.receives = Some(3);
    world.host.start(world.now);
    world.drain();
    world.run(Nanos::from_secs(5), |world| world.live() == 1);
    assert_eq!(size(&world), 3);
    for cookie in 0..24 {
        world.submit(cookie, cookie, None).unwrap();
        assert!(world.host.paths().all(|path| path.outstanding <= 6), "two queues of three commands");
    }
    world.run(Nanos::from_secs(1), |world| world.done.len() == 24);
    assert!(world.done.len() == 24 && world.done.values().all(|done| done.entry.status().is_success()));
    // The connections of another attempt may take more.
    world.receives = None;
    world.set_reachable(0, false);
    world.set_reachable(0, true);
    world.run(Nanos::from_secs(20), |world| world.live() == 1);
    assert_eq!((world.live(), size(&world)), (1, 8));
}

#[test]
fn a_request_for_events_does_not_take_the_only_place_of_the_admin_queue() {
    for (receives, has_request) in [(1, false), (2, true)] {
        let mut world = World::idle(1, Config::default(), &association());
        world.receives = Some(receives);
        world.host.start(world.now);
        world.drain();
        world.run(Nanos::from_secs(5), |world| world.live() == 1);
        world.run(Nanos::from_millis(1), |_| false);
        assert_eq!((world.live(), world.controllers[0].event.is_some()), (1, has_request));
    }
}

#[test]
fn callers_leave_the_association_its_places_in_the_admin_queue() {
    let mut world = World::idle(1, Config::default(), &association());
    world.receives = Some(5);
    world.host.start(world.now);
    world.drain();
    world.run(Nanos::from_secs(5), |world| world.live() == 1);
    let entry = SubmissionQueueEntry { opcode: AdminOpcode::GetFeatures.into(), ..Default::default() };
    let mut submit = |cookie| {
        let command = nvme::host::Command { cookie, entry, data: Data::None };
        world.host.submit_admin(world.now, command)
    };
    let busy = Err(association::SubmitError::Busy);
    assert_eq!([submit(1), submit(2), submit(3)], [Ok(()), Ok(()), busy]);
    world.drain();
    let ended = |output: &&Output| matches!(output, Output::AdminCompleted(_));
    world.run(Nanos::from_secs(1), |world| world.outputs.iter().filter(ended).count() == 2);
    let command = nvme::host::Command { cookie: 4, entry, data: Data::None };
    assert_eq!(world.host.submit_admin(world.now, command), Ok(()));
}

/// A host with live paths, to controllers that report CQT, and that end each other according to
/// `resets`.
fn fenced(paths: usize, resets: Option<bool>, association: &host::Config) -> World {
    let mut world = World::idle(paths, Config::default(), association);
    (world.quiesces, world.resets) = (true, resets);
    world.host.start(world.now);
    world.drain();
    world.run(Nanos::from_secs(5), |world| world.live() == paths);
    world.run(Nanos::from_millis(1), |_| false);
    world
}

#[test]
fn a_write_goes_another_way_once_the_lost_controller_was_ended() {
    let mut world = fenced(2, Some(true), &association());
    (0..6).for_each(|cookie| world.submit(cookie, cookie, Some(9)).unwrap());
    (6..12).for_each(|cookie| world.submit(cookie, cookie, None).unwrap());
    world.set_reachable(0, false);
    let sent: Vec<_> = world.flying.iter().map(|(_, dispatch)| dispatch.entry).collect();
    let count = |of: IoOpcode| sent.iter().filter(|entry| IoOpcode::from(entry.opcode) == of).count();
    assert_eq!((count(IoOpcode::Read), count(IoOpcode::Write)), (6, 3), "reads go at once, writes do not");
    world.run(Nanos::from_secs(1), |world| world.done.len() == 12);
    assert_eq!(world.ended, [(100 | 7 << 16, 1)], "controller 100, which was lost, by the other path");
    assert_eq!(world.blocks.len(), 6);
    assert!(world.done.values().all(|completed| completed.entry.status().is_success()));
}

#[test]
fn a_lost_controller_is_ended_by_the_one_that_comes_after_it() {
    let mut world = fenced(1, Some(true), &association());
    world.submit(1, 1, Some(9)).unwrap();
    world.set_reachable(0, false);
    world.run(Nanos::from_secs(3), |_| false);
    world.set_reachable(0, true);
    world.run(Nanos::from_secs(20), |world| world.done.len() == 1);
    assert_eq!(world.ended, [(100 | 7 << 16, 0)]);
}

#[test]
fn commands_wait_for_a_lost_controller_that_cannot_be_ended() {
    for resets in [None, Some(false)] {
        let mut world = fenced(2, resets, &association());
        (0..4).for_each(|cookie| world.submit(cookie, cookie, Some(9)).unwrap());
        world.set_reachable(0, false);
        // Two Keep Alive Timeouts of 5 s, and CQT of 1 ms.
        world.run(Nanos::from_secs(9), |_| false);
        assert_eq!((world.done.len(), world.ended.len()), (2, usize::from(resets.is_some())));
        world.run(Nanos::from_secs(2), |world| world.done.len() == 4);
        assert_eq!(world.blocks.len(), 4);
    }
}

#[test]
fn a_failed_write_does_not_appear_later() {
    let config = host::Config { fast_io_fail_timeout: Some(Nanos::from_secs(1)), ..association() };
    let mut world = fenced(1, Some(true), &config);
    world.submit(1, 1, Some(9)).unwrap();
    world.set_reachable(0, false);
    world.run(Nanos::from_secs(2), |world| world.done.len() == 1);
    assert_eq!(world.done[&1].origin, Origin::Host);
    world.set_reachable(0, true);
    world.run(Nanos::from_secs(20), |world| world.live() == 1);
    // The path is back, but the earlier life of the controller has not ended yet.
    world.submit(2, 1, None).unwrap();
    let reads = |world: &World| world.flying.iter().any(|(_, one)| one.entry.starting_lba() == 1);
    assert!(!reads(&world) && world.ended.is_empty());
    world.run(Nanos::from_secs(1), |world| world.done.len() == 2);
    assert_eq!(world.ended.len(), 1);
    assert!(world.done[&2].entry.status().is_success());
}

#[test]
fn a_controller_that_stays_away_is_given_up_and_its_commands_fail() {
    let mut world = up(1);
    world.set_reachable(0, false);
    world.submit(1, 1, Some(9)).unwrap();
    world.run(Nanos::from_secs(29), |_| false);
    assert!(world.done.is_empty());
    world.run(Nanos::from_secs(2), |_| false);
    let completed = &world.done[&1];
    assert_eq!(completed.entry.status().code(), StatusCode::HostPathingError);
    assert_eq!(completed.origin, Origin::Host);
    assert!(world.host.is_over());
    // With a fast I/O fail time-out, commands fail earlier, while the host still tries to reach
    // the controller.
    let config = host::Config { fast_io_fail_timeout: Some(Nanos::from_secs(3)), ..association() };
    let mut world = World::new(1, Config::default(), &config);
    world.run(Nanos::from_secs(1), |world| world.live() == 1);
    world.set_reachable(0, false);
    world.submit(1, 1, Some(9)).unwrap();
    world.run(Nanos::from_secs(4), |_| false);
    assert_eq!(world.done[&1].entry.status().code(), StatusCode::HostPathingError);
    assert_eq!(world.submit(2, 1, None), Err(SubmitError::NoPath));
    world.set_reachable(0, true);
    world.run(Nanos::from_secs(20), |world| world.live() == 1);
    world.submit(3, 1, None).unwrap();
    world.run(Nanos::from_secs(1), |world| world.done.contains_key(&3));
    assert!(world.done[&3].entry.status().is_success());
}

#[test]
fn a_controller_that_falls_silent_is_found_out() {
    // A Keep Alive finds the loss.
    let mut world = up(1);
    world.controllers[0].silent = true;
    world.run(Nanos::from_secs(8), |world| world.live() == 0);
    assert!(world.outputs.iter().any(|output| matches!(output, Output::PathLost(_, Loss::KeepAlive))));
    // Without Keep Alive, an I/O command finds the loss.
    let config = host::Config { keep_alive: Nanos::ZERO, ..association() };
    let mut world = World::new(1, Config::default(), &config);
    world.run(Nanos::from_secs(1), |world| world.live() == 1);
    world.controllers[0].silent = true;
    world.submit(1, 1, None).unwrap();
    world.run(Nanos::from_secs(31), |world| world.live() == 0);
    assert!(world.outputs.iter().any(|output| matches!(output, Output::PathLost(_, Loss::IoTimeout))));
    world.controllers[0].silent = false;
    world.run(Nanos::from_secs(20), |world| world.done.contains_key(&1));
    assert!(world.done[&1].entry.status().is_success());
}

#[test]
fn a_keep_alive_that_is_not_answered_does_not_undo_a_shutdown() {
    let mut world = up(1);
    world.controllers[0].silent = true;
    // A Keep Alive is on its way.
    world.run(association().keep_alive * 3 / 4, |_| false);
    world.host.shut_down(world.now);
    world.drain();
    world.run(Nanos::from_secs(20), |world| world.host.is_over());
    assert!(
        world.host.is_over() && !world.outputs.iter().any(|output| matches!(output, Output::PathLost(..)))
    );
}

#[test]
fn ana_says_which_way_to_go() {
    let mut world = up(2);
    world.change_ana(0, 2);
    world.run(Nanos::from_millis(10), |_| false);
    let used = |world: &mut World, cookies: core::ops::Range<u64>| {
        let mut used = [0; 2];
        for cookie in cookies {
            world.submit(cookie, cookie, None).unwrap();
            used[world.flying.last().unwrap().1.path.usize()] += 1;
            world.run(Nanos::from_millis(1), |world| world.done.contains_key(&cookie));
        }
        used
    };
    // Path 1 is optimized, path 0 is not.
    assert_eq!(used(&mut world, 0..10), [0, 10]);
    world.change_ana(1, 3);
    world.run(Nanos::from_millis(10), |_| false);
    assert_eq!(used(&mut world, 10..20), [10, 0]);
    // Without an event, the status of a command reports the change.
    world.controllers[0].ana = 3;
    world.controllers[1].ana = 1;
    world.submit(20, 20, Some(1)).unwrap();
    world.run(Nanos::from_millis(10), |_| false);
    assert!(!world.done.contains_key(&20));
    world.change_ana(1, 1);
    world.run(Nanos::from_millis(10), |_| false);
    assert!(world.done[&20].entry.status().is_success());
    world.change_ana(0, 1);
    world.run(Nanos::from_millis(10), |_| false);
    assert_eq!(used(&mut world, 30..40), [5, 5]);
}

#[test]
fn a_path_whose_ana_states_are_not_reported_again_is_lost() {
    let mut world = up(1);
    (world.controllers[0].ana, world.controllers[0].hides_ana) = (3, true);
    world.submit(1, 1, None).unwrap();
    world.run(Nanos::from_secs(1), |world| world.live() == 0);
    assert!(world.outputs.iter().any(|output| matches!(output, Output::PathLost(_, Loss::Refused(_)))));
    (world.controllers[0].ana, world.controllers[0].hides_ana) = (1, false);
    world.run(Nanos::from_secs(20), |world| world.done.contains_key(&1));
    assert!(world.done[&1].entry.status().is_success());
}

#[test]
fn the_faster_path_is_taken_more() {
    let config = Config { policy: Policy::LowestLatency, ..Config::default() };
    let mut world = World::new(2, config, &association());
    world.latency[0] = Nanos::from_millis(5);
    world.run(Nanos::from_secs(5), |world| world.live() == 2);
    let mut used = [0; 2];
    for cookie in 0..1000 {
        world.submit(cookie, 1, None).unwrap();
        used[world.flying.last().unwrap().1.path.usize()] += 1;
        world.run(Nanos::from_secs(1), |world| world.done.contains_key(&cookie));
    }
    assert!(used[1] > 950 && used[0] > 2, "{used:?}");
}

/// Two paths are lost and reconnected while blocks are written and read. Every command ends once,
/// and no acknowledged write is lost.
#[test]
fn paths_come_and_go_and_nothing_acknowledged_is_lost() {
    for seed in 0..20 {
        let mut world = up(2);
        world.rng = Rng::from_seed(seed);
        let mut model: BTreeMap<u64, u8> = BTreeMap::new();
        let mut writes: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
        let mut submitted = 0;
        for cookie in 0..400_u64 {
            let lba = cookie % 40;
            // One command at a time for each block, so that the model knows the block's content.
            world.run(Nanos::from_secs(100), |world| cookie < 40 || world.done.contains_key(&(cookie - 40)));
            if let Some((lba, byte)) = cookie.checked_sub(40).and_then(|earlier| writes.remove(&earlier)) {
                model.insert(lba, byte);
            }
            if let Some(earlier) = cookie.checked_sub(40)
                && !world.done[&earlier].data.is_empty()
            {
                let expected = model.get(&(earlier % 40)).copied().unwrap_or(0);
                assert_eq!(world.done[&earlier].data[0], expected, "seed {seed}, read {earlier}");
            }
            let byte = u8::try_from(cookie % 250).unwrap() + 1;
            let write = world.rng.one_in(2).then_some(byte);
            if let Some(byte) = write {
                writes.insert(cookie, (lba, byte));
            }
            if world.submit(cookie, lba, write).is_ok() {
                submitted += 1;
            }
            if world.rng.one_in(20) {
                let path = u16::try_from(world.rng.below(2)).unwrap();
                let reachable = !world.controllers[usize::from(path)].reachable;
                world.set_reachable(path, reachable);
            }
            if !world.controllers.iter().any(|controller| controller.reachable) {
                world.run(Nanos::from_millis(200), |_| false);
                world.set_reachable(0, true);
            }
        }
        world.set_reachable(0, true);
        world.run(Nanos::from_secs(100), |world| world.done.len() == submitted);
        assert_eq!((world.done.len(), submitted), (400, 400), "seed {seed}");
        assert!(world.done.values().all(|completed| completed.entry.status().is_success()));
        assert_eq!(world.host.outstanding(), 0);
    }
}
