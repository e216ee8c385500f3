//! How much a row says about the models.

use std::collections::BTreeSet;

use super::Row;
use super::constants::{ALL, Constant, Source};

/// How much a row says about the models. The class follows from the list of constants, that is
/// from the rows that each constant was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The row shows one constant again, which was taken from it.
    Echo,
    /// Constants were fitted to the row, or to a row that it is the sum or the difference of. The
    /// row belongs to a group: the smallest set of rows and constants in which each constant was
    /// taken from rows of the set alone.
    Fitted {
        /// Number of constants of the group.
        parameters: usize,
        /// Number of rows of the group.
        rows: usize,
    },
    /// No constant was taken from the row.
    Predicted,
}

impl Class {
    /// The class of `row`.
    pub(super) fn of(row: &Row) -> Self {
        if taken_from(row.experiment, &row.row).any(|known| matches!(known.source, Source::Figure(_))) {
            return Self::Echo;
        }
        // A sum or a difference proves as little as the part of it that was fitted.
        let is_taken = |name: &String| taken_from(row.experiment, name).next().is_some();
        let mut group: BTreeSet<&str> = if is_taken(&row.row) {
            [row.row.as_str()].into()
        } else {
            row.follows.iter().filter(|name| is_taken(name)).map(String::as_str).collect()
        };
        if group.is_empty() {
            return Self::Predicted;
        }
        loop {
            let constants = group.iter().flat_map(|name| taken_from(row.experiment, name));
            let more: BTreeSet<&str> = constants.flat_map(|known| known.source.rows()).copied().collect();
            if more.is_subset(&group) {
                break;
            }
            group.extend(more);
        }
        let of_group = |known: &&Constant| known.source.rows().iter().any(|name| group.contains(name));
        let constants = ALL.iter().filter(|known| known.experiment == row.experiment);
        Self::Fitted { parameters: constants.filter(of_group).count(), rows: group.len() }
    }

    /// The name of the class, as it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Fitted { .. } => "fitted",
            Self::Predicted => "predicted",
        }
    }

    /// Number of rows of a fitted group less its constants; negative if more constants were chosen
    /// than there are rows to determine them.
    pub fn freedom(self) -> Option<i64> {
        let Self::Fitted { parameters, rows } = self else { return None };
        Some(i64::try_from(rows).unwrap_or(i64::MAX) - i64::try_from(parameters).unwrap_or(i64::MAX))
    }
}

/// The constants that were taken from the row called `name` of `experiment`.
fn taken_from(experiment: &'static str, name: &str) -> impl Iterator<Item = &'static Constant> {
    ALL.iter().filter(move |known| known.is_from(experiment, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::Measure;

    fn row(experiment: &'static str, row: &str, follows: &[&str]) -> Row {
        let follows = follows.iter().map(|name| (*name).to_owned()).collect();
        let (row, measure) = (row.to_owned(), Measure::Total);
        Row { experiment, row, published: Some(1.0), ours: 1.0, unit: "", measure, follows, source: "" }
    }

    #[test]
    fn a_sum_is_fitted_as_soon_as_one_of_its_rows_is() {
        let [direct, tcp] = ["config_read_rtt direct", "config_read_rtt tcp_1g"];
        assert_eq!(row("nvme-tsn", direct, &[]).class(), Class::Echo);
        assert_eq!(row("nvme-tsn", tcp, &[]).class(), Class::Fitted { parameters: 1, rows: 1 });
        assert_eq!(row("nvme-tsn", "t_tunnel", &[tcp]).class().freedom(), Some(0));
        assert_eq!(row("nvme-tsn", "t_tunnel", &[tcp, "read_4k tsn_1g"]).class().freedom(), Some(0));
        assert_eq!(row("nvme-tsn", "t_tunnel", &["read_4k tsn_1g"]).class(), Class::Predicted);
        // Another experiment's row of the same name is another row.
        assert_eq!(row("niq", tcp, &[]).class(), Class::Predicted);
    }

    #[test]
    fn a_group_has_all_constants_of_its_rows() {
        // The grants without a request were chosen for the ping and for the reads.
        let class = row("nvme-5g", "icmp_ping_to_core", &[]).class();
        assert_eq!((class, class.freedom()), (Class::Fitted { parameters: 5, rows: 2 }, Some(-3)));
    }
}
