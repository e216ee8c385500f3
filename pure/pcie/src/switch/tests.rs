//! Tests of the switch.

use super::*;
use crate::config::{Bar, BarIndex, ClassCode, Field, aer, express, msi, offset};
use crate::device::{Dma, DmaId, DmaResult};
use crate::endpoint::{self, Endpoint, EndpointConfig, MsixLayout};
use crate::wire::{MessageRouting, Tag, message as codes};
use engine::Buffer;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const NOW: Instant = Instant::ZERO;
const ROOT: Bdf = Bdf::new(0, 0, 0);
const UPSTREAM: Bdf = Bdf::new(1, 0, 0);
const UP: PortId = PortId::Upstream;

const fn down(port: u8) -> PortId {
    PortId::Downstream(port)
}

const fn port_function(port: u8) -> Bdf {
    Bdf::new(2, port, 0)
}

fn identity(device: u16, class: ClassCode) -> Identity {
    Identity { vendor: 0x1234, device, revision: 0, class, subsystem_vendor: 0, subsystem: 0 }
}

fn fresh(surprise: bool) -> Switch {
    Switch::new(&SwitchConfig { surprise, ..three_ports() })
}

/// The outputs for a packet. Where [`Switch::pass`] applies, it must yield the same outputs.
fn input(switch: &mut Switch, ingress: PortId, packet: Packet) -> Vec<Output> {
    let mut passed = packet.clone();
    let port = switch.pass(ingress, &mut passed.header);
    switch.statistics.forwarded -= u64::from(port.is_some());
    switch.handle_input(NOW, (ingress, packet));
    let outputs = outputs(switch);
    if let Some(port) = port {
        assert_eq!(outputs, [Output::Forward { port, packet: passed }]);
    }
    outputs
}

fn outputs(switch: &mut Switch) -> Vec<Output> {
    core::iter::from_fn(|| switch.poll_output()).collect()
}

/// A configuration write as the root complex sends it: type 0 for the bus of the upstream port.
fn config_write(switch: &mut Switch, target: Bdf, offset: u16, value: u32) -> Vec<Output> {
    let data = Buffer::copy_from_slice(&value.to_le_bytes());
    let packet = Packet::config_write(ROOT, Tag::new(1), target, offset, data);
    let kind = if target.bus() == 1 { ConfigType::Type0 } else { ConfigType::Type1 };
    input(switch, UP, packet.with_config_type(kind))
}

fn config_read(switch: &mut Switch, target: Bdf, offset: u16) -> Vec<Output> {
    let packet = Packet::config_read(ROOT, Tag::new(2), target, offset, 4);
    let kind = if target.bus() == 1 { ConfigType::Type0 } else { ConfigType::Type1 };
    input(switch, UP, packet.with_config_type(kind))
}

fn set(switch: &mut Switch, target: Bdf, field: Field) {
    let port = if target == UPSTREAM { UP } else { down(target.device()) };
    let value = field.with(switch.config(port).read(field.offset()), u32::MAX);
    // Only the field's bytes are written, so that nothing is cleared by accident.
    let packet = Packet::config_write(ROOT, Tag::new(1), target, field.offset(), Buffer::zeroed(4));
    let mut packet =
        packet.with_config_type(if target == UPSTREAM { ConfigType::Type0 } else { ConfigType::Type1 });
    packet.payload = Buffer::copy_from_slice(&value.to_le_bytes());
    if let Kind::Config(request) = &mut packet.header.kind {
        request.enables = field.enables();
    }
    switch.handle_input(NOW, (UP, packet));
}

const fn window(base: u32, last: u32) -> u32 {
    (base >> 16) | (last & 0xfff0_0000)
}

