//! Text output of a [`Topology`] in the format of lspci.

mod names;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write as _};

use crate::config::ClassCode;
use crate::config::capability::{POWER_MANAGEMENT, SERIAL_NUMBER};
use crate::root_complex::{
    BarRegister, Bridge, Capability, CapabilityId, Express, Function, Space, Topology,
};

/// One line for each function: `01:00.0 Non-Volatile memory controller: …`.
pub fn plain(topology: &Topology) -> String {
    topology.functions().fold(String::new(), |text, function| text + &headline(function) + "\n")
}

/// The lines of [`plain`], each followed by addresses, windows, links and capabilities (`-v`).
pub fn verbose(topology: &Topology) -> String {
    let mut text = String::new();
    for function in topology.functions() {
        // Writing to a string can't fail.
        let _ = Verbose(function).fmt_into(&mut text);
        text.push('\n');
    }
    for (bdf, fault) in &topology.faults {
        let _ = writeln!(text, "{bdf} !!! {fault}");
    }
    text
}

/// The tree of buses (`-t`); with `names`, also the name of each device (`-tv`).
pub fn tree(topology: &Topology, names: bool) -> String {
    let mut text = String::new();
    let line = format!("-[0000:{:02x}]-", topology.root.bdf.bus());
    tree_bus(&mut text, line, core::slice::from_ref(&*topology.root), names);
    text
}

/// The name of a class and subclass, or of the base class alone: `Non-Volatile memory controller`.
/// `None` for an unknown class code.
pub fn class_name(code: ClassCode) -> Option<&'static str> {
    names::class(code)
}

/// The name of a capability; `None` for an unknown identifier.
pub fn capability_name(id: CapabilityId) -> Option<&'static str> {
    match id {
        CapabilityId::Standard(POWER_MANAGEMENT) => Some("Power Management"),
        CapabilityId::Standard(id) => names::standard(id),
        CapabilityId::Extended(id) => names::extended(id),
    }
}

/// The name of a vendor; `None` for an unknown Vendor ID.
pub fn vendor_name(vendor: u16) -> Option<&'static str> {
    names::vendor(vendor)
}

/// Address, class, vendor, device and revision of a function.
fn headline(function: &Function) -> String {
    let class = class_name(function.class).map_or_else(|| format!("Class {}", function.class), String::from);
    let mut line = format!("{} {class}: {}", function.bdf, product(function));
    if function.revision != 0 {
        let _ = write!(line, " (rev {:02x})", function.revision);
    }
    line
}

/// Vendor and device, by name if known: `Farlane NVMe Controller`.
pub fn product(function: &Function) -> String {
    let (vendor, device) = (function.vendor, function.device);
    if function.bridge.is_some() && (vendor, device) == (0, 0) {
        return String::from("Farlane Root Port");
    }
    match (names::vendor(vendor), names::device(vendor, device)) {
        (Some(vendor), Some(device)) => format!("{vendor} {device}"),
        (Some(vendor), None) => format!("{vendor} Device {device:04x}"),
        (None, _) => format!("Device {vendor:04x}:{device:04x}"),
    }
}

/// Prints the functions of a bus behind `line`. Each further row starts with the branches that
/// continue.
fn tree_bus(text: &mut String, line: String, functions: &[Function], names: bool) {
    let Some((last, others)) = functions.split_last() else {
        text.push_str(&line);
        text.push('\n');
        return;
    };
    if others.is_empty() {
        return tree_function(text, line + "--", last, names);
    }
    let mut start = line;
    for function in others {
        tree_function(text, format!("{start}+-"), function, names);
        start = continued(&start);
    }
    tree_function(text, start + "\\-", last, names);
}

fn tree_function(text: &mut String, mut line: String, function: &Function, names: bool) {
    let _ = write!(line, "{:02x}.{}", function.bdf.device(), function.bdf.function());
    let Some(Bridge { secondary, subordinate, .. }) = function.bridge else {
        if names {
            line = line + "  " + &product(function);
        }
        text.push_str(&line);
        text.push('\n');
        return;
    };
    let _ = match secondary == subordinate {
        true => write!(line, "-[{secondary:02x}]--"),
        false => write!(line, "-[{secondary:02x}-{subordinate:02x}]--"),
    };
    tree_bus(text, line, &function.children, names);
}

