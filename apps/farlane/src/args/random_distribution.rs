//! How random operations spread over places: evenly, or some places more often than others.
//!
//! The distributions are those of fio's `random_distribution`.

use std::str::FromStr;
use std::sync::Arc;

/// The most zones or places that are named.
const NAMED_MAX: usize = 256;

/// How random operations spread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RandomDistribution {
    /// Each place as often as any other; each once before any comes again if this is mapped.
    Uniform { is_mapped: bool },
    /// The place of rank n has a share that falls as n to the power of this.
    Zipf(f64),
    /// A share of accesses that goes to the rest: 0.2 is 80 % of accesses on 20 % of places.
    Pareto(f64),
    /// Places about the middle, with this deviation in percent.
    Normal(f64),
    /// Percent of accesses, and percent of the places that they go to, one after the other.
    Zoned(Arc<[(u8, u8)]>),
    /// Blocks in this order, again and again, each time further on if this is strided.
    Sequence { blocks: Arc<[u64]>, is_strided: bool },
}

impl FromStr for RandomDistribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let number = |usual: f64, fits: fn(f64) -> bool, expected: &str| match value {
            "" => Ok(usual),
            value => value
                .parse()
                .ok()
                .filter(|number| fits(*number))
                .ok_or_else(|| format!("'{value}' is no parameter of {name}; expected {expected}")),
        };
        match name {
            "random" if value.is_empty() => Ok(Self::Uniform { is_mapped: true }),
            "zipf" => number(1.1, |theta| theta > 0.0 && theta != 1.0 && theta < 100.0, "more than 0, not 1")
                .map(Self::Zipf),
            "pareto" => number(0.2, |h| h > 0.0 && h < 1.0, "between 0 and 1").map(Self::Pareto),
            "normal" | "gauss" => {
                number(0.0, |deviation| (0.0..=100.0).contains(&deviation), "0 to 100 percent")
                    .map(Self::Normal)
            }
            "zoned" => zoned(value),
            "sequence" => sequence(value),
            _ => Err(format!(
                "'{text}': expected random, zipf:THETA, pareto:H, normal:PERCENT, zoned:ACCESS/SPAN[:...] or \
                 sequence:BLOCK[,BLOCK]..."
            )),
        }
    }
}

/// fio's `zoned:50/5:30/15:20/`: the rest of accesses and places is divided among the numbers left
/// out.
fn zoned(text: &str) -> Result<RandomDistribution, String> {
    let wrong = || format!("'{text}': expected ACCESS/SPAN[:ACCESS/SPAN]... in percent, 100 together");
    let mut zones = Vec::new();
    for part in text.split(':') {
        let (access, span) = part.split_once('/').unwrap_or((part, ""));
        let one = |text: &str| match text.trim() {
            "" => Ok(None),
            text => text.parse::<u8>().ok().filter(|one| *one <= 100).map(Some).ok_or_else(wrong),
        };
        zones.push((one(access)?, one(span)?));
    }
    if zones.len() > NAMED_MAX {
        return Err(wrong());
    }
    let shares = |each: Vec<Option<u8>>| {
        let given: u32 = each.iter().flatten().map(|one| u32::from(*one)).sum();
        let open = u32::try_from(each.iter().filter(|one| one.is_none()).count()).unwrap_or(1);
        let left = 100_u32.checked_sub(given).filter(|left| *left == 0 || open > 0).ok_or_else(wrong)?;
        let part = u8::try_from(left / open.max(1)).unwrap_or(0);
        Ok::<_, String>(each.into_iter().map(move |one| one.unwrap_or(part)))
    };
    let access = shares(zones.iter().map(|zone| zone.0).collect())?;
    let span = shares(zones.iter().map(|zone| zone.1).collect())?;
    Ok(RandomDistribution::Zoned(access.zip(span).collect()))
}

fn sequence(text: &str) -> Result<RandomDistribution, String> {
    let one = |part: &str| {
        part.trim()
            .parse::<u64>()
            .map_err(|_| format!("'{part}' is no number of a block; expected as in 2,0,1"))
    };
    let blocks = text.split(',').map(one).collect::<Result<Arc<[_]>, _>>()?;
    match blocks.len() <= NAMED_MAX {
        true => Ok(RandomDistribution::Sequence { blocks, is_strided: false }),
        false => Err(format!("{} blocks; expected at most {NAMED_MAX}", blocks.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_distribution_is_refused() {
        for wrong in
            ["zipf:1", "zipf:x", "pareto:2", "zoned:50/5", "zoned:x", "zoned:90/1:20/", "sequence:", "odd"]
        {
            assert!(wrong.parse::<RandomDistribution>().is_err(), "{wrong}");
        }
    }
}