/// Port 0 has bus 3, port 1 has buses 4 and 5, port 2 has bus 6. Each has 1 MiB of memory, from
/// e000_0000 on. Port 0 also has a prefetchable window at 20_0000_0000 and 4 KiB of I/O at 1_2000.
/// Links 0 and 1 are up.
fn configured(surprise: bool) -> Switch {
    let mut switch = fresh(surprise);
    config_write(&mut switch, UPSTREAM, 0x18, 0x0006_0201);
    config_write(&mut switch, UPSTREAM, 0x20, window(0xe000_0000, 0xe03f_ffff));
    for target in [UPSTREAM, port_function(0)] {
        config_write(&mut switch, target, 0x24, 0x0001_0001);
        config_write(&mut switch, target, 0x28, 0x20);
        config_write(&mut switch, target, 0x2c, 0x20);
        config_write(&mut switch, target, 0x1c, 0x2020);
        config_write(&mut switch, target, 0x30, 0x0001_0001);
    }
    for (port, buses) in (0..).zip([0x0003_0302, 0x0005_0402, 0x0006_0602]) {
        config_write(&mut switch, port_function(port), 0x18, buses);
        let base = 0xe000_0000 + u32::from(port) * 0x10_0000;
        config_write(&mut switch, port_function(port), 0x20, window(base, base + 0xf_ffff));
        config_write(&mut switch, port_function(port), 0x04, 0b111);
    }
    for port in [1, 2] {
        config_write(&mut switch, port_function(port), 0x24, 0x0000_fff0);
        config_write(&mut switch, port_function(port), 0x1c, 0x00f0);
    }
    config_write(&mut switch, UPSTREAM, 0x04, 0b111);
    switch.link_up(down(0));
    switch.link_up(down(1));
    assert_eq!(outputs(&mut switch), []);
    switch
}

/// The route of a single packet; a refusal shows as its completer.
#[derive(Debug, PartialEq, Eq)]
enum Went {
    To(PortId),
    RefusedBy(Bdf),
    Nowhere,
}

fn went(switch: &mut Switch, ingress: PortId, packet: Packet) -> Went {
    match &input(switch, ingress, packet.clone())[..] {
        [] => Went::Nowhere,
        [Output::Forward { port, packet: out }] => match &out.header.kind {
            Kind::Completion(completion) if !packet.is_completion() => {
                assert_eq!(completion.status, CompletionStatus::UnsupportedRequest);
                assert_eq!((*port, completion.tag), (ingress, packet.tag()));
                Went::RefusedBy(completion.completer)
            }
            _ => {
                assert_eq!(*out, packet, "forwarded as it came");
                Went::To(*port)
            }
        },
        other => panic!("{other:?}"),
    }
}

fn read(requester: Bdf, address: u64) -> Packet {
    Packet::memory_read(requester, Tag::new(7), address, 4)
}

#[test]
fn queued_and_poisoned_packets_are_not_passed_directly() {
    let mut switch = configured(true);
    let mut header = read(ROOT, 0xe000_0000).header;
    assert_eq!(switch.pass(UP, &mut header), Some(down(0)));
    header.traits = header.traits.with_poison(true);
    assert_eq!(switch.pass(UP, &mut header), None);
    header.traits = crate::wire::Traits::NONE;
    switch.handle_input(NOW, (UP, read(ROOT, 0xe000_0000)));
    assert_eq!(switch.pass(UP, &mut header), None, "it would overtake");
    outputs(&mut switch);
    assert_eq!(switch.pass(UP, &mut header), Some(down(0)));
    switch.link_down(down(0));
    outputs(&mut switch);
    assert_eq!((switch.pass(UP, &mut header), switch.statistics().forwarded), (None, 3));
}

