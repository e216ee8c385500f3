//! Interoperability at both ends of vfio-user: with the client and the server of Cloud Hypervisor's
//! library.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use cloud_hypervisor_vfio_user::{
    Client, DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion,
};
use live::sys::doorbells::memory_file;
use nvme_pcie::registers::offset;
use tempfile::TempDir;

use crate::support::running::wait_until;
use crate::support::{Export, FARLANE, succeed};

// VFIO's numbers, as the kernel's headers have them.
const BAR0: u32 = 0;
const BAR2: u32 = 2;
const CONFIG: u32 = 7;
const REGIONS: u32 = 9;
const MSIX: u32 = 2;
const INTERRUPTS: u32 = 5;
const READ_WRITE: u32 = 3;
const INTERRUPT_EVENTFD: u32 = 1;
const TRIGGER_BY_DESCRIPTORS: u32 = 1 << 5 | 1 << 2;

/// Where the client maps its memory.
const MEMORY: u64 = 0x10_0000;
const MEMORY_BYTES: u64 = 1 << 20;
/// Offset of the admin submission queue in the memory.
const ADMIN_QUEUE: u64 = 0x1000;
/// Offset of the admin completion queue in the memory.
const ADMIN_COMPLETIONS: u64 = 0x2000;
/// Offset of the data of commands in the memory.
const DATA: u64 = 0x3000;

/// A directory for sockets.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn socket(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Starts a process that serves vfio-user at `socket`.
fn serving(arguments: &[&str], socket: &Path) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(arguments).args(["--json", "--vfio-user"]).arg(socket);
    Export::of(command)
}

/// A descriptor to signal an interrupt with, and the stream that becomes readable when it is
/// signalled.
fn interrupt() -> (OwnedFd, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    (theirs.into(), ours)
}

/// Waits until an interrupt comes.
fn interrupted(signal: &mut UnixStream) {
    let mut count = [0; 8];
    signal.read_exact(&mut count).expect("an interrupt comes");
    assert_eq!(u64::from_ne_bytes(count), 1);
}

/// An NVMe driver that uses the library's client and queues of one page each.
struct Driver {
    client: Client,
    memory: File,
    tail: u32,
}

impl Driver {
    fn start(socket: &Path) -> Self {
        let mut client = Client::new(socket).expect("the version and the regions are agreed on");
        let memory = File::from(memory_file("stranger", MEMORY_BYTES).unwrap());
        client.dma_map(0, MEMORY, MEMORY_BYTES, memory.as_raw_fd()).unwrap();
        let mut driver = Self { client, memory, tail: 0 };
        // Memory Space and Bus Master Enable.
        driver.client.region_write(CONFIG, 4, &6_u16.to_le_bytes()).unwrap();
        driver
    }

    fn register(&mut self, offset: u32) -> u32 {
        let mut value = [0; 4];
        self.client.region_read(BAR0, offset.into(), &mut value).unwrap();
        u32::from_le_bytes(value)
    }
    fn set(&mut self, offset: u32, value: &[u8]) {
        self.client.region_write(BAR0, offset.into(), value).unwrap();
    }

    fn enable(&mut self) {
        // Sixteen entries in each admin queue.
        self.set(offset::ADMIN_QUEUE_ATTRIBUTES, &0x000f_000f_u32.to_le_bytes());
        self.set(offset::ADMIN_SUBMISSION_QUEUE, &(MEMORY + ADMIN_QUEUE).to_le_bytes());
        self.set(offset::ADMIN_COMPLETION_QUEUE, &(MEMORY + ADMIN_COMPLETIONS).to_le_bytes());
        // Entries of 64 B and 16 B; enabled.
        self.set(offset::CONFIGURATION, &0x0046_0001_u32.to_le_bytes());
        wait_until("the controller is ready", || self.register(offset::STATUS) == 1);
    }

    /// Places an Identify Controller in the admin queue. Returns the offset in memory at which its
    /// data will be.
    fn submit_identify(&mut self) -> u64 {
        let data = DATA + u64::from(self.tail) * 0x1000;
        let mut command = [0; 64];
        command[0] = 0x06;
        command[2] = self.tail.to_le_bytes()[0];
        command[24..32].copy_from_slice(&(MEMORY + data).to_le_bytes());
        command[40] = 1;
        self.memory.write_all_at(&command, ADMIN_QUEUE + u64::from(self.tail) * 64).unwrap();
        self.tail += 1;
        data
    }

