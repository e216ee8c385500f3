//! A guest takes away the memory that it shares: its session ends, and no other one.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Export, FARLANE, json};
use engine::{Buffer, Pool};
use live::sys::unix::{Connection, Received};

/// Commands of vfio-user.
const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const REGION_WRITE: u16 = 10;
/// Regions of the function.
const BAR0: u32 = 0;
const CONFIG: u32 = 7;
/// Registers of an NVMe controller.
const CC: u64 = 0x14;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const ADMIN_TAIL: u64 = 0x1000;

/// Bytes of the guest's memory: a page each for the submission queue, the completion queue and
/// data.
const MEMORY: u64 = 0x3000;
/// How long an answer may take.
const LONGEST: Duration = Duration::from_secs(20);

/// A monitor with a guest. Its messages are written out here, since no library would take away
/// memory.
struct Guest {
    connection: Connection,
    pool: Pool,
    message: u16,
    received: Vec<u8>,
}

impl Guest {
    fn connect(socket: &Path) -> Self {
        let connection = Connection::connect(socket).unwrap();
        Self { connection, pool: Pool::default(), message: 0, received: Vec::new() }
    }

    fn send(&mut self, command: u16, payload: &[u8], descriptors: Vec<OwnedFd>) {
        self.message += 1;
        let mut bytes = Vec::new();
        bytes.extend(self.message.to_le_bytes());
        bytes.extend(command.to_le_bytes());
        bytes.extend(u32::try_from(16 + payload.len()).unwrap().to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(payload);
        self.connection.send(Buffer::copy_from_slice(&bytes), descriptors).unwrap();
    }

    /// The answer to the last message; none when the device has closed the connection.
    fn answer(&mut self) -> Option<Vec<u8>> {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < LONGEST, "no answer");
            // The next receive reports a failure.
            let _ = self.connection.flush();
            match self.connection.receive(&mut self.pool) {
                Ok(Received::Data(bytes, _)) => self.received.extend_from_slice(&bytes),
                Ok(Received::Nothing) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Received::Closed) | Err(_) => return None,
            }
            while let Some(header) = self.received.get(..16) {
                let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
                let (id, size, flags, errno) = (header[..2].to_vec(), word(4) as usize, word(8), word(12));
                if self.received.len() < size {
                    break;
                }
                let message: Vec<u8> = self.received.drain(..size).collect();
                if flags & 0xf == 1 && id == self.message.to_le_bytes() {
                    assert_eq!(errno, 0, "{message:x?}");
                    return Some(message);
                }
            }
        }
    }

    fn ask(&mut self, command: u16, payload: &[u8], descriptors: Vec<OwnedFd>) {
        self.send(command, payload, descriptors);
        assert!(self.answer().is_some(), "the device has closed the connection");
    }

    fn write(region: u32, offset: u64, value: &[u8]) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.extend(offset.to_le_bytes());
        payload.extend(region.to_le_bytes());
        payload.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
        payload.extend(value);
        payload
    }

    /// Shares `memory` at address 0, and brings up the controller with its admin queues there.
    fn begin(&mut self, memory: &File) {
        self.ask(VERSION, &[&[0, 0, 1, 0][..], b"{\"capabilities\":{}}\0"].concat(), Vec::new());
        let mut map = Vec::new();
        map.extend(32_u32.to_le_bytes());
        map.extend(3_u32.to_le_bytes());
        for value in [0, 0, MEMORY] {
            map.extend(value.to_le_bytes());
        }
        self.ask(DMA_MAP, &map, vec![memory.try_clone().unwrap().into()]);
        self.ask(REGION_WRITE, &Self::write(CONFIG, 4, &[6, 0]), Vec::new());
        self.ask(REGION_WRITE, &Self::write(BAR0, AQA, &0x000f_000f_u32.to_le_bytes()), Vec::new());
        self.ask(REGION_WRITE, &Self::write(BAR0, ASQ, &0_u64.to_le_bytes()), Vec::new());
        self.ask(REGION_WRITE, &Self::write(BAR0, ACQ, &0x1000_u64.to_le_bytes()), Vec::new());
        self.ask(REGION_WRITE, &Self::write(BAR0, CC, &0x0046_0001_u32.to_le_bytes()), Vec::new());
    }

    /// Writes an Identify Controller to the entry at `index` of the admin queue.
    fn identify(memory: &File, index: u64) {
        let mut entry = [0; 64];
        // The command's identifier is the index; PRP1 is the third page.
        (entry[0], entry[2], entry[25], entry[40]) = (6, u8::try_from(index).unwrap(), 0x20, 1);
        memory.write_all_at(&entry, index * 64).unwrap();
    }

    fn ring(&mut self, tail: u32) {
        self.send(REGION_WRITE, &Self::write(BAR0, ADMIN_TAIL, &tail.to_le_bytes()), Vec::new());
    }
}

fn works(socket: &Path) {
    let url = format!("vfio-user:{}", socket.display());
    let load = ["--rw", "randrw", "--runtime", "200ms", "--verify", "--json"];
    let report = json(&[&["bench", &url][..], &load].concat());
    assert_eq!(report["errors"].as_u64(), Some(0), "{report}");
}

#[test]
fn memory_that_a_guest_takes_away_ends_its_session_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let far = Export::start(&["--ram", "8MiB"]);
    let url = far.url();
    for (number, arguments) in [&["device", "--ram", "8MiB"][..], &["attach", &url]].iter().enumerate() {
        let socket = directory.path().join(number.to_string());
        let mut command = Command::new(&*FARLANE);
        command.args(*arguments).args(["--json", "--vfio-user"]).arg(&socket);
        let mut device = Export::of(command);
        // A file in a file system can't be sealed, so the device can only be prepared for its
        // truncation.
        let path = directory.path().join("memory");
        let memory = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        memory.set_len(MEMORY).unwrap();
        let mut guest = Guest::connect(&socket);
        guest.begin(&memory);
        Guest::identify(&memory, 0);
        guest.ring(1);
        assert!(guest.answer().is_some());
        let mut identity = [0; 2];
        crate::support::running::wait_until("a command is carried out", || {
            memory.read_exact_at(&mut identity, 0x2000).unwrap();
            identity != [0; 2]
        });
        Guest::identify(&memory, 1);
        memory.set_len(0).unwrap();
        guest.ring(2);
        while guest.answer().is_some() {}
        device.wait_for("has cut its memory");
        works(&socket);
        let (status, said) = device.end_by("TERM");
        assert_eq!(status, Some(0), "{said}");
    }
    json(&["nvme", "identify", "--json", &far.url()]);
}
