//! The traffic secrets of a handshake, which s2n-tls gives to a key log alone.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use s2n_tls::config::Builder;
use s2n_tls::error::Error;
use s2n_tls::ffi::s2n_connection;
use zeroize::Zeroizing;

/// A traffic secret.
pub(super) type Secret = Zeroizing<Vec<u8>>;

thread_local! {
    /// The secrets that the library has logged on this thread and that no handshake has taken.
    static LOGGED: RefCell<Secrets> = const { RefCell::new(Secrets { host: None, target: None }) };
}

/// The secrets by which the ends of a connection send.
#[derive(Default)]
pub(super) struct Secrets {
    pub(super) host: Option<Secret>,
    pub(super) target: Option<Secret>,
}

impl Secrets {
    /// Takes the secrets that this thread's last step of a handshake has logged.
    pub(super) fn take_logged(&mut self) {
        let logged = LOGGED.take();
        self.host = logged.host.or(self.host.take());
        self.target = logged.target.or(self.target.take());
    }

    /// Takes the secret of a line in NSS's format: a label, the random value of the ClientHello,
    /// and the secret, the last two in hexadecimal digits.
    fn heed(&mut self, line: &[u8]) {
        let mut words = line.split(|byte| *byte == b' ');
        let place = match words.next() {
            Some(b"CLIENT_TRAFFIC_SECRET_0") => &mut self.host,
            Some(b"SERVER_TRAFFIC_SECRET_0") => &mut self.target,
            _ => return,
        };
        *place = words.nth(1).and_then(from_hex);
    }
}

fn from_hex(digits: &[u8]) -> Option<Secret> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    // Memory for all bytes at once: a vector that grows would leave copies.
    let mut secret = Zeroizing::new(Vec::with_capacity(digits.len()));
    for pair in digits.chunks(2) {
        secret.push(byte(pair)?);
    }
    Some(secret)
}

/// Has the library log the secrets of handshakes by `config`, on the thread of each.
///
/// # Errors
/// When the library refuses.
pub(super) fn log(config: &mut Builder) -> Result<(), Error> {
    // SAFETY: The callback does not use its context.
    unsafe { config.set_key_log_callback(Some(heed), std::ptr::null_mut())? };
    Ok(())
}

/// Takes a line of the library's key log.
unsafe extern "C" fn heed(_: *mut c_void, _: *mut s2n_connection, line: *mut u8, length: usize) -> c_int {
    // SAFETY: The library gives a line of this length, which lives until this returns.
    let line = unsafe { std::slice::from_raw_parts(line, length) };
    LOGGED.with_borrow_mut(|logged| logged.heed(line));
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_of_their_lines_alone() {
        let mut secrets = Secrets::default();
        secrets.heed(b"CLIENT_HANDSHAKE_TRAFFIC_SECRET 00ff 0102");
        secrets.heed(b"EXPORTER_SECRET 00ff 0102");
        secrets.heed(b"SERVER_TRAFFIC_SECRET_0 00ff 01x2");
        assert!(secrets.host.is_none() && secrets.target.is_none());
        secrets.heed(b"CLIENT_TRAFFIC_SECRET_0 00ff 01aF");
        secrets.heed(b"SERVER_TRAFFIC_SECRET_0 00ff 0203");
        let Secrets { host, target } = secrets;
        assert_eq!((host, target), (Some(vec![1, 0xaf].into()), Some(vec![2, 3].into())));
    }
}
