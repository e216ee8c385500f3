//! `farlane observe lspci`: the functions that a host finds at its far ends.

use std::path::PathBuf;

use assemblies::near::PORTS_MAX;
use engine::Nanos;
use live::client::{AttachError, Hierarchy};
use pcie::lspci;
use pcie::root_complex::{
    BarRegister, Bridge, Capability, CapabilityId, Express, Function, Space, Topology, Window,
};
use schemars::JsonSchema;
use serde::Serialize;
use status::ConfigCache;

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
    print_missing(args, &topology);
    if args.output.json {
        let function = Listed::of(&topology.root, &topology);
        return print_json(&Roots { roots: vec![Root { function, shadow }] });
    }
    print(&match (args.tree, args.verbose > 0) {
        (true, names) => lspci::tree(&topology, names),
        (false, true) => lspci::verbose(&topology),
        (false, false) => lspci::plain(&topology),
    })
}

/// Warns on standard error which of several far ends did not connect in time: their ports are
/// empty.
fn print_missing(args: &LspciArgs, topology: &Topology) {
    let is_downstream =
        |function: &&Function| function.express.is_some_and(|it| it.port_type == Express::DOWNSTREAM);
    for (url, port) in args.urls.iter().zip(topology.functions().filter(is_downstream)) {
        if port.children.is_empty() {
            warn!("{url} is not there: the slot below {} is empty", port.bdf);
        }
    }
}

/// The PCIe functions below each root.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Roots {
    /// Each root.
    roots: Vec<Root>,
}

/// A root, and the functions below it.
#[derive(Serialize, JsonSchema)]
struct Root {
    #[serde(flatten)]
    function: Listed,
    /// Counts of the config cache, over all far ends below this root.
    shadow: Option<ConfigCache>,
}

/// A function with all functions below it. Addresses are texts, since many JSON readers can't take
/// numbers of 64 bits.
#[derive(Serialize, JsonSchema)]
struct Listed {
    /// Bus, device and function.
    bdf: String,
    /// Vendor, in hexadecimal digits.
    vendor: String,
    /// Device, in hexadecimal digits.
    device: String,
    /// Name of the device.
    name: String,
    /// Class code, in hexadecimal digits.
    class: String,
    /// Name of the class.
    class_name: Option<&'static str>,
    /// Revision.
    revision: u8,
    /// Vendor of the subsystem, in hexadecimal digits.
    subsystem_vendor: String,
    /// Subsystem, in hexadecimal digits.
    subsystem: String,
    /// Whether the function answers accesses.
    enabled: bool,
    /// Base Address Registers.
    bars: Vec<Bar>,
    /// Buses and windows of a bridge.
    bridge: Option<ListedBridge>,
    /// Capabilities.
    capabilities: Vec<ListedCapability>,
    /// The most data of a packet.
    payload_bytes: Option<u32>,
    /// The most data of a read request.
    read_request_bytes: Option<u32>,
    /// Bits in the tags of requests.
    tag_bits: Option<u8>,
    /// The link above an endpoint or below a port; null if the function reports no speed.
    link: Option<ListedLink>,
    /// The slot below a port.
    slot: Option<ListedSlot>,
    /// Interrupt vectors by MSI-X.
    msix_vectors: Option<u16>,
    /// Serial number, in hexadecimal digits.
    serial_number: Option<String>,
    /// Faults that enumeration found.
    faults: Vec<String>,
    /// The functions below.
    children: Vec<Self>,
}

/// A Base Address Register.
#[derive(Serialize, JsonSchema)]
struct Bar {
    /// Number of the register.
    index: u8,
    /// Space of its addresses.
    space: &'static str,
    /// Whether reads have no side effects.
    prefetchable: bool,
    /// Size in bytes.
    bytes: u64,
    /// Address; null if none was assigned.
    address: Option<String>,
}

/// Buses and windows of a bridge.
#[derive(Serialize, JsonSchema)]
struct ListedBridge {
    /// Bus above.
    primary: u8,
    /// Bus below.
    secondary: u8,
    /// Highest bus below.
    subordinate: u8,
    /// Addresses that are passed down.
    windows: Windows,
}

/// Windows of a bridge.
#[derive(Serialize, JsonSchema)]
struct Windows {
    /// Of memory.
    memory: Option<ListedWindow>,
    /// Of memory whose reads have no side effects.
    prefetchable: Option<ListedWindow>,
}

/// A range of addresses.
#[derive(Serialize, JsonSchema)]
struct ListedWindow {
    /// First address.
    first: String,
    /// Last address.
    last: String,
    /// Size in bytes.
    bytes: u64,
}

