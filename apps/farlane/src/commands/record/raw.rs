//! `farlane record --raw`: a stream's bytes alone, from an address on.

use live::drivers::record::{Handle, Limits, Recorded, Source, record_raw};
use record::RawConfig;
use record::format::{ALIGNMENT, Content};

use super::account::{Addresses, RawEnd};
use super::view::View;
use super::{first, print, print_json, recorder, sources};
use crate::args::{RecordArgs, SourceUrl, UdpUrl};
use crate::commands::medium::refused;
use crate::error::Error;

/// Refuses options that do not suit a raw recording, and publishes the addresses between which it
/// will be.
pub(super) fn check(args: &RecordArgs, handle: &Handle) -> Result<(), Error> {
    let ([_], [_]) = (args.from.as_slice(), args.to.as_slice()) else {
        let (from, to) = (args.from.len(), args.to.len());
        return Err(Error::Raw { why: format!("{from} --from and {to} --to: expected one of each") });
    };
    let (start, end) = (args.raw.start_address, args.raw.maximum_address);
    if let Some(end) = end.filter(|end| *end <= start) {
        let why = format!("--start-address {start}: expected less than --maximum-address, which is {end}");
        return Err(Error::Raw { why });
    }
    handle.update(|status| {
        status.can_address = args.control.on_demand;
        (status.start_address, status.maximum_address) = (start, end.unwrap_or(0));
        status.chunks_max = args.raw.chunks.unwrap_or(0);
    });
    Ok(())
}

pub(super) fn session(args: &RecordArgs, handle: &Handle) -> Result<(), Error> {
    // A request to start may have set other addresses.
    let status = handle.status();
    let (start, end) = (status.start_address, Some(status.maximum_address).filter(|end| *end > 0));
    let chunks = Some(status.chunks_max).filter(|chunks| *chunks > 0);
    let is_page = |address: u64| address.is_multiple_of(u64::from(ALIGNMENT));
    if !is_page(start) || end.is_some_and(|end| !is_page(end) || end <= start) {
        let end = end.unwrap_or(u64::MAX);
        let why =
            format!("addresses {start} to {end}: expected multiples of {ALIGNMENT}, the first one less");
        return Err(Error::Raw { why });
    }
    let source = sources::open(&without_heads(&args.from[0]), args)?;
    if source.content() != Content::Bytes {
        let name = sources::name(&args.from[0]);
        let why =
            format!("{name}: expected a source of bytes or of datagrams, and not of an interface's packets");
        return Err(Error::Raw { why });
    }
    let (buffer, algorithm) = (recorder::chunks(args)?, args.proof.digest.into());
    let config = RawConfig::new(args.chunk, start);
    let config = RawConfig { buffer, end, chunks, algorithm, ..config };
    let target = recorder::target(first(&args.to))?;
    let limits = Limits { time: args.time, bytes: args.size };
    let recorded = run((target, args.force), config, source, limits, (args, handle));
    let recorded = recorded?;
    report(args, start, handle, &recorded)
}

/// The same source, whose datagrams have no heads. A gap takes its place only before the bytes
/// behind it, so that the recorder does not wait for datagrams in another order.
fn without_heads(url: &SourceUrl) -> SourceUrl {
    match url {
        SourceUrl::Udp(udp) => {
            SourceUrl::Udp(Box::new(UdpUrl { payload: true, window: 0, ..udp.as_ref().clone() }))
        }
        other => other.clone(),
    }
}

fn run(
    place: (live::drivers::record::Target<'_>, bool),
    config: RawConfig,
    source: Source,
    limits: Limits,
    (args, handle): (&RecordArgs, &Handle),
) -> Result<Recorded, Error> {
    let mut view = View::new(args.output.json);
    let recorded = record_raw(place, config, source, limits, handle, |status| view.show(status));
    view.end();
    recorded.map_err(|why| refused(&args.to, why))
}

fn report(args: &RecordArgs, start: u64, handle: &Handle, recorded: &Recorded) -> Result<(), Error> {
    live::sys::logging::flush();
    let status = handle.status();
    if args.output.json {
        let (maximum_address, last_address) = (status.maximum_address, status.last_address);
        let addresses = Addresses { start_address: start, maximum_address, last_address };
        print_json(&RawEnd::of(recorded, addresses))?;
    } else {
        let addresses = format!("  from address {start} up to {}\n", status.last_address);
        print(&(recorder::text(args, recorded) + &addresses))?;
    }
    match recorded.is_certified {
        true => Ok(()),
        false => Err(Error::Raw { why: "the medium failed to make its accepted data durable".to_owned() }),
    }
}
