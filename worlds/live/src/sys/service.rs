//! The service manager that has started this process, by systemd's protocols: sd_notify(3) reports
//! the state of the process, sd_listen_fds(3) takes the sockets that the manager holds.
//!
//! The manager also keeps this process's listening sockets (its descriptor store). A restart, such
//! as that of an upgrade, finds them again by their addresses. Hosts that connect meanwhile wait
//! instead of being refused. Without a manager, everything here does nothing.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixDatagram};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use engine::Nanos;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg, sockopt};
use rustix::time::{ClockId, clock_gettime};

/// The first descriptor that a manager passes (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;
/// The most descriptors that are taken from a manager.
const TAKEN_MAX: RawFd = 1024;
/// How long the manager may take to read that the process is ready.
const READ_MAX: Duration = Duration::from_secs(1);

static MANAGER: OnceLock<Manager> = OnceLock::new();

struct Manager {
    /// Where the manager listens.
    socket: Option<UnixDatagram>,
    /// Half of the time after which the manager takes this process for hung.
    beat: Option<Nanos>,
    /// Listening sockets that the manager has passed and that are not used yet.
    passed: Mutex<Vec<TcpListener>>,
}

/// Finds out whether a manager has started this process. This must come before the process opens
/// descriptors, starts threads, or gives up its reach.
pub fn begin() {
    MANAGER.get_or_init(|| {
        let text = |name| std::env::var(name).ok();
        let is_ours = |name| text(name).is_none_or(|id| id.parse() == Ok(std::process::id()));
        let number = |name| text(name)?.parse::<u64>().ok();
        let watched = number("WATCHDOG_USEC").filter(|_| is_ours("WATCHDOG_PID"));
        let beat = watched.filter(|micros| *micros > 0).map(|micros| Nanos::from_micros(micros / 2));
        // LISTEN_PID has to be there: descriptors of another process would be taken otherwise.
        let count = number("LISTEN_FDS").filter(|_| text("LISTEN_PID").is_some() && is_ours("LISTEN_PID"));
        let count = count.and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0).min(TAKEN_MAX);
        let passed = (FIRST..FIRST.saturating_add(count)).filter_map(take).collect();
        Manager {
            socket: text("NOTIFY_SOCKET").and_then(|path| reach(&path)),
            beat,
            passed: Mutex::new(passed),
        }
    });
}

/// Connects to the socket at `path`; `@` stands for the byte 0 of an abstract name.
fn reach(path: &str) -> Option<UnixDatagram> {
    let address = match path.strip_prefix('@') {
        Some(name) => net::SocketAddr::from_abstract_name(name),
        None => net::SocketAddr::from_pathname(path),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    socket.set_write_timeout(Some(READ_MAX)).ok()?;
    Some(socket)
}

/// Takes over a descriptor that the manager has passed, if it is a listening TCP socket.
fn take(number: RawFd) -> Option<TcpListener> {
    // SAFETY: the call changes a flag of a descriptor, and fails if there is none of this number.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return None;
    }
    // SAFETY: the descriptor is open, as the call above has shown. By LISTEN_FDS it is for this
    // process alone, which has opened none of these numbers: `begin` comes first, and once.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    sockopt::socket_acceptconn(&descriptor).ok().filter(|listens| *listens)?;
    let listener = TcpListener::from(descriptor);
    listener.local_addr().is_ok().then_some(listener)
}

/// The socket listening on `address` that the manager has passed, if there is one.
pub(crate) fn passed(address: SocketAddr) -> Option<TcpListener> {
    let mut passed = MANAGER.get()?.passed.lock().unwrap_or_else(PoisonError::into_inner);
    let found = passed.iter().position(|one| one.local_addr().is_ok_and(|local| local == address))?;
    Some(passed.swap_remove(found))
}

/// Gives the manager a copy of `listener` to keep for the next start.
pub(crate) fn keep(listener: &TcpListener) {
    let (Some(Manager { socket: Some(socket), .. }), Ok(address)) = (MANAGER.get(), listener.local_addr())
    else {
        return;
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let text = format!("FDSTORE=1\nFDNAME={}", name(address));
    // A manager that keeps nothing costs a later host one refused connection.
    let _ = sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL);
}

/// Lets the manager close its copy of the listener on `address`, which is no longer served.
pub fn forget(address: SocketAddr) {
    notify(&format!("FDSTOREREMOVE=1\nFDNAME={}", name(address)), SendFlags::empty());
}

/// An address as the name of a descriptor, which has no colons.
fn name(address: SocketAddr) -> String {
    address.to_string().replace(':', "_")
}

/// Reports to the manager that the process serves, with `status` as a text for users. Sockets that
/// the manager has passed and that are not used are closed.
pub fn ready(status: &str) {
    let Some(manager) = MANAGER.get() else { return };
    let unused = std::mem::take(&mut *manager.passed.lock().unwrap_or_else(PoisonError::into_inner));
    unused.iter().filter_map(|one| one.local_addr().ok()).for_each(forget);
    // A status is one line.
    let status = status.lines().next().unwrap_or_default();
    notify(&format!("READY=1\nSTATUS={status}"), SendFlags::empty());
}

/// Reports to the manager that the process reads its configuration again; [`ready`] ends that.
pub fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"), SendFlags::empty());
}

/// Reports to the manager that `process` goes on in the place of this one.
pub fn succeeded_by(process: i32) {
    notify(&format!("MAINPID={process}"), SendFlags::empty());
}

/// Reports to the manager that the process ends in good order.
pub(crate) fn stopping() {
    notify("STOPPING=1\nSTATUS=ending", SendFlags::DONTWAIT);
}

/// How often to call [`beat`], if the manager watches this process.
pub(crate) fn beat_every() -> Option<Nanos> {
    MANAGER.get()?.beat
}

/// Reports to the manager that the process is alive, without waiting.
pub(crate) fn beat() {
    notify("WATCHDOG=1", SendFlags::DONTWAIT);
}

fn notify(text: &str, flags: SendFlags) {
    if let Some(Manager { socket: Some(socket), .. }) = MANAGER.get() {
        // A manager that does not read takes its own decisions.
        let _ = send(socket, text.as_bytes(), flags | SendFlags::NOSIGNAL);
    }
}
