//! An NVMe driver and its controller: where the registers are, and which driver an answer
//! belongs to.

use alloc::vec::Vec;

use engine::{Engine, Instant};
use nvme_pcie::host::{self, ArenaTooSmall, Host};
use pcie::config::ClassCode;
use pcie::requester::Busy;
use pcie::root_complex::{Function, RootComplex, Topology};
use pcie::wire::Bdf;
use tunnel::upstream::PortIndex;

/// This bit marks the cookies of configuration reads.
const CONFIG: u64 = 1 << 62;
/// The cookie of a configuration write of this host's own, whose answer is not awaited.
pub(super) const SET_UP: u64 = CONFIG | 1 << 40;
/// This bit marks the cookies of the application's register reads.
const REGISTER: u64 = 1 << 61;
/// Cookies of the drivers' register reads: the driver's index above this bit, the driver's own
/// cookie below.
const INDEX_SHIFT: u32 = 48;

/// The root complex's cookie of an application's configuration read.
pub(super) const fn config_cookie(cookie: u32) -> u64 {
    CONFIG | cookie as u64
}

/// The application's cookie of a configuration read.
pub(super) fn config_cookie_of(cookie: u64) -> u32 {
    u32::try_from(cookie & !CONFIG).expect("the cookie was made of 32 bits")
}

/// The root complex's cookie of an application's register read.
pub(super) const fn register_cookie(cookie: u32) -> u64 {
    REGISTER | cookie as u64
}

/// The application's cookie of a register read; `None` if it is a driver's read.
pub(super) fn register_cookie_of(cookie: u64) -> Option<u32> {
    let own = cookie & REGISTER > 0;
    own.then(|| u32::try_from(cookie & !REGISTER).expect("the cookie was made of 32 bits"))
}

/// Index of the driver that a register read belongs to.
pub(super) fn index_of_cookie(cookie: u64) -> usize {
    usize::try_from(cookie >> INDEX_SHIFT).expect("16 bits fit")
}

/// Distance between the message addresses of drivers: each has a page in the interrupt window.
const INTERRUPT_STRIDE: u64 = 4096;

/// Where in the interrupt window the message address of the driver `index` is.
pub(super) const fn interrupt_offset(index: usize) -> u64 {
    index as u64 * INTERRUPT_STRIDE
}

/// Index of the driver whose interrupts are written to `address`.
pub(super) fn index_of_interrupt(address: u64) -> usize {
    let offset = address.saturating_sub(pcie::root_complex::INTERRUPT_WINDOW.start);
    usize::try_from(offset / INTERRUPT_STRIDE).unwrap_or(usize::MAX)
}

/// A controller as enumeration found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) bdf: Bdf,
    pub(super) bar: u64,
    pub(super) port: Option<PortIndex>,
}

/// The NVMe controllers in `topology`, each with the downstream port that it is below.
pub(super) fn find_controllers(topology: &Topology) -> Vec<Found> {
    let ports = downstream_ports(topology);
    let below = |bdf: Bdf| {
        ports.iter().position(|port| {
            port.bridge
                .as_ref()
                .is_some_and(|bridge| (bridge.secondary..=bridge.subordinate).contains(&bdf.bus()))
        })
    };
    topology
        .functions()
        .filter(|function| function.class == ClassCode::NVME)
        .filter_map(|function| {
            let bar = function.bar(0)?.address?;
            let port = below(function.bdf).and_then(|port| u8::try_from(port).ok()).map(PortIndex);
            Some(Found { bdf: function.bdf, bar, port })
        })
        .collect()
}

/// The downstream port of the switch above the tunnel of `port`.
pub(super) fn bridge_of(topology: &Topology, port: PortIndex) -> Option<Bdf> {
    downstream_ports(topology).get(usize::from(port.0)).map(|function| function.bdf)
}

/// The downstream ports of the switch on the root port's link, in the order of their numbers.
fn downstream_ports(topology: &Topology) -> Vec<&Function> {
    topology.root.children.iter().flat_map(|upstream| upstream.children.iter()).collect()
}

/// An NVMe driver, and where its controller is.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) host: Host,
    pub(super) bdf: Bdf,
    pub(super) bar: u64,
    pub(super) port: Option<PortIndex>,
    lost: bool,
    /// The bytes of the register read under way, as far as they have come. Drivers read one
    /// register at a time.
    register: [u8; 8],
    register_length: usize,
}

impl Driver {
    pub(super) fn start(now: Instant, settings: host::Config, found: &Found) -> Result<Self, ArenaTooSmall> {
        let mut host = Host::new(settings)?;
        host.start(now);
        let Found { bdf, bar, port } = *found;
        Ok(Self { host, bdf, bar, port, lost: false, register: [0; 8], register_length: 0 })
    }

    /// The device is gone.
    pub(super) fn on_lost(&mut self, now: Instant) {
        self.lost = true;
        self.host.handle_input(now, host::Input::DeviceLost);
    }

    /// Enumeration has found the device again.
    pub(super) fn on_found(&mut self, now: Instant, found: &Found) {
        self.bar = found.bar;
        // If a link came and went during the enumeration, before there was a driver, its loss
        // was never reported here. A controller that could not be brought up then may be brought
        // up now.
        if core::mem::take(&mut self.lost) || !self.host.is_ready() {
            self.host.handle_input(now, host::Input::DeviceBack);
        }
    }

    pub(super) fn on_interrupt(&mut self, now: Instant, data: u32) {
        let vector = u16::try_from(data & 0xffff).expect("16 bits fit");
        self.host.handle_input(now, host::Input::Interrupt { vector });
    }

    pub(super) fn read_register(
        &mut self,
        now: Instant,
        root: &mut RootComplex,
        index: usize,
        cookie: u64,
        offset: u32,
        length: u32,
    ) -> Result<(), Busy> {
        self.register_length = length as usize;
        let name = (index as u64) << INDEX_SHIFT | cookie;
        root.read(now, name, self.bar + u64::from(offset), length)
    }

    pub(super) fn on_register_data(&mut self, now: Instant, name: u64, offset: u32, data: &[u8], last: bool) {
        let start = offset as usize;
        if let Some(place) = self.register.get_mut(start..start + data.len()) {
            place.copy_from_slice(data);
        }
        if last {
            let bytes = self.register.get(..self.register_length);
            let cookie = name & ((1 << INDEX_SHIFT) - 1);
            self.host.handle_input(now, host::Input::RegisterRead { cookie, bytes });
        }
    }

    pub(super) fn on_register_failed(&mut self, now: Instant, name: u64) {
        self.on_register_busy(now, name & ((1 << INDEX_SHIFT) - 1));
    }

    /// The read with the driver's own `cookie` could not be made.
    pub(super) fn on_register_busy(&mut self, now: Instant, cookie: u64) {
        self.host.handle_input(now, host::Input::RegisterRead { cookie, bytes: None });
    }
}
