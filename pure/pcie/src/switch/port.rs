//! One port of a switch: a bridge's configuration space, and the state derived from it.

use engine::Buffer;

use super::PortId;
use crate::config::{
    Builder, ConfigSpace, ErrorMessage, Field, Identity, Link, PortType, Reset, Slot, Window, bridge,
    express, header, msi, offset,
};
use crate::wire::{Bdf, Packet};

/// Memory windows are multiples of 2 to this power, in bytes.
const MEMORY_GRANULE_BITS: u32 = 20;
/// I/O windows are multiples of 2 to this power, in bytes.
const IO_GRANULE_BITS: u32 = 12;
/// ISA Enable: in the first 64 KiB of I/O space, only the first quarter of each KiB is forwarded
/// down.
const ISA_LIMIT: u64 = 0x1_0000;
const ISA_PERIOD: u64 = 0x400;
const ISA_PASSES: u64 = 0x100;

/// A port of a switch, upstream or downstream.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) space: ConfigSpace,
    /// Bus, device and function number of the port's function.
    pub(super) id: Bdf,
    /// Whether the far end of the link is attached, regardless of the settings of software.
    pub(super) attached: bool,
    /// Whether all conditions of a hot-plug interrupt are met. The interrupt is sent when this
    /// becomes true.
    interrupting: bool,
}

/// Change of the link below a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkChange {
    None,
    WentDown,
    CameUp,
}

impl Port {
    pub(super) fn new(
        identity: Identity,
        kind: PortType,
        link: Link,
        slot: Option<Slot>,
        serial: u64,
    ) -> Self {
        let builder = Builder::bridge(identity).power_management(true).msi().express(kind, link, slot);
        let space = builder.advanced_error_reporting().serial_number(serial).build();
        Self { space, id: Bdf::default(), attached: false, interrupting: false }
    }

    fn express(&self, field: Field) -> bool {
        self.space.is_set(field.at(offset::EXPRESS))
    }

    /// Whether packets can go down: the far end is attached and software allows it.
    pub(super) fn link_usable(&self) -> bool {
        self.attached
            && !self.space.is_set(bridge::SECONDARY_BUS_RESET)
            && !self.express(express::LINK_DISABLE)
    }

    /// Updates the link's registers to follow [`Port::link_usable`].
    pub(super) fn follow_link(&mut self) -> LinkChange {
        let (active, usable) = (self.express(express::LINK_ACTIVE), self.link_usable());
        if active == usable {
            return LinkChange::None;
        }
        self.space.set(express::LINK_ACTIVE.at(offset::EXPRESS), u32::from(usable));
        self.space.set(express::LINK_STATE_CHANGED.at(offset::EXPRESS), 1);
        if usable { LinkChange::CameUp } else { LinkChange::WentDown }
    }

    /// Records that the far end was attached or removed.
    pub(super) fn attach(&mut self, attached: bool) -> LinkChange {
        if self.attached != attached {
            self.attached = attached;
            self.space.set(express::PRESENCE.at(offset::EXPRESS), u32::from(attached));
            self.space.set(express::PRESENCE_CHANGED.at(offset::EXPRESS), 1);
        }
        self.follow_link()
    }

    /// Whether a device may vanish here without causing an error.
    pub(super) fn expects_surprise(&self) -> bool {
        self.express(express::HOT_PLUG_SURPRISE)
    }

    pub(super) fn reset(&mut self) {
        self.space.reset(Reset::Hot);
        self.interrupting = false;
    }

    pub(super) fn buses(&self) -> core::ops::RangeInclusive<u8> {
        let bus = |field| u8::try_from(self.space.get(field)).unwrap_or(0);
        bus(bridge::SECONDARY_BUS)..=bus(bridge::SUBORDINATE_BUS)
    }

    /// The memory window and the prefetchable window; closed if they do not decode.
    pub(super) fn memory_windows(&self) -> [Window; 2] {
        if !self.space.memory_enabled() {
            return [Window::CLOSED; 2];
        }
        let get = |field| u64::from(self.space.get(field));
        let upper = |field| get(field) << 32;
        [
            window(get(bridge::MEMORY_BASE), get(bridge::MEMORY_LIMIT), MEMORY_GRANULE_BITS),
            window(
                upper(bridge::PREFETCHABLE_BASE_UPPER) >> MEMORY_GRANULE_BITS
                    | get(bridge::PREFETCHABLE_BASE),
                upper(bridge::PREFETCHABLE_LIMIT_UPPER) >> MEMORY_GRANULE_BITS
                    | get(bridge::PREFETCHABLE_LIMIT),
                MEMORY_GRANULE_BITS,
            ),
        ]
    }

