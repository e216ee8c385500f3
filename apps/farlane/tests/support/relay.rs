//! A stretch of network that can be cut and joined again, or that flips bits.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

use super::running::wait_until;

/// How often a relay checks whether it has been cut.
const LOOK: Duration = Duration::from_millis(5);

/// Passes connections on to one address. A relay that is cut ends its connections and refuses new
/// ones.
#[derive(Debug)]
pub(crate) struct Relay {
    /// Address that the relay listens on, unless it is cut.
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    cut: AtomicBool,
    /// Whether the relay is listening.
    listens: AtomicBool,
    /// Bytes that have passed, in both directions together.
    passed: AtomicU64,
    /// Bytes between two flipped bits; 0 to flip none.
    flip_every: AtomicU64,
    /// Number of bits that have flipped.
    flipped: AtomicU64,
    /// Both streams of every connection since the last cut.
    streams: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// Starts a relay to `far`, at a port that the system chooses.
    pub(crate) fn to(far: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State { listens: AtomicBool::new(true), ..State::default() });
        let (far, relayed) = (far.to_owned(), state.clone());
        spawn(move || {
            let mut listener = listener;
            loop {
                serve(&listener, &far, &relayed);
                // No process listens now, so the system answers new connections with a reset.
                drop(listener);
                relayed.listens.store(false, Ordering::SeqCst);
                while relayed.cut.load(Ordering::SeqCst) {
                    sleep(LOOK);
                }
                listener = TcpListener::bind(address).unwrap();
                relayed.listens.store(true, Ordering::SeqCst);
            }
        });
        Self { address, state }
    }

    /// Flips one bit in every `bytes` that pass from now on, in either direction; none if `bytes`
    /// is 0.
    pub(crate) fn flip_every(&self, bytes: u64) {
        self.state.flip_every.store(bytes, Ordering::SeqCst);
    }

    /// Number of bits that have flipped.
    pub(crate) fn flipped(&self) -> u64 {
        self.state.flipped.load(Ordering::SeqCst)
    }

    /// Ends every connection and refuses new ones until [`Relay::join`].
    pub(crate) fn cut(&self) {
        self.state.cut.store(true, Ordering::SeqCst);
        wait_until("a relay is cut", || !self.state.listens.load(Ordering::SeqCst));
    }

    /// Accepts connections again after [`Relay::cut`].
    pub(crate) fn join(&self) {
        self.state.cut.store(false, Ordering::SeqCst);
        wait_until("a relay is joined", || self.state.listens.load(Ordering::SeqCst));
    }

    /// Bytes that have passed, in both directions together.
    pub(crate) fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::SeqCst)
    }
}

/// Accepts connections until the relay is cut, then ends all of them.
fn serve(listener: &TcpListener, far: &str, state: &Arc<State>) {
    listener.set_nonblocking(true).unwrap();
    while !state.cut.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((near, _)) => connect(near, far, state),
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(LOOK),
            Err(error) => panic!("a relay can't accept: {error}"),
        }
    }
    for stream in state.streams.lock().unwrap().drain(..) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Joins `near` to a new connection to `far`. If `far` can't be reached, `near` ends.
fn connect(near: TcpStream, far: &str, state: &Arc<State>) {
    let Ok(far) = TcpStream::connect(far) else { return };
    near.set_nonblocking(false).unwrap();
    for stream in [&near, &far] {
        // Bytes are passed on as soon as they arrive.
        stream.set_nodelay(true).unwrap();
        state.streams.lock().unwrap().push(stream.try_clone().unwrap());
    }
    let ways = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
    for (from, to) in ways {
        let state = state.clone();
        spawn(move || pass(from, to, &state));
    }
}

/// Counts bytes that pass, and flips one of their bits when it is time.
fn flip(bytes: &mut [u8], state: &State) {
    let count = bytes.len() as u64;
    let before = state.passed.fetch_add(count, Ordering::SeqCst);
    let every = state.flip_every.load(Ordering::SeqCst);
    if every > 0 && before / every != (before + count) / every {
        let number = state.flipped.fetch_add(1, Ordering::SeqCst);
        // Flipped bits are spread over the bytes, and over the bits of a byte.
        let at = usize::try_from((before + number * 7919) % count).unwrap();
        bytes[at] ^= 1 << (number % 8);
    }
}

/// Passes bytes in one direction until either stream ends, then ends both.
fn pass(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        flip(&mut piece[..count], state);
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
