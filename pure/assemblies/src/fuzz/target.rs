//! A target among hostile hosts.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Buffer, Engine, Instant, Pool, Rng};
use nvme::media::ram::RamDisk;
use nvme::media::{Completion, MediumId};
use nvme_fabrics::target::{ControllerModel, Directory, Hosts, Port, Subsystem, SubsystemKey};
use nvme_fabrics::wire::{Nqn, PortId};
use nvme_tcp::SharedPool;

use super::{Patience, STEPS_MAX, check_deadline, length_of};
use crate::fabric::Fabric;
use crate::target::{Accepted, Config, ConnectionId, Input, Output, Target};

const NQN: &str = "nqn.2026-01.io.farlane:fuzz";
const BYTES: u64 = 1 << 20;
const KEY: SubsystemKey = SubsystemKey(0);
const PORT: PortId = PortId(1);
/// Maximum number of connections at a time.
const CONNECTIONS: u8 = 4;

struct Bench {
    target: Target,
    disk: RamDisk,
    now: Instant,
    /// Which connections exist.
    there: [bool; CONNECTIONS as usize],
}

impl Bench {
    fn new() -> Option<Self> {
        let now = Instant::from_nanos(1_000_000_000);
        let pool: SharedPool = Rc::new(RefCell::new(Pool::new(1 << 20)));
        let connection = nvme_tcp::controller::Config::new(pool);
        let name: Nqn = NQN.parse().ok()?;
        let (hosts, model) = (Hosts::Any, ControllerModel::default());
        let (ports, terms) = (Vec::from([PORT]), Vec::new());
        let subsystem = Subsystem { key: KEY, name, hosts, terms, model, ports, is_here: true };
        let port = Port { id: PORT, address: address(4420).into(), is_any: true };
        let (subsystems, ports) = (Vec::from([subsystem]), Vec::from([port]));
        let directory = Directory { subsystems, ports, ..Directory::default() };
        let mut target = Target::new(
            now,
            Config { connection: connection.into(), directory, rng: Rng::from_seed(1).into() },
        );
        target.add_subsystem(
            now,
            KEY,
            nvme::subsystem::Config::new("FUZZ").with_namespace(MediumId(0), BYTES),
        );
        Some(Self { target, disk: RamDisk::new(BYTES), now, there: [false; CONNECTIONS as usize] })
    }

    fn run(&mut self) {
        let mut patience = Patience::new();
        loop {
            let mut done = Vec::new();
            while let Some(output) = self.target.poll_output() {
                patience.spend();
                match output {
                    Output::Media { request, .. } => {
                        self.disk.submit(request, &mut |completion: Completion| done.push(completion));
                    }
                    Output::Send(id) => {
                        let unsent = self.target.outbox(id).map_or(0, nvme_tcp::Outbox::len);
                        self.target.sent(self.now, id, unsent);
                    }
                    Output::Close(id) | Output::Drop(id) => {
                        self.there[id.0 as usize] = false;
                        self.target.handle_input(self.now, Input::Closed(id));
                    }
                    Output::HandOver { .. }
                    | Output::ToLane { .. }
                    | Output::ToHome { .. }
                    | Output::Disowned { .. }
                    | Output::Admitted(_)
                    | Output::Work { .. }
                    | Output::Listen(_)
                    | Output::Notify { .. }
                    | Output::Event(_) => {}
                }
            }
            if done.is_empty() {
                return;
            }
            for completion in done {
                self.target.handle_input(self.now, Input::Media { subsystem: KEY, completion });
            }
        }
    }

    fn accept(&mut self, index: u8) {
        if !core::mem::replace(&mut self.there[usize::from(index)], true) {
            let connection = ConnectionId(index.into());
            let (peer, local) = (address(50_000), address(4420));
            let accepted = Accepted {
                connection,
                port: PORT,
                fabric: Fabric::Tcp,
                peer,
                local,
                proved: None,
                resume: None,
                pair: None,
            };
            self.target.handle_input(self.now, Input::Accepted(accepted));
        }
    }

    fn step<'a>(&mut self, kind: u8, rest: &'a [u8]) -> &'a [u8] {
        let connection = ConnectionId((kind % CONNECTIONS).into());
        match kind >> 5 {
            0 => {
                if core::mem::replace(&mut self.there[connection.0 as usize], false) {
                    self.target.handle_input(self.now, Input::Closed(connection));
                }
                rest
            }
            1 => {
                self.now = self.now + length_of(kind);
                if self.target.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.target.handle_timeout(self.now);
                }
                rest
            }
            _ => {
                self.accept(kind % CONNECTIONS);
                let Some((&length, rest)) = rest.split_first() else { return rest };
                let (bytes, rest) = rest.split_at(usize::from(length).min(rest.len()));
                let bytes = Buffer::copy_from_slice(bytes);
                self.target.handle_input(self.now, Input::Received { connection, bytes });
                rest
            }
        }
    }
}

fn address(port: u16) -> core::net::SocketAddr {
    ([192, 0, 2, 1], port).into()
}

/// Hosts that connect, say anything, and disconnect.
pub fn target(bytes: &[u8]) {
    let Some(mut bench) = Bench::new() else { return };
    let mut rest = bytes;
    for _ in 0..STEPS_MAX {
        let Some((&kind, after)) = rest.split_first() else { break };
        rest = bench.step(kind, after);
        bench.run();
        if bench.target.poll_timeout().is_some_and(|at| at <= bench.now) {
            bench.target.handle_timeout(bench.now);
            bench.run();
        }
        check_deadline(bench.now, bench.target.poll_timeout());
    }
}