#[test]
fn memory_is_routed_by_the_windows() {
    let mut switch = configured(true);
    let device = Bdf::new(3, 0, 0);
    let deep = Bdf::new(5, 0, 0);
    let cases = [
        (UP, ROOT, 0xe000_0000, Went::To(down(0))),
        (UP, ROOT, 0xe00f_fffc, Went::To(down(0))),
        (UP, ROOT, 0xe010_0000, Went::To(down(1))),
        (UP, ROOT, 0x20_0000_0000, Went::To(down(0))),
        // The port answers while its link is down. The upstream port answers if no port claims the
        // address.
        (UP, ROOT, 0xe020_0000, Went::RefusedBy(port_function(2))),
        (UP, ROOT, 0xe030_0000, Went::RefusedBy(UPSTREAM)),
        (UP, ROOT, 0x1000, Went::RefusedBy(UPSTREAM)),
        (UP, ROOT, 0x20_0010_0000, Went::RefusedBy(UPSTREAM)),
        // To host memory, to a peer, back to the ingress port, to a hole, and to a link that is
        // down.
        (down(0), device, 0x1000, Went::To(UP)),
        (down(0), device, 0xff_0000_0000, Went::To(UP)),
        (down(0), device, 0xe010_0000, Went::To(down(1))),
        (down(1), deep, 0x20_0000_0000, Went::To(down(0))),
        (down(0), device, 0xe000_0000, Went::RefusedBy(port_function(0))),
        (down(0), device, 0xe030_0000, Went::RefusedBy(port_function(0))),
        (down(0), device, 0xe020_0000, Went::RefusedBy(port_function(2))),
        // Requests in another function's name.
        (down(0), deep, 0x1000, Went::RefusedBy(port_function(0))),
        (down(0), ROOT, 0x1000, Went::RefusedBy(port_function(0))),
    ];
    for (ingress, requester, address, expected) in cases {
        assert_eq!(
            went(&mut switch, ingress, read(requester, address)),
            expected,
            "{ingress:?} {address:#x}"
        );
    }
    let write = Packet::memory_write(ROOT, 0xe030_0000, Buffer::zeroed(4));
    assert_eq!(went(&mut switch, UP, write), Went::Nowhere);
}

#[test]
fn closed_gates_route_nothing() {
    let mut switch = configured(true);
    let device = Bdf::new(3, 0, 0);
    config_write(&mut switch, port_function(0), 0x04, 0b010);
    assert_eq!(went(&mut switch, down(0), read(device, 0x1000)), Went::RefusedBy(port_function(0)));
    config_write(&mut switch, port_function(0), 0x04, 0b100);
    assert_eq!(went(&mut switch, UP, read(ROOT, 0xe000_0000)), Went::RefusedBy(UPSTREAM));
    assert_eq!(went(&mut switch, down(0), read(device, 0x1000)), Went::To(UP));
    config_write(&mut switch, UPSTREAM, 0x04, 0b010);
    assert_eq!(went(&mut switch, down(0), read(device, 0x1000)), Went::RefusedBy(port_function(0)));
    assert_eq!(went(&mut switch, UP, read(ROOT, 0xe010_0000)), Went::To(down(1)));
    config_write(&mut switch, UPSTREAM, 0x44, 3);
    assert_eq!(went(&mut switch, UP, read(ROOT, 0xe010_0000)), Went::RefusedBy(UPSTREAM));
}

#[test]
fn io_is_routed_by_the_windows_and_isa_enable() {
    let mut switch = configured(true);
    let io = |address| Packet::io_read(ROOT, Tag::new(7), address, 4);
    assert_eq!(went(&mut switch, UP, io(0x1_2ffc)), Went::To(down(0)));
    assert_eq!(went(&mut switch, UP, io(0x1_3000)), Went::RefusedBy(UPSTREAM));
    for target in [UPSTREAM, port_function(0)] {
        config_write(&mut switch, target, 0x30, 0);
        set(&mut switch, target, bridge::ISA);
    }
    outputs(&mut switch);
    assert_eq!(went(&mut switch, UP, io(0x24fc)), Went::To(down(0)));
    assert_eq!(went(&mut switch, UP, io(0x2500)), Went::RefusedBy(UPSTREAM));
}

