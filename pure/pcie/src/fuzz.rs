//! Entry points for fuzzing: any bytes go in, nothing panics.

use alloc::vec;

use crate::wire::Tlp;

/// Parses `bytes` as a TLP; what parses is emitted to the same bytes and has a line of text.
///
/// # Panics
/// When a property of the codec does not hold.
pub fn tlp(bytes: &[u8]) {
    use core::fmt::Write as _;
    struct Nowhere;
    impl core::fmt::Write for Nowhere {
        fn write_str(&mut self, _: &str) -> core::fmt::Result {
            Ok(())
        }
    }
    match Tlp::<&[u8]>::parse(bytes) {
        Err(error) => assert_eq!(write!(Nowhere, "{error}"), Ok(())),
        Ok(tlp) => {
            assert_eq!(tlp.encoded_len(), bytes.len(), "length of {tlp}");
            let mut again = vec![0; bytes.len()];
            assert_eq!(tlp.emit(&mut again), bytes.len(), "length of {tlp}");
            assert_eq!(again, bytes, "bytes of {tlp}");
            assert!(tlp.data_bytes().len() <= tlp.payload.len(), "data of {tlp}");
            assert_eq!(tlp.with_ecrc().ecrc_matches(), Some(true), "ECRC");
        }
    }
}
