//! QEMU's NVMe controller as a vfio-user device that accesses its client's memory by messages.
//!
//! QEMU runs without a processor, driven by its test protocol (qtest): accesses to the controller's
//! registers go to QEMU as reads and writes of the controller's BAR. The controller's own accesses
//! to memory fall into the BARs of a second device, the *window*, which QEMU reaches by vfio-user.
//! The window is served here too, and turns those accesses into DMA_READ and DMA_WRITE. The
//! controller itself is QEMU's, unchanged.
//!
//! QEMU cuts a controller's access into pieces of 8 bytes where it has no memory of its own. Pieces
//! that follow each other are put together again, up to [`LINE`] for reads and up to a page for
//! writes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Time};

use engine::{Buffer, Engine, Instant, Pool};
use guest::Kit;
use live::sys::unix::{Connection, Listener, Received};
use vfio_user::server::{Config, Cookie, Input, InterruptConfig, Output, RegionConfig, Token};
use vfio_user::{Errno, InterruptData, InterruptIndex, RegionIndex, Server};

/// Time does not pass, so that no connection times out.
const NOW: Instant = Instant::from_nanos(1);
/// Slot of the controller on QEMU's bus.
const CONTROLLER: u32 = 4;
/// Slot of the window on QEMU's bus.
const WINDOW: u32 = 5;
/// Address of the controller's registers in QEMU.
const REGISTERS: u64 = 0xe000_0000;
const REGISTERS_BYTES: u64 = 0x4000;
/// Offset of QEMU's MSI-X table in the registers.
const TABLE: u64 = 0x2000;
/// Offset of Controller Configuration (CC) in the registers.
const CONFIGURATION: u64 = 0x14;
/// Number of MSI-X vectors.
const VECTORS: u32 = 65;
/// Offset of the controller's MSI-X capability, with Message Control in the upper half of its first
/// double word.
const MSIX: u32 = 0x40;
/// Address and length in bytes of each of the window's BARs: all of a host's memory below 16 MiB
/// that is not QEMU's own, and the place where QEMU's controller writes its interrupts.
const BARS: [(u64, u64); 5] =
    [(1 << 20, 1 << 20), (2 << 20, 2 << 20), (4 << 20, 4 << 20), (8 << 20, 8 << 20), (INTERRUPTS, 4096)];
/// Where QEMU's controller writes its interrupts.
const INTERRUPTS: u64 = 0xd000_0000;
/// Bytes that are read of the client's memory at once.
const LINE: u64 = 64;
const PAGE: u64 = 4096;
/// How long a write waits for another that continues it.
const GATHERING: Duration = Duration::from_millis(2);

/// The purpose of an answer from QEMU.
enum Ask {
    Nothing,
    Config(usize),
    Register(Token, usize),
    Reset(Token),
    Done,
}

/// QEMU's test protocol: one line each way.
struct Qtest {
    stream: UnixStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    asked: VecDeque<Ask>,
}

impl Qtest {
    fn ask(&mut self, command: &str, ask: Ask) {
        self.outbox.extend_from_slice(format!("{command}\n").as_bytes());
        self.asked.push_back(ask);
    }
    /// Sends as much as QEMU accepts.
    fn flush(&mut self) {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                // The thread that waits for QEMU notices when it has gone.
                Err(_) => return,
            }
        }
    }
    fn tell(&mut self, command: &str) {
        self.ask(command, Ask::Nothing);
    }
    fn config(slot: u32, offset: u32) -> String {
        format!("outl 0xcf8 {:#x}", 1 << 31 | slot << 11 | offset)
    }
    fn config_write(&mut self, slot: u32, offset: u32, value: u64) {
        self.tell(&Self::config(slot, offset));
        self.tell(&format!("outl 0xcfc {value:#x}"));
    }
    /// The next answer from QEMU, with its value; 0 if it has none.
    fn answer(&mut self) -> Option<(Ask, u64)> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(count) => self.inbox.extend_from_slice(&bytes[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        loop {
            let end = self.inbox.iter().position(|byte| *byte == b'\n')?;
            let line: Vec<u8> = self.inbox.drain(..=end).collect();
            let line = String::from_utf8(line).unwrap();
            if line.starts_with("IRQ") {
                continue;
            }
            let value = line.trim().strip_prefix("OK").unwrap_or_else(|| panic!("{line}")).trim();
            let value = value.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16).unwrap());
            return Some((self.asked.pop_front().unwrap(), value.unwrap_or(0)));
        }
    }
}