#[test]
fn completions_and_messages_by_id_follow_the_bus_numbers() {
    let mut switch = configured(true);
    let completion = |requester: Bdf| {
        Packet::completion(ROOT, CompletionStatus::UnsupportedRequest, &read(requester, 0).header)
    };
    assert_eq!(went(&mut switch, UP, completion(Bdf::new(3, 0, 0))), Went::To(down(0)));
    assert_eq!(went(&mut switch, UP, completion(Bdf::new(5, 3, 1))), Went::To(down(1)));
    assert_eq!(went(&mut switch, down(0), completion(ROOT)), Went::To(UP));
    assert_eq!(went(&mut switch, down(0), completion(Bdf::new(4, 0, 0))), Went::To(down(1)));
    assert_eq!(switch.statistics().unexpected_completions, 0);
    // To an unassigned bus, to a port itself, to a link that is down, and back to the ingress port.
    for (ingress, requester) in [
        (UP, Bdf::new(9, 0, 0)),
        (UP, port_function(1)),
        (UP, Bdf::new(6, 0, 0)),
        (down(0), Bdf::new(3, 0, 0)),
    ] {
        assert_eq!(went(&mut switch, ingress, completion(requester)), Went::Nowhere);
    }
    assert_eq!(switch.statistics().unexpected_completions, 4);
    let body = u64::from(Bdf::new(4, 0, 0).bits()) << 48;
    let by_id = Packet::message(ROOT, MessageRouting::ById, codes::VENDOR_DEFINED_1, body);
    assert_eq!(went(&mut switch, UP, by_id), Went::To(down(1)));
}

#[test]
fn configuration_requests_are_answered_converted_or_passed_on() {
    let mut switch = configured(true);
    let [Output::Forward { port: UP, packet }] = &config_read(&mut switch, port_function(1), 0)[..] else {
        panic!("the port did not answer")
    };
    assert_eq!(*packet.payload, 0x0011_1234_u32.to_le_bytes());
    let routing = |outputs: &[Output]| match outputs {
        [
            Output::Forward {
                port,
                packet: Packet { header: Header { kind: Kind::Config(request), .. }, .. },
            },
        ] => (*port, request.routing),
        other => panic!("{other:?}"),
    };
    let cases = [
        (Bdf::new(3, 0, 0), (down(0), ConfigType::Type0)),
        (Bdf::new(3, 0, 5), (down(0), ConfigType::Type0)),
        (Bdf::new(4, 0, 0), (down(1), ConfigType::Type0)),
        (Bdf::new(5, 9, 0), (down(1), ConfigType::Type1)),
    ];
    for (target, expected) in cases {
        assert_eq!(routing(&config_read(&mut switch, target, 0)), expected, "{target}");
    }
    let refused = [
        // No such function, no such device, a device that needs ARI, a link that is down, no such
        // bus.
        (Bdf::new(1, 0, 1), UPSTREAM),
        (Bdf::new(2, 3, 0), UPSTREAM),
        (Bdf::new(2, 0, 1), UPSTREAM),
        (Bdf::new(3, 1, 0), port_function(0)),
        (Bdf::new(6, 0, 0), port_function(2)),
        (Bdf::new(7, 0, 0), UPSTREAM),
    ];
    for (target, completer) in refused {
        let kind = if target.bus() == 1 { ConfigType::Type0 } else { ConfigType::Type1 };
        let packet = Packet::config_read(ROOT, Tag::new(3), target, 0, 4).with_config_type(kind);
        assert_eq!(went(&mut switch, UP, packet), Went::RefusedBy(completer), "{target}");
    }
    let from_below = Packet::config_read(Bdf::new(3, 0, 0), Tag::new(3), Bdf::new(4, 0, 0), 0, 4);
    assert_eq!(went(&mut switch, down(0), from_below), Went::RefusedBy(port_function(0)));
}

