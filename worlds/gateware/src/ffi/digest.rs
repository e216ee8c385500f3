//! The model of `gateware/rtl/common/crc32c_beat.sv`.

use std::ffi::c_void;
use std::ptr::NonNull;

unsafe extern "C" {
    fn farlane_crc32c_beat_make() -> *mut c_void;
    fn farlane_crc32c_beat_free(model: *mut c_void);
    fn farlane_crc32c_beat(model: *mut c_void, state: u32, data: *const u32, dwords: u32) -> u32;
}

/// Owns a model of the circuit.
#[derive(Debug)]
pub(crate) struct Crc32cBeat(NonNull<c_void>);

// SAFETY: a model has a context of its own, and shares nothing with other models.
unsafe impl Send for Crc32cBeat {}

impl Crc32cBeat {
    pub(crate) fn new() -> Self {
        // SAFETY: the function has no preconditions.
        let model = unsafe { farlane_crc32c_beat_make() };
        Self(NonNull::new(model).expect("the shim returns a model"))
    }

    /// The register behind a beat of `dwords` double words, least significant byte first.
    pub(crate) fn next(&mut self, state: u32, data: &[u32; 4], dwords: u32) -> u32 {
        // SAFETY: the model lives, this is the only use of it, and the shim reads four words.
        unsafe { farlane_crc32c_beat(self.0.as_ptr(), state, data.as_ptr(), dwords) }
    }
}

impl Drop for Crc32cBeat {
    fn drop(&mut self) {
        // SAFETY: the model came from the shim, and is freed once.
        unsafe { farlane_crc32c_beat_free(self.0.as_ptr()) }
    }
}
