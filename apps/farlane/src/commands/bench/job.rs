//! The load that the options describe.

use std::sync::Arc;

use engine::Nanos;

use super::Planned;
use crate::args::{BenchArgs, Each, RandomDistribution, RateProcess, Sequencer, Sizes, Workload, ZoneMode};
use crate::error::Error;
use crate::protected::Protected;
use crate::session::{Needs, Session};
use crate::workload::{Check, Choice, Contents, Durable, Job, Limits, Pace, Steady, Zones};

/// The most operations under way at once, over all jobs.
const UNDER_WAY_MAX: u32 = 1024;
/// The most bytes of their data.
const DATA_BYTES_MAX: u64 = 1 << 30;
/// A length that every controller of ours moves with one command.
const COMMAND_BYTES: u32 = 128 << 10;

/// The lengths of reads, writes and trims.
pub(super) fn sizes(args: &BenchArgs) -> Result<[Sizes; 3], Error> {
    let one = |bytes: u64| {
        let bytes = u32::try_from(bytes).map_err(|_| Error::Range {
            what: "--bs",
            value: bytes,
            expected: "less than 4 GiB".to_owned(),
        });
        bytes.map(Sizes::one)
    };
    let [reads, writes, trims] = args.bs.or(4096);
    let each = [one(reads)?, one(writes)?, one(trims)?];
    Ok(match args.bssplit.or(args.bsrange) {
        None => each,
        Some(Each(given)) => [0, 1, 2].map(|at| given[at].unwrap_or(each[at])),
    })
}

/// The longest data of an operation, and the bytes that it takes in memory.
fn place(args: &BenchArgs) -> Result<(u32, u64), Error> {
    let [reads, writes, _] = sizes(args)?;
    let longest = match args.rw.workload {
        Workload::Read | Workload::RandRead => reads.longest(),
        Workload::Write | Workload::RandWrite | Workload::TrimWrite | Workload::RandTrimWrite => {
            writes.longest()
        }
        Workload::Rw | Workload::RandRw => reads.longest().max(writes.longest()),
        Workload::Trim | Workload::RandTrim => 0,
    };
    let longest = longest.max(16 * args.load.num_range);
    // A verified load has protection information beside its data, where there is any.
    Ok((longest, u64::from(longest).next_multiple_of(4096) + u64::from(longest / 32)))
}

/// The needs of the jobs of the phase that asks most of its host.
pub(super) fn needs(planned: &[Planned]) -> Result<Needs, Error> {
    let mut needs = Needs { data_bytes: 0, depth: 1, ..Needs::default() };
    for phase in 0..=planned.last().map_or(0, |last| last.phase) {
        let (mut under_way, mut data_bytes, mut commands) = (0_u32, 0_u64, 0_u32);
        for one in planned.iter().filter(|one| one.phase == phase) {
            let depth = one.args.iodepth * one.args.numjobs;
            let (longest, bytes) = place(&one.args)?;
            under_way += depth;
            data_bytes += u64::from(depth) * bytes;
            let each = longest.div_ceil(COMMAND_BYTES).max(1);
            commands = commands.saturating_add(depth.saturating_mul(each));
        }
        if under_way > UNDER_WAY_MAX {
            let expected = format!("at most {UNDER_WAY_MAX}");
            return Err(Error::Range {
                what: "--iodepth times --numjobs",
                value: under_way.into(),
                expected,
            });
        }
        if data_bytes > DATA_BYTES_MAX {
            let expected = format!("at most {DATA_BYTES_MAX} B");
            return Err(Error::Range {
                what: "--bs times --iodepth times --numjobs",
                value: data_bytes,
                expected,
            });
        }
        needs.data_bytes = needs.data_bytes.max(data_bytes);
        needs.depth = needs.depth.max(commands.min(UNDER_WAY_MAX));
    }
    Ok(needs)
}

/// The load of a job. Its numbers of other jobs become those of its phase, which begins with
/// `first`.
pub(super) fn job(
    session: &mut Session,
    planned: &Planned,
    (needs, first): (&Needs, usize),
) -> Result<Job, Error> {
    let args = &planned.args;
    let namespace = session.namespace(args.namespace)?;
    let size = namespace.blocks * u64::from(namespace.block_bytes);
    let sizes = sizes(args)?;
    let load = &args.load;
    let plain = Job::plain(namespace, args.rw.workload, 0, args.iodepth, args.runtime.into());
    let shortest = plain.kinds().iter().map(|kind| sizes[*kind as usize].shortest()).min();
    let unit = u64::from(shortest.unwrap_or(namespace.block_bytes));
    let mut job = Job {
        protected: Protected::of(session, &namespace, args.verify)?,
        reads: args.rwmixread,
        sizes,
        jobs: args.numjobs,
        commands: needs.depth,
        pace: pace(args),
        limits: Limits {
            delay: load.startdelay.into(),
            ramp: load.ramp_time.into(),
            operations: load.number_ios.filter(|_| !load.time_based),
            steady: steady(args),
            loops: load.loops,
            after: planned.after.iter().filter_map(|at| at.checked_sub(first)).collect(),
            ends: planned.ends,
            group: planned.group,
            ..plain.limits
        },
        choice: choice(args),
        offset: load.offset.of(size, unit),
        increment: load.offset_increment.of(size, unit),
        range: args.size.map(|amount| amount.of(size, unit)),
        ranges: load.num_range,
        contents: Arc::new(contents(args)),
        durable: Durable { every: load.fsync, at_end: load.end_fsync, forced: [load.readfua, load.writefua] },
        check: check(args),
        seed: args.seed,
        refill: refill(args),
        ..plain
    };
    set_bytes(&mut job, args);
    Ok(job)
}

