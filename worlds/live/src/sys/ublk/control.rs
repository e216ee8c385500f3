//! The driver's control file: devices are added, started, taken over and deleted there.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::{Mode, OFlags};

use super::abi::{
    ANY_DEVICE, Command, ENCODED, Info, Parameters, RECOVERY, State, UPDATE_SIZE, USER_COPY, control,
    size_value,
};

/// The control file.
const PATH: &str = "/dev/ublk-control";
/// Where the system lists the devices.
const LIST: &str = "/sys/class/ublk-char";
/// The features that the driver must have.
const NEEDED: u64 = RECOVERY | ENCODED | USER_COPY;
/// A command that is waited for, and one that is not.
const WAITED: u64 = 0;
const BEGUN: u64 = 1;

/// Why a device can't be made or used.
#[derive(Debug)]
pub enum Error {
    /// The kernel has no such driver, or has not loaded it.
    NoDriver,
    /// The control file, or a device's, can't be opened.
    Open(String, io::Error),
    /// The driver is too old.
    Old,
    /// The driver refuses a command.
    Refused(&'static str, io::Error),
    /// The system refuses another needed call.
    Io(io::Error),
}

impl Error {
    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NoDriver => {
                "modprobe ublk_drv loads the driver, if this kernel has it (Linux 6.5 or newer)"
            }
            Self::Open(..) => "only root can make block devices: use sudo",
            Self::Old => "Linux 6.5 or newer can; --over nvme-tcp needs no such driver",
            Self::Refused(..) => "farlane connect --list shows the devices that are there",
            Self::Io(_) => "ulimit -n and ulimit -l may be too low",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => {
                write!(f, "there is no {PATH}: the kernel's user-space block driver is missing")
            }
            Self::Open(path, error) => write!(f, "{path}: {error}"),
            Self::Old => f.write_str("this kernel's user-space block driver can't copy data for its server"),
            Self::Refused(what, error) => write!(f, "the user-space block driver refuses {what}: {error}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Opens a file of the driver. A new device's appears a moment after the device.
pub(super) fn open(path: &str) -> Result<OwnedFd, Error> {
    for _ in 0..100 {
        match rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => return Ok(file),
            Err(rustix::io::Errno::NOENT) if path != PATH => std::thread::sleep(Duration::from_millis(20)),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NXIO | rustix::io::Errno::NODEV) => {
                return Err(Error::NoDriver);
            }
            Err(error) => return Err(Error::Open(path.to_owned(), error.into())),
        }
    }
    Err(Error::Open(path.to_owned(), io::ErrorKind::NotFound.into()))
}

/// The driver's control file.
pub struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: OwnedFd,
    /// What the driver knows.
    features: u64,
    /// The command that was begun and has not ended.
    begun: Option<Command>,
}

impl Control {
    /// Opens the control file of a driver that has the needed features.
    ///
    /// # Errors
    /// When there is no driver, or it is too old, or this process may not use it.
    pub fn open() -> Result<Self, Error> {
        let file = open(PATH)?;
        let ring = IoUring::builder().build(4)?;
        let mut control = Self { ring, file, features: 0, begun: None };
        let mut features = [0; 8];
        // Drivers that do not know the question are too old.
        control.ask(Command::GetFeatures, 0, &mut features).map_err(|_| Error::Old)?;
        control.features = u64::from_ne_bytes(features);
        let has_all = control.features & NEEDED == NEEDED;
        has_all.then_some(control).ok_or(Error::Old)
    }

    /// Whether a device gets another size while it is used.
    pub const fn can_resize(&self) -> bool {
        self.features & UPDATE_SIZE != 0
    }

    /// The descriptor that becomes readable when a command that was begun has ended.
    pub fn poll_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// The devices of this machine, of all servers.
    ///
    /// # Errors
    /// When the driver refuses to report them.
    pub fn devices(&mut self) -> Result<Vec<Info>, Error> {
        let entries = std::fs::read_dir(LIST).into_iter().flatten().flatten();
        let number = |name: &str| name.strip_prefix("ublkc")?.parse().ok();
        let mut numbers: Vec<u32> =
            entries.filter_map(|entry| number(&entry.file_name().to_string_lossy())).collect();
        numbers.sort_unstable();
        // One that goes away meanwhile is none.
        Ok(numbers.into_iter().filter_map(|device| self.info(device).ok()).collect())
    }