    /// Whether the I/O window forwards `address` down.
    pub(super) fn takes_io(&self, address: u32) -> bool {
        if !self.space.is_set(header::IO_SPACE) || !self.space.in_d0() {
            return false;
        }
        let get = |field| u64::from(self.space.get(field));
        let base = get(bridge::IO_BASE_UPPER) << 4 | get(bridge::IO_BASE);
        let limit = get(bridge::IO_LIMIT_UPPER) << 4 | get(bridge::IO_LIMIT);
        let address = u64::from(address);
        let isa = self.space.is_set(bridge::ISA) && address < ISA_LIMIT && address % ISA_PERIOD >= ISA_PASSES;
        window(base, limit, IO_GRANULE_BITS).contains(address) && !isa
    }

    /// Whether `message` from below is forwarded up through this port. This needs SERR# Enable in
    /// Bridge Control, and one of the function's enables for the message: Device Control, or SERR#
    /// Enable in Command for uncorrectable errors.
    pub(super) fn passes_error(&mut self, message: ErrorMessage) -> bool {
        let (uncorrectable, enable) = match message {
            ErrorMessage::Correctable => (false, express::REPORT_CORRECTABLE),
            ErrorMessage::NonFatal => (true, express::REPORT_NON_FATAL),
            ErrorMessage::Fatal => (true, express::REPORT_FATAL),
        };
        if uncorrectable {
            self.space.set(bridge::RECEIVED_SYSTEM_ERROR, 1);
        }
        let system_error = uncorrectable && self.space.is_set(header::SERR);
        let passes = self.space.is_set(bridge::SERR) && (system_error || self.express(enable));
        if passes && system_error {
            self.space.set(header::SIGNALED_SYSTEM_ERROR, 1);
        }
        passes
    }

    /// The hot-plug interrupt that is due now, if any: its conditions have become true, or it was
    /// masked before and may now be sent.
    pub(super) fn poll_interrupt(&mut self) -> Option<Packet> {
        let at_msi = |field: Field| field.at(offset::MSI);
        let event = (self.express(express::PRESENCE_CHANGED)
            && self.express(express::PRESENCE_CHANGED_ENABLE))
            || (self.express(express::LINK_STATE_CHANGED)
                && self.express(express::LINK_STATE_CHANGED_ENABLE));
        let enabled =
            self.express(express::HOT_PLUG_INTERRUPT_ENABLE) && self.space.is_set(at_msi(msi::ENABLE));
        let now = event && enabled;
        let rises = now && !self.interrupting;
        self.interrupting = now;
        if rises {
            self.space.set(at_msi(msi::PENDING), 1);
        }
        let free = self.space.is_set(at_msi(msi::ENABLE))
            && !self.space.is_set(at_msi(msi::MASK))
            && self.space.bus_master();
        if !self.space.is_set(at_msi(msi::PENDING)) || !free {
            return None;
        }
        self.space.set(at_msi(msi::PENDING), 0);
        let low = u64::from(self.space.get(at_msi(msi::ADDRESS_LOW))) << 2;
        let high = u64::from(self.space.get(at_msi(msi::ADDRESS_HIGH))) << 32;
        let data = self.space.get(at_msi(msi::DATA)).to_le_bytes();
        Some(Packet::memory_write(self.id, high | low, Buffer::copy_from_slice(&data)))
    }
}

/// The window that the base and limit registers describe; they count granules.
const fn window(base: u64, limit: u64, granule_bits: u32) -> Window {
    if limit < base {
        return Window::CLOSED;
    }
    Window { base: base << granule_bits, last: (limit << granule_bits) | ((1 << granule_bits) - 1) }
}

/// The route of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The packet leaves by this port.
    Forward(PortId),
    /// The packet is not forwarded; this port answers it.
    Refuse(PortId),
}
