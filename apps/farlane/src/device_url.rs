//! Where a controller is, in the form that every command takes.

use std::path::PathBuf;
use std::str::FromStr;

use crate::args::Url;
use crate::fabrics::url::{self, SubsystemUrl};

/// The address of a controller: `tcp://HOST:PORT`, `vfio-user:SOCKET` or
/// `nvme-tcp://HOST:PORT/NQN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceUrl {
    /// A controller at a far end.
    Tcp(Url),
    /// A controller in another process of this machine, which offers it by vfio-user at this
    /// socket.
    VfioUser(PathBuf),
    /// A controller of this NVMe/TCP subsystem.
    NvmeTcp(Box<SubsystemUrl>),
}

const SCHEME: &str = "vfio-user:";

impl FromStr for DeviceUrl {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(url::SCHEME) {
            let url: SubsystemUrl = text.parse()?;
            if url.subsystem.is_discovery() {
                return Err(format!(
                    "which subsystem? expected {text}/NQN; farlane discover {text} lists them"
                ));
            }
            return Ok(Self::NvmeTcp(Box::new(url)));
        }
        match text.strip_prefix(SCHEME) {
            Some("" | "//" | "///") => Err(format!(
                "no socket; expected {SCHEME}SOCKET, for example {SCHEME}/run/user/1000/ssd.sock"
            )),
            Some(path) => Ok(Self::VfioUser(path.strip_prefix("//").unwrap_or(path).into())),
            None => text
                .parse()
                .map(Self::Tcp)
                .map_err(|error| format!("{error}; or {SCHEME}SOCKET; or {}HOST:PORT/NQN", url::SCHEME)),
        }
    }
}

impl std::fmt::Display for DeviceUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(url) => url.fmt(f),
            Self::VfioUser(path) => write!(f, "{SCHEME}{}", path.display()),
            Self::NvmeTcp(url) => url.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_at_a_far_end_or_at_a_socket() {
        for (text, path) in [
            ("vfio-user:ssd.sock", "ssd.sock"),
            ("vfio-user:/run/ssd.sock", "/run/ssd.sock"),
            ("vfio-user:///run/ssd.sock", "/run/ssd.sock"),
        ] {
            assert_eq!(text.parse(), Ok(DeviceUrl::VfioUser(path.into())));
        }
        let url: DeviceUrl = "tcp://localhost:4430".parse().unwrap();
        assert_eq!(url.to_string(), "tcp://localhost:4430");
        for wrong in ["vfio-user:", "vfio-user://", "/run/ssd.sock", "udp://a:1", "tcp://a"] {
            let error = wrong.parse::<DeviceUrl>().unwrap_err();
            assert!(error.contains("expected") && error.contains("vfio-user:SOCKET"), "{wrong}: {error}");
        }
    }
}
