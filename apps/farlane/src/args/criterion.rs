//! When the figures of a job count as steady: fio's `steadystate`.

use std::fmt;
use std::str::FromStr;

/// The figure that is to be steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Operations a second.
    Iops,
    /// Bytes a second.
    Bandwidth,
    /// The mean latency in nanoseconds.
    Latency,
}

/// The figure that is steady: fio's `iops:10%`, `bw_slope:1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Criterion {
    pub(crate) figure: Figure,
    /// Whether the slope counts, and not the largest difference from the mean.
    pub(crate) is_slope: bool,
    pub(crate) limit: f64,
    /// Whether the limit is a percentage of the mean.
    pub(crate) is_percent: bool,
}

impl FromStr for Criterion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}': expected iops, bw or lat, with _slope or without, such as iops:2%");
        let (name, limit) = text.split_once(':').ok_or_else(wrong)?;
        let (figure, is_slope) = name.strip_suffix("_slope").map_or((name, false), |figure| (figure, true));
        let figure = match figure {
            "iops" => Figure::Iops,
            "bw" => Figure::Bandwidth,
            "lat" => Figure::Latency,
            _ => return Err(wrong()),
        };
        let (limit, is_percent) = limit.strip_suffix('%').map_or((limit, false), |limit| (limit, true));
        let limit = limit.parse().ok().filter(|limit: &f64| limit.is_finite() && *limit > 0.0);
        Ok(Self { figure, is_slope, limit: limit.ok_or_else(wrong)?, is_percent })
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = match self.figure {
            Figure::Iops => "iops",
            Figure::Bandwidth => "bw",
            Figure::Latency => "lat",
        };
        let (slope, percent) =
            (if self.is_slope { "_slope" } else { "" }, if self.is_percent { "%" } else { "" });
        write!(f, "{figure}{slope}:{}{percent}", self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_criterion_is_printed_as_it_is_given() {
        for text in ["iops:10%", "bw_slope:1%", "lat_slope:9"] {
            assert_eq!(text.parse::<Criterion>().unwrap().to_string(), text);
        }
        for wrong in ["iops", "iops:", "iops:0", "odd:1", "slope:1%", "iops:x%"] {
            assert!(wrong.parse::<Criterion>().is_err(), "{wrong}");
        }
    }
}
