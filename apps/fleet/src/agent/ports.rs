//! The TCP ports at which volumes are reached by tunnel: one for each, and the same for as long as
//! the volume is there, since hosts remember it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use fleet::Name;

use super::files;

/// The most bytes of the file.
const BYTES_MAX: u64 = 1 << 20;

/// Where an agent's far ends listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnels {
    /// The address of all of them.
    pub address: IpAddr,
    /// The ports that they may have.
    pub ports: RangeInclusive<u16>,
}

/// The ports that volumes have.
#[derive(Debug)]
pub(crate) struct Ports {
    path: PathBuf,
    tunnels: Tunnels,
    by_volume: Mutex<BTreeMap<String, u16>>,
}

impl Ports {
    /// Reads the ports of the agent before this one.
    ///
    /// # Errors
    /// When the file can't be read or understood.
    pub(crate) fn open(path: PathBuf, tunnels: Tunnels) -> io::Result<Self> {
        let by_volume = match files::read(&path, BYTES_MAX)? {
            Some(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| files::at(&path, &io::Error::new(io::ErrorKind::InvalidData, error)))?,
            None => BTreeMap::new(),
        };
        Ok(Self { path, tunnels, by_volume: Mutex::new(by_volume) })
    }

    /// The address of all far ends.
    pub(crate) const fn address(&self) -> IpAddr {
        self.tunnels.address
    }

    /// The port of a volume, which it gets now if it has none.
    ///
    /// # Errors
    /// When no port is free, or the choice can't be made durable.
    pub(crate) fn of(&self, volume: &Name) -> io::Result<u16> {
        let mut ports = self.by_volume.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = ports.get(volume.as_str()) {
            return Ok(*port);
        }
        let Tunnels { address, ports: range } = &self.tunnels;
        let is_free = |port: &u16| {
            !ports.values().any(|taken| taken == port) && TcpListener::bind((*address, *port)).is_ok()
        };
        let port = range.clone().find(is_free).ok_or_else(|| {
            let (first, last) = (range.start(), range.end());
            let text = format!(
                "no port from {first} to {last} of {address} is free for a tunnel: give the agent more with \
                 --tunnels"
            );
            io::Error::new(io::ErrorKind::AddrInUse, text)
        })?;
        ports.insert(volume.as_str().to_owned(), port);
        self.keep(&ports)?;
        Ok(port)
    }

    /// Gives back the ports of volumes that are no more.
    ///
    /// # Errors
    /// When that can't be made durable.
    pub(crate) fn retain(&self, is_there: impl Fn(&str) -> bool) -> io::Result<()> {
        let mut ports = self.by_volume.lock().unwrap_or_else(PoisonError::into_inner);
        let before = ports.len();
        ports.retain(|volume, _| is_there(volume));
        if ports.len() == before { Ok(()) } else { self.keep(&ports) }
    }

    fn keep(&self, ports: &BTreeMap<String, u16>) -> io::Result<()> {
        files::replace(&self.path, &serde_json::to_vec_pretty(ports)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_keeps_its_port_until_it_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ports.json");
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let first = taken.local_addr().unwrap().port();
        let tunnels = Tunnels { address: [127, 0, 0, 1].into(), ports: first..=first.saturating_add(40) };
        let [v, w] = ["v", "w"].map(|text| Name::new(text).unwrap());
        let ports = Ports::open(path.clone(), tunnels.clone()).unwrap();
        let (of_v, of_w) = (ports.of(&v).unwrap(), ports.of(&w).unwrap());
        assert!(of_v > first && of_w > of_v);
        let again = Ports::open(path, tunnels).unwrap();
        assert_eq!(again.of(&w).unwrap(), of_w);
        again.retain(|volume| volume == "w").unwrap();
        assert!(again.of(&v).unwrap() < of_w);
    }

    #[test]
    fn without_a_free_port_the_range_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let only = taken.local_addr().unwrap().port();
        let tunnels = Tunnels { address: [127, 0, 0, 1].into(), ports: only..=only };
        let ports = Ports::open(directory.path().join("ports.json"), tunnels).unwrap();
        let error = ports.of(&Name::new("v").unwrap()).unwrap_err().to_string();
        assert!(error.contains(&only.to_string()) && error.contains("--tunnels"), "{error}");
    }
}
