//! `farlane demo`: the whole system on one machine, verified and measured.

mod child;
mod figures;
mod floor;
mod measure;
mod network;
mod next;
pub(crate) mod report;
mod way;

use live::sys::logging;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use live::media::Media;
use nvme::host::Namespace;
use nvme::media::ram::RamDisk;
use nvme::subsystem::Config;
use nvme_pcie::{controller, function};

use crate::args::{BlockExtent, DemoArgs, Extent, Secrets, Spin, Target, TunnelOptions};
use crate::commands::copy::Copy;
use crate::commands::pieces::Nowhere;
use crate::commands::print;
use crate::error::Error;
use crate::hops;
use crate::session::{Needs, Session};
use child::Child;
use figures::Subjects;
use network::Network;
use report::{Over, Report, Verified};
use way::Way;

/// Bytes of the measured namespace. Its memory stays in cache, as the floor server's data do, so
/// that the figures are those of the path, not of a disk.
const MEASURED_BYTES: u64 = 1 << 20;
/// Most bytes of data under way at once: 32 commands of 128 KiB.
const DATA_BYTES: u64 = 32 * (128 << 10);
/// How long both ends spin before they sleep: longer than any pause within a measurement.
const SPIN: Duration = Duration::from_millis(20);
/// How long both ends spin before they sleep where a network is emulated between them. The network
/// may take long, and wants a processor too.
const SPIN_OVER: Duration = Duration::from_millis(1);
/// How long the far end may take to appear.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &DemoArgs) -> Result<(), Error> {
    let say = |text: &str| {
        if !args.output.json {
            logging::show(format!("{text}\n"));
        }
    };
    let source = match &args.file {
        Some(path) => {
            let length = File::open(path).and_then(|file| file.metadata());
            let error = |error| Error::File { path: path.clone(), error };
            if length.map_err(error)?.len() == 0 {
                return Err(error(empty_file()));
            }
            path.clone()
        }
        None => {
            std::env::current_exe().map_err(|error| Error::Child { what: "finding farlane itself", error })?
        }
    };
    let way = Way::of(args)?;
    let described = args.link.as_ref().map(|path| network::read(path, args.seed)).transpose()?;
    let directory = tempfile::Builder::new()
        .prefix("farlane-demo-")
        .tempdir_in(args.directory.clone().unwrap_or_else(std::env::temp_dir))
        .map_err(|error| Error::File {
            path: args.directory.clone().unwrap_or_else(std::env::temp_dir),
            error,
        })?;
    let size = args.size.next_multiple_of(4096).max(4096);
    let disk = directory.path().join("far-ssd.img");

    // Two ends that spin need a processor each, where there are two. Children inherit our
    // processor, so ours is chosen last. Where a network is emulated as well, no process has a
    // processor to itself.
    let (spin, cpu) = if described.is_some() { (SPIN_OVER, None) } else { (SPIN, Some(second())) };
    let far = Child::export(&disk, size, MEASURED_BYTES, (cpu, spin), &way)?;
    let mut url = far.url(directory.path(), &way);
    say(&format!("a far end is up: process {}, {} on {url}", far.id(), disk.display()));
    let (mut floor, mut network) = (None, None);
    if let Some(described) = &described {
        let between = Network::start(described, far.address())?;
        url = format!("tcp://{}", between.address());
        say(&format!("{} lies between: {url}", described.path.display()));
        network = Some(between);
    } else {
        floor = Some(Child::floor_server(second())?);
        pin(0);
    }
    let target = Target {
        url: url.parse().expect("the URL was printed by ourselves"),
        timeout: PATIENCE,
        capture: args.capture.clone(),
        root: args.root,
        tunnel: TunnelOptions { lookahead: args.lookahead, ..TunnelOptions::default() },
        secrets: Secrets::default(),
        spin: Spin { spin, cpu: None },
    };
    let needs = Needs { data_bytes: DATA_BYTES, depth: 32, stamps: false, round_trips: true };
    let mut tunnel = Session::attach(&target, needs)?;
    let tree = tunnel
        .near()
        .and_then(assemblies::near::Near::topology)
        .map(|topology| pcie::lspci::tree(topology, true))
        .unwrap_or_default();
    say(&format!("attached and enumerated:\n\n{tree}"));

    let verified = verify(&mut tunnel, &source, args.size, !args.output.json)?;
    say(&format!(
        "{} of {} written and read back: {}\n  sha256 {}\n",
        human(args.size),
        source.display(),
        if verified.verified { "the same" } else { "DIFFERENT" },
        verified.sha256
    ));

    let mut direct = direct()?;
    let mut subjects = Subjects {
        tunnel_namespace: tunnel.namespace(2)?,
        direct_namespace: direct.namespace(1)?,
        tunnel: &mut tunnel,
        direct: &mut direct,
        floor: floor.as_ref().map(Child::address),
    };
    say(match described {
        None => {
            "measuring: this machine's own TCP, the same SSD without a tunnel, and through the tunnel …\n"
        }
        Some(_) => "measuring: the same SSD without a tunnel, and through the tunnel over that network …\n",
    });
    let figures = measure::all(&mut subjects, args.runtime.into(), !args.output.json)?;
    tunnel.close()?;
    direct.close()?;
    // Attach once more, with time stamps on every frame. The capture has the session before.
    let mut stamped = Session::attach_to(&target.url, &target, None, Needs { stamps: true, ..needs })?;
    let namespace = stamped.namespace(2)?;
    let hops = hops::follow(&mut stamped, namespace)?;
    stamped.close()?;
    let over = match (described, network) {
        (Some(described), Some(network)) => {
            let (carried, simulated) =
                (network.end()?, network::simulate(&described, args.lookahead.is_on())?);
            Some(Over { described, carried, simulated })
        }
        _ => None,
    };
    let lookahead = args.lookahead.is_on();
    Report { carrier: args.carrier, verified, figures, hops, lookahead, over }.print(args.output.json)?;
    if args.output.json {
        return Ok(());
    }
    let program = std::env::args_os().next().unwrap_or_else(|| "farlane".into());
    print(&next::steps(&program.to_string_lossy()))
}

