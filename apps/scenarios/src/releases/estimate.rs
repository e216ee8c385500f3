//! Means over replications, with confidence intervals.

/// The 97.5 % quantiles of Student's t distribution for 1 to 20 degrees of freedom.
const STUDENT: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086,
];

/// A mean over independent replications, and its 95 % confidence interval (Student's t).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half of the interval's width.
    pub half: f64,
}

impl Estimate {
    /// The estimate from one value of each replication; `None` with fewer than two values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let freedom = values.len().checked_sub(2)?;
        let quantile = STUDENT.get(freedom).unwrap_or(STUDENT.last()?);
        let count = f64::from(u32::try_from(values.len()).ok()?);
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let half = quantile * (squares / (count - 1.0) / count).sqrt();
        Some(Self { mean, half })
    }
}
