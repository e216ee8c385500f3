//! `farlane model tsn audit`: whether the frames that left an interface keep to a plan, frame by
//! frame.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use captures::{Item, Reader};
use engine::Nanos;
use indicatif::ProgressBar;
use live::drivers::tap::Tap;
use live::sys::clock;
use network_models::Class;
use network_models::tsn::conformance::{Conformance, Departure, Kept};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::AuditArgs;
use crate::commands::{print, print_json};
use crate::error::{Error, TsnError};
use crate::plan_file::PlanFile;

/// How wrong stamps of the kernel and of cards are, without an option that says otherwise.
const ERROR_KERNEL: Nanos = Nanos::from_micros(50);
const ERROR_CARD: Nanos = Nanos::from_micros(1);
/// Most frames that are listed.
const LISTED_MAX: usize = 1_000;
/// How long to wait for frames before looking at the clock again.
const LOOK: Duration = Duration::from_millis(20);
/// The bytes that a frame takes of the link beside its own: check sequence, preamble and gap; and
/// the least that it takes.
const AROUND: u64 = 4 + 20;
const WIRE_MIN: u64 = 84;
/// Bytes of the two addresses, and of a tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// EtherTypes of a tagged frame (IEEE 802.1Q), of one with a service tag (802.1ad), of IPv4 and of
/// IPv6 packets.
const VLAN: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// The link type of Ethernet in captures (LINKTYPE_ETHERNET).
const ETHERNET: u32 = 1;

/// Whether the frames of each class keep to a plan. Times are in nanoseconds.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Report {
    kept: bool,
    frames: u64,
    /// How far off a stamp may be: the largest, where some are the card's and others the kernel's.
    stamp_error: u64,
    /// Whether the card gave all stamps, and how many it gave.
    hardware: bool,
    hardware_frames: u64,
    /// Frames that were not seen, because too many came. Whether they kept to the plan is unknown.
    missed: u64,
    /// Packets without a time stamp. Their time of departure is unknown.
    without_stamp: u64,
    classes: Vec<ClassReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outside: Vec<Listed>,
}

/// The frames of one class.
#[derive(Debug, Serialize, JsonSchema)]
struct ClassReport {
    class: u8,
    frames: u64,
    outside: u64,
    within_stamp_error: u64,
    worst: u64,
    worst_frame: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    beyond_rate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst_bytes: Option<u64>,
}

impl ClassReport {
    /// Frames that broke the plan for certain.
    fn wrong(&self) -> u64 {
        self.outside + self.beyond_rate.unwrap_or(0)
    }
}

/// A frame that was outside of its windows.
#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    frame: u64,
    at: u64,
    class: u8,
    bytes: u64,
    off: u64,
}

/// Frames as they are checked.
struct Checked<'a> {
    args: &'a AuditArgs,
    conformance: Conformance,
    /// The largest error of a stamp.
    error: Nanos,
    frames: u64,
    /// How many of them have the card's stamps.
    by_card: u64,
    /// Packets that can't be checked, because they have no stamp.
    without_stamp: u64,
    outside: Vec<Listed>,
}

pub(super) fn run(args: &AuditArgs) -> Result<(), Error> {
    has_one_rate_each(args)?;
    let plan = PlanFile::read(&args.plan)?;
    let report = match (&args.interface, &args.from) {
        (_, Some(path)) => of_file(args, &plan, path)?,
        (Some(interface), None) => of_interface(args, &plan, interface)?,
        (None, None) => unreachable!("one of the options is required"),
    };
    let of_plan = report.classes.iter().find(|one| one.class == plan.class.number());
    if of_plan.is_none_or(|one| one.frames == 0) {
        let (class, without_stamp) = (plan.class.number(), report.without_stamp);
        return Err(TsnError::Nothing { class, without_stamp }.into());
    }
    if args.output.json {
        print_json(&report)?
    } else {
        print(&text(&report))?
    }
    if report.kept {
        return Ok(());
    }
    let outside: u64 = report.classes.iter().map(ClassReport::wrong).sum();
    Err(match (outside, report.missed) {
        (0, 0) => TsnError::NoStamps { count: report.without_stamp }.into(),
        (0, missed) => TsnError::Unseen { missed }.into(),
        _ => TsnError::NotKept { outside, frames: report.frames }.into(),
    })
}

