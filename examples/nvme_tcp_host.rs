//! An NVMe/TCP host: it connects to a subsystem, and reads the first block of namespace 1.
//!
//! The engine does no I/O and reads no clock. The loop below is all that it needs: dial where it
//! says, pass on what arrives, send what its outboxes hold, and come back at its deadline.
//!
//! ```text
//! farlane target --listen 127.0.0.1:4420 --nqn nqn.2026-01.io.farlane:ssd --ram 64MiB
//! cargo run --example nvme_tcp_host -- 127.0.0.1:4420 nqn.2026-01.io.farlane:ssd
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use assemblies::initiator::{Config, Initiator, Input, Output};
use engine::{Buffer, Engine, Instant, Pool, fire};
use nvme::host::{Data, command};
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_fabrics::host::{self, multipath};
use nvme_fabrics::wire::{HostId, Nqn};

const BLOCK: u32 = 512;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, subsystem] = &arguments[..] else {
        return Err("expected ADDRESS:PORT SUBSYSTEM-NQN".into());
    };
    let host_id = HostId([0x5a; 16]);
    let association = host::Config::new(subsystem.parse()?, Nqn::of_host(host_id), host_id);
    let connection = nvme_tcp::host::Config::new(std::rc::Rc::new(Pool::default().into()));
    let mut initiator = Initiator::new(
        Config { multipath: multipath::Config::default(), connection: connection.into() },
        vec![association],
    );
    let started = std::time::Instant::now();
    let now = || Instant::from_nanos(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut sockets = BTreeMap::<_, TcpStream>::new();
    initiator.start(now());
    loop {
        let mut closed = Vec::new();
        for (&id, socket) in &mut sockets {
            let mut bytes = [0; 16 << 10];
            match socket.read(&mut bytes) {
                Ok(length @ 1..) => {
                    let bytes = Buffer::copy_from_slice(&bytes[..length]);
                    initiator.handle_input(now(), Input::Received { connection: id, bytes });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => closed.push(id),
            }
        }
        for id in closed {
            sockets.remove(&id);
            initiator.handle_input(now(), Input::Closed(id));
        }
        fire(&mut initiator, now());
        while let Some(output) = initiator.poll_output() {
            match output {
                Output::Dial(id) => {
                    let socket = TcpStream::connect(address)?;
                    socket.set_nonblocking(true)?;
                    sockets.insert(id, socket);
                    initiator.handle_input(now(), Input::Connected(id));
                }
                Output::Close { connection, .. } => drop(sockets.remove(&connection)),
                Output::PathUp(_) => {
                    let entry = command::on_blocks(IoOpcode::Read, NamespaceId(1), 0, 1);
                    let request = multipath::Request { cookie: 0, entry, data: Data::Read(BLOCK), queue: 0 };
                    initiator.submit(now(), request)?;
                }
                Output::Completed(read) => {
                    println!("{}: {:02x?}", read.entry.status(), read.data.get(..16).unwrap_or_default());
                    initiator.shut_down(now());
                }
                Output::PathLost(_, why) => return Err(why.to_string().into()),
                Output::PathEnded(_, why) => return why.map_or(Ok(()), |why| Err(why.into())),
                _ => {}
            }
        }
        for (&id, socket) in &mut sockets {
            let Some(outbox) = initiator.outbox(id) else { continue };
            let bytes: Vec<u8> = outbox.slices().flatten().copied().collect();
            match socket.write(&bytes) {
                Ok(sent) => initiator.sent(id, sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        // A driver in earnest sleeps until a socket is ready or `initiator.poll_timeout()` has
        // come.
        std::thread::sleep(Duration::from_micros(100));
    }
}
