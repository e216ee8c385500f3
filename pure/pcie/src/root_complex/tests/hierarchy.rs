//! The real engines together: root complex, switch, endpoints.

use std::collections::VecDeque;

use super::*;
use crate::config::{Bar, BarIndex, ClassCode, Identity, Link, msix, offset};
use crate::device::{Dma, DmaId, DmaResult};
use crate::endpoint::{self, Endpoint, EndpointConfig, MsixLayout};
use crate::lspci;
use crate::memory::{Memory, Ram};
use crate::switch::{self, PortId, Switch, SwitchConfig};

const HOST_MEMORY: u64 = 0x10_0000;

/// A device with RAM behind BAR 0.
struct Device {
    endpoint: Endpoint,
    ram: Vec<u8>,
    results: Vec<DmaResult>,
}

struct World {
    root: RootComplex,
    switch: Switch,
    devices: Vec<Option<Device>>,
    memory: Ram,
    events: VecDeque<Output>,
    now: Instant,
}

fn device() -> Device {
    let config = EndpointConfig {
        identity: Identity {
            vendor: 0x1b36,
            device: 0x0010,
            revision: 2,
            class: ClassCode::NVME,
            subsystem_vendor: 0x1b36,
            subsystem: 0x1100,
        },
        link: Link::default(),
        serial_number: 1,
        bars: [Some(Bar::memory64(0x8000)), None, None, None, None, None],
        msix: Some(MsixLayout {
            bar: BarIndex::ZERO,
            vectors: 4,
            table_offset: 0x4000,
            pending_offset: 0x5000,
        }),
    };
    Device { endpoint: Endpoint::new(&config), ram: vec![0; 0x8000], results: Vec::new() }
}

impl World {
    fn new() -> Self {
        let port = Identity {
            vendor: 0x1b36,
            device: 0x0100,
            revision: 0,
            class: ClassCode::PCI_BRIDGE,
            subsystem_vendor: 0,
            subsystem: 0,
        };
        let config = SwitchConfig {
            upstream: port,
            downstream: port,
            ports: 2,
            link: Link::default(),
            surprise: true,
            serial_number: 7,
        };
        let mut world = Self {
            root: RootComplex::new(Config::default()),
            switch: Switch::new(&config),
            devices: vec![Some(device()), Some(device())],
            memory: Ram::new(HOST_MEMORY, 0x1_0000),
            events: VecDeque::new(),
            now: Instant::ZERO,
        };
        world.switch.link_up(PortId::Downstream(0));
        world.switch.link_up(PortId::Downstream(1));
        world
    }

    /// Moves packets until there is nothing left to move.
    fn run(&mut self) {
        while self.run_root() | self.run_switch() | (0..2).any(|index| self.run_device(index)) {}
    }

    fn run_root(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.root.poll_output() {
            moved = true;
            match output {
                Output::Packet(packet) => {
                    assert!(packet.payload.len() <= 4096);
                    self.switch.handle_input(self.now, (PortId::Upstream, packet));
                }
                Output::MemoryRead { token, address, length } => {
                    let mut bytes = vec![0; length as usize];
                    let found = self.memory.read(address, &mut bytes).is_ok();
                    self.root.memory_read_done(token, found.then(|| Buffer::from(bytes)));
                }
                Output::MemoryWrite { address, data } => {
                    // Writes outside of memory are dropped.
                    let _ = self.memory.write(address, &data);
                }
                event => self.events.push_back(event),
            }
        }
        moved
    }

    fn run_switch(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.switch.poll_output() {
            moved = true;
            let switch::Output::Forward { port, packet } = output else { continue };
            match port {
                PortId::Upstream => self.root.handle_input(self.now, Input::Packet(packet)),
                PortId::Downstream(index) => {
                    if let Some(device) = &mut self.devices[usize::from(index)] {
                        device.endpoint.handle_input(self.now, packet);
                    }
                }
            }
        }
        moved
    }

    fn run_device(&mut self, index: u8) -> bool {
        let Some(device) = &mut self.devices[usize::from(index)] else { return false };
        let mut moved = false;
        while let Some(output) = device.endpoint.poll_output() {
            moved = true;
            match output {
                endpoint::Output::Packet(packet) => {
                    self.switch.handle_input(self.now, (PortId::Downstream(index), packet));
                }
                endpoint::Output::BarRead { token, offset, length, .. } => {
                    let start = usize::try_from(offset).unwrap();
                    let bytes = Buffer::copy_from_slice(&device.ram[start..start + length as usize]);
                    device.endpoint.bar_read_done(token, Some(bytes));
                }
                endpoint::Output::BarWrite { offset, data, .. } => {
                    let start = usize::try_from(offset).unwrap();
                    device.ram[start..start + data.len()].copy_from_slice(&data);
                }
                endpoint::Output::Dma(result) => device.results.push(result),
                endpoint::Output::Reset(_) => {}
            }
        }
        moved
    }

    fn enumerated(&mut self) -> Topology {
        for _ in 0..100 {
            self.run();
            match self.events.pop_front() {
                Some(Output::Enumerated(result)) => return result.unwrap(),
                Some(other) => panic!("{other:?}"),
                None => {
                    self.now = self.root.poll_timeout().expect("enumeration waits for something");
                    self.root.handle_timeout(self.now);
                }
            }
        }
        panic!("enumeration does not end")
    }

    fn enumerate(&mut self) -> Topology {
        self.root.enumerate(self.now, Plan::default());
        self.enumerated()
    }

    fn dma(&mut self, index: usize, dma: Dma) {
        let now = self.now;
        self.devices[index].as_mut().unwrap().endpoint.dma(now, dma);
        self.run();
    }

