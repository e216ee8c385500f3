//! The sections of a job file.

use std::time::Duration;

use super::{units, words};

/// One job of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    /// Parameters in their order, each with the line where it is.
    pub(super) parameters: Vec<(usize, String, String)>,
}

impl Section {
    /// The value of a parameter, and its line.
    pub(super) fn value(&self, key: &str) -> Option<(usize, &str)> {
        let found = self.parameters.iter().find(|(_, other, _)| other == key);
        found.map(|(line, _, value)| (*line, value.as_str()))
    }

    /// Whether a parameter is there and is not off.
    pub(super) fn is_on(&self, key: &str) -> bool {
        self.value(key).is_some_and(|(_, value)| value != "0")
    }

    /// The job's name in reports.
    pub(super) fn shown_name(&self) -> &str {
        self.value("name").map_or(&self.name, |(_, name)| name)
    }

    /// The time of the job; none if its bytes alone end it.
    pub(super) fn runtime(&self) -> Option<Result<Duration, String>> {
        let (_, value) = self.value("runtime")?;
        let time = units::time(value, Duration::from_secs(1));
        (time != Ok(Duration::ZERO)).then_some(time)
    }

    /// The value of the suffix `k`.
    pub(super) fn kb_base(&self) -> Result<u64, String> {
        match self.value("kb_base") {
            None | Some((_, "1024")) => Ok(1024),
            Some((_, "1000")) => Ok(1000),
            Some((line, other)) => Err(format!("kb_base of line {line} is '{other}': expected 1000 or 1024")),
        }
    }
}

/// Parameters that say the same in another way: the later one counts.
const EITHER: [[&str; 2]; 3] =
    [["rwmixread", "rwmixwrite"], ["bs", "bsrange"], ["percentage_random", "percentage_sequential"]];

fn is_replaced(other: &str, key: &str) -> bool {
    other == key || EITHER.iter().any(|either| either.contains(&other) && either.contains(&key))
}

/// The jobs of a file. Parameters of `[global]` are those of every later job that has no own.
/// `variable` returns the value of `${NAME}`.
pub(super) fn sections(text: &str, variable: impl Fn(&str) -> String) -> Result<Vec<Section>, String> {
    let mut global: Vec<(usize, String, String)> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut is_global = true;
    for (number, line) in (1..).zip(text.lines()) {
        // fio takes the text behind either sign for a comment, behind a value too.
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_global = name == "global";
            if !is_global {
                sections.push(Section { name: name.to_owned(), parameters: global.clone() });
            }
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "1"));
        let key = key.trim().to_lowercase();
        let parameter = (number, words::canonical(&key).to_owned(), expand(value.trim(), &variable));
        let parameters = match sections.last_mut() {
            Some(section) if !is_global => &mut section.parameters,
            _ => &mut global,
        };
        parameters.retain(|(_, other, _)| !is_replaced(other, &parameter.1));
        parameters.push(parameter);
    }
    match sections.is_empty() {
        true => Err("there is no job; expected a line such as [job]".to_owned()),
        false => Ok(sections),
    }
}

/// `text` with `${NAME}` replaced.
fn expand(text: &str, variable: &impl Fn(&str) -> String) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, (name, after))) =
        rest.split_once("${").and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        done.push_str(before);
        done.push_str(&variable(name));
        rest = after;
    }
    done + rest
}
