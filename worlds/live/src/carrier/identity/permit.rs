//! The rights of a host, as text behind the host's key or name.

use nvme::subsystem::{NAMESPACE_ID_MAX, Permit};
use nvme::wire::NamespaceId;

/// The words that [`take`] knows, for messages.
pub const PARTS: &str = "nsid=N, readonly, iops=N, bandwidth=SIZE";

/// Adds one part to the rights of a host: `nsid=N[+N…]`, `readonly`, `iops=N` or `bandwidth=SIZE`.
/// Sizes are bytes a second: `100MiB`. Returns whether `part` is one of these.
///
/// # Errors
/// When the part's value is wrong, or the part was given before.
pub fn take(permit: &mut Permit, part: &str) -> Result<bool, String> {
    match part.split_once('=') {
        None if part == "readonly" => permit.read_only = true,
        Some(("nsid", _)) if permit.namespaces.is_some() => {
            return Err("nsid= is given twice; nsid=1+3 shows two namespaces".to_owned());
        }
        Some((key @ "iops", _)) if permit.rate.operations.is_some() => return Err(twice(key)),
        Some((key @ "bandwidth", _)) if permit.rate.bytes.is_some() => return Err(twice(key)),
        Some(("nsid", value)) => permit.namespaces = Some(namespaces(value)?),
        Some(("iops", value)) => permit.rate.operations = Some(count(part, value)?),
        Some(("bandwidth", value)) => permit.rate.bytes = Some(a_second(part, value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn twice(key: &str) -> String {
    format!("{key}= is given twice; give it once")
}

/// Parses a number a second, which is not 0.
fn count(part: &str, value: &str) -> Result<u64, String> {
    value
        .parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("'{part}': expected a number above 0"))
}

/// Parses a size a second, which is not 0.
fn a_second(part: &str, value: &str) -> Result<u64, String> {
    match parse_size::Config::new().with_binary().parse_size(value) {
        Ok(amount @ 1..) => Ok(amount),
        _ => Err(format!("'{part}': expected a size above 0 a second, such as 100MiB")),
    }
}

/// Parses identifiers of namespaces, joined by `+`.
fn namespaces(text: &str) -> Result<Vec<NamespaceId>, String> {
    let one = |text: &str| match text.parse() {
        Ok(id @ 1..=NAMESPACE_ID_MAX) => Ok(NamespaceId(id)),
        _ => Err(format!("nsid={text}: expected 1 to {NAMESPACE_ID_MAX}, joined by + if there are several")),
    };
    text.split('+').map(one).collect()
}
