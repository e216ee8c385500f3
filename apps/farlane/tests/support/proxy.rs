//! A stretch of network that breaks connections, or changes their bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

/// A piece of a stream with as many bytes has data, and not only commands.
const BLOCK: usize = 4096;

/// Passes connections on to a far end, and does some mischief to each of them after some bytes,
/// until there has been enough mischief.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    cuts: Arc<AtomicU64>,
    /// Whether the next connection that carries data is cut.
    order: Arc<AtomicBool>,
}

/// The harm that is done to a connection.
#[derive(Clone, Copy, Debug)]
enum Mischief {
    /// The connection ends.
    Cut,
    /// This bit of the next byte is flipped.
    Flip(u8),
}

impl Proxy {
    /// Starts a proxy that cuts `cuts` connections, each after at most `most` bytes; `seed` decides
    /// after how many.
    pub(crate) fn cutting(far: &str, cuts: u64, most: u64, seed: u64) -> Self {
        let mut random = seed;
        Self::to(far, move |_, cut| (cut < cuts).then(|| next(&mut random) % most + 1))
    }

    /// Starts a proxy that flips a bit in `flips` connections, each after at most `most` bytes;
    /// `seed` decides after how many, and which bit.
    pub(crate) fn flipping(far: &str, flips: u64, most: u64, seed: u64) -> Self {
        let mut random = seed;
        Self::with(far, move |_, flipped| {
            let [bit, ..] = (next(&mut random) % 8).to_le_bytes();
            (flipped < flips).then(|| (next(&mut random) % most + 1, Mischief::Flip(bit)))
        })
    }

    /// Starts a proxy that cuts each connection after the number of bytes that `cut_after` returns,
    /// if any. `cut_after` is given the number of connections so far, and how many of them were
    /// cut.
    pub(crate) fn to(far: &str, mut cut_after: impl FnMut(u64, u64) -> Option<u64> + Send + 'static) -> Self {
        Self::with(far, move |number, cut| Some((cut_after(number, cut)?, Mischief::Cut)))
    }

    fn with(
        far: &str,
        mut mischief: impl FnMut(u64, u64) -> Option<(u64, Mischief)> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let done = Arc::new(AtomicU64::new(0));
        let order = Arc::new(AtomicBool::new(false));
        let (far, count, ordered) = (far.to_owned(), done.clone(), order.clone());
        spawn(move || {
            for (number, near) in (0..).zip(listener.incoming()) {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(&far)) else { return };
                for stream in [&near, &far] {
                    // Bytes are passed on as soon as they arrive.
                    let _ = stream.set_nodelay(true);
                }
                let mischief = mischief(number, count.load(Ordering::SeqCst));
                carry(near, far, mischief.unwrap_or((u64::MAX, Mischief::Cut)), (&count, &ordered));
            }
        });
        Self { address, cuts: done, order }
    }

    /// Cuts the next connection that carries a block of data.
    pub(crate) fn cut_one(&self) {
        self.order.store(true, Ordering::SeqCst);
    }

    /// Number of cuts, or of flipped bits.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }

    /// The proxy's URL: `tcp://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("tcp://{}", self.address)
    }
}

/// A random number from Knuth's MMIX generator, of which the upper bits suffice.
const fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

/// Passes bytes in both directions, and does the mischief once `after` bytes have passed in all.
fn carry(
    near: TcpStream,
    far: TcpStream,
    (after, mischief): (u64, Mischief),
    (cuts, order): (&Arc<AtomicU64>, &Arc<AtomicBool>),
) {
    // How many bytes may still pass, and whether the mischief is done.
    let state = Arc::new(Mutex::new((after, false)));
    let ways = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
    for (from, to) in ways {
        let (Ok(mut from), Ok(mut to)) = (from, to) else { return };
        let (state, cuts, order) = (state.clone(), cuts.clone(), order.clone());
        spawn(move || {
            let mut piece = [0; 16 << 10];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                let passes = {
                    let (left, done) = &mut *state.lock().unwrap();
                    if count >= BLOCK && order.swap(false, Ordering::SeqCst) {
                        *left = 0;
                    }
                    let passes = (count as u64).min(*left);
                    *left -= passes;
                    let place = usize::try_from(passes).unwrap();
                    let is_due = passes < count as u64 && !std::mem::replace(done, true);
                    if is_due {
                        cuts.fetch_add(1, Ordering::SeqCst);
                    }
                    match mischief {
                        Mischief::Cut => place,
                        Mischief::Flip(bit) => {
                            if is_due {
                                piece[place] ^= 1 << bit;
                            }
                            count
                        }
                    }
                };
                if to.write_all(&piece[..passes]).is_err() || passes < count {
                    break;
                }
            }
            for stream in [from, to] {
                // The thread of the other direction may have ended the streams already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }
}