/// The start of the next row: branches that continue, and spaces.
fn continued(line: &str) -> String {
    line.chars().map(|shown| if matches!(shown, '+' | '|') { '|' } else { ' ' }).collect()
}

/// A number of bytes in lspci's format: `16K`, `1M`, `256`.
fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = UNITS.iter().find(|(shift, _)| bytes >> shift != 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| format!("{bytes}"), |(shift, name)| format!("{}{name}", bytes >> shift))
}

struct Verbose<'a>(&'a Function);

impl Verbose<'_> {
    fn fmt_into(&self, out: &mut String) -> fmt::Result {
        let function = self.0;
        let interface = function.class.interface();
        write!(out, "{}", headline(function))?;
        match names::interface(function.class) {
            Some(name) => writeln!(out, " (prog-if {interface:02x} [{name}])")?,
            None if interface != 0 => writeln!(out, " (prog-if {interface:02x})")?,
            None => writeln!(out)?,
        }
        if (function.subsystem_vendor, function.subsystem) != (0, 0) {
            let (vendor, device) = (function.subsystem_vendor, function.subsystem);
            match names::vendor(vendor) {
                Some(name) => writeln!(out, "\tSubsystem: {name} Device {device:04x}")?,
                None => writeln!(out, "\tSubsystem: Device {vendor:04x}:{device:04x}")?,
            }
        }
        let flags = if function.enabled { "bus master, " } else { "" };
        writeln!(out, "\tFlags: {flags}fast devsel, latency 0")?;
        for bar in &function.bars {
            fmt_bar(out, bar)?;
        }
        if let Some(bridge) = &function.bridge {
            fmt_bridge(out, bridge)?;
        }
        for capability in &function.capabilities {
            self.fmt_capability(out, capability)?;
        }
        // The root port of this crate has no configuration space, and thus no list with this
        // capability.
        if let Some(express) = function.express.filter(|express| express.offset == 0) {
            fmt_link(out, &express)?;
        }
        Ok(())
    }

    fn fmt_capability(&self, out: &mut String, capability: &Capability) -> fmt::Result {
        let function = self.0;
        let offset = capability.offset;
        match capability.id {
            CapabilityId::Standard(_) => write!(out, "\tCapabilities: [{offset:02x}] ")?,
            CapabilityId::Extended(_) => write!(out, "\tCapabilities: [{offset:03x}] ")?,
        }
        if let Some(express) = function.express.filter(|express| express.offset == offset) {
            writeln!(out, "Express {}", port_name(express.port_type))?;
            return fmt_link(out, &express);
        }
        if let Some(msix) = function.msix.filter(|msix| msix.offset == offset) {
            writeln!(out, "MSI-X: Count={}", msix.vectors)?;
            writeln!(out, "\t\tVector table: BAR={} offset={:08x}", msix.table_bar, msix.table_offset)?;
            return writeln!(out, "\t\tPBA: BAR={} offset={:08x}", msix.pending_bar, msix.pending_offset);
        }
        match capability.id {
            CapabilityId::Extended(SERIAL_NUMBER) if function.serial_number.is_some() => {
                let serial = function.serial_number.unwrap_or_default().to_be_bytes();
                write!(out, "Device Serial Number")?;
                for (index, byte) in serial.iter().enumerate() {
                    write!(out, "{}{byte:02x}", if index == 0 { ' ' } else { '-' })?;
                }
                writeln!(out)
            }
            CapabilityId::Standard(POWER_MANAGEMENT) => {
                writeln!(out, "Power Management version {}", capability.version)
            }
            CapabilityId::Standard(id) => match names::standard(id) {
                Some(name) => writeln!(out, "{name}"),
                None => writeln!(out, "#{id:02x}"),
            },
            CapabilityId::Extended(id) => match names::extended(id) {
                Some(name) => writeln!(out, "{name}"),
                None => writeln!(out, "Extended Capability ID {id:#x}"),
            },
        }
    }
}

