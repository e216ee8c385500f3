//! How well this machine's clock follows the network's, by the answer of its PTP daemon.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use engine::Nanos;
use ptp::{Domain, Status};
use tunnel::frame::NetworkTime;

use super::clock::{self, Clock};

/// Where `ptp4l` answers: all users, and administrators.
pub const PLACES: [&str; 2] = ["/var/run/ptp4lro", "/var/run/ptp4l"];
/// How long to wait for the answer, at most: the process does nothing else meanwhile.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long to wait for an answer in a usual domain before all other domains are tried.
const USUAL_PATIENCE: Duration = Duration::from_millis(50);
/// How many other messages may come before the answer.
const OTHERS_MAX: usize = 16;
/// The longest message that is read, in bytes.
const MESSAGE_MAX: usize = 1_500;
/// The largest error that `phc2sys` leaves between the card's clock and the system's. `phc2sys`
/// writes its offset to its log only.
pub const SYSTEM_ERROR: Nanos = Nanos::from_micros(2);

/// A PTP daemon of this machine, and the domain that it serves. `ptp4l` drops questions in another
/// domain silently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// The socket of its management interface.
    pub socket: PathBuf,
    /// domainNumber; all are tried if none is given.
    pub domain: Option<u8>,
    /// transportSpecific, from 0 to 15; 0 and 1 are tried if none is given.
    pub transport_specific: Option<u8>,
}

impl Daemon {
    /// The daemon at `socket`, whose domain is found out.
    pub fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), domain: None, transport_specific: None }
    }

    /// The domains in which the daemon is asked: the usual ones, and the others.
    fn domains(&self) -> [Vec<Domain>; 2] {
        let numbers = self.domain.map_or_else(|| (0..=u8::MAX).collect(), |number| vec![number]);
        let specifics = self.transport_specific.map_or_else(|| vec![0, 1], |value| vec![value]);
        let domains = numbers.into_iter().flat_map(|number| {
            specifics.iter().map(move |value| Domain { number, transport_specific: *value })
        });
        let (usual, others) = domains.partition(|domain| Domain::USUAL.contains(&domain.number));
        [usual, others]
    }

    /// Whether the daemon was asked in this domain.
    fn is_asked_for(&self, domain: Domain) -> bool {
        self.domain.is_none_or(|number| number == domain.number)
            && self
                .transport_specific
                .map_or(domain.transport_specific <= 1, |value| value == domain.transport_specific)
    }

    /// The domains in which the daemon is asked, in words.
    fn asked_for(&self) -> String {
        let domain = self.domain.map_or_else(|| "any domain".to_owned(), |number| format!("domain {number}"));
        let specific = self.transport_specific.map_or_else(|| "0 or 1".to_owned(), |value| value.to_string());
        format!("{domain} with transportSpecific {specific}")
    }

    /// Asks the daemon how well its clock follows.
    fn ask(&self) -> io::Result<Status> {
        let begin = std::time::Instant::now();
        let own = Own::bind()?;
        own.socket.connect(&self.socket)?;
        // The questions that a stopped program has not taken may leave no room for another one.
        own.socket.set_write_timeout(Some(PATIENCE))?;
        let sequence = u16::try_from(std::process::id() & 0xffff).unwrap_or(0);
        let [usual, others] = self.domains();
        let patience = if others.is_empty() { PATIENCE } else { USUAL_PATIENCE };
        for (domains, until) in [(&usual, begin + patience), (&others, begin + PATIENCE)] {
            for domain in domains {
                own.socket.send(&ptp::question(sequence, *domain)).map_err(|error| self.silent(error))?;
            }
            if let Some(status) = own.hear(self, sequence, until)? {
                return Ok(status);
            }
        }
        Err(self.silent(io::ErrorKind::WouldBlock.into()))
    }

    /// The error that the daemon has not answered in time; any other error as it is.
    fn silent(&self, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                let why = format!("no answer within {PATIENCE:?} in {}", self.asked_for());
                io::Error::new(io::ErrorKind::TimedOut, why)
            }
            _ => error,
        }
    }
}

/// The network's time by a clock, and the domain in which a daemon serves it.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The network's time.
    pub time: NetworkTime,
    /// The domain.
    pub domain: Domain,
}

