//! A machine in memory: its devices appear as the agents of a fleet connect them. Its mounts are
//! entries of a table; the folders and files below them are real.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use fleetd::csi::{Device, Filesystem, Machine, MachineError, Mount, Number, Used};

use crate::memory::Hands;

/// A volume's data, as far as it matters here.
#[derive(Clone, Debug, Default)]
struct Data {
    /// What `blkid` would say.
    signature: Option<String>,
    /// How large its file system is.
    filled: u64,
}

#[derive(Debug, Default)]
struct State {
    /// By subsystem: the volume, and its device.
    devices: BTreeMap<String, (String, Device)>,
    data: BTreeMap<String, Data>,
    mounts: Vec<Mount>,
    /// Files that are mounts of a device's own file.
    files: BTreeMap<PathBuf, Number>,
    next: u32,
    /// Calls of this name fail.
    fails: Option<&'static str>,
    /// How many file systems were made.
    made: usize,
}

/// A machine in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
}

impl Fake {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn may(&self, call: &'static str) -> Result<MutexGuard<'_, State>, MachineError> {
        let state = self.lock();
        if state.fails == Some(call) {
            return Err(MachineError::at(call)(io::Error::other("as the test wants")));
        }
        Ok(state)
    }

    /// From now on, calls of this name fail.
    pub(crate) fn fail(&self, call: Option<&'static str>) {
        self.lock().fails = call;
    }

    /// Gives a volume's data a signature.
    pub(crate) fn sign(&self, volume: &str, signature: &str) {
        self.lock().data.entry(volume.to_owned()).or_default().signature = Some(signature.to_owned());
    }

    /// How many file systems were made.
    pub(crate) fn made(&self) -> usize {
        self.lock().made
    }

    /// The mounts at a path.
    pub(crate) fn at(&self, path: &Path) -> Vec<Mount> {
        self.lock().mounts.iter().filter(|one| one.point == path).cloned().collect()
    }

    /// How large the file system of a volume is.
    pub(crate) fn filled(&self, volume: &str) -> u64 {
        self.lock().data.get(volume).map_or(0, |data| data.filled)
    }

    /// The devices lose their paths, or have them again.
    pub(crate) fn reach(&self, reached: bool) {
        self.lock().devices.values_mut().for_each(|(_, device)| device.reached = reached);
    }

    /// The kernel makes all file systems read-only, as after an error.
    pub(crate) fn freeze(&self) {
        self.lock().mounts.iter_mut().for_each(|one| one.frozen = true);
    }

    /// The subsystems whose devices are there.
    pub(crate) fn subsystems(&self) -> Vec<String> {
        self.lock().devices.keys().cloned().collect()
    }
}

impl Hands for Fake {
    fn connect(&self, nqn: &str, volume: &str, bytes: u64, read_only: bool) {
        let mut state = self.lock();
        state.next += 1;
        let number = Number(259, state.next);
        let path = PathBuf::from(format!("/dev/fake{}", state.next));
        let device = Device { path, number, bytes, read_only, reached: true };
        state.devices.insert(nqn.to_owned(), (volume.to_owned(), device));
    }

    fn disconnect(&self, nqn: &str, _volume: &str) {
        self.lock().devices.remove(nqn);
    }

    fn resize(&self, _nqn: Option<&str>, volume: &str, bytes: u64) {
        let mut state = self.lock();
        let mut all = state.devices.values_mut();
        if let Some((_, device)) = all.find(|(one, _)| one == volume) {
            device.bytes = bytes;
        }
    }

    fn delete(&self, volume: &str) {
        self.lock().data.remove(volume);
    }
}

impl State {
    fn volume_of(&self, device: &Device) -> String {
        let mut all = self.devices.values();
        all.find(|(_, one)| one.number == device.number).map(|(volume, _)| volume.clone()).unwrap()
    }
}

impl Machine for Fake {
    fn device(&self, nqn: &str) -> Result<Option<Device>, MachineError> {
        Ok(self.may("device")?.devices.get(nqn).map(|(_, device)| device.clone()))
    }

