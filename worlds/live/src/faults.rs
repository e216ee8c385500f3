//! Memory of another process that may vanish while it is mapped here: its owner cuts the file behind it short, and the
//! next access is answered with SIGBUS, which ends a process that is not prepared.
//!
//! A [`Guard`] prepares for that. The first access behind the end of the file has all of the mapping replaced with zeroes
//! of our own, the thread goes on, and the guard tells that what it read was nothing.

use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings that are guarded at once, of all threads together; further ones can't be made.
const GUARDS_MAX: usize = 4096;
/// A place that somebody is about to use.
const CLAIMED: usize = 1;

/// A mapping. The handler of the signal reads these: it must not lock.
struct Place {
    /// Where it begins; 0 while nobody uses the place.
    base: AtomicUsize,
    length: AtomicUsize,
    is_lost: AtomicBool,
}

static PLACES: [Place; GUARDS_MAX] = [const {
    Place { base: AtomicUsize::new(0), length: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; GUARDS_MAX];

/// What was done about the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that survives its file. To be dropped before the mapping is taken away, so that nobody else's memory is
/// taken for it.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Guards the `length` bytes that are mapped at `base`.
    ///
    /// # Errors
    /// When the system refuses the handler, or there are too many mappings.
    pub(crate) fn new(base: NonNull<u8>, length: usize) -> io::Result<Self> {
        listen()?;
        let free = |place: &Place| {
            place.base.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let index = PLACES.iter().position(free).ok_or(io::ErrorKind::QuotaExceeded)?;
        let place = &PLACES[index];
        place.length.store(length, Ordering::Relaxed);
        place.is_lost.store(false, Ordering::Relaxed);
        place.base.store(base.as_ptr().addr(), Ordering::Release);
        Ok(Self(index))
    }

    /// Whether an access has found nothing behind the mapping: what was read since the guard was made may be zeroes.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        PLACES[self.0].is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        PLACES[self.0].base.store(0, Ordering::Release);
    }
}

/// Handles the signal from now on.
fn listen() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: a `sigaction` of zeroes is a valid value.
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call only writes the present one to where it is told, which outlives the call.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Known before the handler can ask for it.
    if BEFORE.set(before).is_err() {
        return Ok(());
    }
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
    ours.sa_sigaction = handler as libc::sighandler_t;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler does only what a handler may: atomic loads and stores, and two system calls.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system gives a handler with SA_SIGINFO the description of the signal, which for SIGBUS has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    let is_there = |place: &&Place| {
        let base = place.base.load(Ordering::Acquire);
        base > CLAIMED && address >= base && address - base < place.length.load(Ordering::Relaxed)
    };
    if let Some(place) = PLACES.iter().find(is_there) {
        let base = place.base.load(Ordering::Acquire);
        place.is_lost.store(true, Ordering::Relaxed);
        // SAFETY: the range is one mapping whose guard lives: the thread that is interrupted accesses it. What replaces it
        // is as long and may be read and written.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::with_exposed_provenance_mut(base),
                place.length.load(Ordering::Relaxed),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped != libc::MAP_FAILED {
            return;
        }
    }
    // Not ours: what was done before is done when the access is repeated.
    if let Some(before) = BEFORE.get() {
        // SAFETY: the action is one that the system gave us.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
}
