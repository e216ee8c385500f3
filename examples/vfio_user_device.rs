//! A vfio-user device: a PCI function with one register, which counts how often it is read.
//!
//! QEMU can give the function to a guest, and a far end can offer it to a host in another box:
//!
//! ```text
//! cargo run --example vfio_user_device -- /tmp/counter.sock
//! farlane export --vfio-user /tmp/counter.sock --listen 127.0.0.1:4421
//! farlane observe lspci -v tcp://127.0.0.1:4421
//! ```

use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use engine::{Engine, Instant, Pool, fire};
use live::sys::unix::{Listener, Received};
use vfio_user::server::{Config, Input, Output, RegionConfig};
use vfio_user::{Errno, RegionIndex, Server};

/// Bytes of BAR0, and of the configuration space.
const BAR0_BYTES: usize = 4096;
const CONFIG_BYTES: usize = 256;

/// The function: its configuration space, its BAR0, and nothing of vfio-user.
struct Counter {
    config: [u8; CONFIG_BYTES],
    registers: [u8; BAR0_BYTES],
    reads: u32,
}

impl Counter {
    fn new() -> Self {
        let mut config = [0; CONFIG_BYTES];
        config[0x00..0x04].copy_from_slice(&[0x1a, 0xfa, 0xc1, 0x00]);
        // Class Code: base system peripheral, other. BAR0: memory, 32 bits, as its type bits (all
        // 0) say.
        config[0x08..0x0c].copy_from_slice(&[1, 0x00, 0x80, 0x08]);
        Self { config, registers: [0; BAR0_BYTES], reads: 0 }
    }

    fn region(&mut self, region: RegionIndex) -> Result<&mut [u8], Errno> {
        match region {
            RegionIndex::CONFIG => Ok(&mut self.config),
            RegionIndex::BAR0 => Ok(&mut self.registers),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The bytes that a driver reads.
    fn read(&mut self, region: RegionIndex, offset: u64, length: u32) -> Result<&[u8], Errno> {
        if region == RegionIndex::BAR0 {
            self.reads += 1;
            self.registers[..4].copy_from_slice(&self.reads.to_le_bytes());
        }
        let at = usize::try_from(offset).map_err(|_| Errno::EINVAL)?;
        self.region(region)?.get(at..at + length as usize).ok_or(Errno::EINVAL)
    }

    /// Takes the bytes that a driver writes.
    fn write(&mut self, region: RegionIndex, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let at = usize::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let place = self.region(region)?.get_mut(at..at + data.len()).ok_or(Errno::EINVAL)?;
        place.copy_from_slice(data);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("expected the path of a socket")?;
    let listener = Listener::bind(Path::new(&path))?;
    let mut config = Config::default();
    config.regions[0] = RegionConfig::new(BAR0_BYTES as u64);
    config.regions[7] = RegionConfig::new(CONFIG_BYTES as u64);
    let mut server: Server<OwnedFd> = Server::new(config);
    let mut counter = Counter::new();
    let mut pool = Pool::default();
    let mut connection = None;
    let started = std::time::Instant::now();
    println!("listening at {path}");
    loop {
        let now = Instant::from_nanos(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        fire(&mut server, now);
        match &mut connection {
            None => {
                connection = listener.accept()?;
                if connection.is_some() {
                    server.handle_input(now, Input::Connected);
                }
            }
            Some(client) => match client.receive(&mut pool) {
                Ok(Received::Data(bytes, descriptors)) => {
                    server.handle_input(now, Input::Received { bytes: &bytes, descriptors });
                }
                Ok(Received::Nothing) => {}
                Ok(Received::Closed) | Err(_) => {
                    connection = None;
                    server.handle_input(now, Input::Disconnected);
                }
            },
        }
        while let Some(output) = server.poll_output() {
            match output {
                Output::Transmit { bytes, .. } => {
                    if let Some(client) = &mut connection {
                        client.send(bytes, Vec::new())?;
                    }
                }
                Output::Close { .. } => connection = None,
                Output::RegionRead { token, region, offset, length } => {
                    server.read_done(token, counter.read(region, offset, length));
                }
                Output::RegionWrite { token, region, offset, data } => {
                    let result = counter.write(region, offset, &data);
                    // A posted write has no token and no answer.
                    if let Some(token) = token {
                        server.write_done(token, result);
                    }
                }
                // The function moves no data itself: it has no use for the client's memory.
                Output::Map { token, .. } => server.map_done(token, Ok(())),
                Output::Unmap { token: Some(token), .. } => server.unmap_done(token),
                Output::Reset { token } => {
                    counter = Counter::new();
                    server.reset_done(token, Ok(()));
                }
                _ => {}
            }
        }
        if let Some(client) = &mut connection {
            client.flush()?;
        }
        // A driver in earnest sleeps until the socket is ready or `server.poll_timeout()` has come.
        std::thread::sleep(Duration::from_micros(100));
    }
}
