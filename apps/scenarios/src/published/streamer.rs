//! "NVMe Streamer for High-Speed FPGA Data Acquisition & Recording": the rate of a session by its
//! number of chunks, and a whole disk, on the model of a Samsung 960 EVO 250 GB.

use engine::{Instant, Nanos, Rng};
use sim::models::ssd::drive::{self, Load};
use sim::models::ssd::{Parameters, Ssd};

use super::{Kind, Report, Row, decimal};

const EXPERIMENT: &str = "streamer";
/// Length of a chunk in bytes.
const CHUNK: u64 = 128 << 10;
/// Number of chunks on the disk.
const DISK: u64 = 1_907_801;
/// Number of chunks under way at a time.
const DEPTH: usize = 64;
/// Number of bytes in a mebibyte.
const MIB: u64 = 1 << 20;
/// Start and end of a session, beside the commands: fitted.
const SESSION: Nanos = Nanos::from_micros(147);
/// A read session of n chunks begins by this time divided by n² later: fitted, of unknown cause.
const READ_WAIT: Nanos = Nanos::from_micros(54_200);

/// The parameters that were fitted.
const FITTED: [&str; 8] = [
    "time of a session",
    "rate of the write path",
    "write buffer",
    "rate into fast cells",
    "fast cells left",
    "rate for good",
    "rate of the read path",
    "wait of short read sessions",
];

/// Chunks of a session, the published rates of writes and reads in MiB/s, and whether a parameter
/// was fitted to each.
const SESSIONS: [(u64, [(u64, bool); 2]); 13] = [
    (1, [(750, true), (13, false)]),
    (2, [(1_004, false), (18, false)]),
    (4, [(1_192, false), (134, true)]),
    (8, [(1_321, false), (627, false)]),
    (16, [(1_399, false), (1_482, false)]),
    (32, [(1_438, false), (1_616, false)]),
    (64, [(1_461, false), (1_862, false)]),
    (128, [(1_471, true), (1_863, false)]),
    (256, [(1_047, true), (1_885, false)]),
    (512, [(552, false), (1_896, false)]),
    (1_024, [(395, true), (1_901, false)]),
    (32_768, [(257, true), (1_907, true)]),
    (DISK, [(202, true), (1_903, false)]),
];

/// The 960 EVO of the experiment: its fast cells are nearly full, as the disk was written before.
fn parameters() -> Parameters {
    let preset = Parameters::named("960-evo").expect("a known model");
    Parameters {
        write_rate: 1_481 * MIB,
        read_rate: 1_908 * MIB,
        buffer: 22 * MIB,
        cache: 2_234 * MIB,
        cache_program: preset.program_at(327 * MIB),
        program: preset.program_at(2_012 * MIB / 10),
        // Only whole sectors matter to chunks.
        piece: 4096,
        ..preset
    }
}

/// The time of a session of `count` chunks on a rested disk.
fn session(write: bool, count: u64, rng: &mut Rng) -> Nanos {
    let parameters = parameters();
    let mut ssd = Ssd::new(parameters, rng.fork("ssd"));
    let load = Load { write, random: false, length: CHUNK, depth: DEPTH, count, rate: None };
    let end = drive::run(&mut ssd, &load, Instant::ZERO, parameters.capacity, rng, |_| ());
    let waits = if write { SESSION } else { READ_WAIT / (count * count).min(READ_WAIT.get()) };
    waits + (end - Instant::ZERO)
}

pub(super) fn run(seed: u64) -> Result<Report, String> {
    let mut report = Report { fitted: &FITTED, ..Report::default() };
    for (way, write) in [(0, true), (1, false)] {
        for (count, published) in SESSIONS {
            let (published, is_fitted) = published[way];
            let mut rng = Rng::from_seed(seed).fork(EXPERIMENT);
            let time = session(write, count, &mut rng);
            let name = if write { "write" } else { "read" };
            let row = match count {
                DISK => format!("{name}: full disk"),
                1 => format!("{name}: 1 chunk a session"),
                _ => format!("{name}: {count} chunks a session"),
            };
            report.rows.push(Row {
                experiment: EXPERIMENT,
                row,
                published: Some(decimal(published)),
                ours: decimal(count * CHUNK) / decimal(MIB) / (decimal(time.get()) / 1e9),
                unit: "MiB/s",
                kind: if is_fitted { Kind::Calibrated } else { Kind::Predicted },
                source: "the model of the SSD; its paths, buffer and fast cells as fitted",
            });
            report.add(count, time.get());
        }
    }
    Ok(report)
}
