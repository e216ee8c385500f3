//! Linux's iWARP (`siw`), used by rdma-core's rping, and ours talk to each other over TCP.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant as Clock};

use engine::{Buffer, Engine, Entropy, Instant, Rng, fire};
use guest::{Builder, Guest, Kit, skip};
use iwarp::{Config, Connection, Input, Output};
use rdma::{
    Disconnected, Done, Endpoint, Event, Exposure, Inline, Key, Operation, ProtectionDomain, QueuePairId,
    ReceiveRequest, Remote, SendRequest, SharedDomain, SharedPool,
};

/// The port of rping.
const PORT: u16 = 7174;
/// rping's message: address, key and length of a buffer.
const INFO_BYTES: u32 = 16;
const PINGS: u32 = 20;
/// Bytes of a ping: more than one segment.
const PING_BYTES: u32 = 60_000;
const LIMIT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_millis(20);

/// A connection over a socket.
struct Live {
    stream: TcpStream,
    connection: Connection,
    begun: Clock,
    block: Vec<u8>,
}

impl Live {
    fn new(stream: TcpStream, make: impl FnOnce(Config) -> Connection, crc: bool) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let pool = SharedPool::default();
        let domain = ProtectionDomain::new(8, pool.clone(), Entropy::Seeded(Rng::from_seed(1)));
        let config = Config::new(SharedDomain::new(domain.into()), pool, QueuePairId(1));
        let connection = make(Config { crc, ..config });
        Self { stream, connection, begun: Clock::now(), block: vec![0; 64 << 10] }
    }

    /// Sends pending bytes, and receives for a while.
    fn step(&mut self) {
        assert!(self.begun.elapsed() < LIMIT, "the peer does nothing: {:?}", self.connection);
        let now = Instant::ZERO + self.begun.elapsed().into();
        fire(&mut self.connection, now);
        while !self.connection.outbox().is_empty() {
            let slices: Vec<_> = self.connection.outbox().slices().take(64).map(IoSlice::new).collect();
            let sent = self.stream.write_vectored(&slices).unwrap();
            self.connection.sent(sent);
        }
        match self.stream.read(&mut self.block) {
            Ok(0) => self.connection.handle_input(now, Input::Closed),
            Ok(count) => {
                let received = Buffer::copy_from_slice(&self.block[..count]);
                self.connection.handle_input(now, Input::Received(received));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.connection.poll_event() {
                return event;
            }
            self.step();
        }
    }

    /// The result of the next request.
    fn done(&mut self) -> Done {
        loop {
            if let Some(completion) = self.connection.poll_completion() {
                return completion.result.unwrap_or_else(|error| {
                    panic!("{}: {error}; {:?}", completion.id, self.connection.poll_event())
                });
            }
            self.step();
        }
    }

    /// Posts a request, and waits until it is done.
    fn send(&mut self, operation: Operation) {
        self.connection.post_send(SendRequest { id: 2, operation, signalled: false }).unwrap();
    }

    fn receive(&mut self) {
        self.connection.post_receive(ReceiveRequest { id: 1, length_max: INFO_BYTES }).unwrap();
    }

    /// Waits for a message of rping, and has posted a request for the next.
    fn info(&mut self) -> Remote {
        let done = self.done();
        let Done::Received { data, .. } = done else { panic!("{done:?}") };
        assert_eq!(data.len(), INFO_BYTES as usize);
        self.receive();
        let word = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().unwrap());
        let address = u64::from_be_bytes(data[..8].try_into().unwrap());
        Remote { address, key: Key(word(8)), length: word(12) }
    }

    /// Sends such a message.
    fn tell(&mut self, remote: Remote) {
        let mut bytes = [0; INFO_BYTES as usize];
        bytes[..8].copy_from_slice(&remote.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&remote.key.0.to_be_bytes());
        bytes[12..].copy_from_slice(&remote.length.to_be_bytes());
        let (inline, data) = (Inline::new(&bytes), Buffer::EMPTY);
        self.send(Operation::Send { inline, data, invalidate: None, immediate: None });
    }
}