    fn device_with(&self, number: Number) -> Result<Option<Device>, MachineError> {
        let state = self.lock();
        let mut all = state.devices.values();
        Ok(all.find(|(_, one)| one.number == number).map(|(_, device)| device.clone()))
    }

    fn block_device_at(&self, path: &Path) -> Result<Option<Number>, MachineError> {
        Ok(self.lock().files.get(path).copied())
    }

    fn mounts(&self) -> Result<Vec<Mount>, MachineError> {
        Ok(self.lock().mounts.clone())
    }

    fn signature(&self, device: &Device) -> Result<Option<String>, MachineError> {
        let state = self.may("signature")?;
        let volume = state.volume_of(device);
        Ok(state.data.get(&volume).and_then(|data| data.signature.clone()))
    }

    fn make(&self, device: &Device, filesystem: Filesystem) -> Result<(), MachineError> {
        let mut state = self.may("make")?;
        let volume = state.volume_of(device);
        assert!(!device.read_only, "a device that is read-only is formatted");
        let data = state.data.entry(volume).or_default();
        assert_eq!(data.signature, None, "a device with data is formatted");
        *data = Data { signature: Some(filesystem.to_string()), filled: device.bytes };
        state.made += 1;
        Ok(())
    }

    fn repair(&self, device: &Device, _filesystem: Filesystem) -> Result<(), MachineError> {
        assert!(!device.read_only, "a device that is read-only is repaired");
        self.may("repair").map(drop)
    }

    fn mount(
        &self,
        device: &Device,
        point: &Path,
        filesystem: Filesystem,
        options: &[String],
    ) -> Result<(), MachineError> {
        assert!(point.is_dir(), "{point:?}");
        let mut state = self.may("mount")?;
        let read_only = options.iter().any(|one| one == "ro");
        assert!(read_only || !device.read_only, "the kernel would refuse");
        state.mounts.push(Mount {
            number: device.number,
            root: "/".into(),
            point: point.to_owned(),
            read_only,
            frozen: read_only,
            filesystem: filesystem.to_string(),
            options: options.to_vec(),
        });
        Ok(())
    }

    fn bind(&self, source: &Path, point: &Path) -> Result<(), MachineError> {
        assert!(point.exists(), "{point:?}");
        let mut state = self.may("bind")?;
        if let Some(number) =
            state.devices.values().find(|(_, one)| one.path == source).map(|(_, one)| one.number)
        {
            state.files.insert(point.to_owned(), number);
            state.mounts.push(Mount {
                number: Number(0, 5),
                root: Path::new("/").join(source.file_name().unwrap()),
                point: point.to_owned(),
                read_only: false,
                frozen: false,
                filesystem: "devtmpfs".to_owned(),
                options: Vec::new(),
            });
            return Ok(());
        }
        let staged = state.mounts.iter().rfind(|one| one.point == source).cloned().unwrap();
        state.mounts.push(Mount { point: point.to_owned(), ..staged });
        Ok(())
    }

    fn make_read_only(&self, mount: &Mount) -> Result<(), MachineError> {
        let mut state = self.may("make_read_only")?;
        let found = state.mounts.iter_mut().rfind(|one| one.point == mount.point).unwrap();
        found.read_only = true;
        Ok(())
    }

    fn unmount(&self, point: &Path) -> Result<(), MachineError> {
        let mut state = self.may("unmount")?;
        let at = state.mounts.iter().rposition(|one| one.point == point).unwrap();
        state.mounts.remove(at);
        state.files.remove(point);
        Ok(())
    }

    fn grow(&self, device: &Device, _point: &Path, _filesystem: Filesystem) -> Result<(), MachineError> {
        let mut state = self.may("grow")?;
        let volume = state.volume_of(device);
        state.data.get_mut(&volume).unwrap().filled = device.bytes;
        Ok(())
    }

    fn used(&self, point: &Path) -> Result<Used, MachineError> {
        let state = self.may("used")?;
        assert!(state.mounts.iter().any(|one| one.point == point));
        Ok(Used { bytes: 100, bytes_free: 60, bytes_used: 30, inodes: 10, inodes_free: 8 })
    }

    fn has_initiator(&self) -> bool {
        self.lock().fails != Some("has_initiator")
    }
}
