//! Discovery controllers by multicast DNS (NVM Express TP 8009): announcing them, and looking for
//! them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use mdns_sd::{IfKind, ServiceDaemon, ServiceEvent, ServiceInfo};

use crate::sys::address::{Host, interface_name};

/// The UDP port of multicast DNS.
pub const PORT: u16 = 5353;
/// The service (RFC 6763), as TP 8009 names it.
const SERVICE: &str = "_nvme-disc._tcp.local.";
/// The keys of the TXT record for the controller's NQN and for its transport.
const NQN: &str = "nqn";
const TRANSPORT: &str = "p";
/// The most controllers that a search returns.
const FOUND_MAX: usize = 1024;
/// How long a goodbye may take.
const GOODBYE_MAX: Duration = Duration::from_millis(500);

/// Why multicast DNS does not work here.
#[derive(Debug)]
pub struct MdnsError(mdns_sd::Error);

impl fmt::Display for MdnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "multicast DNS: {}", self.0)
    }
}

impl std::error::Error for MdnsError {}

impl From<mdns_sd::Error> for MdnsError {
    fn from(error: mdns_sd::Error) -> Self {
        Self(error)
    }
}

/// Announces the discovery controllers of this process, on the interfaces of their addresses. A
/// thread does the work.
pub struct Announcer {
    daemon: ServiceDaemon,
    announced: Vec<(SocketAddr, String)>,
}

impl Announcer {
    /// Creates an announcer at UDP port `port`, which is [`PORT`] except in tests. Nothing is
    /// announced yet.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(port: u16) -> Result<Self, MdnsError> {
        let daemon = ServiceDaemon::new_with_port(port)?;
        daemon.disable_interface(IfKind::All)?;
        Ok(Self { daemon, announced: Vec::new() })
    }

    /// Announces the discovery controllers called `nqn` at `addresses`, and from now on no others.
    ///
    /// # Errors
    /// When the thread has ended, or a name is invalid.
    pub fn set(&mut self, addresses: &[SocketAddr], nqn: &str) -> Result<(), MdnsError> {
        let gone: Vec<_> = self.announced.extract_if(.., |(at, _)| !addresses.contains(at)).collect();
        for (_, name) in gone {
            // No thread waits for the goodbye to be sent.
            let _ = self.daemon.unregister(&name)?;
        }
        for address in addresses {
            if self.announced.iter().any(|(at, _)| at == address) {
                continue;
            }
            self.daemon.enable_interface(interface(address.ip()))?;
            // A name of its own, because another responder may answer for the system's name.
            let host = format!("farlane-{}-{}", host_name(), address.port());
            let of = |number: usize| if number == 0 { host.clone() } else { format!("{host}-{number}") };
            let is_free = |label: &String| !self.announced.iter().any(|(_, name)| *name == full(label));
            let Some(label) = (0..=self.announced.len()).map(of).find(is_free) else { continue };
            let properties = [(NQN, nqn), (TRANSPORT, "tcp")];
            let at = if address.ip().is_unspecified() { String::new() } else { address.ip().to_string() };
            let mut info = ServiceInfo::new(
                SERVICE,
                &label,
                &format!("{label}.local."),
                at.as_str(),
                address.port(),
                &properties[..],
            )?;
            if at.is_empty() {
                info = info.enable_addr_auto();
            }
            self.daemon.register(info)?;
            self.announced.push((*address, full(&label)));
        }
        Ok(())
    }
}

impl Drop for Announcer {
    /// Announces to listeners that the controllers are gone.
    fn drop(&mut self) {
        for (_, name) in &self.announced {
            if let Ok(done) = self.daemon.unregister(name) {
                let _ = done.recv_timeout(GOODBYE_MAX);
            }
        }
        if let Ok(done) = self.daemon.shutdown() {
            let _ = done.recv_timeout(GOODBYE_MAX);
        }
    }
}

impl fmt::Debug for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcer").field("announced", &self.announced).finish_non_exhaustive()
    }
}

/// The full name of a controller's announcement.
fn full(label: &str) -> String {
    format!("{label}.{SERVICE}")
}

/// The interfaces on which an address is reached.
fn interface(address: IpAddr) -> IfKind {
    match address {
        IpAddr::V4(any) if any.is_unspecified() => IfKind::IPv4,
        IpAddr::V6(any) if any.is_unspecified() => IfKind::All,
        address => IfKind::Addr(address),
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let first = name.trim().split('.').next().unwrap_or_default();
    // Characters that a label may not have are left out.
    let label: String =
        first.chars().filter(|one| one.is_ascii_alphanumeric() || *one == '-').take(40).collect();
    if label.is_empty() { "host".to_owned() } else { label }
}

/// A discovery controller that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// The name under which the controller is announced.
    pub name: String,
    /// The controller's NQN; empty if the announcement has none.
    pub nqn: String,
    /// The controller's transport: `tcp`.
    pub transport: String,
    /// The controller's IP addresses.
    pub addresses: Vec<IpAddr>,
    /// The controller's port.
    pub port: u16,
}

/// Looks for discovery controllers for the time `length`, on the interface of `only` or on all
/// interfaces. `port` is the UDP port, which is [`PORT`] except in tests.
///
/// # Errors
/// When the process has no descriptors left.
pub fn search(length: Duration, only: Option<Host>, port: u16) -> Result<Vec<Found>, MdnsError> {
    let daemon = ServiceDaemon::new_with_port(port)?;
    if let Some(address) = only {
        daemon.disable_interface(IfKind::All)?;
        // One address may be at several interfaces, if it is one of a link.
        let name = Some(address.zone()).filter(|zone| *zone > 0).and_then(|zone| interface_name(zone).ok());
        daemon.enable_interface(name.map_or(IfKind::Addr(address.0.ip()), IfKind::Name))?;
    }
    let events = daemon.browse(SERVICE)?;
    let end = Instant::now() + length;
    let mut found: Vec<Found> = Vec::new();
    while let Ok(event) = events.recv_deadline(end) {
        match event {
            ServiceEvent::ServiceResolved(service) => {
                let text =
                    |key| service.txt_properties.get_property_val_str(key).unwrap_or_default().to_owned();
                let mut addresses: Vec<_> =
                    service.addresses.iter().map(mdns_sd::ScopedIp::to_ip_addr).collect();
                addresses.sort_unstable();
                let name = service.fullname.trim_end_matches(SERVICE).trim_end_matches('.').to_owned();
                let one =
                    Found { name, nqn: text(NQN), transport: text(TRANSPORT), addresses, port: service.port };
                found.retain(|other| other.name != one.name);
                if found.len() < FOUND_MAX {
                    found.push(one);
                }
            }
            ServiceEvent::ServiceRemoved(_, name) => {
                let name = name.trim_end_matches(SERVICE).trim_end_matches('.');
                found.retain(|other| other.name != name);
            }
            _ => {}
        }
    }
    let _ = daemon.shutdown();
    found.sort_unstable();
    Ok(found)
}