const NOTHING: Remote = Remote { key: Key(0), address: 0, length: 0 };

/// The guest with a link of siw.
fn guest(kit: &Kit) -> Builder {
    Guest::builder(kit).unwrap().tools(["rping"]).unwrap().rdma().unwrap().limit(Duration::from_secs(120))
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let begun = Clock::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PATIENCE),
            Err(error) => panic!("{error}"),
        }
        assert!(begun.elapsed() < LIMIT, "no client connects");
    }
}

/// rping's server, by Farlane's end: reads the memory that the client names, and writes it back
/// where the client names.
fn serve(listener: &TcpListener, crc: bool) {
    let stream = accept(listener);
    let mut live = Live::new(stream, |config| Connection::accept(Instant::ZERO, config), crc);
    live.receive();
    let Event::Requested { .. } = live.event() else { panic!("no request") };
    live.connection.accept(b"");
    assert!(matches!(live.event(), Event::Established { .. }));
    assert_eq!(live.connection.uses_crc(), crc);
    for _ in 0..PINGS {
        let source = live.info();
        assert_eq!(source.length, PING_BYTES);
        live.send(Operation::Read { remote: source });
        let done = live.done();
        let Done::Read(data) = done else { panic!("{done:?}") };
        assert!(data.starts_with(b"rdma-ping-"));
        live.tell(NOTHING);
        let sink = live.info();
        live.send(Operation::Write { data, remote: sink });
        live.tell(NOTHING);
    }
    assert_eq!(live.event(), Event::Disconnected(Disconnected::InOrder));
}

/// rping's client, by our end.
fn ping(port: u16, crc: bool) {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut live = Live::new(stream, |config| Connection::connect(Instant::ZERO, config, b""), crc);
    live.receive();
    assert!(matches!(live.event(), Event::Established { .. }));
    for number in 0..PINGS {
        let mut bytes = vec![0x41 + u8::try_from(number).unwrap(); PING_BYTES as usize];
        bytes[..10].copy_from_slice(b"rdma-ping-");
        // rping writes back up to the first zero.
        bytes[PING_BYTES as usize - 1] = 0;
        let data = Buffer::copy_from_slice(&bytes);
        let source = live.connection.register(Exposure::Read(data)).unwrap();
        let sink = live.connection.register(Exposure::Write(PING_BYTES)).unwrap();
        live.tell(source);
        live.info();
        live.tell(sink);
        live.info();
        let written = live.connection.deregister(sink.key).unwrap();
        assert!(written[..] == bytes, "ping {number}");
        live.connection.deregister(source.key).unwrap();
    }
    live.connection.disconnect();
    assert_eq!(live.event(), Event::Disconnected(Disconnected::InOrder));
    live.step();
    assert_eq!(live.connection.poll_output(), Some(Output::Close));
}

#[test]
fn siw_and_our_end_ping_each_other() {
    let Some(kit) = skip::built_kit_or_skip("Linux's iWARP (siw)") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let outward = listener.local_addr().unwrap().port();
    let inward = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = format!(
        "set -e
        rdma link add siw0 type siw netdev eth0
        rdma link
        for crc in off on; do
            rping -c -a 10.0.2.2 -p {outward} -C {PINGS} -S {PING_BYTES} -V && echo client $crc
        done
        for crc in off on; do
            rping -s -a 10.0.2.15 -p {PORT} -C {PINGS} -S {PING_BYTES} & 
            sleep 1
            tell listening
            wait $! ; echo server $crc
        done
        dmesg | grep siw || true"
    );
    let mut guest = guest(kit).forward(inward, PORT).unwrap().script(script).start().unwrap();
    for crc in [false, true] {
        serve(&listener, crc);
    }
    for crc in [false, true] {
        guest.expect("listening", LIMIT).unwrap();
        ping(inward, crc);
    }
    let outcome = guest.finish().unwrap().expect_success();
    for line in ["client off", "client on", "server off", "server on"] {
        assert!(outcome.output.contains(line), "{line} in {}", outcome.output);
    }
    println!("{}", outcome.output);
}
