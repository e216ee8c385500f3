//! Counts lines that repeat themselves instead of writing them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Line;

/// How long similar lines are counted before their number is logged.
const WINDOW: Duration = Duration::from_secs(10);
/// Number of similar lines written in a window, unless they are equal.
const WRITTEN_MAX: u32 = 10;
/// Number of kinds of lines that are distinguished; lines of further kinds are counted as one kind.
const KINDS_MAX: usize = 64;

/// Decides which lines are written.
#[derive(Debug, Default)]
pub(super) struct Fold {
    kinds: HashMap<String, Kind>,
    /// The line that was written last.
    last: String,
}

/// Lines that differ only in their numbers.
#[derive(Debug)]
struct Kind {
    /// When the current window ends.
    ends: Instant,
    written: u32,
    /// Number of lines of this window that were not written; `latest` is the last of them.
    counted: u64,
    latest: Option<Line>,
}

impl Fold {
    /// Takes a line at time `now`, and returns the line to write, if any.
    pub(super) fn take(&mut self, now: Instant, line: Line) -> Option<Line> {
        let mut key = kind_of(&line.text);
        if !self.kinds.contains_key(&key) && self.kinds.len() >= KINDS_MAX {
            key.clear();
        }
        let new = || Kind { ends: now + WINDOW, written: 0, counted: 0, latest: None };
        let kind = self.kinds.entry(key).or_insert_with(new);
        if kind.written >= WRITTEN_MAX || kind.written > 0 && line.text == self.last {
            kind.counted += 1;
            kind.latest = Some(line);
            return None;
        }
        kind.written += 1;
        self.last.clone_from(&line.text);
        Some(line)
    }

    /// When the next window ends.
    pub(super) fn due(&self) -> Option<Instant> {
        self.kinds.values().map(|kind| kind.ends).min()
    }

    /// The lines to write about the windows that have ended.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        self.kinds.retain(|_, kind| {
            if now < kind.ends {
                return true;
            }
            lines.extend(kind.summary());
            // A kind of line that goes on repeating itself gets one line in each window.
            let goes_on = std::mem::take(&mut kind.counted) > 0;
            (kind.ends, kind.written) = (now + WINDOW, WRITTEN_MAX);
            goes_on
        });
        lines
    }

    /// The lines to write although no window has ended, because no more lines will come.
    pub(super) fn end(&mut self) -> Vec<Line> {
        let lines = self.kinds.values().filter_map(Kind::summary).collect();
        self.kinds.clear();
        self.last.clear();
        lines
    }
}

impl Kind {
    fn summary(&self) -> Option<Line> {
        let (seconds, counted) = (WINDOW.as_secs(), self.counted);
        let mut line = self.latest.clone().filter(|_| counted > 0)?;
        line.text += &format!(" ({counted} more like it in the last {seconds} s)");
        line.repeated = counted;
        Some(line)
    }
}

/// The common text of lines that differ only in numbers, addresses and the like.
fn kind_of(line: &str) -> String {
    let word = |word| if str::contains(word, |one: char| one.is_ascii_digit()) { "#" } else { word };
    line.split_ascii_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(fold: &mut Fold, now: Instant, line: &str) -> bool {
        let written = fold.take(now, Line::warning(line.to_owned()));
        written.inspect(|written| assert_eq!(written.text, line)).is_some()
    }

    fn texts(lines: Vec<Line>) -> Vec<String> {
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn the_same_line_again_is_counted() {
        let (mut fold, start) = (Fold::default(), Instant::now());
        assert!(feed(&mut fold, start, "no answer: trying again"));
        for second in 1..10 {
            let now = start + Duration::from_secs(second);
            assert!(!feed(&mut fold, now, "no answer: trying again"));
            assert_eq!(texts(fold.expire(now)), Vec::<String>::new());
        }
        assert_eq!(fold.due(), Some(start + WINDOW));
        let reported = fold.expire(start + WINDOW);
        assert_eq!(reported[0].repeated, 9);
        assert_eq!(texts(reported), ["no answer: trying again (9 more like it in the last 10 s)"]);
        // A kind that goes on gets a line for each window; a kind that stops is forgotten.
        assert!(!feed(&mut fold, start + WINDOW, "no answer: trying again"));
        assert_eq!(fold.expire(start + 2 * WINDOW).len(), 1);
        assert_eq!((fold.expire(start + 3 * WINDOW).len(), fold.due()), (0, None));
        assert!(feed(&mut fold, start + 3 * WINDOW, "something else"));
        assert!(feed(&mut fold, start + 3 * WINDOW, "no answer: trying again"));
    }

    #[test]
    fn what_differs_only_in_numbers_is_written_a_few_times() {
        let (mut fold, now) = (Fold::default(), Instant::now());
        let written = (0..1000).filter(|port| feed(&mut fold, now, &format!("10.0.0.1:{port}: refused")));
        assert_eq!(written.count(), 10);
        assert!(feed(&mut fold, now, "10.0.0.1:7: link up"), "another kind");
        assert_eq!(texts(fold.end()), ["10.0.0.1:999: refused (990 more like it in the last 10 s)"]);
        assert_eq!(fold.due(), None);
    }

    #[test]
    fn a_link_that_comes_and_goes_is_seen_to() {
        let (mut fold, now) = (Fold::default(), Instant::now());
        for _ in 0..10 {
            assert!(feed(&mut fold, now, "link down") && feed(&mut fold, now, "link up"));
        }
        assert!(!feed(&mut fold, now, "link down"));
    }

    #[test]
    fn strangers_who_say_ever_new_things_take_no_more_room() {
        let (mut fold, now) = (Fold::default(), Instant::now());
        let names = (0..26_u8).flat_map(|a| (0..26_u8).map(move |b| [b'a' + a, b'a' + b]));
        let lines: Vec<_> =
            names.map(|name| format!("{} is there", String::from_utf8_lossy(&name))).collect();
        let written = lines.iter().filter(|line| feed(&mut fold, now, line)).count();
        assert_eq!((written, fold.kinds.len()), (64 + 10, 65));
    }
}
