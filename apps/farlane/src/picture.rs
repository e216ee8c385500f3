//! A picture in text of where a command's time went, hop by hop.

use std::borrow::Cow;
use std::fmt::Write as _;

use engine::Nanos;

/// Columns of the bar for the whole time.
const WIDTH: u64 = 44;
/// Least columns of a hop's place.
const PLACE_MIN: usize = 6;
/// Least columns of a hop's name.
const NAME_MIN: usize = 34;

/// A stretch of a command's time.
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Hop {
    /// Where the time was spent: the near end, the tunnel or the far end.
    pub(crate) place: Cow<'static, str>,
    /// The event or step of that time.
    pub(crate) name: Cow<'static, str>,
    /// Length of the stretch, in nanoseconds.
    #[serde(serialize_with = "nanoseconds")]
    #[schemars(with = "u64")]
    pub(crate) length: Nanos,
}

fn nanoseconds<S: serde::Serializer>(length: &Nanos, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(length.get())
}

/// Draws the hops below each other. Each bar begins where the one above ends, so that the eye
/// follows the command down the page.
pub(crate) fn draw(hops: &[Hop]) -> String {
    let width = |of: fn(&Hop) -> &str| hops.iter().map(|hop| of(hop).chars().count()).max().unwrap_or(0);
    let place = width(|hop| &hop.place).max(PLACE_MIN);
    let name = match width(|hop| &hop.name) {
        0 => 0,
        name => name.max(NAME_MIN),
    };
    lines(&[(String::new(), hops)], (place, name))
}

/// Draws the hops of several legs on one scale, below each other. A line above each leg names it.
pub(crate) fn draw_legs(legs: &[(String, Vec<Hop>)]) -> String {
    let hops = || legs.iter().flat_map(|(_, hops)| hops);
    let width = |of: fn(&Hop) -> &str| hops().map(|hop| of(hop).chars().count()).max().unwrap_or(0);
    let widths = (width(|hop| &hop.place).max(PLACE_MIN), width(|hop| &hop.name).max(NAME_MIN));
    let legs: Vec<_> = legs.iter().map(|(title, hops)| (title.clone(), hops.as_slice())).collect();
    lines(&legs, widths)
}

fn lines(legs: &[(String, &[Hop])], (place, name): (usize, usize)) -> String {
    let all = legs.iter().flat_map(|(_, hops)| hops.iter());
    let total: u64 = all.map(|hop| hop.length.get()).sum();
    let column = |at: u64| {
        let columns = u128::from(at) * u128::from(WIDTH) / u128::from(total.max(1));
        usize::try_from(columns).unwrap_or(0)
    };
    let mut text = String::new();
    let mut start = 0;
    for (title, hops) in legs {
        if !title.is_empty() {
            let _ = writeln!(text, "  {title}");
        }
        for hop in *hops {
            let end = start + hop.length.get();
            let (left, right) = (column(start), column(end));
            let bar = match right - left {
                0 => "▏".to_owned(),
                columns => "█".repeat(columns),
            };
            let share = u128::from(hop.length.get()) * 1_000 / u128::from(total.max(1));
            let _ = writeln!(
                text,
                "  {:<place$} {:<name$} {:>10} {:>3}.{}%  {}{bar}",
                hop.place,
                hop.name,
                hop.length.to_string(),
                share / 10,
                share % 10,
                " ".repeat(left),
            );
            start = end;
        }
    }
    let _ = writeln!(text, "  {:<place$} {:<name$} {:>10}", "", "in all", Nanos::new(total).to_string());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(length: u64) -> Hop {
        Hop { place: "near".into(), name: "something".into(), length: Nanos::new(length) }
    }

    #[test]
    fn bars_follow_each_other_and_fill_the_width() {
        let text = draw(&[hop(100), hop(0), hop(300)]);
        let bars: Vec<_> = text.lines().map(|line| line.matches('█').count()).collect();
        assert_eq!(bars, [11, 0, 33, 0]);
        assert!(text.lines().nth(2).is_some_and(|line| line.contains("75.0%")));
        assert_eq!(draw(&[hop(0)]).lines().count(), 2);
    }

    #[test]
    fn legs_have_titles_and_one_scale() {
        let text = draw_legs(&[("down".into(), vec![hop(100)]), ("up".into(), vec![hop(300)])]);
        let bars: Vec<_> = text.lines().map(|line| line.matches('█').count()).collect();
        assert_eq!(bars, [0, 11, 0, 33, 0]);
        assert_eq!(text.lines().next(), Some("  down"));
    }
}
