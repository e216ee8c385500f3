//! The cost of the machine's own TCP without any of our code: the floor to compare our
//! figures with.
//!
//! A server and a client, in two processes or threads, each spin on their end of a connection. The
//! client begins with a fixed [`Plan`], and the server follows it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant as Wall};

use engine::Nanos;

/// The longest message or chunk, in bytes.
pub const MESSAGE_MAX: u32 = 4 << 20;
/// The most messages of one exchange, which bounds a recorder's memory.
pub const COUNT_MAX: u32 = 10_000_000;
/// How long one side waits for the other before it gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of spins between two looks at the clock, some 10 µs.
const SPINS_A_LOOK: u32 = 40;
/// Bytes of a plan on the wire: a mark, two lengths and a count.
const PLAN_LENGTH: usize = 16;
/// The first bytes of a plan.
const MARK: [u8; 4] = *b"flr1";

/// The exchange to carry out `count` times: `request` bytes from the client, then `reply` bytes
/// from the server. If `reply` is 0, the client sends on without waiting, and the server answers
/// one byte at the very end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The length of a request in bytes, at least 1.
    pub request: u32,
    /// The length of a reply in bytes.
    pub reply: u32,
    /// How often requests are sent.
    pub count: u32,
}

impl Plan {
    fn emit(self) -> [u8; PLAN_LENGTH] {
        let mut bytes = [0; PLAN_LENGTH];
        let words = [u32::from_be_bytes(MARK), self.request, self.reply, self.count];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    fn parse(bytes: [u8; PLAN_LENGTH]) -> io::Result<Self> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let plan = Self { request: word(4), reply: word(8), count: word(12) };
        let fits = |length| length <= MESSAGE_MAX;
        let ours = bytes[..4] == MARK;
        if !ours || plan.request == 0 || !fits(plan.request) || !fits(plan.reply) || plan.count > COUNT_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("not a plan of a floor: {plan:?}"),
            ));
        }
        Ok(plan)
    }
}

/// The server's side of the measurement.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
}

impl Server {
    /// Listens on `address`; port 0 lets the system choose one.
    ///
    /// # Errors
    /// When the address is not ours or is taken.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address)? })
    }

    /// The address where it listens.
    ///
    /// # Errors
    /// When the system can't report the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits, asleep, for one client, and follows its plans, spinning, until it closes.
    ///
    /// # Errors
    /// When the connection fails, or the received bytes were no plan.
    pub fn serve_one(&self) -> io::Result<()> {
        let (socket, _) = self.listener.accept()?;
        let mut link = Link::new(socket)?;
        let mut bytes = Vec::new();
        loop {
            let mut plan = [0; PLAN_LENGTH];
            // Between plans a client may take its time.
            match link.read_exact(&mut plan) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                result => result?,
            }
            let plan = Plan::parse(plan)?;
            let (request, reply) = (length(plan.request), length(plan.reply));
            bytes.resize(request.max(reply).max(1), 0);
            if reply == 0 {
                link.discard(u64::from(plan.request) * u64::from(plan.count), &mut bytes)?;
                link.write_all(&[1])?;
                continue;
            }
            for _ in 0..plan.count {
                link.read_exact(&mut bytes[..request])?;
                link.write_all(&bytes[..reply])?;
            }
        }
    }
}

/// The client's side of the measurement.
#[derive(Debug)]
pub struct Client {
    link: Link,
    bytes: Vec<u8>,
}

