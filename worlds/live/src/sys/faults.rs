//! Memory of another process that may vanish while it is mapped here. If its owner truncates the
//! file behind it, the next access raises SIGBUS, which ends a process that is not prepared.
//!
//! A [`Guard`] prepares for that. The first access beyond the end of the file replaces the whole
//! mapping with zeroes of our own, the thread goes on, and the guard reports that the read bytes
//! are void.

use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The most mappings guarded at once, by all threads together; further ones can't be made.
const GUARDS_MAX: usize = 4096;
/// The base of a place that a thread has claimed and is about to fill in.
const CLAIMED: usize = 1;

/// A guarded mapping. The signal handler reads this, and it must not lock.
struct Place {
    /// Where the mapping begins; 0 while the place is free.
    base: AtomicUsize,
    length: AtomicUsize,
    is_lost: AtomicBool,
}

static PLACES: [Place; GUARDS_MAX] = [const {
    Place { base: AtomicUsize::new(0), length: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; GUARDS_MAX];

/// The action that SIGBUS had before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Guards a mapping against the loss of its file. The guard must be dropped before the mapping is
/// unmapped, so that memory mapped there later is not taken for it.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Guards the `length` bytes that are mapped at `base`.
    ///
    /// # Errors
    /// When the system refuses the signal handler, or there are too many mappings.
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

    /// Whether an access has found nothing behind the mapping. If so, all bytes read since the
    /// guard was made may be zeroes.
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

/// Installs the signal handler, if it is not installed yet.
fn listen() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: a `sigaction` of zeroes is a valid value.
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call only writes the present action to the given place,
    // which outlives the call.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The handler needs this value as soon as it is installed.
    if BEFORE.set(before).is_err() {
        return Ok(());
    }
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
    ours.sa_sigaction = handler as libc::sighandler_t;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler makes only calls that a handler may: atomic loads and stores, and two
    // system calls.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system gives a handler with SA_SIGINFO the description of the signal, which for
    // SIGBUS has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    let is_there = |place: &&Place| {
        let base = place.base.load(Ordering::Acquire);
        base > CLAIMED && address >= base && address - base < place.length.load(Ordering::Relaxed)
    };
    if let Some(place) = PLACES.iter().find(is_there) {
        let base = place.base.load(Ordering::Acquire);
        place.is_lost.store(true, Ordering::Relaxed);
        // SAFETY: the range is one mapping whose guard lives, because the interrupted thread is
        // accessing it. The replacement has the same length and may be read and written.
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
    // The address is not ours: with the earlier action restored, the access is repeated and handled
    // as before.
    if let Some(before) = BEFORE.get() {
        // SAFETY: the action is one that the system gave us.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
}