/// Whether each class is to keep to one rate at most. Only the last of several would be checked.
fn has_one_rate_each(args: &AuditArgs) -> Result<(), TsnError> {
    for (index, shaper) in args.shaper.iter().enumerate() {
        if let Some(before) = args.shaper[..index].iter().find(|before| before.class == shaper.class) {
            let (class, rates) = (shaper.class.number(), [before.rate, shaper.rate]);
            return Err(TsnError::TwoRates { class, rates });
        }
    }
    Ok(())
}

fn of_interface(args: &AuditArgs, plan: &PlanFile, interface: &str) -> Result<Report, Error> {
    let failed = |error| TsnError::Tap { interface: interface.to_owned(), error };
    let mut tap = Tap::open(interface).map_err(failed)?;
    let mut checked = Checked::new(args, plan)?;
    let (start, bar) =
        (Instant::now(), ProgressBar::new(args.time.as_millis().try_into().unwrap_or(u64::MAX)));
    bar.set_message("looking");
    // Frames that the kernel has not handed over by the end are checked, too.
    let length = args.time.saturating_add(LOOK * 2);
    while start.elapsed() < length {
        bar.set_position(start.elapsed().as_millis().try_into().unwrap_or(u64::MAX));
        tap.wait(LOOK).map_err(failed)?;
        // Frames may come faster than they are checked.
        while start.elapsed() < length
            && let Some(frame) = tap.next_frame()
        {
            if frame.is_outgoing == args.received {
                continue;
            }
            let Some(at) = frame.at else {
                checked.without_stamp += 1;
                continue;
            };
            let tag = frame.tag.map(|[_, _, a, b]| u16::from_be_bytes([a, b]));
            checked.take((at, frame.is_hardware), (frame.bytes, frame.bytes.len()), tag);
        }
    }
    bar.finish_and_clear();
    Ok(checked.report(tap.missed().into()))
}

fn of_file(args: &AuditArgs, plan: &PlanFile, path: &Path) -> Result<Report, Error> {
    let mut checked = Checked::new(args, plan)?;
    let (ahead, mut missed, mut other) = (clock::network_ahead(), 0_u64, None);
    Reader::open(path)?.each_item(|item| {
        match item {
            Item::Frame(frame) if frame.link == ETHERNET => {
                let at = Nanos::new(frame.at.as_nanos()) + ahead;
                checked.take((at, false), (frame.bytes, frame.original), None);
            }
            // Without a header of Ethernet, the class of a frame and its time on the link are
            // unknown.
            Item::Frame(frame) => other = Some(frame.link),
            // The capture itself says how many frames found no room.
            Item::Tally(tally) => missed = missed.saturating_add(tally.lost),
            Item::Foreign => checked.without_stamp += 1,
            Item::Note(_) | Item::Waits => {}
        }
        other.is_none()
    })?;
    match other {
        Some(link) => Err(TsnError::OtherLink { path: path.to_owned(), link }.into()),
        None => Ok(checked.report(missed)),
    }
}

impl<'a> Checked<'a> {
    fn new(args: &'a AuditArgs, plan: &PlanFile) -> Result<Self, Error> {
        let schedule = plan.schedule(args.hop.into())?.clone();
        let mut conformance = Conformance::new(schedule, plan.rate);
        for shaper in &args.shaper {
            // A frame of its own, and the credit that grows during a frame of others.
            let frame = u64::from(plan.frame_max) + AROUND;
            let grown = u128::from(frame) * u128::from(shaper.rate.bits());
            let credit = u64::try_from(grown / u128::from(plan.rate.bits().max(1))).unwrap_or(u64::MAX);
            conformance = conformance.limited(shaper.class, shaper.rate, frame.saturating_add(credit));
        }
        let (frames, by_card, without_stamp, outside) = (0, 0, 0, Vec::new());
        Ok(Self { args, conformance, error: Nanos::ZERO, frames, by_card, without_stamp, outside })
    }