impl Client {
    /// Connects to a [`Server`].
    ///
    /// # Errors
    /// When no process listens there.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { link: Link::new(TcpStream::connect(address)?)?, bytes: Vec::new() })
    }

    /// Makes `count` round trips, one after another, of `request` bytes there and `reply` bytes
    /// back. Returns the time of each.
    ///
    /// # Errors
    /// When the connection fails, or a length is 0 or beyond [`MESSAGE_MAX`], or `count` is beyond
    /// [`COUNT_MAX`].
    pub fn ping_pong(&mut self, request: u32, reply: u32, count: u32) -> io::Result<Vec<Nanos>> {
        if reply == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a round trip needs a reply"));
        }
        self.begin(Plan { request, reply, count })?;
        let mut times = Vec::with_capacity(length(count));
        for _ in 0..count {
            let start = Wall::now();
            self.link.write_all(&self.bytes[..length(request)])?;
            self.link.read_exact(&mut self.bytes[..length(reply)])?;
            times.push(Nanos::from(start.elapsed()));
        }
        Ok(times)
    }

    /// Sends `count` chunks of `chunk` bytes as fast as the connection takes them. Returns the time
    /// until the last byte was received.
    ///
    /// # Errors
    /// When the connection fails, or `chunk` is 0 or beyond [`MESSAGE_MAX`], or `count` is beyond
    /// [`COUNT_MAX`].
    pub fn stream(&mut self, chunk: u32, count: u32) -> io::Result<Nanos> {
        self.begin(Plan { request: chunk, reply: 0, count })?;
        let start = Wall::now();
        for _ in 0..count {
            self.link.write_all(&self.bytes[..length(chunk)])?;
        }
        self.link.read_exact(&mut self.bytes[..1])?;
        Ok(Nanos::from(start.elapsed()))
    }

    fn begin(&mut self, plan: Plan) -> io::Result<()> {
        let checked = Plan::parse(plan.emit())?;
        self.bytes.resize(length(checked.request.max(checked.reply)), 0);
        self.link.write_all(&plan.emit())
    }
}

/// A socket that is spun on.
#[derive(Debug)]
struct Link(TcpStream);

impl Link {
    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self(socket))
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            at += spin(|| self.0.read(&mut bytes[at..]), io::ErrorKind::UnexpectedEof)?;
        }
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            at += spin(|| self.0.write(&bytes[at..]), io::ErrorKind::WriteZero)?;
        }
        Ok(())
    }

    /// Reads `count` bytes and discards them, as many at a time as there are.
    fn discard(&mut self, count: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.resize(bytes.len().max(256 << 10), 0);
        let mut left = count;
        while left > 0 {
            let most = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let read = spin(|| self.0.read(&mut bytes[..most]), io::ErrorKind::UnexpectedEof)?;
            left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        }
        Ok(())
    }
}

/// Repeats `call` until it moves bytes. Moving none is the error `none`.
fn spin(mut call: impl FnMut() -> io::Result<usize>, none: io::ErrorKind) -> io::Result<usize> {
    let mut start = None;
    loop {
        for _ in 0..SPINS_A_LOOK {
            match call() {
                Ok(0) => return Err(none.into()),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if start.get_or_insert_with(Wall::now).elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Where processors are scarce, the peer needs this one. The reactor yields for the
        // same reason.
        std::thread::yield_now();
    }
}

fn length(value: u32) -> usize {
    usize::try_from(value).expect("lengths of a plan fit memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(client: impl FnOnce(SocketAddr)) -> io::Result<()> {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address().unwrap();
        let thread = std::thread::spawn(move || server.serve_one());
        client(address);
        thread.join().unwrap()
    }

    #[test]
    fn each_round_trip_has_its_time_and_a_stream_arrives() {
        served(|address| {
            let mut client = Client::connect(address).unwrap();
            for (request, reply) in [(24, 32), (64, 4096 + 32), (1, 200_000)] {
                let times = client.ping_pong(request, reply, 200).unwrap();
                assert_eq!(times.len(), 200);
                let sorted = {
                    let mut times = times;
                    times.sort();
                    times
                };
                eprintln!("{request} B there, {reply} B back: median {}", sorted[100]);
                // Light needs longer than nothing; a busy machine less than a second.
                assert!(sorted[0] > Nanos::ZERO && sorted[100] < Nanos::from_secs(1));
            }
            let time = client.stream(128 << 10, 1_000).unwrap();
            let rate = 125 * 1_000_000_000 / time.get();
            eprintln!("128 KiB chunks: {rate} MiB/s");
        })
        .unwrap();
    }

    #[test]
    fn a_stranger_is_refused_and_no_memory_is_given_for_its_words() {
        let error = served(|address| {
            TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let large = Plan { request: 1, reply: MESSAGE_MAX + 1, count: 1 };
        assert!(Plan::parse(large.emit()).is_err());
        let most = Plan { request: MESSAGE_MAX, reply: MESSAGE_MAX, count: COUNT_MAX };
        assert_eq!(Plan::parse(most.emit()).unwrap(), most);
    }

    #[test]
    fn a_client_that_asks_for_nonsense_gets_an_error() {
        served(|address| {
            let mut client = Client::connect(address).unwrap();
            assert_eq!(client.ping_pong(0, 1, 1).unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(client.ping_pong(1, 0, 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        })
        .unwrap();
    }
}
