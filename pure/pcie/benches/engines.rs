//! Time that an endpoint and a switch need for a packet, in ns: the minimum of several rounds.

use std::hint::black_box;

use engine::{Buffer, Engine, Instant};
use farlane_pcie::config::{Bar, BarIndex, ClassCode, Identity, Link};
use farlane_pcie::device::{Dma, DmaId};
use farlane_pcie::endpoint::{self, Endpoint, EndpointConfig, MsixLayout};
use farlane_pcie::switch::{PortId, Switch, SwitchConfig};
use farlane_pcie::wire::{Bdf, ConfigType, Packet, Tag};

const NOW: Instant = Instant::ZERO;
const ROOT: Bdf = Bdf::new(0, 0, 0);
const DEVICE: Bdf = Bdf::new(3, 0, 0);
const UPSTREAM: Bdf = Bdf::new(1, 0, 0);
const ROUNDS: u32 = 8;
const TIMES: u32 = 200_000;

fn measure(name: &str, mut once: impl FnMut()) {
    let least = (0..ROUNDS)
        .map(|_| {
            let start = std::time::Instant::now();
            (0..TIMES).for_each(|_| once());
            start.elapsed().as_nanos() / u128::from(TIMES)
        })
        .min();
    println!("{name:40} {:5} ns", least.unwrap_or_default());
}

fn identity(class: ClassCode) -> Identity {
    Identity { vendor: 0x1234, device: 1, revision: 0, class, subsystem_vendor: 0, subsystem: 0 }
}

fn config_write(target: Bdf, offset: u16, value: u32) -> Packet {
    Packet::config_write(ROOT, Tag::new(1), target, offset, Buffer::copy_from_slice(&value.to_le_bytes()))
}

fn drain<E: Engine>(engine: &mut E) {
    while let Some(output) = engine.poll_output() {
        black_box(output);
    }
}

fn endpoint() -> Endpoint {
    let mut bars = [None; 6];
    bars[0] = Some(Bar::memory64(16 << 10));
    let msix = MsixLayout { bar: BarIndex::ZERO, vectors: 65, table_offset: 0x2000, pending_offset: 0x3000 };
    let mut endpoint = Endpoint::new(&EndpointConfig {
        identity: identity(ClassCode::NVME),
        link: Link::default(),
        serial_number: 1,
        bars,
        msix: Some(msix),
    });
    for (offset, value) in [(0x10, 0xe000_0000), (4, 6), (0x78, 0x5000 | 5 << 5 | 0x100), (0xb0, 1 << 31)] {
        let packet = config_write(DEVICE, offset, value).with_config_type(ConfigType::Type0);
        endpoint.handle_input(NOW, packet);
    }
    let entry = [0, 0, 0xe0, 0xfe, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    endpoint.handle_input(NOW, Packet::memory_write(ROOT, 0xe000_2000, Buffer::copy_from_slice(&entry)));
    drain(&mut endpoint);
    endpoint
}

fn switch() -> Switch {
    let mut switch = Switch::new(&SwitchConfig {
        upstream: identity(ClassCode::PCI_BRIDGE),
        downstream: identity(ClassCode::PCI_BRIDGE),
        ports: 4,
        link: Link::default(),
        surprise: true,
        serial_number: 1,
    });
    let mut write = |target, offset, value| {
        let kind = if target == UPSTREAM { ConfigType::Type0 } else { ConfigType::Type1 };
        let packet = config_write(target, offset, value).with_config_type(kind);
        switch.handle_input(NOW, (PortId::Upstream, packet));
    };
    for (offset, value) in [(0x18, 0x0006_0201), (0x20, 0xe030_e000), (4, 7)] {
        write(UPSTREAM, offset, value);
    }
    for port in 0..4 {
        let number = u32::from(port);
        let base = 0xe000 + number * 0x10;
        let function = Bdf::new(2, port, 0);
        write(function, 0x18, (3 + number) * 0x1_0100 + 2);
        write(function, 0x20, base | base << 16);
        write(function, 4, 7);
    }
    (0..4).for_each(|port| switch.link_up(PortId::Downstream(port)));
    drain(&mut switch);
    switch
}

fn main() {
    let (page, four) = (Buffer::zeroed(4096), Buffer::zeroed(4));
    let device = &mut endpoint();
    measure("endpoint: DMA write, 4 KiB", || {
        device.dma(NOW, Dma::Write { address: 0x1000, data: page.clone() });
        drain(device);
    });
    measure("endpoint: DMA read, 4 KiB, two packets", || {
        device.dma(NOW, Dma::Read { id: DmaId(1), address: 0x1000, length: 4096 });
        while let Some(output) = device.poll_output() {
            if let endpoint::Output::Packet(read) = output {
                let answer = Packet::completion_with_data(ROOT, &read.header, 0, page.clone());
                device.handle_input(NOW, answer);
            }
        }
    });
    measure("endpoint: interrupt", || {
        device.dma(NOW, Dma::Interrupt { vector: 0 });
        drain(device);
    });
    let doorbell = Packet::memory_write(ROOT, 0xe000_1000, four.clone());
    measure("endpoint: register write", || {
        device.handle_input(NOW, doorbell.clone());
        drain(device);
    });
    let register = Packet::memory_read(ROOT, Tag::new(1), 0xe000_001c, 4);
    measure("endpoint: register read, two packets", || {
        device.handle_input(NOW, register.clone());
        while let Some(output) = device.poll_output() {
            if let endpoint::Output::BarRead { token, .. } = output {
                device.bar_read_done_bytes(token, &[0; 4]);
            }
        }
    });
    let read = Packet::config_read(ROOT, Tag::new(1), DEVICE, 0, 4).with_config_type(ConfigType::Type0);
    measure("endpoint: configuration read, two packets", || {
        device.handle_input(NOW, read.clone());
        drain(device);
    });
    let between = &mut switch();
    let doorbell = Packet::memory_write(ROOT, 0xe030_1000, four);
    measure("switch: memory write down", || {
        between.handle_input(NOW, (PortId::Upstream, doorbell.clone()));
        drain(between);
    });
    let data = Packet::memory_write(Bdf::new(6, 0, 0), 0x1000, page);
    measure("switch: memory write up", || {
        between.handle_input(NOW, (PortId::Downstream(3), data.clone()));
        drain(between);
    });
    let read = Packet::config_read(ROOT, Tag::new(1), Bdf::new(2, 1, 0), 0, 4);
    measure("switch: configuration read of a port", || {
        between.handle_input(NOW, (PortId::Upstream, read.clone()));
        drain(between);
    });
}
