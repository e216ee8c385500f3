//! The text of a file of state: its version, its sections, and the digest that reveals changes.

use aws_lc_rs::digest::{SHA256, digest};
use toml::{Table, Value};

use super::error::StateCause;

/// The key of the version, by which a file of state is recognized.
const VERSION_KEY: &str = "farlane-state";
/// The version that is written, whose last line has a digest.
const VERSION: i64 = 2;
/// The first version, which has no digest. It can still be read.
const VERSION_WITHOUT_DIGEST: i64 = 1;
/// The comment at the top of the file.
const HEAD: &str = "# The state of a Farlane device. Change it only while no farlane uses it, and end the last line after \"end\".\n";
/// The beginning of the last line. The digest of all lines before it follows.
const END: &str = "# end";

/// The contents of a sound text.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) sections: Table,
    /// The digest was removed, as after a change by hand.
    pub(super) is_edited: bool,
}

/// The text of a file with `sections`.
pub(super) fn text_of(sections: &Table) -> String {
    // This can't fail on tables: every value came from one.
    let tables = toml::to_string(sections).unwrap_or_default();
    let body = format!("{HEAD}{VERSION_KEY} = {VERSION}\n\n{tables}\n");
    format!("{body}{END} {}\n", digest_of(&body))
}

fn digest_of(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The last line of a text.
enum End<'a> {
    /// Some other line: the text is cut off.
    None,
    /// The mark without a digest.
    Bare,
    /// The mark with a digest: the text before the last line, and the digest that it should have.
    Digest(&'a str, &'a str),
}

fn end_of(text: &str) -> End<'_> {
    let text = text.trim_end();
    let start = text.rfind('\n').map_or(0, |newline| newline + 1);
    let (body, last) = text.split_at(start);
    match last.strip_prefix(END) {
        Some("") => End::Bare,
        Some(digest) => digest.strip_prefix(' ').map_or(End::None, |digest| End::Digest(body, digest)),
        None => End::None,
    }
}

/// The sections in `text`, if it is a state of Farlane's and is as it was written.
pub(super) fn sections_of(text: &str) -> Result<Parsed, StateCause> {
    let end = end_of(text);
    let is_as_written = match end {
        End::None => None,
        End::Bare => Some(true),
        End::Digest(body, digest) => Some(digest_of(body) == digest),
    };
    let ours = text.lines().take(100).any(|line| line.trim_start().starts_with(VERSION_KEY));
    let sections: Result<Table, _> = texts::parse(text);
    let mut sections = match (sections, is_as_written) {
        (Ok(sections), _) => sections,
        (Err(_), _) if !ours => return Err(StateCause::NotOurs),
        (Err(_), None) => return Err(StateCause::CutOff),
        (Err(why), _) => return Err(StateCause::Damaged(why)),
    };
    let version = sections.remove(VERSION_KEY);
    if is_as_written == Some(false) {
        return Err(StateCause::NotAsWritten);
    }
    match version {
        Some(Value::Integer(VERSION)) => {}
        Some(Value::Integer(VERSION_WITHOUT_DIGEST)) => {}
        Some(Value::Integer(found)) if found > VERSION => return Err(StateCause::Newer { found }),
        Some(_) => {
            return Err(StateCause::Damaged(format!(
                "{VERSION_KEY}: expected a version, which is {VERSION}"
            )));
        }
        None => return Err(StateCause::NotOurs),
    }
    if is_as_written.is_none() {
        return Err(StateCause::CutOff);
    }
    match sections.iter().find(|(_, value)| !value.is_table()) {
        Some((name, _)) => Err(StateCause::Damaged(format!("{name}: expected a table, [{name}]"))),
        None => {
            let is_edited = matches!(end, End::Bare) && version == Some(Value::Integer(VERSION));
            Ok(Parsed { sections, is_edited })
        }
    }
}
