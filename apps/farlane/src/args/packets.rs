//! URLs of sources of packets.

use std::net::SocketAddr;
use std::str::FromStr;

use live::drivers::record::Interface;
use live::sys::address::Host;
use record::sequence::{FIELD_MAX, Field, Protocol, WINDOW_DEFAULT};

/// The size of the kernel's buffer of a socket unless one is given, in bytes.
pub(crate) const SOCKET_BUFFER_DEFAULT: usize = 16 << 20;
/// The longest window, in packets.
const WINDOW_MAX: u32 = 100;
/// No datagram is longer, so no field lies behind this place.
const OFFSET_MAX: usize = 65_507;

/// Datagrams at an address, with options behind a question mark.
#[derive(Clone, Debug)]
pub(crate) struct UdpUrl {
    pub(crate) text: String,
    pub(crate) address: SocketAddr,
    pub(crate) interface: Option<Interface>,
    pub(crate) source: Option<Host>,
    pub(crate) buffer: usize,
    pub(crate) payload: bool,
    pub(crate) sequence: Option<Protocol>,
    pub(crate) window: u32,
}

impl FromStr for UdpUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, options) = text.split_once('?').unwrap_or((text, ""));
        let mut url = Self {
            text: format!("udp://{text}"),
            address: super::parse_address(address)?,
            interface: None,
            source: None,
            buffer: SOCKET_BUFFER_DEFAULT,
            payload: false,
            sequence: None,
            window: WINDOW_DEFAULT,
        };
        let mut given = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            super::note_once(&mut given, option)?;
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            url.take(key, value)?;
        }
        let is_group = url.address.ip().is_multicast();
        if !is_group && (url.interface.is_some() || url.source.is_some()) {
            return Err(format!(
                "iface and source are for groups, and {} is none; expected an address such as 239.1.2.3",
                url.address.ip()
            ));
        }
        if url.source.is_some_and(|source| source.0.is_ipv4() != url.address.is_ipv4()) {
            return Err("source is of another family than the group".to_owned());
        }
        Ok(url)
    }
}

impl UdpUrl {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "payload" if value.is_empty() => self.payload = true,
            "iface" if !value.is_empty() => {
                let address = value.parse().map(Interface::Address);
                self.interface = Some(address.unwrap_or_else(|_| Interface::Name(value.to_owned())));
            }
            "source" => {
                let source = value.parse().map_err(|why| format!("source={value}: {why}"))?;
                self.source = Some(source);
            }
            "buffer" => {
                let size =
                    super::parse_positive_size(value).map_err(|why| format!("buffer={value}: {why}"))?;
                let size = usize::try_from(size).ok().filter(|size| *size <= 1 << 30);
                self.buffer = size.ok_or_else(|| format!("buffer={value}: expected at most 1GiB"))?;
            }
            "window" => {
                let window = value.parse().ok().filter(|window| *window <= WINDOW_MAX);
                self.window =
                    window.ok_or_else(|| format!("window={value}: expected 0 to {WINDOW_MAX} packets"))?;
            }
            "sequence" => self.sequence = Some(parse_sequence(value)?),
            _ => {
                return Err(format!(
                    "{key}: expected payload, iface=NAME|ADDR, source=ADDR, buffer=SIZE, \
                     sequence=rtp|vita49|gvsp|spead[,step:K]|offset:BYTES,bytes:N, window=PACKETS"
                ));
            }
        }
        Ok(())
    }
}

fn parse_sequence(text: &str) -> Result<Protocol, String> {
    match text {
        "rtp" => return Ok(Protocol::Rtp),
        "vita49" => return Ok(Protocol::Vita49),
        "gvsp" => return Ok(Protocol::Gvsp),
        "spead" => return Ok(Protocol::Spead { step: None }),
        _ => {}
    }
    if let Some(step) = text.strip_prefix("spead,step:") {
        let step = step.parse().map_err(|_| format!("step:{step}: expected a number from 1 on"))?;
        return Ok(Protocol::Spead { step: Some(step) });
    }
    let expected = || {
        format!(
            "sequence={text}: expected rtp, vita49, gvsp, spead, spead,step:K, or the place of a number, such as \
             offset:4,bytes:4,step:1,le (offset up to {OFFSET_MAX}, 1 to {FIELD_MAX} bytes)"
        )
    };
    let (mut offset, mut bytes) = (None, None);
    let (mut step, mut little_endian) = (1, false);
    let mut given = Vec::new();
    for part in text.split(',') {
        super::note_once(&mut given, part)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| expected());
        match part.split_once(':').unwrap_or((part, "")) {
            ("offset", value) => offset = Some(number(value)?).filter(|offset| *offset <= OFFSET_MAX),
            ("bytes", value) => bytes = Some(number(value)?).filter(|bytes| (1..=FIELD_MAX).contains(bytes)),
            ("step", value) => step = value.parse().map_err(|_| expected())?,
            ("le", "") => little_endian = true,
            ("be", "") => little_endian = false,
            _ => return Err(expected()),
        }
    }
    let (Some(offset), Some(bytes)) = (offset, bytes) else { return Err(expected()) };
    let highest = u64::MAX >> (64 - 8 * bytes);
    if step == 0 || step > highest / 4 {
        return Err(format!("step:{step}: expected 1 to {}, a quarter of the highest number", highest / 4));
    }
    Ok(Protocol::Field(Field { offset, bytes, step, little_endian }))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn options_are_taken_and_wrong_ones_say_what_was_expected() {
        let url: UdpUrl =
            "239.1.2.3:5000?iface=eth0&source=192.0.2.1&payload&sequence=gvsp&window=0&buffer=1m"
                .parse()
                .expect("all options are known");
        assert_eq!((url.interface, url.buffer), (Some(Interface::Name("eth0".to_owned())), 1 << 20));
        assert_eq!((url.payload, url.sequence, url.window), (true, Some(Protocol::Gvsp), 0));
        let url: UdpUrl = "[::1]:5000?sequence=offset:2,bytes:4,step:16,le".parse().expect("a field");
        let field = Field { offset: 2, bytes: 4, step: 16, little_endian: true };
        assert_eq!(url.sequence, Some(Protocol::Field(field)));
        let url: UdpUrl = "[::1]:5000?sequence=spead,step:80".parse().expect("a step");
        assert_eq!(url.sequence, Some(Protocol::Spead { step: NonZeroU64::new(80) }));
        for (wrong, expected) in [
            ("127.0.0.1:1?sequence=spead,step:0", "from 1 on"),
            ("127.0.0.1:1?iface=lo", "for groups"),
            ("127.0.0.1:1?sequence=rtcp", "expected rtp, vita49"),
            ("127.0.0.1:1?sequence=offset:0", "expected rtp, vita49"),
            ("127.0.0.1:1?sequence=offset:0,bytes:9", "1 to 8 bytes"),
            ("127.0.0.1:1?sequence=offset:0,bytes:1,step:0", "1 to 63"),
            ("127.0.0.1:1?window=101", "0 to 100"),
            ("127.0.0.1:1?mtu=9000", "expected payload"),
            ("127.0.0.1?payload", "expected ADDRESS:PORT"),
            ("[ff02::1]:1?source=192.0.2.1", "another family"),
            ("127.0.0.1:1?window=1&payload&window=2", "window is given twice"),
            ("127.0.0.1:1?sequence=offset:0,bytes:1,offset:4", "offset is given twice"),
        ] {
            let error = wrong.parse::<UdpUrl>().expect_err(wrong);
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
