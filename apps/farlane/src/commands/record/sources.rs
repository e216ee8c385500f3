//! Where a recording's bytes come from.

use std::io;
use std::path::{Path, PathBuf};

use live::drivers::record::{Bound, Heard, OnFull, Source, Udp};
use record::sequence::Tracker;

use super::is_same_file;
use crate::args::{OnFullArg, RecordArgs, SourceUrl, UdpUrl};
use crate::commands::medium::check_packets;
use crate::error::Error;

/// Checks the options that concern all sources together.
pub(super) fn check(args: &RecordArgs, to: &[PathBuf]) -> Result<(), Error> {
    if args.from.iter().filter(|url| matches!(url, SourceUrl::StandardInput)).count() > 1 {
        return Err(Error::TwoInputs);
    }
    let goes_to = |from: &Path| to.iter().any(|to| is_same_file(from, to));
    for url in &args.from {
        let feeds_itself = match url {
            SourceUrl::File(path) => goes_to(path),
            SourceUrl::StandardInput => goes_to(Path::new("/dev/stdin")),
            _ => false,
        };
        if feeds_itself {
            return Err(Error::FeedsItself { url: name(url) });
        }
    }
    let has_packets = args.from.iter().any(|url| matches!(url, SourceUrl::Udp(_) | SourceUrl::Packets(_)));
    // Without a container, a datagram may lie across chunks.
    if has_packets && !args.raw.raw { check_packets(args.chunk) } else { Ok(()) }
}

pub(super) fn open(url: &SourceUrl, args: &RecordArgs) -> Result<Source, Error> {
    let wrong = |error| Error::Source { url: name(url), error };
    let is_generator = matches!(url, SourceUrl::Generate(_));
    let on_full = match args.on_full {
        Some(OnFullArg::Drop) => OnFull::Drop,
        None if is_generator && args.rate.is_some() => OnFull::Drop,
        Some(OnFullArg::Wait) | None => OnFull::Wait,
    };
    let source = match url {
        SourceUrl::Listen(address) => {
            let (source, bound) = Source::listen(*address).map_err(wrong)?;
            info!("waiting for a connection at {bound}");
            source
        }
        SourceUrl::Connect(address) => Source::connect(*address).map_err(wrong)?,
        SourceUrl::File(path) => Source::file(path).map_err(wrong)?,
        SourceUrl::StandardInput => Source::standard_input().map_err(wrong)?,
        SourceUrl::Generate(rate) => Source::generate(*rate),
        SourceUrl::Udp(udp) => open_udp(udp).map_err(wrong)?,
        SourceUrl::Packets(interface) => {
            let source = Source::packets(interface).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    let interface = interface.clone();
                    Error::Capture { interface }
                }
                _ => wrong(error),
            })?;
            note!("recording the packets of {interface}");
            source
        }
    };
    Ok(source.on_full(on_full))
}

fn open_udp(url: &UdpUrl) -> io::Result<Source> {
    let Bound { source, address, buffer } = Source::udp(Udp {
        address: url.address,
        interface: url.interface.clone(),
        source: url.source,
        buffer: url.buffer,
        framed: !url.payload,
        tracker: url.sequence.map(|protocol| Tracker::new(protocol, url.window)),
    })?;
    note!("receiving datagrams at {address}");
    if buffer < url.buffer {
        warn!(
            each = true,
            "the kernel's buffer for them has {buffer} B, not {} B: raise net.core.rmem_max (sysctl), \
             or run with CAP_NET_ADMIN",
            url.buffer
        );
    }
    Ok(source)
}

pub(super) fn name(source: &SourceUrl) -> String {
    match source {
        SourceUrl::Listen(address) => format!("tcp-listen://{address}"),
        SourceUrl::Connect(address) => format!("tcp-connect://{address}"),
        SourceUrl::File(path) => format!("file:{}", path.display()),
        SourceUrl::StandardInput => "-".to_owned(),
        SourceUrl::Generate(rate) => format!("generate:{rate}"),
        SourceUrl::Udp(url) => url.text.clone(),
        SourceUrl::Packets(interface) => format!("packets:{interface}"),
    }
}

pub(super) fn heard_text(heard: &[Option<Heard>]) -> String {
    let mut text = String::new();
    for (stream, heard) in heard.iter().enumerate() {
        let Some(heard) = heard else { continue };
        text += &format!("  stream {stream}: {} packets", heard.packets);
        if let Some(counts) = heard.numbers {
            text += &format!(
                ": {} reordered, {} later than the window, {} twice, {} without a number that fits, {} restarts",
                counts.reordered, counts.late, counts.twice, counts.foreign, counts.anew
            );
        }
        text += "\n";
    }
    text
}