    /// The serial number in the data that the latest command placed at `data`.
    fn identified(&self, data: u64) -> String {
        let mut completion = [0; 16];
        let slot = u64::from(self.tail - 1);
        self.memory.read_exact_at(&mut completion, ADMIN_COMPLETIONS + slot * 16).unwrap();
        // Command identifier, phase, and a status of zero.
        assert_eq!(completion[12..], [self.tail.to_le_bytes()[0] - 1, 0, 1, 0], "{completion:x?}");
        let mut controller = [0; 4096];
        self.memory.read_exact_at(&mut controller, data).unwrap();
        String::from_utf8_lossy(&controller[4..24]).trim_end().to_owned()
    }
}

/// Checks what any server of an NVMe function must do for this client. A server that `looks` lets
/// the client map doorbells.
fn is_driven(socket: &Path, looks: bool) {
    let mut driver = Driver::start(socket);
    let bar0 = driver.client.region(BAR0).unwrap();
    assert!(bar0.size >= 0x2000 && bar0.flags & READ_WRITE == READ_WRITE, "{bar0:?}");
    assert_eq!(driver.client.region(CONFIG).unwrap().size, 4096);
    let vectors = driver.client.get_irq_info(MSIX).unwrap();
    assert!(vectors.count >= 2 && vectors.flags & INTERRUPT_EVENTFD != 0, "{vectors:?}");
    let mut class = [0; 3];
    driver.client.region_read(CONFIG, 9, &mut class).unwrap();
    assert_eq!(class, [2, 8, 1], "NVM Express, I/O controller");

    let (theirs, mut signal) = interrupt();
    driver.client.set_irqs(MSIX, TRIGGER_BY_DESCRIPTORS, 0, 1, &[theirs.as_raw_fd()]).unwrap();
    driver.enable();
    // Ring a doorbell by a message.
    let data = driver.submit_identify();
    driver.set(offset::DOORBELLS, &driver.tail.to_le_bytes());
    interrupted(&mut signal);
    assert_eq!(driver.identified(data), "STRANGE");
    // Ring a doorbell by a store, where the server looks for stores.
    let data = driver.submit_identify();
    let bar0 = driver.client.region(BAR0).unwrap();
    assert_eq!(bar0.file_offset.is_some(), looks, "{bar0:?}");
    if let Some(pages) = &bar0.file_offset {
        let area = bar0.sparse_areas[0];
        assert!(area.offset == u64::from(offset::DOORBELLS) && area.size >= 0x1000, "{area:?}");
        pages.file().write_all_at(&driver.tail.to_le_bytes(), pages.start() + area.offset).unwrap();
        interrupted(&mut signal);
        assert_eq!(driver.identified(data), "STRANGE");
    }

    driver.client.reset().unwrap();
    wait_until("it is reset", || {
        driver.register(offset::STATUS) == 0 && driver.register(offset::CONFIGURATION) == 0
    });
    driver.client.dma_unmap(MEMORY, MEMORY_BYTES).unwrap();
    driver.client.shutdown().unwrap();
}

#[test]
fn its_client_drives_a_local_ssd_twice() {
    let place = Place::new();
    let socket = place.socket("ssd");
    for more in [None, Some("--poll-doorbells")] {
        let start = ["device", "--ram", "8MiB", "--serial", "STRANGE"];
        let _device = serving(&start.into_iter().chain(more).collect::<Vec<_>>(), &socket);
        is_driven(&socket, more.is_some());
        is_driven(&socket, more.is_some());
    }
}

#[test]
fn its_client_drives_a_far_ssd_twice() {
    let place = Place::new();
    let socket = place.socket("slot");
    let far = Export::start(&["--ram", "8MiB", "--serial", "STRANGE"]);
    for more in [None, Some("--poll-doorbells")] {
        // The far end keeps its device for a near end that was killed.
        let start = ["attach", &far.url(), "--hold", "1s"];
        let _near = serving(&start.into_iter().chain(more).collect::<Vec<_>>(), &socket);
        is_driven(&socket, more.is_some());
        is_driven(&socket, more.is_some());
    }
}

const COUNTER: u64 = 0x00;
const GREETING: u64 = 0x08;
const RING: u64 = 0x10;
const HELLO: u64 = 0x6f6c_6c65_6820_6f68;
const VECTORS: u32 = 4;

/// A device with a counter, a constant, and a register whose value is the vector to interrupt with.
struct Ringer {
    config: Vec<u8>,
    counter: u32,
    vectors: Vec<Option<File>>,
    resets: u32,
    maps: u32,
}

impl Ringer {
    fn new() -> Self {
        let mut config = vec![0; 4096];
        config[..4].copy_from_slice(&[0x1a, 0xfa, 0x01, 0x1d]);
        config[0x06] = 0x10;
        config[0x08..0x0c].copy_from_slice(&[1, 0, 0x80, 0x08]);
        config[0x34] = 0x40;
        // MSI-X: four vectors, table and pending bits in BAR2.
        config[0x40..0x4c].copy_from_slice(&[0x11, 0, 3, 0, 2, 0, 0, 0, 2, 8, 0, 0]);
        Self { config, counter: 0, vectors: vec![None, None, None, None], resets: 0, maps: 0 }
    }

