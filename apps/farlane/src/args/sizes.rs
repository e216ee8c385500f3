//! The lengths of a load's commands: one, or several with their shares.

use std::fmt;
use std::str::FromStr;

use engine::Rng;

use super::parse_size;

/// The most lengths of one load.
const SIZES_MAX: usize = 16;

/// Lengths in bytes, each with its share of a hundred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    entries: [(u32, u32); SIZES_MAX],
    count: usize,
    /// Whether the lengths are all multiples of the first entry's, up to the second one's.
    is_range: bool,
}

impl Sizes {
    /// Every command has `bytes`.
    pub(crate) const fn one(bytes: u32) -> Self {
        let mut entries = [(0, 0); SIZES_MAX];
        entries[0] = (bytes, 100);
        Self { entries, count: 1, is_range: false }
    }

    /// Commands have multiples of `shortest` bytes, up to `longest`, each as often.
    pub(crate) const fn range(shortest: u32, longest: u32) -> Self {
        let mut entries = [(0, 0); SIZES_MAX];
        (entries[0], entries[1]) = ((shortest, 50), (longest, 50));
        Self { entries, count: if shortest == longest { 1 } else { 2 }, is_range: shortest != longest }
    }

    /// The lengths.
    pub(crate) fn each(&self) -> impl Iterator<Item = u32> {
        self.entries[..self.count].iter().map(|(bytes, _)| *bytes)
    }

    /// The longest length.
    pub(crate) fn longest(&self) -> u32 {
        self.each().max().unwrap_or_default()
    }

    /// The shortest length.
    pub(crate) fn shortest(&self) -> u32 {
        self.each().min().unwrap_or_default()
    }

    /// Whether there is one length only.
    pub(crate) const fn is_one(&self) -> bool {
        self.count == 1
    }

    /// The length of the next command.
    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        if self.is_one() {
            return self.entries[0].0;
        }
        if self.is_range {
            let (shortest, longest) = (self.entries[0].0, self.entries[1].0);
            let drawn = rng.below(u64::from(longest / shortest.max(1))) + 1;
            return shortest.saturating_mul(u32::try_from(drawn).unwrap_or(1));
        }
        let mut drawn = rng.below(100);
        for (bytes, share) in &self.entries[..self.count] {
            match drawn.checked_sub(u64::from(*share)) {
                Some(rest) => drawn = rest,
                None => return *bytes,
            }
        }
        self.entries[self.count - 1].0
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_range {
            return write!(f, "{}-{}", self.entries[0].0, self.entries[1].0);
        }
        if self.is_one() {
            return write!(f, "{}", self.entries[0].0);
        }
        for (index, (bytes, share)) in self.entries[..self.count].iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{bytes}/{share}")?;
        }
        Ok(())
    }
}

/// fio's `bssplit`: `4k/60:64k/30:1m/10`. Lengths without a share divide the rest evenly.
impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split(':').collect();
        if parts.len() > SIZES_MAX {
            return Err(format!("{} lengths; expected at most {SIZES_MAX}", parts.len()));
        }
        let (mut entries, mut open) = ([(0, 0); SIZES_MAX], Vec::new());
        for (index, part) in parts.iter().enumerate() {
            let (size, share) = part.split_once('/').unwrap_or((part, ""));
            let bytes = u32::try_from(parse_size(size)?).ok().filter(|bytes| *bytes > 0);
            entries[index].0 = bytes.ok_or_else(|| format!("'{size}' is not between 1 B and 4 GiB"))?;
            match share {
                "" => open.push(index),
                share => {
                    let share = share.parse().ok().filter(|share| *share <= 100);
                    entries[index].1 = share.ok_or_else(|| format!("'{part}': expected SIZE/PERCENT"))?;
                }
            }
        }
        let given: u32 = entries.iter().map(|(_, share)| share).sum();
        let left = 100_u32.checked_sub(given).filter(|left| *left == 0 || !open.is_empty());
        let left = left.ok_or_else(|| format!("the shares are {given} together; expected 100"))?;
        for (turn, index) in (0_u32..).zip(&open) {
            let count = u32::try_from(open.len()).unwrap_or(1);
            // The remainder of the division goes to the first ones.
            entries[*index].1 = left / count + u32::from(turn < left % count);
        }
        Ok(Self { entries, count: parts.len(), is_range: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_that_were_asked_for() {
        let sizes: Sizes = "4k/60:64k/30:1m/10".parse().unwrap();
        let (mut rng, mut counts) = (Rng::from_seed(7), std::collections::BTreeMap::<u32, u32>::new());
        for _ in 0..10_000 {
            *counts.entry(sizes.draw(&mut rng)).or_default() += 1;
        }
        for (bytes, share) in [(4096, 60), (65_536, 30), (1 << 20, 10)] {
            let seen = counts[&bytes] / 100;
            assert!(seen.abs_diff(share) <= 2, "{bytes} B: {seen} %");
        }
        assert_eq!(sizes.to_string().parse(), Ok(sizes));
        assert_eq!((sizes.longest(), sizes.is_one()), (1 << 20, false));
        assert!(Sizes::one(512).is_one());
    }

    #[test]
    fn a_range_has_each_multiple_of_its_shortest_length() {
        let (sizes, mut rng) = (Sizes::range(4096, 16_384), Rng::from_seed(7));
        let drawn: std::collections::BTreeSet<_> = (0..100).map(|_| sizes.draw(&mut rng)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [4096, 8192, 12_288, 16_384]);
        assert_eq!(
            (sizes.shortest(), sizes.longest(), sizes.to_string()),
            (4096, 16_384, "4096-16384".into())
        );
        assert!(Sizes::range(4096, 4096).is_one());
    }

    #[test]
    fn open_shares_divide_what_is_left() {
        let sizes: Sizes = "4k/10:64k/:32k".parse().unwrap();
        assert_eq!(sizes.entries[..3], [(4096, 10), (65_536, 45), (32_768, 45)]);
        for wrong in ["", "4k/50", "4k/60:8k/60", "4k/x", "0/100", "4k/50:8k/50,512", "4k/101"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }
}