    /// Takes the next frame, which left at this time by the card's stamp or by the kernel's. A card
    /// may stamp some frames only, such as those of PTP. The frame took the link for all `length`
    /// bytes, even if a capture has kept the first `bytes` only.
    fn take(&mut self, (at, is_by_card): (Nanos, bool), (bytes, length): (&[u8], usize), tag: Option<u16>) {
        let usual = if is_by_card { ERROR_CARD } else { ERROR_KERNEL };
        let error = self.args.error.map_or(usual, Nanos::from);
        self.error = self.error.max(error);
        self.by_card += u64::from(is_by_card);
        let tag_bytes = if tag.is_some() { TAG } else { 0 };
        let length = length.max(bytes.len()) + tag_bytes;
        let wire = (length as u64 + AROUND).max(WIRE_MIN);
        let class = class_of(bytes, tag);
        let off = self.conformance.observe(Departure { at, class, bytes: wire, error });
        if self.args.frames && off > error && self.outside.len() < LISTED_MAX {
            let (at, class, off) = (at.get(), class.number(), off.get());
            self.outside.push(Listed { frame: self.frames, at, class, bytes: wire, off });
        }
        self.frames += 1;
    }

    fn report(self, missed: u64) -> Report {
        let is_limited = |class: Class| self.args.shaper.iter().any(|shaper| shaper.class == class);
        let of = |(class, kept): (Class, Kept)| ClassReport {
            class: class.number(),
            frames: kept.frames,
            outside: kept.outside,
            within_stamp_error: kept.doubtful,
            worst: kept.worst.off.get(),
            worst_frame: kept.worst.frame,
            beyond_rate: is_limited(class).then_some(kept.too_many),
            burst_bytes: is_limited(class).then_some(kept.burst),
        };
        let classes: Vec<_> = self.conformance.kept().filter(|(_, kept)| kept.frames > 0).map(of).collect();
        let Self { error, frames, by_card: hardware_frames, without_stamp, outside, .. } = self;
        let kept = is_kept(&classes, missed.saturating_add(without_stamp));
        let (stamp_error, hardware) = (error.get(), frames > 0 && hardware_frames == frames);
        Report {
            kept,
            frames,
            stamp_error,
            hardware,
            hardware_frames,
            missed,
            without_stamp,
            classes,
            outside,
        }
    }
}

/// Whether all frames kept to the plan. For `unknown` frames, which were not seen or have no known
/// time, that is not known.
fn is_kept(classes: &[ClassReport], unknown: u64) -> bool {
    unknown == 0 && classes.iter().all(|one| one.wrong() == 0)
}

