//! "NVMe Streamer for High-Speed FPGA Data Acquisition & Recording": the rate of a session by its
//! number of chunks, and a whole disk, on the model of a Samsung 960 EVO 250 GB.

use engine::{Instant, Nanos, Rng};
use sim::models::ssd::drive::{self, Load};
use sim::models::ssd::{Parameters, Ssd};

use super::constants::{Constants, Recorder};
use super::{Effort, Measure, Report, Row, decimal};

const EXPERIMENT: &str = "streamer";
/// Length of a chunk in bytes.
const CHUNK: u64 = 128 << 10;
/// Number of chunks on the disk.
const DISK: u64 = 1_907_801;
/// Number of chunks under way at a time.
const DEPTH: usize = 64;
/// Number of bytes in a mebibyte.
const MIB: u64 = 1 << 20;
/// Chunks of a session, and the published rates of writes and reads in MiB/s.
const SESSIONS: [(u64, [u64; 2]); 13] = [
    (1, [750, 13]),
    (2, [1_004, 18]),
    (4, [1_192, 134]),
    (8, [1_321, 627]),
    (16, [1_399, 1_482]),
    (32, [1_438, 1_616]),
    (64, [1_461, 1_862]),
    (128, [1_471, 1_863]),
    (256, [1_047, 1_885]),
    (512, [552, 1_896]),
    (1_024, [395, 1_901]),
    (32_768, [257, 1_907]),
    (DISK, [202, 1_903]),
];

/// The 960 EVO of the experiment: its fast cells are nearly full, as the disk was written before.
fn parameters(recorder: &Recorder) -> Parameters {
    let preset = Parameters::named("960-evo").expect("a known model");
    Parameters {
        write_rate: recorder.write_rate,
        read_rate: recorder.read_rate,
        buffer: recorder.buffer,
        cache: recorder.cache,
        cache_program: preset.program_at(recorder.cache_rate),
        program: preset.program_at(recorder.rate),
        // Only whole sectors matter to chunks.
        piece: 4096,
        ..preset
    }
}

/// The time of a session of `count` chunks on a rested disk.
fn session(recorder: &Recorder, write: bool, count: u64, rng: &mut Rng) -> Nanos {
    let parameters = parameters(recorder);
    let mut ssd = Ssd::new(parameters, rng.fork("ssd"));
    let load = Load { write, random: false, length: CHUNK, depth: DEPTH, count, rate: None };
    let end = drive::run(&mut ssd, &load, Instant::ZERO, parameters.capacity, rng, |_| ());
    let wait = recorder.read_wait;
    let waits = if write { recorder.session } else { wait / (count * count).min(wait.get().max(1)) };
    waits + (end - Instant::ZERO)
}

pub(super) fn run(seed: u64, constants: &Constants, effort: Effort) -> Result<Report, String> {
    let mut report = Report::default();
    for (way, write) in [(0, true), (1, false)] {
        for (count, published) in SESSIONS {
            let published = published[way];
            let mut rng = Rng::from_seed(seed).fork(EXPERIMENT);
            // A part of the disk is enough to compare runs.
            let (whole, count) = (count, if count == DISK { effort.of(count) } else { count });
            let time = session(&constants.recorder, write, count, &mut rng);
            let name = if write { "write" } else { "read" };
            let row = match whole {
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
                measure: Measure::Total,
                follows: Vec::new(),
                source: "the model of the SSD; its paths, buffer and fast cells as fitted",
            });
            report.add(count, time.get());
        }
    }
    Ok(report)
}
