//! `farlane observe lspci`: the functions that a host finds at its far ends.

use std::path::PathBuf;

use assemblies::near::PORTS_MAX;
use engine::Nanos;
use live::client::{AttachError, Hierarchy};
use pcie::lspci;
use pcie::root_complex::{BarRegister, Bridge, CapabilityId, Express, Function, Space, Topology, Window};
use serde_json::{Value, json};

use crate::args::LspciArgs;
use crate::capture::{Tracing, What};
use crate::commands::{print, print_json};
use crate::counters;
use crate::error::Error;
use crate::session::{self, Needs};

pub(crate) fn run(args: &LspciArgs) -> Result<(), Error> {
    // Nothing here is worth spinning on a processor for.
    let needs = Needs { data_bytes: 0, ..Needs::default() };
    let timeout = args.timeout.into();
    let mut options = session::options(needs, Nanos::ZERO, timeout);
    options.session.config_cache = args.config_cache.is_on() && args.capture.is_none();
    let names: Vec<_> = args.urls.iter().map(|url| url.name()).collect();
    options.transport = args.transport.checked_for(args.urls.len())?;
    if let Some((_, twice)) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
        return Err(Error::GivenTwice { url: format!("tcp://{twice}") });
    }
    if names.len() > PORTS_MAX {
        let (what, value) = ("the number of far ends", names.len() as u64);
        let expected = format!("at most {PORTS_MAX}, one behind each port of the switch: leave some out");
        return Err(Error::Range { what, value, expected });
    }
    let mut hierarchy = Hierarchy::over_tunnels(&names, &options)?;
    let now = hierarchy.now();
    let begin = |path: &PathBuf| Tracing::begin(path, What::Packets, now, hierarchy.watch());
    let tracing = args.capture.as_ref().map(begin).transpose()?;
    hierarchy.stop().on_signals().map_err(AttachError::Io)?;
    hierarchy.wait_enumerated(timeout)?;
    let topology = hierarchy.near().topology().cloned().unwrap_or_default();
    let shadow = hierarchy.near().upstream().and_then(counters::config_cache);
    hierarchy.close().map_err(AttachError::Io)?;
    tracing.map_or(Ok(()), Tracing::finish)?;
    tell_missing(args, &topology);
    if args.output.json {
        let mut root = function_json(&topology.root, &topology);
        // Counts of the config cache, over all far ends below this root.
        root["shadow"] = json!(shadow);
        return print_json(&json!({ "roots": [root] }));
    }
    print(&match (args.tree, args.verbose > 0) {
        (true, names) => lspci::tree(&topology, names),
        (false, true) => lspci::verbose(&topology),
        (false, false) => lspci::plain(&topology),
    })
}

/// Warns on standard error which of several far ends did not connect in time: their ports are
/// empty.
fn tell_missing(args: &LspciArgs, topology: &Topology) {
    let is_downstream =
        |function: &&Function| function.express.is_some_and(|it| it.port_type == Express::DOWNSTREAM);
    for (url, port) in args.urls.iter().zip(topology.functions().filter(is_downstream)) {
        if port.children.is_empty() {
            warn!("{url} is not there: the slot below {} is empty", port.bdf);
        }
    }
}

/// A function with all functions below it. Addresses are texts, since many JSON readers can't take
/// numbers of 64 bits.
fn function_json(function: &Function, topology: &Topology) -> Value {
    let faults = topology.faults.iter().filter(|(bdf, _)| *bdf == function.bdf);
    let children = function.children.iter().map(|child| function_json(child, topology));
    json!({
        "bdf": function.bdf.to_string(),
        "vendor": format!("{:04x}", function.vendor),
        "device": format!("{:04x}", function.device),
        "name": lspci::product(function),
        "class": function.class.to_string(),
        "class_name": lspci::class_name(function.class),
        "revision": function.revision,
        "subsystem_vendor": format!("{:04x}", function.subsystem_vendor),
        "subsystem": format!("{:04x}", function.subsystem),
        "enabled": function.enabled,
        "bars": function.bars.iter().map(bar_json).collect::<Vec<_>>(),
        "bridge": function.bridge.as_ref().map(bridge_json),
        "capabilities": capabilities_json(function),
        "payload_bytes": function.express.map(|express| express.payload_size),
        "read_request_bytes": function.express.map(|express| express.read_request_size),
        "tag_bits": function.express.map(|express| tag_bits(&express)),
        "link": function.express.as_ref().and_then(link_json),
        "slot": function.express.and_then(|express| express.slot).map(|slot| json!({
            "number": slot.number,
            "hot_plug": slot.hot_plug,
            "surprise": slot.surprise,
            "present": slot.present,
        })),
        "msix_vectors": function.msix.map(|msix| msix.vectors),
        "serial_number": function.serial_number.map(|serial| format!("{serial:016x}")),
        "faults": faults.map(|(_, fault)| fault.to_string()).collect::<Vec<_>>(),
        "children": children.collect::<Vec<_>>(),
    })
}

