//! How well this machine's clock follows the network's, as whoever runs PTP here says.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use engine::Nanos;
use ptp::Status;
use tunnel::frame::NetworkTime;

use super::clock::{self, Clock};

/// Where `ptp4l` answers: everybody, and administrators.
pub const PLACES: [&str; 2] = ["/var/run/ptp4lro", "/var/run/ptp4l"];
/// How long to wait for the answer, at most: whoever asks does nothing else meanwhile.
const PATIENCE: Duration = Duration::from_millis(200);
/// How many other messages may come before it.
const OTHERS_MAX: usize = 16;
/// The longest message that is read, in bytes.
const MESSAGE_MAX: usize = 1_500;
/// What `phc2sys` leaves between the card's clock and the system's, at most: it says how well it
/// does in its log, where nobody can ask.
pub const SYSTEM_ERROR: Nanos = Nanos::from_micros(2);

/// The time of the network by `clock`, asked at the socket `place` or where `ptp4l`
/// usually answers.
///
/// # Errors
/// When nobody answers there, or the answer is malformed.
pub fn network_time(clock: &Clock, place: Option<&Path>) -> io::Result<NetworkTime> {
    let usual = PLACES.iter().map(Path::new);
    let places: Vec<_> = place.map_or_else(|| usual.collect(), |place| vec![place]);
    let mut failure = io::ErrorKind::NotFound.into();
    for place in places {
        match ask(place) {
            Ok(status) => return Ok(aligned(clock, &status)),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The time of the network by `clock`, which runs as fast as CLOCK_TAI: whoever synchronises the
/// system's clock turns both.
fn aligned(clock: &Clock, status: &Status) -> NetworkTime {
    let before = clock.now();
    let network = clock::network().get();
    let after = clock.now();
    let between = after - before;
    let middle = (before + between / 2).as_nanos();
    let error = status.swing() + SYSTEM_ERROR + between;
    NetworkTime {
        ahead_ns: network.cast_signed().wrapping_sub(middle.cast_signed()),
        error,
        grandmaster: status.grandmaster.0,
    }
}

/// Asks whoever listens at `place`.
fn ask(place: &Path) -> io::Result<Status> {
    let end = std::time::Instant::now() + PATIENCE;
    let own = Own::bind()?;
    own.socket.connect(place)?;
    // The questions that a stopped program has not taken may leave no room for another one.
    own.socket.set_write_timeout(Some(PATIENCE))?;
    let sequence = u16::try_from(std::process::id() & 0xffff).unwrap_or(0);
    own.socket.send(&ptp::question(sequence))?;
    let mut room = [0; MESSAGE_MAX];
    for _ in 0..OTHERS_MAX {
        let left = end.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            break;
        }
        own.socket.set_read_timeout(Some(left))?;
        let length = own.socket.recv(&mut room)?;
        match Status::parse(&room[..length], sequence) {
            Ok(status) => return Ok(status),
            // What another program had asked.
            Err(ptp::Malformed::Sequence(_)) => {}
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// A socket with a name, to which an answer can be sent; the name goes with it.
struct Own {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Own {
    fn bind() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("farlane-ptp-{}-{number}", std::process::id()));
        Ok(Self { socket: UnixDatagram::bind(&path)?, path })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Nobody else uses the name.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers as `ptp4l` does, with an offset of -54 ns, after what another program had asked.
    fn answering(place: &Path) -> std::thread::JoinHandle<()> {
        let server = UnixDatagram::bind(place).unwrap();
        std::thread::spawn(move || {
            let mut room = [0; 128];
            let (length, from) = server.recv_from(&mut room).unwrap();
            let mut answer = [room[..length].to_vec(), vec![0; 50]].concat();
            answer[46] = 2;
            answer[51] = 52;
            answer[54..62].copy_from_slice(&(-54_i64).to_be_bytes());
            answer[95] = 1;
            answer[96..104].copy_from_slice(&[9; 8]);
            let from = from.as_pathname().unwrap();
            let mut stranger = answer.clone();
            stranger[31] ^= 1;
            server.send_to(&stranger, from).unwrap();
            server.send_to(&answer, from).unwrap();
        })
    }

    #[test]
    fn the_time_of_the_network_has_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("ptp4l");
        let server = answering(&place);
        let clock = Clock::start();
        let time = network_time(&clock, Some(&place)).unwrap();
        server.join().unwrap();
        assert_eq!(time.grandmaster, [9; 8]);
        assert!(time.error >= SYSTEM_ERROR + Nanos::new(108), "{time:?}");
        let shown = clock.now().as_nanos().cast_signed() + time.ahead_ns;
        let network = clock::network().get().cast_signed();
        // Which of the two is read first decides who is ahead by a little.
        assert!(network.abs_diff(shown) < 1_000_000_000, "{shown} {network}");
    }

    #[test]
    fn who_does_not_answer_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let nobody = folder.path().join("nobody");
        assert!(network_time(&clock, Some(&nobody)).is_err());
        let silent = folder.path().join("silent");
        let _server = UnixDatagram::bind(&silent).unwrap();
        let error = network_time(&clock, Some(&silent)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        // Nor does one who takes no questions any more hold anybody up for ever.
        let asking = UnixDatagram::unbound().unwrap();
        asking.set_nonblocking(true).unwrap();
        while asking.send_to(&[0], &silent).is_ok() {}
        let error = network_time(&clock, Some(&silent)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
