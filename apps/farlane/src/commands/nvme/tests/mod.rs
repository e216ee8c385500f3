//! Dumps of bytes, and the schemas of reports.

pub(crate) mod schemas;

use super::*;

#[test]
fn bytes_are_shown_as_nvme_cli_shows_them() {
    let shown = dump(b"0123456789abcdef\x00\xffA");
    let second = format!("0010: 00 ff 41{}\"..A\"\n", " ".repeat(40));
    assert!(shown.starts_with("0000: 30 31 32 33"), "{shown}");
    assert!(shown.ends_with(&second), "{shown}");
    assert_eq!(dump(b""), "");
}