fn bar_json(bar: &BarRegister) -> Value {
    let space = match bar.space {
        Space::Io => "io",
        Space::Memory32 => "memory32",
        Space::Memory64 => "memory64",
    };
    json!({
        "index": bar.index,
        "space": space,
        "prefetchable": bar.prefetchable,
        "bytes": bar.size,
        "address": bar.address.map(hex),
    })
}

fn bridge_json(bridge: &Bridge) -> Value {
    let window = |window: Window| json!({ "first": hex(window.first), "last": hex(window.last), "bytes": window.size() });
    json!({
        "primary": bridge.primary,
        "secondary": bridge.secondary,
        "subordinate": bridge.subordinate,
        "windows": {
            "memory": bridge.memory.map(window),
            "prefetchable": bridge.prefetchable.map(window),
        },
    })
}

fn capabilities_json(function: &Function) -> Vec<Value> {
    let json = |capability: &pcie::root_complex::Capability| {
        let (id, extended) = match capability.id {
            CapabilityId::Standard(id) => (u16::from(id), false),
            CapabilityId::Extended(id) => (id, true),
        };
        json!({
            "id": id,
            "extended": extended,
            "name": lspci::capability_name(capability.id),
            "offset": capability.offset,
            "version": capability.version,
        })
    };
    function.capabilities.iter().map(json).collect()
}

/// The link above an endpoint or below a port; none if the function reports no speed.
fn link_json(express: &Express) -> Option<Value> {
    (express.link_speed != 0).then(|| {
        json!({
            "speed": lspci::speed(express.link_speed),
            "width": express.link_width,
            "speed_max": lspci::speed(express.link_speed_max),
            "width_max": express.link_width_max,
            // Only the port above a link reports whether the link is active.
            "active": express.has_link_below().then_some(express.link_active),
        })
    })
}

/// Number of bits in the tags of a function's requests.
const fn tag_bits(express: &Express) -> u8 {
    match (express.ten_bit_tags, express.extended_tags) {
        (true, _) => 10,
        (false, true) => 8,
        (false, false) => 5,
    }
}

fn hex(address: u64) -> String {
    format!("{address:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcie::config::ClassCode;
    use pcie::root_complex::{Capability, Fault};

    #[test]
    fn a_topology_is_a_tree_of_objects() {
        let ssd = Function {
            bdf: pcie::wire::Bdf::new(1, 0, 0),
            class: ClassCode::NVME,
            bars: vec![BarRegister {
                index: 0,
                space: Space::Memory64,
                prefetchable: false,
                size: 0x4000,
                address: Some(u64::MAX << 14),
            }],
            capabilities: vec![Capability { id: CapabilityId::Extended(3), offset: 0x150, version: 1 }],
            express: Some(Express { payload_size: 4096, link_speed: 4, ..Express::default() }),
            serial_number: Some(7),
            ..Function::default()
        };
        let faults = vec![(ssd.bdf, Fault::NoBus)];
        let window = Window { first: 0x1000, last: 0x1fff };
        let root = Function {
            bridge: Some(Bridge { secondary: 1, memory: Some(window), ..Bridge::default() }),
            children: vec![ssd],
            ..Function::default()
        };
        let json = function_json(&root, &Topology { root: Box::new(root.clone()), faults });
        assert_eq!(json["bridge"]["windows"]["memory"]["bytes"], 4096);
        assert_eq!(json["link"], Value::Null);
        let child = &json["children"][0];
        assert_eq!(child["bars"][0]["address"], "0xffffffffffffc000");
        assert_eq!(child["class_name"], "Non-Volatile memory controller");
        assert_eq!(child["capabilities"][0]["name"], "Device Serial Number");
        assert_eq!((&child["link"]["speed"], &child["payload_bytes"]), (&json!("16GT/s"), &json!(4096)));
        assert_eq!(child["serial_number"], "0000000000000007");
        assert_eq!(child["faults"][0], "no bus number left");
    }
}