/// Says after how many bytes the job ends, which depends on its part of the namespace.
pub(super) fn set_bytes(job: &mut Job, args: &BenchArgs) {
    let (_, range) = job.region(0);
    let bytes = args.io_size.map(|amount| amount.of(range, 1)).or(args.ends_with_size.then_some(range));
    job.limits.bytes = bytes.filter(|_| !args.load.time_based);
}

/// How many operations end before the next ones begin.
fn refill(args: &BenchArgs) -> u32 {
    let low = match args.load.iodepth_low {
        0 => 1,
        low => args.iodepth.saturating_sub(low).max(1),
    };
    low.max(args.load.iodepth_batch_complete_min).min(args.iodepth)
}

/// When the job ends because its figures are steady.
fn steady(args: &BenchArgs) -> Option<Steady> {
    let load = &args.load;
    let criterion = load.steadystate.filter(|_| !load.steadystate_duration.is_zero())?;
    Some(Steady {
        criterion,
        window: load.steadystate_duration.into(),
        ramp: Nanos::from(load.steadystate_ramp_time) + load.ramp_time.into(),
        interval: load.steadystate_check_interval.into(),
    })
}

fn pace(args: &BenchArgs) -> Pace {
    let load = &args.load;
    Pace {
        bytes: load.rate.map_or([None; 3], |rate| rate.0),
        operations: load.rate_iops.map_or([None; 3], |rate| rate.0),
        is_poisson: load.rate_process == RateProcess::Poisson,
        pause: (!load.thinktime.is_zero()).then(|| (load.thinktime.into(), load.thinktime_blocks)),
        flow: load.flow.map(|weight| (load.flow_id, weight)),
    }
}

fn choice(args: &BenchArgs) -> Choice {
    let load = &args.load;
    let is_random = matches!(
        args.rw.workload,
        Workload::RandRead
            | Workload::RandWrite
            | Workload::RandRw
            | Workload::RandTrim
            | Workload::RandTrimWrite
    );
    let number = args.rw.number.unwrap_or_default();
    let distribution = match load.random_distribution.clone() {
        RandomDistribution::Uniform { .. } => RandomDistribution::Uniform { is_mapped: !load.norandommap },
        RandomDistribution::Sequence { blocks, .. } => {
            RandomDistribution::Sequence { blocks, is_strided: load.random_sequence_stride }
        }
        other => other,
    };
    let zones = load.zonesize.filter(|_| load.zonemode == ZoneMode::Strided);
    Choice {
        distribution,
        random: load.percentage_random.map_or([100; 3], |percent| percent.or(100)),
        step: if is_random { 0 } else { number },
        repeats: if is_random { u32::try_from(number).unwrap_or(1).max(1) } else { 1 },
        is_identical: load.rw_sequencer == Sequencer::Identical,
        align: load.blockalign,
        zones: zones.map(|bytes| Zones {
            range: load.zonerange.unwrap_or(bytes),
            bytes,
            skip: load.zoneskip,
        }),
    }
}

fn contents(args: &BenchArgs) -> Contents {
    let contents = &args.load.contents;
    match (&contents.buffer_pattern, contents.buffer_compress_percentage) {
        _ if contents.zero_buffers => Contents::Pattern(vec![0]),
        (Some(pattern), _) => Contents::Pattern(pattern.0.clone()),
        (None, Some(percent)) if percent > 0 => Contents::Mixed(percent),
        _ if contents.refill_buffers => Contents::FreshNoise,
        _ => Contents::Noise,
    }
}

fn check(args: &BenchArgs) -> Option<Check> {
    let contents = &args.load.contents;
    let (every, batch) = (contents.verify_backlog, contents.verify_backlog_batch);
    args.verify.then(|| Check {
        // A load that only reads compares as it goes.
        at_end: contents.do_verify && !matches!(args.rw.workload, Workload::Read | Workload::RandRead),
        backlog: (every > 0).then_some((every, if batch > 0 { batch } else { every })),
        is_fatal: contents.verify_fatal,
    })
}
