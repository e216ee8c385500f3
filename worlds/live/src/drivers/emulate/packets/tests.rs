//! Packets of this machine's kernel between two namespaces made for the test. Where namespaces are
//! not allowed, a test says so.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{self, Duration};

use engine::Rng;
use network_models::faults::Behaviour;
use network_models::network::Config;
use network_models::{AnyHop, Chance, Faults, Path, Rate, Wire};

use super::*;
use crate::reactor::{Reactor, Stop};
use crate::sys::clock::Clock;

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes a namespace; `None` where that is not allowed.
fn namespace() -> Option<Namespace> {
    let made = spawn(|| {
        // SAFETY: only this thread leaves its network, and none of its descriptors is touched.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => Namespace::open("/proc/thread-self/ns/net"),
            _ => Err(io::Error::last_os_error()),
        }
    });
    let made = made.join().unwrap();
    made.inspect_err(|error| eprintln!("skipped: no network namespace can be made here: {error}")).ok()
}

/// An emulator between two namespaces in a thread of its own, which ends when dropped.
struct Emulated {
    namespaces: [Namespace; 2],
    stop: Stop,
    thread: Option<JoinHandle<Counters>>,
    late: Receiver<Nanos>,
}

impl Emulated {
    fn between(paths: impl FnOnce() -> [Path; 2] + Send + 'static) -> Option<Self> {
        let namespaces = [namespace()?, namespace()?];
        let mut interfaces = Vec::new();
        for (namespace, address) in namespaces.iter().zip(ADDRESSES) {
            match Tun::open(namespace, Settings { address, prefix: 24, mtu: 1500 }) {
                Ok(interface) => interfaces.push(interface),
                Err(error) => {
                    eprintln!("skipped: no network interface can be made here: {error}");
                    return None;
                }
            }
        }
        let interfaces: [Tun; 2] = interfaces.try_into().unwrap();
        let (announce, announced) = channel();
        let (say, late) = channel();
        let thread = spawn(move || {
            let clock = Clock::start();
            let mut reactor = Reactor::new(clock, Nanos::from_micros(200)).unwrap();
            announce.send(reactor.stop()).unwrap();
            let passage = Passage::new(&Config::default(), paths());
            let mut packets = Packets::new(clock.now(), passage, interfaces, |event| {
                if let Event::Written(by) = event {
                    let _ = say.send(by);
                }
            });
            reactor.run(&mut packets).unwrap();
            packets.counters()
        });
        Some(Self { namespaces, stop: announced.recv().unwrap(), thread: Some(thread), late })
    }

    fn near<T: Send>(&self, what: impl FnOnce() -> io::Result<T> + Send) -> T {
        self.namespaces[0].within(what).unwrap()
    }

    fn far<T: Send>(&self, what: impl FnOnce() -> io::Result<T> + Send) -> T {
        self.namespaces[1].within(what).unwrap()
    }

    fn end(&mut self) -> Counters {
        self.stop.ask();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        self.stop.ask();
    }
}

fn wires(latency: u64) -> impl FnOnce() -> [Path; 2] + Send + 'static {
    move || {
        let wire = Wire::new(Nanos::from_millis(latency), Some(Rate::from_gigabits(1)));
        [(); 2].map(|()| Path::new([AnyHop::from(wire.clone())]))
    }
}

/// Answers each datagram with itself.
fn echo(socket: UdpSocket) {
    spawn(move || {
        let mut piece = [0; 2048];
        while let Ok((count, from)) = socket.recv_from(&mut piece) {
            let _ = socket.send_to(&piece[..count], from);
        }
    });
}

/// A socket in the near namespace that is answered by one in the far namespace.
fn echoed(emulated: &Emulated) -> UdpSocket {
    let far = emulated.far(|| UdpSocket::bind((ADDRESSES[1], 7)));
    echo(far);
    let near = emulated.near(|| UdpSocket::bind((ADDRESSES[0], 0)));
    near.connect((ADDRESSES[1], 7)).unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    near
}

fn there_and_back(socket: &UdpSocket) -> Duration {
    let asked = time::Instant::now();
    socket.send(b"packet").unwrap();
    let mut answer = [0; 16];
    let count = socket.recv(&mut answer).unwrap();
    assert_eq!(&answer[..count], b"packet");
    asked.elapsed()
}

