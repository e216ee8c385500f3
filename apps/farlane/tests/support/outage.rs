//! A stretch of network for datagrams. It loses some of them, loses all of them for a while, flips
//! bits, or changes the address that they come from.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use std::time::Duration;

/// Bytes of a buffer that holds any datagram.
const DATAGRAM_MAX: usize = 64 << 10;
/// How often a receiver checks whether its socket has been replaced.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct State {
    far: SocketAddr,
    inner: Mutex<Arc<UdpSocket>>,
    near: Mutex<Option<SocketAddr>>,
    /// One datagram in this many is lost.
    one_in: u64,
    out: AtomicBool,
    passed: AtomicU64,
    /// One long datagram in this many has a flipped bit; none if it is 0.
    flip_one_in: AtomicU64,
    /// Number of bits that have flipped.
    flipped: AtomicU64,
}

/// Passes datagrams of one near end on to a far end and back, as long as the test lives.
#[derive(Debug)]
pub(crate) struct Outage {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Outage {
    /// Starts a network that loses one datagram in `one_in`.
    pub(crate) fn losing(far: &str, one_in: u64) -> Self {
        let outer = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let far: SocketAddr = far.parse().unwrap();
        let state = Arc::new(State {
            far,
            inner: Mutex::new(connected(far)),
            near: Mutex::new(None),
            one_in,
            out: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            flip_one_in: AtomicU64::new(0),
            flipped: AtomicU64::new(0),
        });
        let address = outer.local_addr().unwrap();
        let (there, back) = (Arc::clone(&state), Arc::clone(&state));
        let (from_near, to_near) = (Arc::clone(&outer), outer);
        spawn(move || there.carry_there(&from_near));
        spawn(move || back.carry_back(&to_near));
        Self { address, state }
    }

    /// Loses every datagram while `out` is true.
    pub(crate) fn set_out(&self, out: bool) {
        self.state.out.store(out, Ordering::SeqCst);
    }

    /// Flips a bit in one of `count` datagrams with data from now on, in either direction.
    pub(crate) fn flip_one_in(&self, count: u64) {
        self.state.flip_one_in.store(count, Ordering::SeqCst);
    }

    /// Number of bits that have flipped.
    pub(crate) fn flipped(&self) -> u64 {
        self.state.flipped.load(Ordering::SeqCst)
    }

    /// Changes the port that the near end's datagrams come from, as an address translation does.
    pub(crate) fn rebind(&self) {
        *self.state.inner.lock().unwrap() = connected(self.state.far);
    }

    /// Number of datagrams that were to pass, with those that were lost.
    pub(crate) fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::SeqCst)
    }
}

fn connected(far: SocketAddr) -> Arc<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(far).unwrap();
    socket.set_read_timeout(Some(LOOK)).unwrap();
    Arc::new(socket)
}

impl State {
    fn inner(&self) -> Arc<UdpSocket> {
        Arc::clone(&self.inner.lock().unwrap())
    }

    fn passes(&self) -> bool {
        let count = self.passed.fetch_add(1, Ordering::SeqCst);
        !self.out.load(Ordering::SeqCst) && count % self.one_in != self.one_in - 1
    }

    /// Flips a bit of the data that a datagram ends with, now and then.
    fn change(&self, datagram: &mut [u8]) {
        let one_in = self.flip_one_in.load(Ordering::SeqCst);
        let is_its_turn = one_in > 0 && self.passed.load(Ordering::SeqCst).is_multiple_of(one_in);
        if let Some(last) = datagram.last_mut().filter(|_| is_its_turn) {
            *last ^= 0x10;
            self.flipped.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn carry_there(&self, outer: &UdpSocket) {
        let mut bytes = vec![0; DATAGRAM_MAX];
        loop {
            let Ok((count, near)) = outer.recv_from(&mut bytes) else { continue };
            // The first sender is the near end. Datagrams of others pass, but are not answered.
            // While bits flip, the near end dials anew, and the latest sender is it.
            if self.flip_one_in.load(Ordering::SeqCst) > 0 {
                *self.near.lock().unwrap() = Some(near);
            }
            self.near.lock().unwrap().get_or_insert(near);
            if self.passes() {
                self.change(&mut bytes[..count]);
                // A datagram that is refused is lost.
                let _ = self.inner().send(&bytes[..count]);
            }
        }
    }

    fn carry_back(&self, outer: &UdpSocket) {
        let mut bytes = vec![0; DATAGRAM_MAX];
        loop {
            match self.inner().recv(&mut bytes) {
                Ok(count) => {
                    let near = *self.near.lock().unwrap();
                    if let Some(near) = near.filter(|_| self.passes()) {
                        self.change(&mut bytes[..count]);
                        let _ = outer.send_to(&bytes[..count], near);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // No process listens at the far end now.
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }
}