/// A capability.
#[derive(Serialize, JsonSchema)]
struct ListedCapability {
    /// Identifier.
    id: u16,
    /// Whether it is an extended capability.
    extended: bool,
    /// Name.
    name: Option<&'static str>,
    /// Offset in configuration space.
    offset: u16,
    /// Version.
    version: u8,
}

/// A link.
#[derive(Serialize, JsonSchema)]
struct ListedLink {
    /// Speed.
    speed: &'static str,
    /// Lanes.
    width: u8,
    /// The highest speed.
    speed_max: &'static str,
    /// The most lanes.
    width_max: u8,
    /// Whether the link is active, which only the port above it reports.
    active: Option<bool>,
}

/// A slot.
#[derive(Serialize, JsonSchema)]
struct ListedSlot {
    /// Number of the slot.
    number: u16,
    /// Whether devices may come and go.
    hot_plug: bool,
    /// Whether they may go without notice.
    surprise: bool,
    /// Whether a device is there.
    present: bool,
}

impl Listed {
    fn of(function: &Function, topology: &Topology) -> Self {
        let faults = topology.faults.iter().filter(|(bdf, _)| *bdf == function.bdf);
        let children = function.children.iter().map(|child| Self::of(child, topology));
        let express = function.express.as_ref();
        Self {
            bdf: function.bdf.to_string(),
            vendor: format!("{:04x}", function.vendor),
            device: format!("{:04x}", function.device),
            name: lspci::product(function),
            class: function.class.to_string(),
            class_name: lspci::class_name(function.class),
            revision: function.revision,
            subsystem_vendor: format!("{:04x}", function.subsystem_vendor),
            subsystem: format!("{:04x}", function.subsystem),
            enabled: function.enabled,
            bars: function.bars.iter().map(Bar::from).collect(),
            bridge: function.bridge.as_ref().map(ListedBridge::from),
            capabilities: function.capabilities.iter().map(ListedCapability::from).collect(),
            payload_bytes: express.map(|express| express.payload_size),
            read_request_bytes: express.map(|express| express.read_request_size),
            tag_bits: express.map(tag_bits),
            link: express.and_then(ListedLink::of),
            slot: express.and_then(|express| express.slot).map(|slot| ListedSlot {
                number: slot.number,
                hot_plug: slot.hot_plug,
                surprise: slot.surprise,
                present: slot.present,
            }),
            msix_vectors: function.msix.map(|msix| msix.vectors),
            serial_number: function.serial_number.map(|serial| format!("{serial:016x}")),
            faults: faults.map(|(_, fault)| fault.to_string()).collect(),
            children: children.collect(),
        }
    }
}

impl From<&BarRegister> for Bar {
    fn from(bar: &BarRegister) -> Self {
        let space = match bar.space {
            Space::Io => "io",
            Space::Memory32 => "memory32",
            Space::Memory64 => "memory64",
        };
        let (index, prefetchable) = (bar.index, bar.prefetchable);
        Self { index, space, prefetchable, bytes: bar.size, address: bar.address.map(hex) }
    }
}

impl From<&Bridge> for ListedBridge {
    fn from(bridge: &Bridge) -> Self {
        let window = |window: Window| ListedWindow {
            first: hex(window.first),
            last: hex(window.last),
            bytes: window.size(),
        };
        let Bridge { primary, secondary, subordinate, memory, prefetchable, .. } = *bridge;
        let windows = Windows { memory: memory.map(window), prefetchable: prefetchable.map(window) };
        Self { primary, secondary, subordinate, windows }
    }
}

impl From<&Capability> for ListedCapability {
    fn from(capability: &Capability) -> Self {
        let (id, extended) = match capability.id {
            CapabilityId::Standard(id) => (u16::from(id), false),
            CapabilityId::Extended(id) => (id, true),
        };
        let name = lspci::capability_name(capability.id);
        Self { id, extended, name, offset: capability.offset, version: capability.version }
    }
}

impl ListedLink {
    /// The link of a function that reports a speed.
    fn of(express: &Express) -> Option<Self> {
        (express.link_speed != 0).then(|| Self {
            speed: lspci::speed(express.link_speed),
            width: express.link_width,
            speed_max: lspci::speed(express.link_speed_max),
            width_max: express.link_width_max,
            active: express.has_link_below().then_some(express.link_active),
        })
    }
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
    use pcie::config::ClassCode;
    use pcie::root_complex::Fault;
    use serde_json::{Value, json};

    use super::*;

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
        let listed = Listed::of(&root, &Topology { root: Box::new(root.clone()), faults });
        let json = serde_json::to_value(listed).unwrap();
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
