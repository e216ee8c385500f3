//! A recording of its own for each source, all at once.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use live::drivers::record::{End, Handle, Recorded, State, Status, Triggered};
use record::registers::Direction;
use record::{Kept, Progress};

use super::account::{EachEnd, OfPair};
use super::recorder::{self, Made};
use super::view::View;
use super::{first, not_certified, print, print_json};
use crate::args::{RecordArgs, SourceUrl};
use crate::error::Error;

/// How often the recordings are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often the command reports the progress of all recordings.
const SHOWN_EVERY: Duration = Duration::from_millis(250);

/// Records each source to its own place, and reports on all together.
pub(super) fn session(args: &RecordArgs, handle: &Handle) -> Result<(), Error> {
    let pair = |(from, to): (&SourceUrl, &PathBuf)| {
        let (from, to) = (vec![from.clone()], vec![to.clone()]);
        RecordArgs { from, to, ..args.clone() }
    };
    let own: Vec<_> = args.from.iter().zip(&args.to).map(pair).collect();
    let end = End::new().map_err(Error::System)?;
    let handles: Vec<_> = own.iter().map(|_| Handle::new(Direction::Write, end.clone())).collect();
    let mut view = View::new(args.output.json);
    let ended: Vec<_> = thread::scope(|scope| {
        let start = |(args, handle): (&'_ RecordArgs, &Handle)| {
            let (args, handle) = (args.clone(), handle.clone());
            scope.spawn(move || {
                let made = recorder::one(&args, &args.to, &handle, |_| {});
                if made.is_err() {
                    handle.fail();
                }
                made
            })
        };
        let threads: Vec<_> = own.iter().zip(&handles).map(start).collect();
        watch(&handles, handle, &mut view, || threads.iter().all(thread::ScopedJoinHandle::is_finished));
        threads.into_iter().map(|thread| thread.join().expect("a recording does not panic")).collect()
    });
    view.end();
    report(args, &own, ended)
}

/// Passes on requests, and reports the progress of all recordings, until `is_over`.
fn watch(handles: &[Handle], all: &Handle, view: &mut View, is_over: impl Fn() -> bool) {
    let mut reported = Instant::now();
    while !is_over() {
        let statuses: Vec<_> = handles.iter().map(Handle::status).collect();
        // A recording that can't be made is no reason to make the others.
        if all.is_stopped() || statuses.iter().any(|status| status.state == State::Failed) {
            handles.iter().for_each(Handle::stop);
        }
        if all.take_trigger().is_some() {
            for handle in handles {
                handle.trigger();
            }
        }
        all.update(|status| *status = together(&statuses));
        if reported.elapsed() >= SHOWN_EVERY {
            reported = Instant::now();
            view.show(&all.status());
        }
        thread::sleep(LOOK_EVERY);
    }
    let statuses: Vec<_> = handles.iter().map(Handle::status).collect();
    all.update(|status| *status = together(&statuses));
    view.show(&all.status());
}

/// The joint status of several recordings.
fn together(statuses: &[Status]) -> Status {
    let is_any = |state| statuses.iter().any(|status| status.state == state);
    let states = [State::Failed, State::Running, State::Armed, State::Ending, State::Idle];
    let state = states.into_iter().find(|state| is_any(*state)).unwrap_or(State::Ended);
    let mut all = Status { state, ..Status::idle(Direction::Write) };
    for status in statuses {
        all.progress = sum(&all.progress, &status.progress);
        all.medium.bytes += status.medium.bytes;
        all.buffer += status.buffer;
        all.gaps += status.gaps;
        all.maximum_address += status.maximum_address;
        all.last_address += status.last_address;
        all.is_ring |= status.is_ring;
        all.pre_trigger = all.pre_trigger.or(status.pre_trigger);
        (all.chunk, all.kept) = (status.chunk, both(all.kept, status.kept));
        let (writes, own) = (&mut all.writes, &status.writes);
        writes.ended += own.ended;
        writes.time += own.time;
        writes.slowest = writes.slowest.max(own.slowest);
        writes.pauses += own.pauses;
        writes.paused += own.paused;
        writes.longest_pause = writes.longest_pause.max(own.longest_pause);
    }
    let triggered: Option<Vec<_>> = statuses.iter().map(|status| status.triggered).collect();
    all.triggered = triggered.and_then(|all| all.into_iter().reduce(earlier));
    all
}

const fn sum(one: &Progress, other: &Progress) -> Progress {
    Progress {
        bytes_in: one.bytes_in + other.bytes_in,
        stored: one.stored + other.stored,
        acknowledged: one.acknowledged + other.acknowledged,
        lost: one.lost + other.lost,
        never_came: one.never_came + other.never_came,
        passed: one.passed + other.passed,
        overwritten: one.overwritten + other.overwritten,
        fill: one.fill + other.fill,
        high_water: one.high_water + other.high_water,
        restarts: one.restarts + other.restarts,
        last_address: one.last_address + other.last_address,
    }
}

/// The common part of two kept amounts: the time of the smaller one.
fn both(one: Option<Kept>, other: Option<Kept>) -> Option<Kept> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    let (bytes, time) = (one.bytes + other.bytes, one.time.min(other.time));
    Some(Kept { bytes, time, is_short: one.is_short || other.is_short })
}

/// The earlier trigger of two, with the bytes before both.
fn earlier(one: Triggered, other: Triggered) -> Triggered {
    let first = if one.trigger.time <= other.trigger.time { one } else { other };
    Triggered { bytes: one.bytes + other.bytes, ..first }
}

/// Reports each recording, and all together. The first that could not be made counts.
fn report(args: &RecordArgs, own: &[RecordArgs], ended: Vec<Result<Made, Error>>) -> Result<(), Error> {
    let made = ended.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (recorded, signed): (Vec<_>, Vec<_>) =
        made.into_iter().map(|made| (made.recorded, made.signed)).unzip();
    live::sys::logging::flush();
    let pairs = || own.iter().zip(&recorded);
    if args.output.json {
        let one = |(args, recorded): (&RecordArgs, &Recorded)| {
            let to = first(&args.to).to_string_lossy().into_owned();
            OfPair::of(super::sources::name(&args.from[0]), to, recorded)
        };
        print_json(&EachEnd::of(pairs().map(one).collect()))?;
    } else {
        let (mut text, mut sums) = (String::new(), [0; 3]);
        for (args, recorded) in pairs() {
            let certificate = &recorded.certificate;
            sums[0] += certificate.bytes_in();
            sums[1] += certificate.bytes_stored();
            sums[2] += certificate.bytes_lost();
            text += &format!("{}: {}", first(&args.to).display(), recorder::text(args, recorded));
        }
        let [came, stored, lost] = sums;
        text += &format!("all: {came} B in, {stored} B stored, {lost} B in declared gaps\n");
        print(&text)?;
    }
    match pairs().find(|(_, recorded)| !recorded.is_certified) {
        Some((args, _)) => Err(not_certified(first(&args.to))),
        None => signed.into_iter().collect(),
    }
}
