//! One scenario with many values: applies `--set path=v1,v2` to a file.

use std::path::Path;

use super::scenario::Scenario;

/// A place in a scenario's file, and the values that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The keys that lead to the place, joined by dots. A number is an index in a list, from 0.
    pub path: String,
    /// The values of the place, one after another.
    pub values: Vec<String>,
}

/// The largest number of points in a sweep.
pub const POINTS_MAX: usize = 100_000;

impl std::str::FromStr for Axis {
    type Err = String;

    /// Parses `path=v1,v2,…`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (path, values) = text.split_once('=').ok_or("expected path=v1,v2,…")?;
        let values: Vec<_> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if path.is_empty() || values.iter().any(String::is_empty) {
            return Err("expected path=v1,v2,… with no empty value".into());
        }
        Ok(Self { path: path.to_owned(), values })
    }
}

/// Every combination of the axes' values; the last axis changes first.
///
/// # Errors
/// When there are more than [`POINTS_MAX`] combinations, or two axes have one path.
pub fn points(axes: &[Axis]) -> Result<Vec<Vec<String>>, String> {
    let mut points = vec![Vec::new()];
    for (index, axis) in axes.iter().enumerate() {
        if axes[..index].iter().any(|other| other.path == axis.path) {
            return Err(format!("{} is given twice; give it once, with all values", axis.path));
        }
        if points.len() * axis.values.len() > POINTS_MAX {
            return Err(format!("more than {POINTS_MAX} points"));
        }
        points = points
            .into_iter()
            .flat_map(|point: Vec<String>| {
                axis.values.iter().map(move |value| point.iter().cloned().chain([value.clone()]).collect())
            })
            .collect();
    }
    Ok(points)
}

/// The file `text` with the values of `point` in the places of `axes`.
///
/// # Errors
/// When `text` is no TOML, or a path leads nowhere.
pub fn apply(text: &str, axes: &[Axis], point: &[String]) -> Result<String, String> {
    let mut file: toml::Table =
        text.parse().map_err(|error: toml::de::Error| error.to_string().trim_end().to_owned())?;
    for (axis, value) in axes.iter().zip(point) {
        let (parents, last) = axis.path.rsplit_once('.').unwrap_or(("", &axis.path));
        let mut root = toml::Value::Table(std::mem::take(&mut file));
        let mut place = &mut root;
        for key in parents.split('.').filter(|key| !key.is_empty()) {
            place = step(place, key).ok_or_else(|| format!("--set {}: there is no {key}", axis.path))?;
        }
        let value = value
            .parse::<i64>()
            .map(toml::Value::Integer)
            .or_else(|_| value.parse::<bool>().map(toml::Value::Boolean));
        let value = value.unwrap_or_else(|_| toml::Value::String(point_text(axis, point, axes)));
        match place {
            toml::Value::Table(table) => {
                table.insert(last.to_owned(), value);
            }
            _ => return Err(format!("--set {}: {parents} is no table", axis.path)),
        }
        let toml::Value::Table(table) = root else { return Err("a file is a table".into()) };
        file = table;
    }
    toml::to_string(&file).map_err(|error| error.to_string())
}

/// The scenario in `text` with the values of `point` in the places of `axes`. Names of other files
/// are relative to `directory`.
///
/// # Errors
/// When a path leads nowhere or a value is not allowed. The message begins with the values.
pub fn scenario_at(
    text: &str,
    directory: &Path,
    axes: &[Axis],
    point: &[String],
) -> Result<Scenario, String> {
    let file = apply(text, axes, point)?;
    // The line number is that of a generated file, which the user has not seen.
    let no_line = |error: String| match error.strip_prefix("line ").and_then(|rest| rest.split_once(", ")) {
        Some((_, rest)) => rest.to_owned(),
        None => error,
    };
    Scenario::parse_in(&file, directory).map_err(|error| {
        let pairs = axes.iter().zip(point).map(|(axis, value)| format!("{}={value}", axis.path));
        format!("with {}: {}", pairs.collect::<Vec<_>>().join(", "), no_line(error))
    })
}

fn point_text(axis: &Axis, point: &[String], axes: &[Axis]) -> String {
    let index = axes.iter().position(|other| other == axis).unwrap_or(0);
    point[index].clone()
}

fn step<'a>(value: &'a mut toml::Value, key: &str) -> Option<&'a mut toml::Value> {
    match value {
        toml::Value::Array(list) => list.get_mut(key.parse::<usize>().ok()?),
        // A table that the file leaves out has its usual values, and its values may be set, too.
        toml::Value::Table(table) => {
            Some(table.entry(key).or_insert_with(|| toml::Value::Table(toml::Table::new())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_a_file_of_its_own() {
        let text = "[link]\nlatency = \"1ms\"\n[[task]]\nkind = \"read\"\n";
        let axes: Vec<Axis> =
            ["link.latency=2ms,3ms", "task.0.depth=1,2,4"].map(|axis| axis.parse().unwrap()).into();
        let points = points(&axes).unwrap();
        assert_eq!(points.len(), 6);
        let file = apply(text, &axes, &points[5]).unwrap();
        assert!(file.contains("latency = \"3ms\"") && file.contains("depth = 4"), "{file}");
        assert!(
            apply(text, &["pcie.payload=128".parse().unwrap()], &["128".into()]).unwrap().contains("[pcie]")
        );
        assert!(apply(text, &["task.1.x=1".parse().unwrap()], &["1".into()]).is_err());
        let twice: Vec<Axis> =
            ["pcie.payload=128", "pcie.payload=256"].map(|axis| axis.parse().unwrap()).into();
        assert!(super::points(&twice).unwrap_err().contains("pcie.payload is given twice"));
    }
}
