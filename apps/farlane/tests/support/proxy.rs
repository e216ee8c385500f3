//! A stretch of network that breaks.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

/// Passes connections on to a far end, and cuts each after some bytes until there were enough cuts.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    cuts: Arc<AtomicU64>,
}

impl Proxy {
    /// Cuts the connection `cuts` times, each time after at most `most` bytes, by the choice of `seed`.
    pub(crate) fn cutting(far: &str, cuts: u64, most: u64, seed: u64) -> Self {
        let mut random = seed;
        Self::to(far, move |_, cut| {
            // Knuth's MMIX generator: its upper bits will do.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (cut < cuts).then_some((random >> 33) % most + 1)
        })
    }

    /// Cuts each connection after so many bytes as `cut_after` says, if any. It is told how many there were before, and how many
    /// of those were cut.
    pub(crate) fn to(far: &str, mut cut_after: impl FnMut(u64, u64) -> Option<u64> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let done = Arc::new(AtomicU64::new(0));
        let (far, count) = (far.to_owned(), done.clone());
        spawn(move || {
            for (number, near) in (0..).zip(listener.incoming()) {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(&far)) else { return };
                for stream in [&near, &far] {
                    // What comes goes on at once.
                    let _ = stream.set_nodelay(true);
                }
                let cut_after = cut_after(number, count.load(Ordering::SeqCst)).unwrap_or(u64::MAX);
                carry(near, far, cut_after, &count);
            }
        });
        Self { address, cuts: done }
    }

    /// How often it has cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }

    /// `tcp://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("tcp://{}", self.address)
    }
}

/// Passes bytes both ways, `cut_after` of them together.
fn carry(near: TcpStream, far: TcpStream, cut_after: u64, cuts: &Arc<AtomicU64>) {
    // What may still pass, and whether the cut was counted.
    let state = Arc::new(Mutex::new((cut_after, false)));
    let ways = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
    for (from, to) in ways {
        let (Ok(mut from), Ok(mut to)) = (from, to) else { return };
        let (state, cuts) = (state.clone(), cuts.clone());
        spawn(move || {
            let mut piece = [0; 16 << 10];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                let passes = {
                    let (left, counted) = &mut *state.lock().unwrap();
                    let passes = (count as u64).min(*left);
                    *left -= passes;
                    if passes < count as u64 && !std::mem::replace(counted, true) {
                        cuts.fetch_add(1, Ordering::SeqCst);
                    }
                    usize::try_from(passes).unwrap()
                };
                if to.write_all(&piece[..passes]).is_err() || passes < count {
                    break;
                }
            }
            for stream in [from, to] {
                // The other way may have been faster.
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }
}
