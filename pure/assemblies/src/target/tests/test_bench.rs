//! A target with a RAM disk, and hosts joined to it without a network.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Engine, Instant, Nanos, Pool, Rng, settle};
use nvme::host::Data;
use nvme::media::ram::RamDisk;
use nvme::media::{Completion, MediumId, Request};
use nvme::wire::{Status, SubmissionQueueEntry};
use nvme_fabrics::authentication::Work;
use nvme_fabrics::target::{ControllerModel, Directory, Hosts, Port, Subsystem, SubsystemKey, WorkId};
use nvme_fabrics::transport::HostEnd as _;
use nvme_fabrics::wire::{
    ConnectAttributes, ConnectCommand, ConnectData, FabricsCommand, HostId, PortId, PropertyGet, PropertySet,
    PropertySize, QueueId, property,
};
use nvme_tcp::SharedPool;
use nvme_tcp::host::{self, Completed};

use crate::fabric::Fabric;
use crate::target::{Accepted, Config, ConnectionId, Event, Handover, Input, Output, Target};

pub(super) const DISK: &str = "nqn.2026-01.io.farlane:disk";
pub(super) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:1";
pub(super) const KEY: SubsystemKey = SubsystemKey(0);
pub(super) const PORT: PortId = PortId(1);
const BYTES: u64 = 16 << 20;

pub(super) fn directory() -> Directory {
    let address = "192.0.2.1:4420".parse::<core::net::SocketAddr>().unwrap().into();
    let subsystem = Subsystem {
        key: KEY,
        name: DISK.parse().unwrap(),
        hosts: Hosts::Any,
        terms: Vec::new(),
        model: ControllerModel::default(),
        ports: Vec::from([PORT]),
        is_here: true,
    };
    let port = Port { id: PORT, address, is_any: false };
    Directory { subsystems: Vec::from([subsystem]), ports: Vec::from([port]), ..Directory::default() }
}

/// A host's end of a connection.
struct HostEnd {
    connection: host::Connection,
    completed: Vec<Completed>,
    is_closed: bool,
}

pub(super) struct TestBench {
    pub(super) target: Target,
    pub(super) now: Instant,
    pub(super) without_flow_control: bool,
    pub(super) events: Vec<Event>,
    /// A connection that the target has handed over.
    pub(super) moved: Option<Handover>,
    /// Messages between homes and lanes.
    pub(super) mail: Vec<Output>,
    /// Media answer nothing for now.
    pub(super) is_held: bool,
    /// Connections whose hosts read nothing.
    pub(super) unread: Vec<usize>,
    /// Connections that the world is to listen to again.
    pub(super) listened: Vec<ConnectionId>,
    /// Keep Alive Timeout of the Connects to come, in milliseconds.
    pub(super) keep_alive: u32,
    /// Whether work of authentications is done at once.
    pub(super) works_itself: bool,
    work: Vec<(WorkId, Work)>,
    held: Vec<(SubsystemKey, Request)>,
    disk: RamDisk,
    pool: SharedPool,
    /// Host ends, indexed by connection; a connection's index is never reused.
    hosts: Vec<HostEnd>,
    cookie: u64,
}