/// The class of a frame: the priority of its tag, the outer one of two, or else the class selector
/// of its IP packet (RFC 2474, 4.2.2), or else 0.
fn class_of(bytes: &[u8], tag: Option<u16>) -> Class {
    let word = |at: usize| bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let (kind, tag, behind) = match (word(ADDRESSES), tag) {
        (Some(VLAN | SERVICE), None) => (word(ADDRESSES + TAG), word(ADDRESSES + 2), ADDRESSES + TAG + 2),
        (kind, tag) => (kind, tag, ADDRESSES + 2),
    };
    let number = match (tag, kind, word(behind)) {
        (Some(tag), ..) => tag >> 13,
        (None, Some(IPV4), Some(head)) => head >> 5 & 7,
        (None, Some(IPV6), Some(head)) => head >> 9 & 7,
        _ => 0,
    };
    u8::try_from(number).ok().and_then(Class::new).unwrap_or_default()
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let stamps = match report.hardware_frames {
        0 => "the kernel's",
        _ if report.hardware => "the card's",
        _ => "the card's and the kernel's",
    };
    let error = Nanos::new(report.stamp_error);
    // Writing to a string does not fail.
    let _ = writeln!(text, "{} frames, by {stamps} stamps, which may be off by {error}", report.frames);
    if report.missed > 0 {
        let _ = writeln!(text, "{} more were not seen: too many came", report.missed);
    }
    if report.without_stamp > 0 {
        let count = report.without_stamp;
        let _ = writeln!(text, "{count} more have no time stamp: the times at which they left are unknown");
    }
    let _ = writeln!(text, "\n  class     frames    outside   in doubt        worst   beyond rate");
    for one in &report.classes {
        let beyond = one.beyond_rate.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let _ = writeln!(
            text,
            "  {:>5} {:>10} {:>10} {:>10} {:>12} {beyond:>13}",
            one.class,
            one.frames,
            one.outside,
            one.within_stamp_error,
            Nanos::new(one.worst).to_string(),
        );
    }
    for one in &report.outside {
        let (at, off) = (Nanos::new(one.at), Nanos::new(one.off));
        let _ = writeln!(
            text,
            "  frame {} of class {}, {} B, at {at}: off by {off}",
            one.frame, one.class, one.bytes
        );
    }
    let verdict = match (report.kept, report.classes.iter().all(|one| one.wrong() == 0)) {
        (true, _) => "the plan is kept",
        (false, true) => "it is not known whether the plan is kept",
        (false, false) => "the plan is not kept",
    };
    let _ = writeln!(text, "\n{verdict}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_that_of_the_tag_or_of_the_packet() {
        let frame = |kind: &[u8]| [&[0; 12][..], kind].concat();
        let class = |kind: &[u8], tag| class_of(&frame(kind), tag).number();
        assert_eq!(class(&[0x81, 0, 0xe0, 7, 0x88, 0xb5], None), 7);
        assert_eq!(class(&[0x88, 0xb5, 1, 2], Some(0x6007)), 3);
        // A service tag, alone and around another.
        assert_eq!(class(&[0x88, 0xa8, 0xa0, 7, 0x88, 0xb5], None), 5);
        assert_eq!(class(&[0x88, 0xa8, 0x40, 7, 0x81, 0, 0xe0, 7, 0x88, 0xb5], None), 2);
        // EF is 46: in IPv4's second byte 0xb8, in IPv6 across the first two.
        assert_eq!(class(&[0x08, 0, 0x45, 0xb8], None), 5);
        assert_eq!(class(&[0x86, 0xdd, 0x6b, 0x80], None), 5);
        assert_eq!(class(&[0x88, 0xb5, 1, 2], None), 0);
        assert_eq!(class_of(&[], None).number(), 0);
        assert_eq!(class_of(&frame(&[0x81]), None).number(), 0);
    }

    #[test]
    fn frames_that_were_not_seen_keep_to_no_plan() {
        let class = |outside, beyond_rate| ClassReport {
            class: 7,
            frames: 10,
            outside,
            within_stamp_error: 0,
            worst: 0,
            worst_frame: 0,
            beyond_rate,
            burst_bytes: None,
        };
        for (outside, beyond_rate, missed, kept, verdict) in [
            (0, None, 0, true, "the plan is kept"),
            (0, Some(0), 1, false, "it is not known whether the plan is kept"),
            (1, None, 0, false, "the plan is not kept"),
            (0, Some(1), 2, false, "the plan is not kept"),
        ] {
            let classes = vec![class(outside, beyond_rate)];
            assert_eq!(is_kept(&classes, missed), kept);
            let (frames, stamp_error, hardware, hardware_frames, outside) = (10, 0, false, 0, Vec::new());
            let without_stamp = u64::from(missed == 1);
            let report = Report {
                kept,
                frames,
                stamp_error,
                hardware,
                hardware_frames,
                missed,
                without_stamp,
                classes,
                outside,
            };
            let text = text(&report);
            assert_eq!(text.lines().last(), Some(verdict));
            assert_eq!(text.contains("1 more have no time stamp"), without_stamp > 0);
        }
    }
}