/// The time of the network by `clock`, asked of `daemon`, or where `ptp4l` usually answers.
///
/// # Errors
/// When no daemon answers there, or its answer is malformed.
pub fn network_time(clock: &Clock, daemon: Option<&Daemon>) -> io::Result<Found> {
    let usual = PLACES.iter().map(|place| Daemon::at(Path::new(place)));
    let daemons: Vec<_> = daemon.map_or_else(|| usual.collect(), |daemon| vec![daemon.clone()]);
    let mut failure = io::ErrorKind::NotFound.into();
    for daemon in daemons {
        match daemon.ask() {
            Ok(status) => return Ok(Found { time: aligned(clock, &status), domain: status.domain }),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The time of the network by `clock`, which runs as fast as CLOCK_TAI: a program that synchronises
/// the system's clock turns both.
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

/// A socket with a name, to which an answer can be sent; the name goes with it.
struct Own {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Own {
    /// Waits until `until` for the answer of `daemon` to the question `sequence`.
    fn hear(&self, daemon: &Daemon, sequence: u16, until: std::time::Instant) -> io::Result<Option<Status>> {
        let mut room = [0; MESSAGE_MAX];
        for _ in 0..OTHERS_MAX {
            // Sending may have taken all the time: an answer that is there is read.
            let left = until.saturating_duration_since(std::time::Instant::now());
            self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let length = match self.socket.recv(&mut room) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            match Status::parse(&room[..length], sequence) {
                Ok(status) if daemon.is_asked_for(status.domain) => return Ok(Some(status)),
                // The answer to another program's question.
                Ok(_) | Err(ptp::Malformed::Sequence(_)) => {}
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(None)
    }

    fn bind() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("farlane-ptp-{}-{number}", std::process::id()));
        Ok(Self { socket: UnixDatagram::bind(&path)?, path })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // No other process uses the name.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers as `ptp4l` does in `domain` only, with an offset of -54 ns, after what another
    /// program had asked.
    fn answering(place: &Path, domain: Domain) -> std::thread::JoinHandle<()> {
        let server = UnixDatagram::bind(place).unwrap();
        server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        std::thread::spawn(move || {
            let mut room = [0; 128];
            while let Ok((length, from)) = server.recv_from(&mut room) {
                if (room[0] >> 4, room[4]) != (domain.transport_specific, domain.number) {
                    continue;
                }
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
            }
        })
    }

    /// A daemon and the domain in which it is asked.
    fn daemon(place: &Path, domain: Option<u8>, transport_specific: Option<u8>) -> Daemon {
        Daemon { domain, transport_specific, ..Daemon::at(place) }
    }

    #[test]
    fn the_domain_of_a_daemon_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        for (number, transport_specific) in [(0, 1), (24, 0), (24, 1), (127, 0), (3, 0), (200, 1)] {
            let place = folder.path().join(format!("{number}-{transport_specific}"));
            let served = Domain { number, transport_specific };
            let server = answering(&place, served);
            let found = network_time(&clock, Some(&Daemon::at(&place))).unwrap();
            assert_eq!(found.domain, served);
            let named = daemon(&place, Some(number), Some(transport_specific));
            assert_eq!(network_time(&clock, Some(&named)).unwrap().domain, served);
            // A daemon is asked in no other domain than the given one.
            for (other, expected) in [
                (
                    daemon(&place, Some(number ^ 1), None),
                    format!("domain {} with transportSpecific 0 or 1", number ^ 1),
                ),
                (daemon(&place, None, Some(3)), "any domain with transportSpecific 3".to_owned()),
            ] {
                let error = network_time(&clock, Some(&other)).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                assert_eq!(error.to_string(), format!("no answer within 200ms in {expected}"));
            }
            server.join().unwrap();
        }
    }

    #[test]
    fn the_time_of_the_network_has_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("ptp4l");
        let server = answering(&place, Domain::default());
        let clock = Clock::start();
        let Found { time, .. } = network_time(&clock, Some(&Daemon::at(&place))).unwrap();
        server.join().unwrap();
        assert_eq!(time.grandmaster, [9; 8]);
        assert!(time.error >= SYSTEM_ERROR + Nanos::new(108), "{time:?}");
        let shown = clock.now().as_nanos().cast_signed() + time.ahead_ns;
        let network = clock::network().get().cast_signed();
        // The order of the two reads decides which clock is ahead by a little.
        assert!(network.abs_diff(shown) < 1_000_000_000, "{shown} {network}");
    }

    #[test]
    fn who_does_not_answer_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let absent = folder.path().join("nobody");
        assert!(network_time(&clock, Some(&Daemon::at(&absent))).is_err());
        let silent = folder.path().join("silent");
        let _server = UnixDatagram::bind(&silent).unwrap();
        let error = network_time(&clock, Some(&Daemon::at(&silent))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // Nor does a daemon that takes no questions any more block its clients for ever.
        let asking = UnixDatagram::unbound().unwrap();
        asking.set_nonblocking(true).unwrap();
        while asking.send_to(&[0], &silent).is_ok() {}
        let error = network_time(&clock, Some(&Daemon::at(&silent))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