#[test]
fn a_vanished_device_is_reported_by_bits_and_a_message_signaled_interrupt() {
    let mut switch = configured(true);
    let at = |field: Field| field.at(offset::EXPRESS);
    let target = port_function(0);
    // Clear the events of the arrival, then enable interrupts.
    config_write(&mut switch, target, 0x88, 0xffff_0000 | 1 << 3 | 1 << 5 | 1 << 12);
    config_write(&mut switch, target, 0x54, 0xfee0_0000);
    config_write(&mut switch, target, 0x5c, 0x99);
    set(&mut switch, target, msi::ENABLE.at(offset::MSI));
    outputs(&mut switch);
    assert_eq!(went(&mut switch, UP, read(ROOT, 0xe000_0000)), Went::To(down(0)));
    switch.link_down(down(0));
    let interrupt = outputs(&mut switch);
    assert!(matches!(&interrupt[..], [Output::Forward { port: UP, packet }]
        if packet.header.address() == Some(0xfee0_0000) && *packet.payload == [0x99, 0, 0, 0]
            && packet.requester() == target));
    let space = switch.config(down(0));
    assert!(!space.is_set(at(express::PRESENCE)) && !space.is_set(at(express::LINK_ACTIVE)));
    assert!(space.is_set(at(express::PRESENCE_CHANGED)) && space.is_set(at(express::LINK_STATE_CHANGED)));
    assert_eq!(space.read(aer::UNCORRECTABLE_STATUS.at(offset::AER).offset()), 0);
    assert_eq!(went(&mut switch, UP, read(ROOT, 0xe000_0000)), Went::RefusedBy(target));
    let write = Packet::memory_write(ROOT, 0xe000_0000, Buffer::zeroed(4));
    assert_eq!(went(&mut switch, UP, write), Went::Nowhere);
    // An event that is not served yet raises no second interrupt. A new event after the first was
    // cleared does.
    switch.link_up(down(0));
    assert_eq!(outputs(&mut switch), []);
    config_write(&mut switch, target, 0x88, 0xffff_0000 | 1 << 3 | 1 << 5 | 1 << 12);
    switch.link_down(down(0));
    assert_eq!(outputs(&mut switch).len(), 1);
}

#[test]
fn a_masked_hot_plug_interrupt_is_pending_until_it_is_unmasked() {
    let mut switch = configured(true);
    let target = port_function(2);
    config_write(&mut switch, target, 0x88, 1 << 3 | 1 << 5);
    config_write(&mut switch, target, 0x60, 1);
    set(&mut switch, target, msi::ENABLE.at(offset::MSI));
    outputs(&mut switch);
    switch.link_up(down(2));
    assert_eq!(outputs(&mut switch), []);
    assert!(switch.config(down(2)).is_set(msi::PENDING.at(offset::MSI)));
    assert_eq!(config_write(&mut switch, target, 0x60, 0).len(), 2, "the completion and the interrupt");
}

#[test]
fn without_hot_plug_surprise_a_vanished_device_is_a_fatal_error() {
    let mut switch = configured(false);
    for target in [UPSTREAM, port_function(0)] {
        set(&mut switch, target, express::REPORT_FATAL.at(offset::EXPRESS));
        set(&mut switch, target, bridge::SERR);
    }
    outputs(&mut switch);
    switch.link_down(down(0));
    let sent = outputs(&mut switch);
    assert!(matches!(&sent[..], [Output::Forward { port: UP, packet }] if matches!(packet.header.kind,
        Kind::Message(received) if received.code == codes::ERR_FATAL && received.requester == port_function(0))));
    assert_eq!(switch.config(down(0)).read(0x104), 1 << 5);
}

#[test]
fn resets_from_above_reach_the_ports_and_devices_below() {
    let mut switch = configured(true);
    let answers = {
        let value = switch.config(down(0)).read(0x3c) | 1 << 22;
        config_write(&mut switch, port_function(0), 0x3c, value)
    };
    assert_eq!(answers[1..], [Output::HotReset { port: down(0) }]);
    assert_eq!(went(&mut switch, UP, read(ROOT, 0xe000_0000)), Went::RefusedBy(port_function(0)));
    config_write(&mut switch, port_function(0), 0x3c, 0);
    assert_eq!(went(&mut switch, UP, read(ROOT, 0xe000_0000)), Went::To(down(0)));
    // Link Disable has the effect of a reset.
    let answers = config_write(&mut switch, port_function(1), 0x80, 1 << 4);
    assert_eq!(answers[1..], [Output::HotReset { port: down(1) }]);
    assert!(!switch.is_up(down(1)));
    config_write(&mut switch, port_function(1), 0x80, 0);
    let answers = config_write(&mut switch, UPSTREAM, 0x3c, 1 << 22);
    assert_eq!(answers[1..], [Output::HotReset { port: down(0) }, Output::HotReset { port: down(1) }]);
    config_write(&mut switch, UPSTREAM, 0x3c, 0);
    assert_eq!(switch.config(down(0)).read(0x18), 0);
    assert!(switch.is_up(down(0)));
    switch.hot_reset();
    assert_eq!(outputs(&mut switch).len(), 2);
    assert_eq!(switch.config(UP).read(0x18), 0);
}

