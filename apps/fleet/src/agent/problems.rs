//! Problems that last, each of which is logged once.

use std::collections::BTreeMap;

/// The problems of now, by the name of what has them.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    by_name: BTreeMap<String, String>,
}

impl Problems {
    /// Logs a problem, unless it is logged already. Numbers in it may differ, such as free bytes.
    pub(crate) fn note(&mut self, name: &str, problem: String) {
        let is_known = |known: &String| letters(known).eq(letters(&problem));
        if !self.by_name.get(name).is_some_and(is_known) {
            tracing::warn!(what = name, "{name}: {problem}; it is tried again");
            self.by_name.insert(name.to_owned(), problem);
        }
    }

    /// Takes note that there is no problem.
    pub(crate) fn end(&mut self, name: &str) {
        if self.by_name.remove(name).is_some() {
            tracing::info!(what = name, "{name}: the problem is over");
        }
    }

    /// Forgets the problems of what does not match.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.by_name.retain(|name, _| is_kept(name));
    }

    /// Whether something with a name that begins like this has a problem.
    pub(crate) fn has(&self, beginning: &str) -> bool {
        self.by_name.keys().any(|name| name.starts_with(beginning))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// A text without its numbers.
fn letters(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|letter| !letter.is_ascii_digit())
}