/// A socket, the client that is connected to it, and the server that answers.
struct Port {
    listener: Listener,
    connection: Option<Connection>,
    server: Server<OwnedFd>,
}

impl Port {
    fn new(listener: Listener, config: Config) -> Self {
        Self { listener, connection: None, server: Server::new(config) }
    }
    /// Takes the bytes that have arrived. Returns whether there were any.
    fn receive(&mut self, pool: &mut Pool) -> bool {
        let Some(connection) = &mut self.connection else {
            self.connection = self.listener.accept().unwrap();
            if self.connection.is_some() {
                self.server.handle_input(NOW, Input::Connected);
            }
            return self.connection.is_some();
        };
        match connection.receive(pool) {
            Ok(Received::Data(bytes, descriptors)) => {
                self.server.handle_input(NOW, Input::Received { bytes: &bytes, descriptors });
                true
            }
            Ok(Received::Nothing) => false,
            Ok(Received::Closed) | Err(_) => {
                self.server.handle_input(NOW, Input::Disconnected);
                self.connection = None;
                true
            }
        }
    }
    fn send(&mut self, bytes: Buffer) {
        if let Some(connection) = &mut self.connection {
            connection.send(bytes, Vec::new()).unwrap();
        }
    }
    fn flush(&mut self) {
        // `receive` notices the end of the connection.
        let _ = self.connection.as_mut().map(Connection::flush);
    }
}

/// A line of memory that the controller reads, and the part that the window's client is waiting
/// for.
struct Line {
    address: u64,
    bytes: Vec<u8>,
    /// The answer that the client awaits: the token of the answer, the first byte, and the number
    /// of bytes.
    wanted: Option<(Token, usize, usize)>,
    /// How many bytes of the line have been taken.
    taken: usize,
}

struct Bridge {
    qtest: Qtest,
    window: Port,
    device: Option<Port>,
    place: std::path::PathBuf,
    config: Vec<u8>,
    vectors: Vec<Option<File>>,
    line: Option<Line>,
    written: Option<(u64, Vec<u8>, Time)>,
    reads: Arc<AtomicU32>,
}

/// QEMU's controller at a socket, with a thread and a process of its own.
pub(crate) struct ThirdParty {
    stop: Arc<AtomicBool>,
    /// How often the controller has read memory.
    pub(crate) reads: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
    qemu: Child,
}