impl TestBench {
    pub(super) fn new(directory: Directory) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let pool: SharedPool = Rc::new(RefCell::new(Pool::default()));
        let connection = nvme_tcp::controller::Config::new(Rc::clone(&pool));
        let is_here = directory.subsystems.first().is_some_and(|one| one.is_here);
        let mut target = Target::new(
            now,
            Config { connection: connection.into(), directory, rng: Rng::from_seed(1).into() },
        );
        if is_here {
            let mut core = nvme::subsystem::Config::new("RIG").with_namespace(MediumId(0), BYTES);
            core.subsystem_name = DISK.into();
            core.ana_groups = 1;
            target.add_subsystem(now, KEY, core);
        }
        Self {
            target,
            now,
            without_flow_control: false,
            events: Vec::new(),
            moved: None,
            mail: Vec::new(),
            is_held: false,
            unread: Vec::new(),
            listened: Vec::new(),
            keep_alive: 5000,
            works_itself: true,
            work: Vec::new(),
            held: Vec::new(),
            disk: RamDisk::new(BYTES),
            pool,
            hosts: Vec::new(),
            cookie: 0,
        }
    }

    pub(super) fn id(index: usize) -> ConnectionId {
        ConnectionId(u32::try_from(index).unwrap())
    }

    /// A connection on which only the initialisation was exchanged.
    pub(super) fn connection(&mut self) -> usize {
        let config = host::Config::new(Rc::clone(&self.pool));
        let connection = host::Connection::new(self.now, config);
        let index = self.hosts.len();
        self.hosts.push(HostEnd { connection, completed: Vec::new(), is_closed: false });
        self.accept(index, None);
        index
    }

    fn accept(&mut self, index: usize, resume: Option<Handover>) {
        let accepted = Accepted {
            connection: Self::id(index),
            port: PORT,
            fabric: Fabric::Tcp,
            peer: "198.51.100.7:50000".parse().unwrap(),
            local: "192.0.2.1:4420".parse().unwrap(),
            proved: None,
            resume,
            pair: None,
        };
        self.target.handle_input(self.now, Input::Accepted(accepted));
        self.run();
    }

    /// Takes over the host's end of a connection that another target has handed over.
    pub(super) fn adopt(&mut self, other: &mut Self, index: usize, handover: Handover) {
        assert_eq!(index + 1, other.hosts.len(), "only the last one can go");
        self.hosts.push(other.hosts.remove(index));
        self.cookie = other.cookie;
        self.accept(self.hosts.len() - 1, Some(handover));
    }

    /// Moves bytes until both ends are silent.
    pub(super) fn run(&mut self) {
        loop {
            let mut done = Vec::new();
            let mut is_quiet = true;
            let Self { target, events, moved, mail, disk, hosts, now, is_held, held, listened, work, .. } =
                self;
            settle(target, *now, |output| {
                is_quiet = false;
                match output {
                    Output::Media { subsystem, request, .. } if *is_held => held.push((subsystem, request)),
                    Output::Media { subsystem, request, .. } => {
                        disk.submit(request, &mut |completion: Completion| {
                            done.push((subsystem, completion))
                        });
                    }
                    Output::Event(event) => events.push(event),
                    Output::Close(id) | Output::Drop(id) => hosts[id.0 as usize].is_closed = true,
                    Output::Listen(id) => listened.push(id),
                    Output::HandOver { handover, .. } => *moved = Some(handover),
                    Output::Work { id, work: one } => work.push((id, one)),
                    Output::ToLane { .. } | Output::ToHome { .. } => mail.push(output),
                    Output::Send(_)
                    | Output::Notify { .. }
                    | Output::Admitted(_)
                    | Output::Disowned { .. } => {}
                }
            });
            for (subsystem, completion) in done {
                self.target.handle_input(self.now, Input::Media { subsystem, completion });
            }
            if self.works_itself {
                is_quiet &= !self.do_work();
            }
            for index in 0..self.hosts.len() {
                is_quiet &= !self.exchange(index);
            }
            if is_quiet {
                return;
            }
        }
    }

    /// Does the work that authentications wait for. Returns whether there was any.
    fn do_work(&mut self) -> bool {
        let work = core::mem::take(&mut self.work);
        let has_any = !work.is_empty();
        for (id, work) in work {
            let (product, spent) = (work.compute(), Nanos::ZERO);
            self.target.handle_input(self.now, Input::Worked { id, product, spent });
        }
        has_any
    }

    /// Does the work that authentications wait for, and what follows from it.
    pub(super) fn work(&mut self) {
        while self.do_work() {
            self.run();
        }
    }

    /// Lets media answer the requests that were held back.
    pub(super) fn release(&mut self) {
        self.is_held = false;
        for (subsystem, request) in core::mem::take(&mut self.held).into_iter().rev() {
            let mut done = Vec::new();
            self.disk.submit(request, &mut |completion: Completion| done.push(completion));
            for completion in done {
                self.target.handle_input(self.now, Input::Media { subsystem, completion });
            }
        }
        self.run();
    }

    /// Moves the bytes of both ends of a connection. Returns whether there were any.
    fn exchange(&mut self, index: usize) -> bool {
        let id = Self::id(index);
        let mut pool = Pool::default();
        let mut towards = Vec::new();
        if let Some(outbox) = self.target.outbox(id).filter(|_| !self.unread.contains(&index)) {
            for slice in outbox.slices() {
                towards.push(pool.copy(slice));
            }
            let count = towards.iter().map(|piece| piece.len()).sum();
            self.target.sent(self.now, id, count);
        }
        let end = &mut self.hosts[index];
        let mut back = Vec::new();
        end.connection.outbox_mut().take_all(&mut pool, |bytes| back.push(bytes));
        let mut is_busy = !towards.is_empty() || !back.is_empty();
        for bytes in towards {
            end.connection.handle_input(self.now, host::Input::Received(bytes));
        }
        while let Some(output) = end.connection.poll_output() {
            is_busy = true;
            if let host::Output::Completed(completed) = output {
                end.completed.push(completed);
            }
        }
        if end.is_closed {
            self.target.handle_input(self.now, Input::Closed(id));
            return is_busy;
        }
        for bytes in back {
            self.target.handle_input(self.now, Input::Received { connection: id, bytes });
        }
        is_busy
    }

    pub(super) fn submit(&mut self, host: usize, entry: SubmissionQueueEntry, data: Data) -> u64 {
        self.cookie += 1;
        self.hosts[host].connection.submit(self.cookie, entry, data).unwrap();
        self.cookie
    }

    pub(super) fn completed(&mut self, host: usize, cookie: u64) -> Option<Completed> {
        let completed = &mut self.hosts[host].completed;
        let found = completed.iter().position(|one| one.cookie == cookie)?;
        Some(completed.remove(found))
    }

    /// Sends a command and waits for its end.
    pub(super) fn ask(&mut self, host: usize, entry: SubmissionQueueEntry, data: Data) -> Completed {
        let cookie = self.submit(host, entry, data);
        self.run();
        self.completed(host, cookie).expect("the command ends")
    }

    pub(super) fn send_connect(&mut self, host: usize, name: &str, queue: u16, controller: u16) -> u64 {
        let flow = if self.without_flow_control { ConnectAttributes::DISABLE_FLOW_CONTROL } else { 0 };
        let command = ConnectCommand {
            record_format: 0,
            queue: QueueId(queue),
            submission_queue_size: 31,
            attributes: ConnectAttributes(flow),
            keep_alive_timeout: self.keep_alive,
        };
        let data = ConnectData {
            host_id: HostId([1; 16]),
            controller,
            subsystem: name.parse().unwrap(),
            host: HOST.parse().unwrap(),
        };
        let data = engine::Buffer::copy_from_slice(&data.emit());
        self.submit(host, FabricsCommand::Connect(command).emit(), Data::Write(data))
    }

    /// Connects a queue. Returns DW0 of the response, or the status and DW0 of the refusal.
    pub(super) fn connect(
        &mut self,
        host: usize,
        name: &str,
        queue: u16,
        controller: u16,
    ) -> Result<u32, (Status, u32)> {
        let cookie = self.send_connect(host, name, queue, controller);
        self.run();
        let entry = self.completed(host, cookie).expect("the Connect ends").entry;
        if !entry.status().is_success() {
            return Err((entry.status(), entry.dw0));
        }
        let agreed = if self.without_flow_control { 0xffff } else { 0 };
        assert_eq!(entry.submission_queue_head, agreed);
        Ok(entry.dw0)
    }

    pub(super) fn admin_queue(&mut self, name: &str) -> Result<usize, (Status, u32)> {
        let host = self.connection();
        self.connect(host, name, 0, 0xffff).map(|_| host)
    }

    pub(super) fn io_queue(
        &mut self,
        name: &str,
        queue: u16,
        controller: u16,
    ) -> Result<usize, (Status, u32)> {
        let host = self.connection();
        self.connect(host, name, queue, controller).map(|_| host)
    }

    pub(super) fn set_configuration(&mut self, host: usize, value: u64) {
        let set = PropertySet { size: PropertySize::Dword, offset: property::CONFIGURATION, value };
        let done = self.ask(host, FabricsCommand::PropertySet(set).emit(), Data::None);
        assert!(done.entry.status().is_success());
    }

    pub(super) fn controller_status(&mut self, host: usize) -> u32 {
        let get = PropertyGet { size: PropertySize::Dword, offset: property::STATUS };
        self.ask(host, FabricsCommand::PropertyGet(get).emit(), Data::None).entry.dw0
    }

    /// Enables the controller as Linux does.
    pub(super) fn enable(&mut self, host: usize) {
        self.set_configuration(host, 0x0046_0001);
        assert_eq!(self.controller_status(host), 1);
    }

    pub(super) fn hosts_count(&self) -> usize {
        self.hosts.len()
    }

    /// Whether the target has closed the connection.
    pub(super) fn is_closed(&self, host: usize) -> bool {
        self.hosts[host].is_closed
    }

    /// The connection fails, or the host disconnects.
    pub(super) fn drop_connection(&mut self, host: usize) {
        self.target.handle_input(self.now, Input::Closed(Self::id(host)));
        self.hosts[host].is_closed = true;
        self.run();
    }

    pub(super) fn pass(&mut self, time: Nanos) {
        self.now = self.now + time;
        self.run();
    }
}
