//! The model of `gateware/rtl/niq/niq.sv`.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::stream::Beat;

unsafe extern "C" {
    fn farlane_niq_make() -> *mut c_void;
    fn farlane_niq_free(model: *mut c_void);
    fn farlane_niq_sizes(sizes: *mut [usize; 2]);
    fn farlane_niq_cycle(model: *mut c_void, inputs: *const Inputs, outputs: *mut Outputs);
}

/// The circuit's input ports.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) bar0: u64,
    pub(crate) bar2: u64,
    pub(crate) station: u64,
    pub(crate) rx_tlp: Beat,
    pub(crate) rx_mac: Beat,
    pub(crate) completer: u16,
    pub(crate) rst: bool,
    pub(crate) link_up: bool,
    pub(crate) rx_tlp_valid: bool,
    pub(crate) rx_mac_valid: bool,
    pub(crate) tx_tlp_ready: bool,
    pub(crate) tx_mac_ready: bool,
    pub(crate) interrupt_ready: bool,
}

/// The circuit's output ports.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) tx_tlp: Beat,
    pub(crate) tx_mac: Beat,
    pub(crate) rx_tlp_ready: u8,
    pub(crate) rx_mac_ready: u8,
    pub(crate) tx_tlp_valid: u8,
    pub(crate) tx_mac_valid: u8,
    pub(crate) interrupt_valid: u8,
    pub(crate) interrupt: u8,
    pub(crate) busy: u8,
}

/// Owns a model of the circuit.
#[derive(Debug)]
pub(crate) struct Niq(NonNull<c_void>);

// SAFETY: a model has a context of its own, and shares nothing with other models.
unsafe impl Send for Niq {}

impl Niq {
    pub(crate) fn new() -> Self {
        let mut sizes = [0; 2];
        // SAFETY: the shim writes two numbers; making a model has no preconditions.
        let model = unsafe {
            farlane_niq_sizes(&raw mut sizes);
            farlane_niq_make()
        };
        assert!(sizes == [size_of::<Inputs>(), size_of::<Outputs>()], "the shim has the same structures");
        Self(NonNull::new(model).expect("the shim returns a model"))
    }

    /// Lets the circuit settle, and gives it a rising clock edge. Returns its outputs before that
    /// edge.
    pub(crate) fn cycle(&mut self, inputs: &Inputs) -> Outputs {
        let mut outputs = Outputs::default();
        // SAFETY: the model lives, this is the only use of it, and the structures have the shim's
        // layout.
        unsafe { farlane_niq_cycle(self.0.as_ptr(), inputs, &raw mut outputs) };
        outputs
    }
}

impl Drop for Niq {
    fn drop(&mut self) {
        // SAFETY: the model came from the shim, and is freed once.
        unsafe { farlane_niq_free(self.0.as_ptr()) }
    }
}
