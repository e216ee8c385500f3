//! The parameters of a StorageClass, and the segments of a topology.

use std::collections::HashMap;

use tonic::Status;

use super::check;

/// What all keys of the driver's topology begin with.
pub(super) const TOPOLOGY: &str = "csi.farlane.io/";
/// The key of a node's own name.
pub(super) const NODE: &str = "csi.farlane.io/node";
/// Keys that Kubernetes adds, and that are not for the driver.
const FOREIGN: &str = "csi.storage.k8s.io/";

/// What a StorageClass says of its volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    /// The class that volumes are to hold.
    pub(super) class: Option<String>,
    /// The pool that they are to be in.
    pub(super) pool: Option<String>,
}

impl Parameters {
    /// The parameters of a map. Those that can be changed later win.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if one is not known here.
    pub(super) fn parse(
        fixed: &HashMap<String, String>,
        mutable: &HashMap<String, String>,
    ) -> Result<Self, Status> {
        check::map("parameters", fixed)?;
        check::map("mutable_parameters", mutable)?;
        let mut found = Self::default();
        for (key, value) in fixed {
            match key.as_str() {
                "class" => found.class = Some(name(key, value)?),
                "pool" => found.pool = Some(name(key, value)?),
                key if key.starts_with(FOREIGN) => (),
                key => return Err(unknown(key, "class, pool")),
            }
        }
        for (key, value) in mutable {
            match key.as_str() {
                "class" => found.class = Some(name(key, value)?),
                key => return Err(unknown(key, "class")),
            }
        }
        Ok(found)
    }
}

fn name(key: &str, value: &str) -> Result<String, Status> {
    match fleet::Name::new(value) {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(error) => Err(Status::invalid_argument(format!("the parameter {key}: {error}"))),
    }
}

fn unknown(key: &str, expected: &str) -> Status {
    let shown: String = key.chars().take(128).collect();
    Status::invalid_argument(format!(
        "the parameter \"{}\" is not known here: expected {expected}",
        shown.escape_debug()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn parameters_are_known_or_refused() {
        let fixed = map(&[("class", "fast"), ("pool", "p"), ("csi.storage.k8s.io/pvc/name", "x")]);
        let found = Parameters::parse(&fixed, &map(&[("class", "slow")])).unwrap();
        assert_eq!((found.class.as_deref(), found.pool.as_deref()), (Some("slow"), Some("p")));
        for (fixed, mutable) in [
            (map(&[("klass", "fast")]), map(&[])),
            (map(&[("class", "Fast one")]), map(&[])),
            (map(&[]), map(&[("pool", "p")])),
            (map(&[("class", &"x".repeat(5000))]), map(&[])),
        ] {
            assert!(Parameters::parse(&fixed, &mutable).is_err(), "{fixed:?} {mutable:?}");
        }
    }
}