    /// The results that device `index` got for its reads.
    fn results(&mut self, index: usize) -> Vec<DmaResult> {
        core::mem::take(&mut self.devices[index].as_mut().unwrap().results)
    }
}

#[test]
fn a_switch_with_two_endpoints_is_enumerated_and_drawn() {
    let topology = World::new().enumerate();
    assert_eq!(topology.faults, []);
    assert_eq!(topology.payload_size(), 4096);
    let expected = r"-[0000:00]---00.0-[01-0a]----00.0-[02-0a]--+-00.0-[03-06]----00.0
                                           \-01.0-[07-0a]----00.0
";
    assert_eq!(lspci::tree(&topology, false), expected);
    let expected = "\
00:00.0 PCI bridge: Farlane Root Port
01:00.0 PCI bridge: Red Hat, Inc. Device 0100
02:00.0 PCI bridge: Red Hat, Inc. Device 0100
03:00.0 Non-Volatile memory controller: Red Hat, Inc. QEMU NVM Express Controller (rev 02)
02:01.0 PCI bridge: Red Hat, Inc. Device 0100
07:00.0 Non-Volatile memory controller: Red Hat, Inc. QEMU NVM Express Controller (rev 02)
";
    assert_eq!(lspci::plain(&topology), expected);
    let ports: Vec<_> = topology.functions().filter_map(|function| function.express?.slot).collect();
    assert!(ports.iter().all(|slot| slot.present && slot.hot_plug));
}

#[test]
fn the_host_reaches_each_devices_memory_and_only_that() {
    let mut world = World::new();
    let topology = world.enumerate();
    let address = |bus| topology.find(Bdf::new(bus, 0, 0)).unwrap().bar(0).unwrap().address.unwrap();
    let bytes: Vec<u8> = (0..5000_u32).map(|n| n.to_le_bytes()[0]).collect();
    world.root.write(address(7) + 3, &Buffer::from(bytes.clone()));
    world.run();
    assert_eq!(world.devices[1].as_ref().unwrap().ram[3..5003], bytes);
    assert_eq!(world.devices[0].as_ref().unwrap().ram, vec![0; 0x8000]);
    world.root.read(world.now, 1, address(7) + 3, 5000).unwrap();
    world.run();
    let mut found = vec![0; 5000];
    for event in world.events.drain(..) {
        let Output::Answer(Answer::ReadData { cookie: 1, offset, data, .. }) = event else {
            panic!("{event:?}")
        };
        found[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
    }
    assert_eq!(found, bytes);
    // There is no device outside the windows of the switch.
    world.root.read(world.now, 2, 0xc800_0000, 4).unwrap();
    world.run();
    let error = RequestError::UnsupportedRequest;
    assert_eq!(world.events.pop_front(), Some(Output::Answer(Answer::ReadFailed { cookie: 2, error })));
}

#[test]
fn devices_reach_host_memory_and_interrupt() {
    let mut world = World::new();
    let topology = world.enumerate();
    let device = topology.find(Bdf::new(3, 0, 0)).unwrap();
    let pattern: Vec<u8> = (0..9000_u32).map(|n| n.wrapping_mul(31).to_le_bytes()[0]).collect();
    world.memory.write(HOST_MEMORY + 0x123, &pattern).unwrap();
    world.dma(0, Dma::Read { id: DmaId(4), address: HOST_MEMORY + 0x123, length: 9000 });
    let mut found = vec![0; 9000];
    for result in world.results(0) {
        let DmaResult::Data { id: DmaId(4), offset, data, .. } = result else { panic!("{result:?}") };
        found[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
    }
    assert_eq!(found, pattern);
    world.dma(0, Dma::Read { id: DmaId(5), address: 0x5000_0000, length: 64 });
    assert_eq!(world.results(0), [DmaResult::Failed { id: DmaId(5) }]);

    let table = device.bar(0).unwrap().address.unwrap() + u64::from(device.msix.unwrap().table_offset) + 16;
    let entry: Vec<u8> = [0xfee0_0000_u32, 0, 0x31, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    world.root.write(table, &Buffer::from(entry));
    let enable = msix::ENABLE.at(offset::MSIX);
    let (control, bytes) = (enable.with(0, 1), enable.enables());
    world.root.config_write(world.now, 9, device.bdf, enable.offset(), bytes, control).unwrap();
    world.run();
    assert_eq!(world.events.pop_front(), Some(Output::Answer(Answer::Register { cookie: 9, result: Ok(0) })));
    let data = Buffer::copy_from_slice(b"before the interrupt");
    world.dma(0, Dma::Write { address: HOST_MEMORY, data });
    world.dma(0, Dma::Interrupt { vector: 1 });
    assert_eq!(world.events.pop_front(), Some(Output::Interrupt { address: 0xfee0_0000, data: 0x31 }));
    assert_eq!(world.memory.slice(HOST_MEMORY, 20).unwrap(), b"before the interrupt");
}

#[test]
fn a_device_that_leaves_and_comes_back_is_enumerated_alone() {
    let mut world = World::new();
    let full = world.enumerate();
    let port = Bdf::new(2, 0, 0);
    world.devices[0] = None;
    world.switch.link_down(PortId::Downstream(0));
    world.run();
    world.events.clear();
    world.root.enumerate_below(world.now, full.clone(), port, Plan::default());
    let without = world.enumerated();
    assert!(without.find(Bdf::new(3, 0, 0)).is_none());
    assert_eq!(without.find(Bdf::new(2, 1, 0)), full.find(Bdf::new(2, 1, 0)));
    world.devices[0] = Some(device());
    world.switch.link_up(PortId::Downstream(0));
    world.run();
    world.events.clear();
    world.root.enumerate_below(world.now, without, port, Plan::default());
    assert_eq!(world.enumerated(), full);
}