    /// Serves one client until the client leaves. The thread returns the device as it is then.
    fn serve(mut self, socket: &Path) -> JoinHandle<Self> {
        let interrupts = (0..INTERRUPTS)
            .map(|index| IrqInfo {
                index,
                flags: INTERRUPT_EVENTFD,
                count: if index == MSIX { VECTORS } else { 0 },
            })
            .collect();
        let regions = (0..REGIONS)
            .map(|index| {
                let mut region =
                    ServerRegion { region_info: Default::default(), sparse_areas: Vec::new(), mmap_fd: None };
                region.region_info.argsz = 32;
                region.region_info.index = index;
                region.region_info.size = if [BAR0, BAR2, CONFIG].contains(&index) { 4096 } else { 0 };
                region.region_info.flags = if region.region_info.size > 0 { READ_WRITE } else { 0 };
                region
            })
            .collect();
        let server = Server::new(socket, true, interrupts, regions).unwrap();
        std::thread::spawn(move || {
            server.run(&mut self).unwrap();
            self
        })
    }
}

impl ServerBackend for Ringer {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        match (region, offset) {
            (CONFIG, _) => data.copy_from_slice(&self.config[at..at + data.len()]),
            (BAR0, COUNTER) => {
                self.counter += 1;
                data.copy_from_slice(&self.counter.to_le_bytes()[..data.len()]);
            }
            (BAR0, GREETING) => data.copy_from_slice(&HELLO.to_le_bytes()[..data.len()]),
            _ => data.fill(0),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if (region, offset) == (BAR0, RING)
            && let Some(Some(vector)) = self.vectors.get_mut(usize::from(data[0]))
        {
            vector.write_all(&1_u64.to_ne_bytes())?;
        }
        Ok(())
    }

    fn dma_map(&mut self, _: DmaMapFlags, _: u64, _: u64, _: u64, _: Option<File>) -> io::Result<()> {
        self.maps += 1;
        Ok(())
    }
    fn dma_unmap(&mut self, _: DmaUnmapFlags, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn reset(&mut self) -> io::Result<()> {
        self.resets += 1;
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        _: u32,
        start: u32,
        count: u32,
        descriptors: Vec<File>,
    ) -> io::Result<()> {
        assert!(index == MSIX && start + count <= VECTORS, "interrupts {start} + {count} of {index}");
        let mut descriptors = descriptors.into_iter();
        for vector in start..start + count {
            self.vectors[usize::try_from(vector).unwrap()] = descriptors.next();
        }
        Ok(())
    }
}

#[test]
fn its_server_is_a_far_end_for_its_client() {
    let place = Place::new();
    let (device, slot) = (place.socket("device"), place.socket("slot"));
    let served = Ringer::new().serve(&device);
    let mut far = Export::start(&["--vfio-user", device.to_str().unwrap()]);
    let shown = succeed(&["observe", "lspci", "-v", &far.url()]);
    assert!(far.said().contains("[fa1a:1d01]"), "{}", far.said());
    assert!(shown.contains("System peripheral") && shown.contains("MSI-X: Count=4"), "{shown}");
    let mut near = serving(&["attach", &far.url(), "--function", "0"], &slot);
    let mut client = Client::new(&slot).unwrap();
    client.region_write(CONFIG, 4, &6_u16.to_le_bytes()).unwrap();
    let mut greeting = [0; 8];
    client.region_read(BAR0, GREETING, &mut greeting).unwrap();
    assert_eq!(u64::from_le_bytes(greeting), HELLO);
    // Each read of the client is one read of the device.
    for expected in 1..=3_u32 {
        let mut counter = [0; 4];
        client.region_read(BAR0, COUNTER, &mut counter).unwrap();
        assert_eq!(u32::from_le_bytes(counter), expected);
    }
    let (theirs, mut signal): (Vec<_>, Vec<_>) = (0..VECTORS).map(|_| interrupt()).unzip();
    let theirs: Vec<_> = theirs.iter().map(AsRawFd::as_raw_fd).collect();
    client.set_irqs(MSIX, TRIGGER_BY_DESCRIPTORS, 0, VECTORS, &theirs).unwrap();
    for vector in [3_u8, 0, 2, 2, 1] {
        client.region_write(BAR0, RING, &[vector, 0, 0, 0]).unwrap();
        interrupted(&mut signal[usize::from(vector)]);
    }
    client.shutdown().unwrap();
    near.kill();
    far.kill();
    let device = served.join().unwrap();
    assert!(device.resets >= 2 && device.maps > 0, "{} resets, {} maps", device.resets, device.maps);
}