fn fmt_bar(out: &mut String, bar: &BarRegister) -> fmt::Result {
    let size = size(bar.size);
    if bar.space == Space::Io {
        return writeln!(out, "\tI/O ports at <unassigned> [disabled] [size={size}]");
    }
    let width = if bar.space == Space::Memory64 { 64 } else { 32 };
    let kind = if bar.prefetchable { "prefetchable" } else { "non-prefetchable" };
    match bar.address {
        Some(address) => writeln!(out, "\tMemory at {address:08x} ({width}-bit, {kind}) [size={size}]"),
        None => writeln!(out, "\tMemory at <unassigned> ({width}-bit, {kind}) [disabled] [size={size}]"),
    }
}

fn fmt_bridge(out: &mut String, bridge: &Bridge) -> fmt::Result {
    let Bridge { primary, secondary, subordinate, .. } = bridge;
    writeln!(
        out,
        "\tBus: primary={primary:02x}, secondary={secondary:02x}, subordinate={subordinate:02x}, sec-latency=0"
    )?;
    let width = if bridge.prefetchable_64 { 64 } else { 32 };
    writeln!(out, "\tI/O behind bridge: [disabled] [32-bit]")?;
    let windows = [("Memory", bridge.memory, 32), ("Prefetchable memory", bridge.prefetchable, width)];
    for (name, window, width) in windows {
        match window {
            Some(window) => {
                let (first, last, size) = (window.first, window.last, size(window.size()));
                writeln!(out, "\t{name} behind bridge: {first:08x}-{last:08x} [size={size}] [{width}-bit]")?;
            }
            None => writeln!(out, "\t{name} behind bridge: [disabled] [{width}-bit]")?,
        }
    }
    Ok(())
}

fn fmt_link(out: &mut String, express: &Express) -> fmt::Result {
    let (payload, read) = (express.payload_size, express.read_request_size);
    let tags = match (express.ten_bit_tags, express.extended_tags) {
        (true, _) => "10-bit tags",
        (false, true) => "8-bit tags",
        (false, false) => "5-bit tags",
    };
    writeln!(out, "\t\tDevCtl: MaxPayload {payload} bytes, MaxReadReq {read} bytes, {tags}")?;
    if express.link_speed != 0 {
        let (speed, width) = (speed(express.link_speed), express.link_width);
        writeln!(out, "\t\tLnkSta: Speed {speed}, Width x{width}")?;
    }
    if let Some(slot) = express.slot {
        let sign = |set: bool| if set { '+' } else { '-' };
        let (hot_plug, surprise) = (sign(slot.hot_plug), sign(slot.surprise));
        writeln!(out, "\t\tSltCap: Slot #{}, HotPlug{hot_plug} Surprise{surprise}", slot.number)?;
        writeln!(out, "\t\tSltSta: PresDet{}", sign(slot.present))?;
    }
    Ok(())
}

/// Device/Port Type in words.
const fn port_name(port_type: u8) -> &'static str {
    match port_type {
        0 => "Endpoint",
        1 => "Legacy Endpoint",
        4 => "Root Port",
        5 => "Upstream Port",
        6 => "Downstream Port",
        7 => "PCI-Express to PCI/PCI-X Bridge",
        8 => "PCI/PCI-X to PCI-Express Bridge",
        9 => "Root Complex Integrated Endpoint",
        10 => "Root Complex Event Collector",
        _ => "Unknown type",
    }
}

/// The name of a link speed as encoded in the PCI Express capability: `16GT/s`.
pub const fn speed(encoded: u8) -> &'static str {
    match encoded {
        1 => "2.5GT/s",
        2 => "5GT/s",
        3 => "8GT/s",
        4 => "16GT/s",
        5 => "32GT/s",
        6 => "64GT/s",
        _ => "unknown",
    }
}
