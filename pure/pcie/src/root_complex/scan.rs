//! The search for functions: bus by bus, depth first.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::enumerate::{Scanner, Stop};
use super::topology::{BarRegister, Bridge, Express, Fault, Function, Space, half, narrow};
use crate::config::{ClassCode, bridge, header};
use crate::requester::RequestError;
use crate::wire::Bdf;

/// Number of devices on a bus inside a switch; a link has one.
const DEVICES: u8 = 32;
/// Number of functions of a device.
const FUNCTIONS: u8 = 8;
/// Maximum depth of nested bridges; deeper functions stay hidden.
const DEPTH_MAX: u8 = 32;
/// Maximum number of functions that enumeration examines. A larger hierarchy is implausible, or
/// would take too long.
pub(super) const FUNCTIONS_MAX: u32 = 512;
/// Vendor ID that is read at an address without a function.
const NO_VENDOR: u32 = 0xffff;
/// Header Layout of a bridge.
const BRIDGE: u8 = 1;

/// Error: the link is down, so the search ends.
type Down = ();

impl Scanner {
    /// Finds the functions on `bus` and below, and assigns bus numbers after `last` up to `limit`.
    /// `only_first` says that the bus is a link, which has device 0 only.
    pub(super) async fn scan_bus(
        &self,
        bus: u8,
        last: &mut u8,
        limit: u8,
        only_first: bool,
        depth: u8,
    ) -> Result<Vec<Function>, Down> {
        let mut found = Vec::new();
        let devices = if only_first { 1 } else { DEVICES };
        for device in 0..devices {
            for number in 0..FUNCTIONS {
                let bdf = Bdf::new(bus, device, number);
                if self.found.get() == FUNCTIONS_MAX {
                    self.note(bdf, Fault::TooMany);
                    return Ok(found);
                }
                let function = match self.scan_function(bdf).await {
                    Ok(function) => function,
                    Err(Stop::LinkDown) => return Err(()),
                    Err(Stop::Function(fault)) => {
                        self.note(bdf, fault);
                        None
                    }
                };
                let Some((mut function, multi)) = function else {
                    if number == 0 {
                        break;
                    }
                    continue;
                };
                if function.layout == BRIDGE {
                    self.scan_below(&mut function, last, limit, depth).await?;
                }
                found.push(function);
                if !multi {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Assigns buses to the bridge and finds the functions on them.
    async fn scan_below(
        &self,
        function: &mut Function,
        last: &mut u8,
        limit: u8,
        depth: u8,
    ) -> Result<(), Down> {
        let bdf = function.bdf;
        let Some(secondary) = last.checked_add(1).filter(|next| *next <= limit && depth < DEPTH_MAX) else {
            self.note(bdf, Fault::NoBus);
            return Ok(());
        };
        let mut found = Bridge { primary: bdf.bus(), secondary, ..function.bridge.unwrap_or_default() };
        *last = secondary;
        // Until the number of buses is known, everything up to the limit is forwarded.
        match self.write_buses(bdf, &found, limit).await {
            Err(Stop::LinkDown) => return Err(()),
            Err(Stop::Function(fault)) => {
                self.note(bdf, fault);
                return Ok(());
            }
            Ok(()) => {}
        }
        let only_first = function.express.is_none_or(|express| express.has_link_below());
        function.children = Box::pin(self.scan_bus(secondary, last, limit, only_first, depth + 1)).await?;
        if function.express.is_some_and(|express| express.is_hot_plug()) {
            let reserved = secondary.saturating_add(self.plan.hot_plug_buses.saturating_sub(1));
            *last = (*last).max(reserved.min(limit));
        }
        found.subordinate = *last;
        function.bridge = Some(found);
        match self.write_buses(bdf, &found, found.subordinate).await {
            Err(Stop::LinkDown) => Err(()),
            Err(Stop::Function(fault)) => {
                self.note(bdf, fault);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn write_buses(&self, bdf: Bdf, found: &Bridge, subordinate: u8) -> Result<(), Stop> {
        let buses = [
            (bridge::PRIMARY_BUS, u32::from(found.primary)),
            (bridge::SECONDARY_BUS, u32::from(found.secondary)),
            (bridge::SUBORDINATE_BUS, u32::from(subordinate)),
        ];
        self.set(bdf, &buses).await
    }

    /// Reads the identity of a function, and whether its device has more functions; `None` if the
    /// function does not exist.
    async fn scan_function(&self, bdf: Bdf) -> Result<Option<(Function, bool)>, Stop> {
        let absent = |fault| matches!(fault, Fault::Register { error: RequestError::UnsupportedRequest, .. });
        let ids = match self.read(bdf, header::VENDOR.offset()).await {
            Ok(ids) if header::VENDOR.of(ids) == NO_VENDOR => return Ok(None),
            Err(Stop::Function(fault)) if absent(fault) => return Ok(None),
            present => {
                self.found.set(self.found.get() + 1);
                present?
            }
        };
        let class = self.read(bdf, header::CLASS.offset()).await?;
        let layout = self.read(bdf, header::LAYOUT.offset()).await?;
        let mut function = Function {
            bdf,
            vendor: half(header::VENDOR, ids),
            device: half(header::DEVICE, ids),
            class: ClassCode(header::CLASS.of(class)),
            revision: narrow(header::REVISION, class),
            layout: narrow(header::LAYOUT, layout),
            ..Function::default()
        };
        // Nothing may be decoded while the BARs hold sizes instead of addresses.
        self.set(bdf, &[(header::IO_SPACE, 0), (header::MEMORY_SPACE, 0)]).await?;
        let bars = match function.layout {
            0 => header::TYPE0_BARS,
            BRIDGE => header::TYPE1_BARS,
            _ => 0,
        };
        self.size_bars(&mut function, bars).await?;
        if function.layout == 0 {
            let subsystem = self.read(bdf, header::SUBSYSTEM.offset()).await?;
            function.subsystem_vendor = half(header::SUBSYSTEM_VENDOR, subsystem);
            function.subsystem = half(header::SUBSYSTEM, subsystem);
        }
        if function.layout == BRIDGE {
            let prefetchable = self.read(bdf, bridge::PREFETCHABLE_BASE.offset()).await?;
            let prefetchable_64 = bridge::PREFETCHABLE_BASE_TYPE.of(prefetchable) == 1;
            function.bridge = Some(Bridge { prefetchable_64, ..Bridge::default() });
        }
        self.read_capabilities(&mut function).await?;
        Ok(Some((function, header::MULTI_FUNCTION.is_set(layout))))
    }

    /// Sizes the BARs by writing ones and reading which bits are set.
    async fn size_bars(&self, function: &mut Function, bars: usize) -> Result<(), Stop> {
        let bars = u8::try_from(bars).unwrap_or(0);
        let mut index = 0;
        while index < bars {
            let ones = self.probe(function.bdf, index).await?;
            let (space, type_bits) = match (ones & 1, ones >> 1 & 3) {
                (1, _) => (Space::Io, 2),
                (_, 2) => (Space::Memory64, 4),
                _ => (Space::Memory32, 4),
            };
            let low = u64::from(ones >> type_bits << type_bits);
            let (mask, width) = match space {
                Space::Memory64 if index + 1 < bars => {
                    let high = self.probe(function.bdf, index + 1).await?;
                    (u64::from(high) << 32 | low, 64)
                }
                Space::Memory64 => {
                    self.note(function.bdf, Fault::BarPair { index });
                    return Ok(());
                }
                // I/O decoders may leave out their upper half.
                Space::Io if low >> 16 == 0 => (low, 16),
                _ => (low, 32),
            };
            if let Some(size) = size_of(mask, width) {
                let prefetchable = space != Space::Io && ones >> 3 & 1 == 1;
                function.bars.push(BarRegister { index, space, prefetchable, size, address: None });
            } else if ones != 0 {
                self.note(function.bdf, Fault::BarSize { index, mask });
            }
            index += if space == Space::Memory64 { 2 } else { 1 };
        }
        Ok(())
    }

    /// The value of BAR `index` after writing ones: the bits that can be set, and the bits that are
    /// fixed at 1.
    async fn probe(&self, bdf: Bdf, index: u8) -> Result<u32, Stop> {
        let offset = header::BAR0 + u16::from(index) * 4;
        self.write(bdf, offset, u32::MAX).await?;
        let ones = self.read(bdf, offset).await?;
        self.write(bdf, offset, 0).await?;
        Ok(ones)
    }

    /// Reads again the registers of a port that change as devices come and go.
    pub(super) async fn refresh_port(&self, function: &mut Function) -> Result<(), Stop> {
        if let Some(express) = function.express {
            let fresh = self.read_express(function.bdf, express.offset).await?;
            let Express { payload_size, read_request_size, timeout, .. } = express;
            function.express = Some(Express { payload_size, read_request_size, timeout, ..fresh });
        }
        Ok(())
    }
}

/// The size from the writable bits of a BAR of `width` bits; `None` unless exactly the upper bits
/// are writable.
fn size_of(mask: u64, width: u32) -> Option<u64> {
    let all = u64::MAX >> (64 - width);
    let size = 1_u64.checked_shl(mask.trailing_zeros())?;
    (mask & all == all & !(size - 1) && mask != 0).then_some(size)
}
