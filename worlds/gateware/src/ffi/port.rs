//! The model of `gateware/rtl/tunnel/tunnel_port.sv`.

use std::ffi::c_void;
use std::ptr::NonNull;

/// The circuit's input ports during a cycle, by their names.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct PortIn {
    pub(crate) now: u64,
    pub(crate) cfg_handshake: u64,
    pub(crate) cfg_ping: u64,
    pub(crate) cfg_acknowledge: u64,
    pub(crate) cfg_redial_min: u64,
    pub(crate) cfg_redial_max: u64,
    pub(crate) cfg_instance: [u32; 4],
    pub(crate) cfg_name: [u32; 4],
    pub(crate) cfg_window: [u32; 6],
    pub(crate) entropy: [u32; 6],
    pub(crate) cfg_name_length: u32,
    pub(crate) cfg_hold_ms: u32,
    pub(crate) cfg_silence_ms: u32,
    pub(crate) s_net_tdata: [u32; 4],
    pub(crate) s_tlp_tdata: [u32; 4],
    pub(crate) s_net_tkeep: u32,
    pub(crate) rst: bool,
    pub(crate) run: bool,
    pub(crate) cfg_upstream: bool,
    pub(crate) cfg_digests: bool,
    pub(crate) cfg_stamps: bool,
    pub(crate) net_failed: bool,
    pub(crate) net_connected: bool,
    pub(crate) s_net_tvalid: bool,
    pub(crate) m_net_tready: bool,
    pub(crate) s_tlp_tvalid: bool,
    pub(crate) s_tlp_tlast: bool,
    pub(crate) m_tlp_tready: bool,
    pub(crate) m_tlp_np_ok: bool,
    pub(crate) hot_reset: bool,
    pub(crate) reset_ready: bool,
    pub(crate) filler: u8,
}

/// The circuit's output ports during a cycle, by their names.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct PortOut {
    pub(crate) wake_at: u64,
    pub(crate) round_trip: u64,
    pub(crate) m_net_tdata: [u32; 4],
    pub(crate) m_tlp_tdata: [u32; 4],
    pub(crate) m_net_tkeep: u32,
    pub(crate) dropped: u32,
    pub(crate) resumptions: u32,
    pub(crate) net_dial: bool,
    pub(crate) net_close: bool,
    pub(crate) s_net_tready: bool,
    pub(crate) m_net_tvalid: bool,
    pub(crate) s_tlp_tready: bool,
    pub(crate) s_tlp_np_room: u8,
    pub(crate) m_tlp_tvalid: bool,
    pub(crate) m_tlp_tkeep: u8,
    pub(crate) m_tlp_tlast: bool,
    pub(crate) reset_valid: bool,
    pub(crate) link_up: bool,
    pub(crate) open: bool,
    pub(crate) stopped: bool,
    pub(crate) busy: bool,
    pub(crate) filler: [u8; 6],
}

unsafe extern "C" {
    fn farlane_tunnel_port_make() -> *mut c_void;
    fn farlane_tunnel_port_free(model: *mut c_void);
    fn farlane_tunnel_port_sizes(sizes: *mut usize);
    fn farlane_tunnel_port_cycle(model: *mut c_void, inputs: *const PortIn, outputs: *mut PortOut);
}

/// Owns a model of the circuit.
#[derive(Debug)]
pub(crate) struct TunnelPort(NonNull<c_void>);

// SAFETY: a model has a context of its own, and shares nothing with other models.
unsafe impl Send for TunnelPort {}

impl TunnelPort {
    pub(crate) fn new() -> Self {
        let mut sizes = [0; 2];
        // SAFETY: the shim writes two sizes.
        unsafe { farlane_tunnel_port_sizes(sizes.as_mut_ptr()) };
        assert_eq!(sizes, [size_of::<PortIn>(), size_of::<PortOut>()], "the shim has other structures");
        // SAFETY: the function has no preconditions.
        let model = unsafe { farlane_tunnel_port_make() };
        Self(NonNull::new(model).expect("the shim returns a model"))
    }

    /// Lets the circuit settle on `inputs`, writes its `outputs`, and gives it a clock edge.
    pub(crate) fn cycle(&mut self, inputs: &PortIn, outputs: &mut PortOut) {
        // SAFETY: the model lives, this is the only use of it, and both structures are the shim's.
        // The model's single bits are 0 or 1, which every bool is.
        unsafe { farlane_tunnel_port_cycle(self.0.as_ptr(), inputs, outputs) }
    }
}

impl Drop for TunnelPort {
    fn drop(&mut self) {
        // SAFETY: the model came from the shim, and is freed once.
        unsafe { farlane_tunnel_port_free(self.0.as_ptr()) }
    }
}
