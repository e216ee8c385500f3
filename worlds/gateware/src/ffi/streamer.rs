//! The model of `gateware/rtl/streamer/streamer.sv`.

use std::ffi::c_void;
use std::ptr::NonNull;

/// The circuit's input ports during a cycle, by their names.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct StreamerIn {
    pub(crate) s_tdata: [u32; 4],
    pub(crate) m_mem_rdata: [u32; 4],
    pub(crate) s_ssd_wdata: [u32; 4],
    pub(crate) s_reg_awaddr: u32,
    pub(crate) s_reg_wdata: u32,
    pub(crate) s_reg_araddr: u32,
    pub(crate) s_tkeep: u32,
    pub(crate) s_ssd_araddr: u32,
    pub(crate) s_ssd_arlen: u32,
    pub(crate) s_ssd_awaddr: u32,
    pub(crate) s_ssd_wstrb: u32,
    pub(crate) rst: bool,
    pub(crate) s_reg_awvalid: bool,
    pub(crate) s_reg_wvalid: bool,
    pub(crate) s_reg_bready: bool,
    pub(crate) s_reg_arvalid: bool,
    pub(crate) s_reg_rready: bool,
    pub(crate) s_tvalid: bool,
    pub(crate) s_tlast: bool,
    pub(crate) m_tready: bool,
    pub(crate) m_mem_awready: bool,
    pub(crate) m_mem_wready: bool,
    pub(crate) m_mem_bvalid: bool,
    pub(crate) m_mem_bresp: u8,
    pub(crate) m_mem_arready: bool,
    pub(crate) m_mem_rvalid: bool,
    pub(crate) m_mem_rresp: u8,
    pub(crate) m_mem_rlast: bool,
    pub(crate) s_ssd_arvalid: bool,
    pub(crate) s_ssd_rready: bool,
    pub(crate) s_ssd_awvalid: bool,
    pub(crate) s_ssd_wvalid: bool,
    pub(crate) s_ssd_wlast: bool,
    pub(crate) s_ssd_bready: bool,
    pub(crate) m_bell_awready: bool,
    pub(crate) m_bell_wready: bool,
    pub(crate) m_bell_bvalid: bool,
    pub(crate) s_reg_wstrb: u8,
    pub(crate) filler: [u8; 5],
}

/// The circuit's output ports during a cycle, by their names.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct StreamerOut {
    pub(crate) m_mem_awaddr: u64,
    pub(crate) m_mem_araddr: u64,
    pub(crate) m_bell_awaddr: u64,
    pub(crate) m_tdata: [u32; 4],
    pub(crate) m_mem_wdata: [u32; 4],
    pub(crate) s_ssd_rdata: [u32; 4],
    pub(crate) s_reg_rdata: u32,
    pub(crate) m_bell_wdata: u32,
    pub(crate) s_reg_awready: bool,
    pub(crate) s_reg_wready: bool,
    pub(crate) s_reg_bvalid: bool,
    pub(crate) s_reg_arready: bool,
    pub(crate) s_reg_rvalid: bool,
    pub(crate) s_tready: bool,
    pub(crate) m_tvalid: bool,
    pub(crate) m_tlast: bool,
    pub(crate) m_mem_awvalid: bool,
    pub(crate) m_mem_wvalid: bool,
    pub(crate) m_mem_wlast: bool,
    pub(crate) m_mem_arvalid: bool,
    pub(crate) s_ssd_arready: bool,
    pub(crate) s_ssd_rvalid: bool,
    pub(crate) s_ssd_rlast: bool,
    pub(crate) s_ssd_awready: bool,
    pub(crate) s_ssd_wready: bool,
    pub(crate) s_ssd_bvalid: bool,
    pub(crate) m_bell_awvalid: bool,
    pub(crate) m_bell_wvalid: bool,
    pub(crate) changed: bool,
    pub(crate) busy: bool,
    pub(crate) filler: [u8; 2],
}

unsafe extern "C" {
    fn farlane_streamer_make() -> *mut c_void;
    fn farlane_streamer_free(model: *mut c_void);
    fn farlane_streamer_sizes(sizes: *mut [usize; 2]);
    fn farlane_streamer_cycle(model: *mut c_void, inputs: *const StreamerIn, outputs: *mut StreamerOut);
}

/// Owns a model of the circuit.
#[derive(Debug)]
pub(crate) struct Streamer(NonNull<c_void>);

// SAFETY: a model has a context of its own, and shares nothing with other models.
unsafe impl Send for Streamer {}

impl Streamer {
    pub(crate) fn new() -> Self {
        let mut sizes = [0; 2];
        // SAFETY: the shim writes two numbers; making a model has no preconditions.
        let model = unsafe {
            farlane_streamer_sizes(&raw mut sizes);
            farlane_streamer_make()
        };
        assert!(
            sizes == [size_of::<StreamerIn>(), size_of::<StreamerOut>()],
            "the shim has the same structures"
        );
        Self(NonNull::new(model).expect("the shim returns a model"))
    }

    /// Lets the circuit settle, and gives it a rising clock edge. Returns its outputs before that
    /// edge.
    pub(crate) fn cycle(&mut self, inputs: &StreamerIn) -> StreamerOut {
        let mut outputs = StreamerOut::default();
        // SAFETY: the model lives, this is the only use of it, and the structures have the shim's
        // layout. The shim writes 0 or 1 to each output of one bit.
        unsafe { farlane_streamer_cycle(self.0.as_ptr(), inputs, &raw mut outputs) };
        outputs
    }
}

impl Drop for Streamer {
    fn drop(&mut self) {
        // SAFETY: the model came from the shim, and is freed once.
        unsafe { farlane_streamer_free(self.0.as_ptr()) }
    }
}
