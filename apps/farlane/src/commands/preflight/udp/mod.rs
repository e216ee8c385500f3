//! The highest rate at which datagrams are recorded without loss, and the part that limits it.

mod limit;
pub(crate) mod report;
mod search;
mod trial;

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use live::drivers::record::End;
use record::BUFFER_DEFAULT;

use super::find;
use super::report::rate as rate_text;
use crate::args::PreflightArgs;
use crate::commands::medium::{buffer_chunks, check_packets};
use crate::error::Error;
use limit::Seen;
use search::{Found, Length, MOST, Tried, search};
use trial::{Setting, recorded_per_byte};

/// How many times longer the last trial takes.
const LONG: u32 = 3;
/// About as many trials as a search takes.
const TRIALS: u64 = 18;

/// The result, and every trial in its order.
struct Answer {
    found: Found,
    trials: Vec<Seen>,
}

impl Answer {
    /// The trial that shows the limit: the last one in which that part did not keep up.
    fn limited(&self) -> Option<&Seen> {
        self.trials.iter().rfind(|seen| seen.limit() == Some(self.found.limit))
    }
}

/// Finds the rate for `streams` streams, and reports it.
pub(super) fn run(args: &PreflightArgs, streams: u32, end: &End) -> Result<(), Error> {
    let chunk = u64::from(args.chunk);
    let buffer = args.buffer.unwrap_or(BUFFER_DEFAULT as u64 * chunk);
    let chunks = buffer_chunks("--buffer", buffer, args.chunk)?;
    check_packets(args.chunk)?;
    let (_, storage) = find(args)?;
    let setting = Setting { args, streams, chunks, end };
    let most = most(storage.room, args);
    let bar = ProgressBar::new(TRIALS);
    let style = ProgressStyle::with_template("trying {wide_bar} {msg}");
    bar.set_style(style.expect("the template is valid"));
    let mut trials = Vec::new();
    let found = search(most, |rate, length| {
        bar.set_message(rate_text(rate));
        let time = args.datagrams.trial * if length == Length::Long { LONG } else { 1 };
        let seen = setting.run(rate, time)?;
        bar.inc(1);
        let tried = Tried { reached: seen.reached(), limit: seen.limit() };
        trials.push(seen);
        Ok::<_, Error>(tried)
    });
    bar.finish_and_clear();
    let answer = Answer { found: found?, trials };
    report::print_answer(args, &storage.id, &answer)
}

/// The highest rate whose longest trial leaves a tenth of the room free.
fn most(room: u64, args: &PreflightArgs) -> u64 {
    let longest: Duration = args.datagrams.trial * LONG;
    let (recorded, datagram) = recorded_per_byte(args.datagrams.datagram.into());
    let room = u128::from(room / 10 * 9) * u128::from(datagram) / u128::from(recorded);
    let most = room * 1_000_000_000 / longest.as_nanos().max(1);
    u64::try_from(most).unwrap_or(u64::MAX).min(MOST)
}