#[test]
fn a_datagram_takes_the_time_of_the_model() {
    let Some(mut emulated) = Emulated::between(wires(10)) else { return };
    let socket = echoed(&emulated);
    let mut times: Vec<_> = (0..20).map(|_| there_and_back(&socket)).collect();
    times.sort_unstable();
    assert!(times[0] >= Duration::from_millis(20), "{times:?}");
    // The machine may be busy, but not all the time.
    assert!(times[0] < Duration::from_millis(30), "{times:?}");
    let counters = emulated.end();
    assert_eq!(emulated.late.try_iter().count(), 40);
    // Six bytes plus the headers of UDP and IP; on the wire also those of Ethernet.
    assert_eq!((counters.there.frames, counters.there.bytes), (20, 20 * 34));
    assert_eq!(counters.there.frame_bytes, 20 * 64);
    assert_eq!(counters.there, counters.back);
    assert_eq!((counters.strange, counters.refused), (0, 0));
}

#[test]
fn the_kernels_tcp_copes_with_what_the_model_loses() {
    let paths = || {
        [5, 6].map(|seed| {
            let wire = Wire::new(Nanos::from_millis(1), Some(Rate::from_megabits(200)));
            let behaviour = Behaviour { loss: Chance::percent(2), ..Behaviour::default() };
            Path::new([AnyHop::from(wire), AnyHop::from(Faults::new(behaviour, Rng::from_seed(seed)))])
        })
    };
    let Some(mut emulated) = Emulated::between(paths) else { return };
    let listener = emulated.far(|| TcpListener::bind((ADDRESSES[1], 9)));
    let reader = spawn(move || {
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received
    });
    let mut sent = vec![0; 1 << 20];
    Rng::from_seed(1).fill(&mut sent);
    let mut stream =
        emulated.near(|| TcpStream::connect_timeout(&SocketAddr::from((ADDRESSES[1], 9)), PATIENCE));
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(reader.join().unwrap() == sent);
    let counters = emulated.end();
    assert!(counters.there.lost > 0 && counters.there.bytes > 1 << 20, "{counters:?}");
}

/// Sends these bytes unchecked out of the interface `name`.
fn raw(name: &str, bytes: &[u8]) -> io::Result<()> {
    let index = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    assert!(index.contains(name));
    let name = std::ffi::CString::new(name)?;
    let protocol = 0x0800_u16.to_be();
    // SAFETY: the name ends with a zero; an address of zeroes is valid, and has the given length.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        address.sll_protocol = protocol;
        address.sll_ifindex = i32::try_from(libc::if_nametoindex(name.as_ptr())).unwrap();
        let length = u32::try_from(size_of_val(&address)).unwrap();
        let sent =
            libc::sendto(socket, bytes.as_ptr().cast(), bytes.len(), 0, (&raw const address).cast(), length);
        let error = io::Error::last_os_error();
        libc::close(socket);
        if sent < 0 { Err(error) } else { Ok(()) }
    }
}

#[test]
fn bytes_that_are_no_packet_do_no_harm() {
    let Some(mut emulated) = Emulated::between(wires(1)) else { return };
    let socket = echoed(&emulated);
    // No version, an unknown version, and a header that is cut off.
    for strange in [&[0xff; 100][..], &[0; 1500], &[0x45; 19]] {
        emulated.near(|| raw("farlane0", strange));
    }
    // Packets with a version that are otherwise nonsense: the other kernel drops them.
    for garbage in [&[0x45; 20][..], &[0x6f; 1500]] {
        emulated.near(|| raw("farlane0", garbage));
    }
    there_and_back(&socket);
    let counters = emulated.end();
    assert_eq!((counters.strange, counters.there.frames), (3, 3), "{counters:?}");
    assert_eq!(counters.refused, 0);
}

#[test]
fn an_emulator_that_ends_takes_its_interfaces_along() {
    let Some(mut emulated) = Emulated::between(wires(1)) else { return };
    let there = |emulated: &Emulated| {
        let names = emulated.near(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
        names.contains("farlane0")
    };
    assert!(there(&emulated));
    emulated.end();
    assert!(!there(&emulated));
}
