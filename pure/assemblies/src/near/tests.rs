//! The controllers that enumeration finds, in use and in error.

use alloc::boxed::Box;

use engine::Rng;
use pcie::config::ClassCode;
use pcie::root_complex::{BarRegister, Function, Space};

use super::*;

/// A host with two ports.
fn near() -> Near {
    let sessions = alloc::vec![session::Config::default(); 2];
    Near::over_tunnels(Config::default(), sessions, Rng::from_seed(1))
}

fn controller(bdf: Bdf, address: u64) -> Function {
    let space = Space::Memory64;
    let bar = BarRegister { index: 0, space, prefetchable: false, size: 0x4000, address: Some(address) };
    Function { bdf, class: ClassCode::NVME, bars: [bar].into(), ..Function::default() }
}

fn topology(children: Vec<Function>) -> Topology {
    let root = Box::new(Function { children, ..Function::default() });
    Topology { root, faults: Vec::new() }
}

#[test]
fn a_driver_finds_its_controller_again_behind_one_that_there_is_no_room_for() {
    let [known, new, extra] = [Bdf::new(4, 0, 0), Bdf::new(3, 0, 0), Bdf::new(3, 0, 1)];
    let mut near = near();
    near.adopt(&topology([controller(known, 0x8000)].into()));
    let all = [controller(new, 0x1_0000), controller(extra, 0x2_0000), controller(known, 0x3_0000)];
    near.adopt(&topology(all.into()));
    let found: Vec<_> = near.drivers.iter().map(|driver| (driver.bdf, driver.bar)).collect();
    assert_eq!(found, [(known, 0x3_0000), (new, 0x1_0000)]);
    let is_refusal =
        |output: &&Output| matches!(output, Output::Event(Event::Failed(Failure::TooManyControllers)));
    assert_eq!(near.outputs.iter().filter(is_refusal).count(), 1);
}

#[test]
fn no_scan_waits_for_a_port_that_was_not_found() {
    let mut near = near();
    near.topology = Some(topology(Vec::new()));
    near.scans = [Scan::Below(PortIndex(0)), Scan::All].into();
    near.next_scan();
    assert_eq!((near.running, near.scans.len()), (Some(Scan::All), 0));
}