#[test]
fn messages_go_their_implicit_ways() {
    let mut switch = configured(true);
    let device = Bdf::new(3, 0, 0);
    let broadcast = |code| Packet::message(ROOT, MessageRouting::BroadcastFromRootComplex, code, 0);
    let ports: Vec<_> = input(&mut switch, UP, broadcast(codes::PME_TURN_OFF))
        .into_iter()
        .map(|output| match output {
            Output::Forward { port, .. } => port,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ports, [down(0), down(1)]);
    let acknowledge = Packet::message(device, MessageRouting::GatheredToRootComplex, codes::PME_TO_ACK, 0);
    assert_eq!(input(&mut switch, down(0), acknowledge.clone()), []);
    // The other device vanishes instead of answering.
    switch.link_down(down(1));
    assert!(matches!(&outputs(&mut switch)[..], [Output::Forward { port: UP, packet }]
        if packet.requester() == UPSTREAM));
    let error = Packet::message(device, MessageRouting::ToRootComplex, codes::ERR_NONFATAL, 0);
    assert_eq!(went(&mut switch, down(0), error.clone()), Went::Nowhere);
    for target in [UPSTREAM, port_function(0)] {
        set(&mut switch, target, bridge::SERR);
        set(&mut switch, target, config_header::SERR);
    }
    outputs(&mut switch);
    assert_eq!(went(&mut switch, down(0), error), Went::To(UP));
    let pme = Packet::message(device, MessageRouting::ToRootComplex, codes::PM_PME, 0);
    assert_eq!(went(&mut switch, down(0), pme), Went::To(UP));
}

#[test]
fn interrupt_lines_are_rotated_gathered_and_dropped_with_their_link() {
    let mut switch = configured(true);
    let line = |bus, code| Packet::message(Bdf::new(bus, 0, 0), MessageRouting::Local, code, 0);
    let code_of = |outputs: &[Output]| match outputs {
        [] => None,
        [
            Output::Forward {
                port: UP,
                packet: Packet { header: Header { kind: Kind::Message(m), .. }, .. },
            },
        ] => Some(m.code),
        other => panic!("{other:?}"),
    };
    // INTB of port 0 and INTA of port 1 (device 1) are the same line.
    assert_eq!(code_of(&input(&mut switch, down(0), line(3, codes::ASSERT_INTA + 1))), Some(0x21));
    assert_eq!(code_of(&input(&mut switch, down(1), line(4, codes::ASSERT_INTA))), None);
    assert_eq!(code_of(&input(&mut switch, down(0), line(3, codes::DEASSERT_INTA + 1))), None);
    switch.link_down(down(1));
    assert_eq!(code_of(&outputs(&mut switch)), Some(0x25));
}

/// An endpoint below port 0, configured through the switch.
struct TestBench {
    switch: Switch,
    endpoint: Endpoint,
    to_root: Vec<Packet>,
    from_endpoint: Vec<endpoint::Output>,
}

impl TestBench {
    fn new() -> Self {
        let mut bars = [None; 6];
        bars[0] = Some(Bar::memory64(16 << 10));
        let endpoint = Endpoint::new(&EndpointConfig {
            identity: identity(0x20, ClassCode::NVME),
            link: Link::default(),
            serial_number: 2,
            bars,
            msix: Some(MsixLayout {
                bar: BarIndex::ZERO,
                vectors: 1,
                table_offset: 0x2000,
                pending_offset: 0x3000,
            }),
        });
        let mut bench =
            Self { switch: configured(true), endpoint, to_root: Vec::new(), from_endpoint: Vec::new() };
        let device = Bdf::new(3, 0, 0);
        for (offset, value) in [(0x10, 0xe000_0000), (0x14, 0), (0x04, 0b110), (0x78, 0x5000 | 1 << 5)] {
            let data = Buffer::copy_from_slice(&u32::to_le_bytes(value));
            bench.send(Packet::config_write(ROOT, Tag::new(1), device, offset, data));
        }
        assert_eq!((bench.to_root.len(), bench.endpoint.id()), (4, device));
        bench.to_root.clear();
        bench
    }

    /// Lets the root complex send a packet, and runs until everything settles.
    fn send(&mut self, packet: Packet) {
        self.switch.handle_input(NOW, (UP, packet));
        self.settle();
    }

    fn settle(&mut self) {
        let mut busy = true;
        while busy {
            busy = false;
            while let Some(output) = self.endpoint.poll_output() {
                busy = true;
                match output {
                    endpoint::Output::Packet(packet) => self.switch.handle_input(NOW, (down(0), packet)),
                    other => self.from_endpoint.push(other),
                }
            }
            while let Some(output) = self.switch.poll_output() {
                busy = true;
                match output {
                    Output::Forward { port: UP, packet } => self.to_root.push(packet),
                    Output::Forward { packet, .. } => self.endpoint.handle_input(NOW, packet),
                    Output::HotReset { .. } => self.endpoint.hot_reset(),
                }
            }
        }
    }
}

#[test]
fn an_endpoint_reaches_the_root_through_the_switch() {
    let mut bench = TestBench::new();
    let data = Buffer::copy_from_slice(&[5; 600]);
    bench.endpoint.dma(NOW, Dma::Write { address: 0x1000, data });
    bench.endpoint.dma(NOW, Dma::Read { id: DmaId(9), address: 0x8000, length: 300 });
    bench.settle();
    let lengths: Vec<_> = bench.to_root.iter().map(|packet| packet.payload.len()).collect();
    assert_eq!(lengths, [256, 256, 88, 0]);
    let request = bench.to_root[3].header;
    let whole = Buffer::copy_from_slice(&[6; 300]);
    bench.send(Packet::completion_with_data(ROOT, &request, 0, whole.slice(0..128)));
    bench.send(Packet::completion_with_data(ROOT, &request, 128, whole.slice(128..300)));
    let id = DmaId(9);
    assert_eq!(
        bench.from_endpoint,
        [
            endpoint::Output::Dma(DmaResult::Data { id, offset: 0, data: whole.slice(0..128), last: false }),
            endpoint::Output::Dma(DmaResult::Data {
                id,
                offset: 128,
                data: whole.slice(128..300),
                last: true
            }),
        ]
    );
}

#[test]
fn removal_with_requests_in_flight_ends_in_a_time_out_and_a_clean_return() {
    let mut bench = TestBench::new();
    bench.endpoint.dma(NOW, Dma::Read { id: DmaId(1), address: 0x8000, length: 64 });
    bench.send(Packet::memory_read(ROOT, Tag::new(4), 0xe000_0000, 4));
    let [endpoint::Output::BarRead { token, .. }] = bench.from_endpoint[..] else { panic!("no BAR read") };
    let request = bench.to_root[0].header;
    bench.to_root.clear();
    bench.switch.link_down(down(0));
    bench.endpoint.hot_reset();
    bench.settle();
    // Late answers from both sides have no receiver.
    bench.send(Packet::completion_with_data(ROOT, &request, 0, Buffer::zeroed(64)));
    bench.endpoint.bar_read_done_bytes(token, &[0; 4]);
    bench.settle();
    assert_eq!((bench.to_root.len(), bench.switch.statistics().unexpected_completions), (0, 1));
    bench.send(Packet::memory_read(ROOT, Tag::new(5), 0xe000_0000, 4));
    assert!(matches!(bench.to_root[0].header.kind, Kind::Completion(completion)
        if completion.status == CompletionStatus::UnsupportedRequest
            && completion.completer == port_function(0)));
    bench.switch.link_up(down(0));
    bench.to_root.clear();
    bench.send(Packet::config_read(ROOT, Tag::new(6), Bdf::new(3, 0, 0), 0x10, 4));
    assert_eq!(*bench.to_root[0].payload, 4_u32.to_le_bytes(), "the BAR has forgotten its address");
}

proptest! {
    #[test]
    fn requests_are_answered_once_after_any_register_writes(
        writes in prop::collection::vec((0_u8..5, 0_u16..64, any::<u32>()), 0..60),
        probes in prop::collection::vec((0_u8..4, any::<u32>(), 0_u8..8), 1..40),
    ) {
        let mut switch = configured(true);
        for (function, dword, value) in writes {
            let target = if function == 4 { UPSTREAM } else { Bdf::new(2, function, 0) };
            config_write(&mut switch, target, dword * 4, value);
        }
        for (ingress, address, bus) in probes {
            let ingress = if ingress == 3 { UP } else { down(ingress) };
            let request = read(Bdf::new(bus, 0, 0), u64::from(address & !3));
            let sent = input(&mut switch, ingress, request.clone());
            let forwards = sent.iter().filter(|output| match output {
                Output::Forward { port, packet } => *packet == request && *port != ingress,
                Output::HotReset { .. } => false,
            });
            let answers = sent.iter().filter(|output| match output {
                Output::Forward { port, packet } => packet.is_completion() && *port == ingress,
                Output::HotReset { .. } => false,
            });
            prop_assert_eq!(forwards.count() + answers.count(), 1);
        }
    }
}

#[test]
fn every_port_can_be_walked_by_software() {
    let switch = Switch::new(&SwitchConfig { ports: DOWNSTREAM_PORTS_MAX, ..three_ports() });
    for index in 0..DOWNSTREAM_PORTS_MAX {
        let space = switch.config(down(index));
        let slot = space.get(express::SLOT_NUMBER.at(offset::EXPRESS));
        let port = space.get(express::PORT_NUMBER.at(offset::EXPRESS));
        assert_eq!(vec![slot, port], vec![u32::from(index) + 1; 2]);
    }
}

pub(super) fn three_ports() -> SwitchConfig {
    SwitchConfig {
        upstream: identity(0x10, ClassCode::PCI_BRIDGE),
        downstream: identity(0x11, ClassCode::PCI_BRIDGE),
        ports: 3,
        link: Link::default(),
        surprise: true,
        serial_number: 1,
    }
}

proptest! {
    #[test]
    fn any_stream_of_packets_is_survived(
        steps in prop::collection::vec((any::<u8>(), 0_u8..8, any::<u32>(), any::<u16>()), 0..60),
        noise: Vec<u8>,
    ) {
        let mut bytes = Vec::new();
        for (place, kind, value, bits) in steps {
            let (id, tag) = (Bdf::from_bits(bits & 0x7ff), Tag::new(bits));
            let data = Buffer::copy_from_slice(&value.to_le_bytes());
            let packet = match kind {
                0 => Packet::memory_read(id, tag, u64::from(value & !3), 4),
                1 => Packet::memory_write(id, u64::from(value & !3), data),
                2 => Packet::io_write(id, tag, value & !3, data),
                3 | 4 => Packet::config_write(ROOT, tag, Bdf::from_bits(bits & 0x31f), bits % 70 * 4, data)
                    .with_config_type(if kind == 3 { ConfigType::Type0 } else { ConfigType::Type1 }),
                5 => Packet::config_read(ROOT, tag, id, bits & 0xffc, 4),
                6 => Packet::completion(id, CompletionStatus::UnsupportedRequest, &read(id, 0).header),
                _ => Packet::message(id, MessageRouting::from(place % 8), u8::try_from(value >> 24).unwrap(), 0),
            };
            let start = bytes.len() + 1;
            bytes.push(place);
            bytes.resize(start + packet.encoded_len(), 0);
            packet.emit(&mut bytes[start..]);
        }
        bytes.extend(noise);
        fuzz::packets(&bytes);
    }
}
