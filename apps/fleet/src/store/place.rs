//! Where a store is, as users write it.

use std::path::PathBuf;
use std::str::FromStr;

use fleet::Name;

/// The port of etcd's clients.
const PORT: u16 = 2379;

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file of this machine: `file:PATH`.
    File(PathBuf),
    /// In etcd: `etcd://HOST:PORT,HOST:PORT/CLUSTER`.
    Etcd {
        /// The members of etcd, as `HOST:PORT`.
        endpoints: Vec<String>,
        /// The name of the fleet in that etcd.
        cluster: Name,
    },
}

/// A text that is no [`Place`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{}\" is no store: {reason}; expected file:PATH or etcd://HOST:PORT,HOST:PORT/CLUSTER", .text.escape_debug())]
pub struct PlaceError {
    text: String,
    reason: String,
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let error = |reason: String| PlaceError { text: text.to_owned(), reason };
        if let Some(path) = text.strip_prefix("file:") {
            return match path {
                "" => Err(error("it has no path".to_owned())),
                path if path.contains('\0') => Err(error("a path has no NUL".to_owned())),
                path => Ok(Self::File(path.into())),
            };
        }
        let Some(rest) = text.strip_prefix("etcd://") else {
            return Err(error("it begins with neither file: nor etcd://".to_owned()));
        };
        let Some((hosts, cluster)) = rest.split_once('/') else {
            return Err(error("it has no /CLUSTER, the name of the fleet in that etcd".to_owned()));
        };
        let endpoints = hosts.split(',').map(endpoint).collect::<Result<_, _>>().map_err(error)?;
        let cluster = Name::new(cluster).map_err(|reason| error(reason.to_string()))?;
        Ok(Self::Etcd { endpoints, cluster })
    }
}

/// `HOST:PORT` from `HOST` or `HOST:PORT`.
fn endpoint(text: &str) -> Result<String, String> {
    let quoted = text.escape_debug();
    // An IPv6 address has brackets, as in each URL.
    let after_host = text.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match text.get(after_host..).and_then(|rest| rest.rfind(':')) {
        Some(at) => (&text[..after_host + at], &text[after_host + at + 1..]),
        None => (text, ""),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_good = match inner {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            !host.is_empty() && host.bytes().all(is_part)
        }
    };
    if !is_good {
        return Err(format!("\"{quoted}\" has no host that is a name, an IPv4 address or [an IPv6 address]"));
    }
    let port = match port {
        "" if host.len() == text.len() => PORT,
        port => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(format!("\"{quoted}\" has no port from 1 to 65535")),
        },
    };
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etcd(endpoints: &[&str], cluster: &str) -> Place {
        let endpoints = endpoints.iter().map(ToString::to_string).collect();
        Place::Etcd { endpoints, cluster: Name::new(cluster).unwrap() }
    }

    #[test]
    fn places_are_files_or_etcd() {
        for (text, place) in [
            ("file:a", Place::File("a".into())),
            ("file:/var/lib/a b", Place::File("/var/lib/a b".into())),
            ("etcd://a/f", etcd(&["a:2379"], "f")),
            ("etcd://a:1,b-2.c:65535/f-1", etcd(&["a:1", "b-2.c:65535"], "f-1")),
            (
                "etcd://[::1]:5,[fe80::1],10.0.0.1/f",
                etcd(&["[::1]:5", "[fe80::1]:2379", "10.0.0.1:2379"], "f"),
            ),
        ] {
            assert_eq!(text.parse::<Place>(), Ok(place), "{text}");
        }
    }

    #[test]
    fn an_error_names_the_part_and_the_form() {
        for (text, part) in [
            ("", "begins with neither"),
            ("/var/lib/x", "begins with neither"),
            ("file:", "no path"),
            ("file:a\0b", "NUL"),
            ("etcd://", "no /CLUSTER"),
            ("etcd://a:1", "no /CLUSTER"),
            ("etcd:///f", "\"\" has no host"),
            ("etcd://a,/f", "\"\" has no host"),
            ("etcd://a:0/f", "\"a:0\" has no port"),
            ("etcd://a:/f", "\"a:\" has no port"),
            ("etcd://a:65536/f", "has no port"),
            ("etcd://::1/f", "has no host"),
            ("etcd://[::g]:1/f", "has no host"),
            ("etcd://[::1]x:1/f", "has no host"),
            ("etcd://http://a/f", "has no port"),
            ("etcd://user@a/f", "has no host"),
            ("etcd://a/F", "is no name"),
            ("etcd://a/", "is no name"),
            ("etcd://a/b/c", "is no name"),
        ] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert!(
                error.contains(part) && error.contains("expected file:PATH or etcd://"),
                "{text}: {error}"
            );
        }
    }
}