/// The far end's processor: the second one, where there are two.
fn second() -> usize {
    live::reactor::processors().map_or(0, |count| usize::from(count > 1))
}

/// Keeps the near end off the far end's processor. If it can't, the figures are worse, not wrong.
fn pin(cpu: usize) {
    let _ = live::reactor::pin(cpu);
}

fn human(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// A session with the same controller in this process, directly on the root port.
fn direct() -> Result<Session, Error> {
    let mut media = Media::new();
    let medium = media.add(RamDisk::new(MEASURED_BYTES))?;
    let core = Config::new("DIRECT").with_namespace(medium, MEASURED_BYTES);
    let function = function::Config::new(controller::Config::new(core));
    let needs = Needs { data_bytes: DATA_BYTES, depth: 32, ..Needs::default() };
    Session::direct(function, media, needs, SPIN.into(), PATIENCE.into())
}

/// Writes the file at `source`, repeated up to `size` bytes, to the first namespace, and then reads
/// it back.
fn verify(session: &mut Session, source: &Path, size: u64, show: bool) -> Result<Verified, Error> {
    let namespace = session.namespace(1)?;
    let file_error = |error| Error::File { path: source.to_owned(), error };
    let mut file = File::open(source).map_err(file_error)?;
    if file.metadata().map_err(file_error)?.len() == 0 {
        return Err(file_error(empty_file()));
    }
    let written = {
        let mut copy = copy(session, namespace, size, show)?;
        let mut left = size;
        copy.write(Some(size), source, |bytes: &mut [u8]| {
            let count = repeat(&mut file, bytes, left)?;
            left -= count as u64;
            Ok(count)
        })?;
        copy.finish()
    };
    let mut copy = copy(session, namespace, size, show)?;
    copy.read(size, source, Nowhere)?;
    let sha256 = copy.finish();
    Ok(Verified { verified: sha256 == written, bytes: size, sha256 })
}

fn copy(session: &mut Session, namespace: Namespace, size: u64, show: bool) -> Result<Copy<'_>, Error> {
    let extent = Extent {
        namespace: namespace.id.0,
        offset: 0,
        length: Some(size),
        bs: 128 << 10,
        iodepth: 32,
        blocks: BlockExtent::default(),
    };
    Copy::new(session, namespace, &extent, show)
}

fn empty_file() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the file is empty")
}

/// Fills `bytes` from `file`, beginning again at the file's end, with `left` bytes at most. Returns
/// how many were filled.
fn repeat(file: &mut File, bytes: &mut [u8], left: u64) -> std::io::Result<usize> {
    let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    let mut filled = 0;
    while filled < wanted {
        match file.read(&mut bytes[filled..wanted])? {
            0 => file.rewind()?,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// The path of this program, to start it again.
fn own_path() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|error| Error::Child { what: "finding farlane itself", error })
}