impl ThirdParty {
    /// Starts the controller with `image` as its namespace, served at `socket` in `directory`.
    pub(crate) fn start(kit: &Kit, directory: &Path, image: &Path, socket: &str) -> Self {
        let test = UnixListener::bind(directory.join("qtest")).unwrap();
        let window = Listener::bind(&directory.join("window")).unwrap();
        let mut qemu = kit.qemu();
        qemu.env("QEMU_MODULE_DIR", kit.place().join("qemu/usr/lib/x86_64-linux-gnu/qemu"));
        qemu.args(["-machine", "pc", "-m", "1M", "-accel", "qtest", "-display", "none", "-nodefaults"]);
        qemu.args(["-no-user-config", "-run-with", "exit-with-parent=on", "-qtest-log", "none", "-qtest"]);
        qemu.arg(format!("unix:{}", directory.join("qtest").display()));
        qemu.arg("-drive").arg(format!("file={},if=none,id=disk,format=raw", image.display()));
        qemu.arg("-device").arg(format!("nvme,serial=THIRDPARTY,drive=disk,addr={CONTROLLER}"));
        let window_path = directory.join("window").display().to_string();
        qemu.arg("-device").arg(format!(
            "{{\"driver\":\"vfio-user-pci\",\"addr\":\"{WINDOW}\",\"socket\":{{\"type\":\"unix\",\"path\":\"{window_path}\"}}}}"
        ));
        let qemu = spawn(qemu);
        let (stop, reads) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (stopped, counted) = (stop.clone(), reads.clone());
        let place = directory.join(socket);
        let thread = std::thread::spawn(move || {
            let (stream, _) = test.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let qtest = Qtest { stream, inbox: Vec::new(), outbox: Vec::new(), asked: VecDeque::new() };
            let mut config = Config::default();
            for (region, (_, bytes)) in config.regions.iter_mut().zip(BARS) {
                *region = RegionConfig::new(bytes);
            }
            config.regions[RegionIndex::CONFIG.0 as usize] = RegionConfig::new(256);
            let window = Port::new(window, config);
            let (config, vectors) = (vec![0; 4096], Vec::new());
            let (line, written) = (None, None);
            Bridge { qtest, window, device: None, place, config, vectors, line, written, reads: counted }
                .run(&stopped);
        });
        Self { stop, reads, thread: Some(thread), qemu }
    }
}

impl Drop for ThirdParty {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

impl Bridge {
    fn run(mut self, stop: &AtomicBool) {
        self.set_up();
        let mut pool = Pool::default();
        let mut idle = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            let mut busy = self.window.receive(&mut pool);
            while let Some(output) = self.window.server.poll_output() {
                self.on_window(output);
            }
            if let Some(device) = &mut self.device {
                busy |= device.receive(&mut pool);
            }
            while let Some(output) = self.device.as_mut().and_then(|device| device.server.poll_output()) {
                self.on_device(output);
            }
            // QEMU ends when this bridge stops, too.
            while let Some((ask, value)) = self.qtest.answer() {
                busy = true;
                self.on_answer(ask, value);
            }
            if self.written.as_ref().is_some_and(|(.., since)| since.elapsed() > GATHERING) {
                self.write_out();
            }
            // Send what the answers above made the servers say.
            self.transmit();
            idle = if busy { 0 } else { idle + 1 };
            if idle > 200 {
                std::thread::sleep(Duration::from_micros(50));
            } else if idle > 0 {
                std::thread::yield_now();
            }
        }
    }

    fn transmit(&mut self) {
        while let Some(output) = self.window.server.poll_output() {
            self.on_window(output);
        }
        while let Some(output) = self.device.as_mut().and_then(|device| device.server.poll_output()) {
            self.on_device(output);
        }
        self.qtest.flush();
        self.window.flush();
        let _ = self.device.as_mut().map(Port::flush);
    }

    /// Places both devices on QEMU's bus, and makes the controller write its interrupts into the
    /// window.
    fn set_up(&mut self) {
        let qtest = &mut self.qtest;
        for dword in 0..64 {
            qtest.tell(&Qtest::config(CONTROLLER, dword * 4));
            qtest.ask("inl 0xcfc", Ask::Config(dword as usize * 4));
        }
        qtest.config_write(CONTROLLER, 0x10, REGISTERS);
        qtest.config_write(CONTROLLER, 0x14, 0);
        for (index, (address, _)) in (0..).zip(BARS) {
            qtest.config_write(WINDOW, 0x10 + index * 4, address);
        }
        // Memory Space Enable for the window; Memory Space and Bus Master Enable for the
        // controller.
        qtest.config_write(WINDOW, 4, 0b010);
        qtest.config_write(CONTROLLER, 4, 0b110);
        qtest.config_write(CONTROLLER, MSIX, 1 << 31);
        for vector in 0..VECTORS {
            let entry = REGISTERS + TABLE + u64::from(vector) * 16;
            for (offset, value) in [(0, INTERRUPTS), (4, 0), (8, vector.into()), (12, 0)] {
                qtest.tell(&format!("writel {:#x} {value:#x}", entry + offset));
            }
        }
        qtest.ask("readl 0xe0000000", Ask::Done);
    }