    /// The description of the device of this number.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn info(&mut self, device: u32) -> Result<Info, Error> {
        let mut bytes = [0; Info::LENGTH];
        self.ask(Command::GetInfo, device, &mut bytes)?;
        Ok(Info::parse(&bytes))
    }

    /// The limits of a device.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn parameters(&mut self, device: u32) -> Result<Parameters, Error> {
        let mut bytes = [0; Parameters::LENGTH];
        bytes[0..4].copy_from_slice(&Parameters::LENGTH_FIELD);
        self.ask(Command::GetParameters, device, &mut bytes)?;
        Ok(Parameters::parse(&bytes))
    }

    /// Adds a device with these limits, which outlives its server and has the `mark`. The kernel
    /// chooses its number, and may give it fewer queues.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn add(
        &mut self,
        queues: u16,
        depth: u16,
        mark: u64,
        parameters: &Parameters,
    ) -> Result<Info, Error> {
        let wanted = Info {
            device: ANY_DEVICE,
            queues,
            depth,
            request_bytes: parameters.request_bytes,
            state: State::Dead,
            server: -1,
            mark,
            flags: NEEDED | self.features & UPDATE_SIZE,
        };
        let mut bytes = wanted.emit();
        self.ask(Command::Add, ANY_DEVICE, &mut bytes)?;
        let info = Info::parse(&bytes);
        let set = self.ask(Command::SetParameters, info.device, &mut parameters.emit());
        if let Err(error) = set {
            // The device was of no use.
            let _ = self.delete(info.device);
            return Err(error);
        }
        Ok(info)
    }

    /// Begins to take over a device whose server has ended.
    ///
    /// # Errors
    /// When it still has one, [`io::ErrorKind::ResourceBusy`].
    pub fn take_over(&mut self, device: u32) -> Result<(), Error> {
        self.ask(Command::StartRecovery, device, &mut []).map(|_| ())
    }

    /// Deletes a device that was stopped or never started. The driver waits until its server has
    /// closed it.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn delete(&mut self, device: u32) -> Result<(), Error> {
        self.ask(Command::Delete, device, &mut []).map(|_| ())
    }

    /// Stops a device and waits for it: its requests end, and its block device goes away.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn stop(&mut self, device: u32) -> Result<(), Error> {
        self.ask(Command::Stop, device, &mut []).map(|_| ())
    }

    /// Begins to start a device, or to go on with one that was taken over. That ends when each
    /// queue of the device has a server, and the kernel's first reads were answered.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn begin_service(&mut self, device: u32, is_taken_over: bool) -> io::Result<()> {
        let command = if is_taken_over { Command::EndRecovery } else { Command::Start };
        self.begin(command, device, std::process::id().into())
    }

    /// Begins to stop a device whose requests this process answers meanwhile.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn begin_stop(&mut self, device: u32) -> io::Result<()> {
        self.begin(Command::Stop, device, 0)
    }

    /// Begins to give a device in use another size in bytes.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn begin_resize(&mut self, device: u32, bytes: u64) -> io::Result<()> {
        self.begin(Command::UpdateSize, device, size_value(bytes))
    }

    /// How the command that was begun has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<Result<(), Error>> {
        let entry = self.ring.completion().next()?;
        let command = self.begun.take()?;
        Some(outcome(command, entry.result()).map(|_| ()))
    }

    /// Whether a command was begun that has not ended.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.begun.is_some()
    }

    fn begin(&mut self, command: Command, device: u32, data: u64) -> io::Result<()> {
        assert!(self.begun.is_none(), "one command is begun at a time");
        self.begun = Some(command);
        let structure = control(device, 0, 0, data);
        // Nothing is behind the command's address.
        self.push(command, structure, BEGUN);
        self.ring.submit().map(|_| ())
    }

    fn push(&mut self, command: Command, structure: [u8; 80], name: u64) {
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(file, command.code()).cmd(structure).build().user_data(name);
        // SAFETY: the buffer whose address the structure has, if any, is borrowed by `ask` until
        // the command's end was seen. The file is open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("two commands are under way at most");
    }

    /// Carries out a command on `device` with `buffer`, which the driver reads or writes.
    fn ask(&mut self, command: Command, device: u32, buffer: &mut [u8]) -> Result<i32, Error> {
        assert!(self.begun.is_none(), "commands come one after the other");
        let length = u16::try_from(buffer.len()).expect("structures are short");
        let address = if length == 0 { 0 } else { buffer.as_mut_ptr().expose_provenance() as u64 };
        self.push(command, control(device, address, length, 0), WAITED);
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The driver may still write to the buffer, so the process must not go on.
                Err(error) => panic!("io_uring has failed in the middle of a command: {error}"),
            }
            if let Some(entry) = self.ring.completion().next() {
                return outcome(command, entry.result());
            }
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("begun", &self.begun).finish_non_exhaustive()
    }
}

fn outcome(command: Command, result: i32) -> Result<i32, Error> {
    match result {
        0.. => Ok(result),
        error => Err(Error::Refused(command.words(), io::Error::from_raw_os_error(-error))),
    }
}
