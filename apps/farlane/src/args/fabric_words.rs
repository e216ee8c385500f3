//! Where a controller over a fabric is, in nvme-cli's words: options in the place of a URL.

use clap::Args;

use crate::error::{Error, NvmeError};

/// A controller over a fabric, as nvme-cli names it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FabricPlace {
    /// Use this fabric: tcp or rdma
    #[arg(short = 't', long, value_name = "TYPE", requires = "traddr", value_parser = ["tcp", "rdma"])]
    transport: Option<String>,
    /// Use the controller at this address, in place of a URL
    #[arg(short = 'a', long, value_name = "ADDRESS", requires = "transport", conflicts_with = "url")]
    traddr: Option<String>,
    /// Use this port [default: that of the fabric]
    #[arg(short = 's', long, value_name = "PORT", requires = "traddr", value_parser = clap::value_parser!(u16).range(1..))]
    trsvcid: Option<u16>,
}

impl FabricPlace {
    /// Whether a place was given.
    pub(crate) const fn is_given(&self) -> bool {
        self.traddr.is_some()
    }

    /// The URL of the place, and of the subsystem `name` there; `None` if no place was given.
    ///
    /// # Errors
    /// When the address or the name is none.
    pub(crate) fn url<T: std::str::FromStr<Err = String>>(&self, name: &str) -> Result<Option<T>, Error> {
        let Some(address) = &self.traddr else { return Ok(None) };
        let fabric = self.transport.as_deref().unwrap_or("tcp");
        let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
        let port = self.trsvcid.map(|port| format!(":{port}")).unwrap_or_default();
        let name = if name.is_empty() { String::new() } else { format!("/{name}") };
        let url = format!("nvme-{fabric}://{host}{port}{name}");
        url.parse().map(Some).map_err(|why| NvmeError::NoPlace { url, why }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use live::client::{SubsystemUrl, Url};

    fn place(transport: &str, address: &str, port: Option<u16>) -> FabricPlace {
        let (transport, traddr) = (Some(transport.to_owned()), Some(address.to_owned()));
        FabricPlace { transport, traddr, trsvcid: port }
    }

    #[test]
    fn a_place_is_a_url() {
        let url = |place: FabricPlace| place.url::<SubsystemUrl>("").unwrap().unwrap().to_string();
        assert_eq!(url(place("tcp", "192.0.2.7", Some(8009))), "nvme-tcp://192.0.2.7:8009");
        assert_eq!(url(place("rdma", "2001:db8::1", None)), "nvme-rdma://[2001:db8::1]");
        let disk: Url = place("tcp", "host", None).url("nqn.2014-08.org.example:disk").unwrap().unwrap();
        assert_eq!(disk.to_string(), "nvme-tcp://host/nqn.2014-08.org.example:disk");
        assert!(FabricPlace::default().url::<Url>("x").unwrap().is_none());
        let wrong = place("tcp", "host", None).url::<Url>("disk").unwrap_err().to_string();
        assert!(wrong.contains("nvme-tcp://host/disk"), "{wrong}");
    }
}