    /// Serves the controller: everything is in its place.
    fn open(&mut self) {
        let mut config = Config::default();
        config.regions[0] = RegionConfig::new(REGISTERS_BYTES);
        config.regions[RegionIndex::CONFIG.0 as usize] = RegionConfig::new(self.config.len() as u64);
        config.interrupts[InterruptIndex::Msix.slot()] =
            InterruptConfig { count: VECTORS, all_at_once: false };
        self.vectors.resize_with(VECTORS as usize, || None);
        self.device = Some(Port::new(Listener::bind(&self.place).unwrap(), config));
    }

    fn on_answer(&mut self, ask: Ask, value: u64) {
        match ask {
            Ask::Nothing => {}
            Ask::Config(at) => {
                let bytes = u32::try_from(value).unwrap().to_le_bytes();
                self.config[at..at + 4].copy_from_slice(&bytes);
            }
            Ask::Done => self.open(),
            Ask::Register(token, length) => {
                let bytes = value.to_le_bytes();
                self.server().read_done(token, Ok(&bytes[..length]));
            }
            Ask::Reset(token) => self.server().reset_done(token, Ok(())),
        }
    }

    fn server(&mut self) -> &mut Server<OwnedFd> {
        &mut self.device.as_mut().expect("it was asked for").server
    }

    /// Handles what a far end asks of the controller.
    fn on_device(&mut self, output: Output<OwnedFd>) {
        match output {
            Output::Transmit { bytes, .. } => self.device.as_mut().unwrap().send(bytes),
            Output::Map { token, .. } => self.server().map_done(token, Ok(())),
            Output::Unmap { token: Some(token), .. } => self.server().unmap_done(token),
            Output::RegionRead { token, region: RegionIndex::CONFIG, offset, length } => {
                let at = usize::try_from(offset).unwrap();
                let bytes = self.config[at..at + length as usize].to_vec();
                self.server().read_done(token, Ok(&bytes));
            }
            Output::RegionRead { token, offset, length, .. } => {
                let width = match length {
                    4 => 'l',
                    8 => 'q',
                    _ => return self.server().read_done(token, Err(Errno::EINVAL)),
                };
                let command = format!("read{width} {:#x}", REGISTERS + offset);
                self.qtest.ask(&command, Ask::Register(token, length as usize));
            }
            Output::RegionWrite { token, region, offset, data } => {
                if region == RegionIndex::BAR0 {
                    let mut value = [0; 8];
                    value[..data.len()].copy_from_slice(&data);
                    let width = if data.len() == 8 { 'q' } else { 'l' };
                    let value = u64::from_le_bytes(value);
                    self.qtest.tell(&format!("write{width} {:#x} {value:#x}", REGISTERS + offset));
                }
                if let Some(token) = token {
                    self.server().write_done(token, Ok(()));
                }
            }
            Output::SetInterrupts { index: InterruptIndex::Msix, start, count, data, .. } => match data {
                InterruptData::Descriptors(descriptors) => {
                    for (vector, descriptor) in self.vectors[start as usize..].iter_mut().zip(descriptors) {
                        *vector = Some(File::from(descriptor));
                    }
                }
                _ if count == 0 => self.vectors.iter_mut().for_each(|vector| *vector = None),
                _ => {}
            },
            // A device reset is a Controller Reset: CC.EN is cleared.
            Output::Reset { token } => {
                let command = format!("writel {:#x} 0", REGISTERS + CONFIGURATION);
                self.qtest.ask(&command, Ask::Reset(token));
            }
            Output::DmaData { offset, data, last, .. } => {
                let line = self.line.as_mut().expect("one is being read");
                line.bytes[offset..offset + data.len()].copy_from_slice(&data);
                if last {
                    self.hand_out();
                }
            }
            Output::DmaFailed { cookie, error } => {
                if cookie == READ
                    && let Some((token, ..)) = self.line.take().and_then(|line| line.wanted)
                {
                    self.window.server.read_done(token, Err(error));
                }
            }
            _ => {}
        }
    }

