//! Limits on what callers send.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use tonic::Status;

/// The longest text in bytes (CSI, size limits).
const TEXT_MAX: usize = 128;
/// The most bytes of all keys and values of a map (CSI, size limits).
const MAP_MAX: usize = 4096;
/// The longest path in bytes (Linux).
const PATH_BYTES_MAX: usize = 4095;

/// A text that must be there.
pub(super) fn text<'a>(field: &str, value: &'a str) -> Result<&'a str, Status> {
    if value.is_empty() {
        return Err(Status::invalid_argument(format!("{field} is missing")));
    }
    if value.len() > TEXT_MAX {
        let found = value.len();
        let expected = format!("{field} has {found} bytes: expected {TEXT_MAX} at most");
        return Err(Status::invalid_argument(expected));
    }
    Ok(value)
}

/// A map.
pub(super) fn map(field: &str, map: &HashMap<String, String>) -> Result<(), Status> {
    let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAP_MAX {
        let expected = format!("{field} has {bytes} bytes: expected {MAP_MAX} at most");
        return Err(Status::invalid_argument(expected));
    }
    Ok(())
}

/// A list.
pub(super) fn count<T>(field: &str, list: &[T], most: usize) -> Result<(), Status> {
    if list.len() > most {
        let found = list.len();
        return Err(Status::invalid_argument(format!(
            "{field} has {found} entries: expected {most} at most"
        )));
    }
    Ok(())
}

/// A path that must be there: absolute, without `..`.
pub(super) fn path(field: &str, value: &str) -> Result<PathBuf, Status> {
    if value.is_empty() {
        return Err(Status::invalid_argument(format!("{field} is missing")));
    }
    let path = Path::new(value);
    let is_plain = path.components().all(|one| matches!(one, Component::RootDir | Component::Normal(_)));
    if value.len() > PATH_BYTES_MAX || value.contains('\0') || !path.is_absolute() || !is_plain {
        let shown: String = value.chars().take(TEXT_MAX).collect();
        return Err(Status::invalid_argument(format!(
            "{field} \"{}\" is no path: expected an absolute one, without .., of {PATH_BYTES_MAX} bytes at most",
            shown.escape_debug()
        )));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_specification() {
        assert!(text("name", &"x".repeat(128)).is_ok());
        for bad in [String::new(), "x".repeat(129)] {
            assert_eq!(text("name", &bad).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
        let one = |bytes: usize| HashMap::from([("k".to_owned(), "v".repeat(bytes))]);
        assert!(map("parameters", &one(4095)).is_ok());
        assert!(map("parameters", &one(4096)).is_err());
        assert!(count("capabilities", &[(); 3], 3).is_ok());
        assert!(count("capabilities", &[(); 4], 3).is_err());
        assert_eq!(path("target", "/a/b").unwrap(), Path::new("/a/b"));
        for bad in ["", "a/b", "/a/../b", "/a\0b", &format!("/{}", "x".repeat(4095))] {
            let error = path("target", bad).unwrap_err();
            assert!(error.message().starts_with("target"), "{error}");
        }
    }
}
