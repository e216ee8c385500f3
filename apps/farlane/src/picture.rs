//! A picture in text: where the time of a command went, hop by hop.

use std::fmt::Write as _;

use engine::Nanos;

/// Columns that the whole time takes.
const WIDTH: u64 = 44;

/// A stretch of a command's life.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Hop {
    /// Where it was spent: the near end, the tunnel or the far end.
    pub(crate) place: &'static str,
    /// What happened meanwhile.
    pub(crate) name: &'static str,
    /// How long it took, in nanoseconds.
    #[serde(serialize_with = "nanoseconds")]
    pub(crate) length: Nanos,
}

fn nanoseconds<S: serde::Serializer>(length: &Nanos, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(length.get())
}

/// Draws the hops below each other, each where it began, so that the eye follows the command down the page.
pub(crate) fn draw(hops: &[Hop]) -> String {
    let total: u64 = hops.iter().map(|hop| hop.length.get()).sum();
    let column = |at: u64| usize::try_from(at * WIDTH / total.max(1)).unwrap_or(0);
    let mut text = String::new();
    let mut start = 0;
    for hop in hops {
        let end = start + hop.length.get();
        let (left, right) = (column(start), column(end));
        let bar = match right - left {
            0 => "▏".to_owned(),
            columns => "█".repeat(columns),
        };
        let share = hop.length.get() * 1_000 / total.max(1);
        let _ = writeln!(
            text,
            "  {:<6} {:<34} {:>10} {:>3}.{}%  {}{bar}",
            hop.place,
            hop.name,
            hop.length.to_string(),
            share / 10,
            share % 10,
            " ".repeat(left),
        );
        start = end;
    }
    let _ = writeln!(text, "  {:<6} {:<34} {:>10}", "", "in all", Nanos::new(total).to_string());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_follow_each_other_and_fill_the_width() {
        let hop = |length| Hop { place: "near", name: "something", length: Nanos::new(length) };
        let text = draw(&[hop(100), hop(0), hop(300)]);
        let bars: Vec<_> = text.lines().map(|line| line.matches('█').count()).collect();
        assert_eq!(bars, [11, 0, 33, 0]);
        assert!(text.lines().nth(2).is_some_and(|line| line.contains("75.0%")));
        assert_eq!(draw(&[hop(0)]).lines().count(), 2);
    }
}