    /// Handles what QEMU asks of the window: its configuration space, and the controller's accesses
    /// to memory.
    fn on_window(&mut self, output: Output<OwnedFd>) {
        match output {
            Output::Transmit { bytes, .. } => self.window.send(bytes),
            Output::Map { token, .. } => self.window.server.map_done(token, Ok(())),
            Output::Unmap { token: Some(token), .. } => self.window.server.unmap_done(token),
            Output::Reset { token } => self.window.server.reset_done(token, Ok(())),
            Output::RegionRead { token, region: RegionIndex::CONFIG, offset, length } => {
                // The window is a base system peripheral.
                let mut config = [0; 256];
                config[..12].copy_from_slice(&[0x1a, 0xfa, 0xc1, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x08]);
                let at = usize::try_from(offset).unwrap();
                self.window.server.read_done(token, Ok(&config[at..at + length as usize]));
            }
            Output::RegionRead { token, region, offset, length } => {
                let address = BARS[region.0 as usize].0 + offset;
                self.read(token, address, length as usize);
            }
            Output::RegionWrite { token, region, offset, data } => {
                if region != RegionIndex::CONFIG {
                    self.write(BARS[region.0 as usize].0 + offset, &data);
                }
                if let Some(token) = token {
                    self.window.server.write_done(token, Ok(()));
                }
            }
            _ => {}
        }
    }

    fn read(&mut self, token: Token, address: u64, length: usize) {
        self.write_out();
        let follows = self.line.as_mut().filter(|line| {
            address == line.address + line.taken as u64 && line.taken + length <= line.bytes.len()
        });
        if let Some(line) = follows {
            line.wanted = Some((token, line.taken, length));
            return self.hand_out();
        }
        let first = address / LINE * LINE;
        let skip = usize::try_from(address - first).unwrap();
        let bytes = vec![0; usize::try_from(LINE).unwrap()];
        assert!(skip + length <= bytes.len(), "QEMU reads aligned pieces");
        self.line = Some(Line { address: first, bytes, wanted: Some((token, skip, length)), taken: 0 });
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.server().dma_read(NOW, READ, first, usize::try_from(LINE).unwrap());
    }

    /// Gives QEMU the awaited bytes from the line that was read.
    fn hand_out(&mut self) {
        let Some(line) = &mut self.line else { return };
        let Some((token, first, length)) = line.wanted.take() else { return };
        line.taken = first + length;
        self.window.server.read_done(token, Ok(&line.bytes[first..line.taken]));
    }

    fn write(&mut self, address: u64, data: &[u8]) {
        // The write may change the bytes that were read.
        self.line = None;
        if address == INTERRUPTS {
            self.write_out();
            self.transmit_writes();
            let vector = self.vectors.get_mut(usize::from(data[0])).and_then(Option::as_mut);
            if let Some(vector) = vector {
                vector.write_all(&1_u64.to_ne_bytes()).unwrap();
            }
            return;
        }
        let follows = self.written.as_mut().filter(|(first, bytes, _)| {
            address == first + bytes.len() as u64 && !address.is_multiple_of(PAGE)
        });
        if let Some((_, bytes, since)) = follows {
            bytes.extend_from_slice(data);
            *since = Time::now();
            return;
        }
        self.write_out();
        self.written = Some((address, data.to_vec(), Time::now()));
    }

    /// Sends to the client what the controller has written.
    fn write_out(&mut self) {
        if let Some((address, bytes, _)) = self.written.take() {
            self.server().dma_write(NOW, Cookie(1), address, Buffer::copy_from_slice(&bytes));
        }
    }

    /// Sends writes before the interrupt that follows them.
    fn transmit_writes(&mut self) {
        while let Some(output) = self.device.as_mut().and_then(|device| device.server.poll_output()) {
            self.on_device(output);
        }
        let _ = self.device.as_mut().map(Port::flush);
    }
}

const READ: Cookie = Cookie(0);
