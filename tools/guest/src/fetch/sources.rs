//! Finds the Debian archive that this machine uses, in its package sources. Guests are fetched from
//! the same archive.

use std::fs;
use std::path::{Path, PathBuf};

/// A Debian archive that the machine's package sources name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// The URI before the suite in a source line.
    pub(crate) uri: String,
    /// The file with the keys that the machine trusts for the archive, if the sources name one.
    pub(crate) keyring: Option<PathBuf>,
}

/// The names of a Debian archive's suites. Security updates have an archive of their own, with
/// other names.
const SUITES: [&str; 11] = [
    "stable",
    "oldstable",
    "testing",
    "unstable",
    "sid",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "experimental",
];

/// The first Debian archive in the sources below `directory` (`/etc/apt`).
pub(crate) fn mirror(directory: &Path) -> Option<Mirror> {
    let mut files = vec![directory.join("sources.list")];
    if let Ok(entries) = fs::read_dir(directory.join("sources.list.d")) {
        files.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
    }
    files.sort();
    files.iter().find_map(|path| {
        let text = fs::read_to_string(path).ok()?;
        match path.extension()?.to_str()? {
            "list" => text.lines().find_map(one_line),
            "sources" => stanzas(&text).find_map(|stanza| from_stanza(&stanza)),
            _ => None,
        }
    })
}

/// Parses `deb [options] URI suite components` (sources.list(5), one-line style).
fn one_line(line: &str) -> Option<Mirror> {
    let rest = line.split('#').next()?.trim().strip_prefix("deb")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(options) => options.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let keyring = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    is_debian(suite).then(|| Mirror { uri: uri.to_owned(), keyring: keyring.and_then(key_file) })
}

/// The fields of each stanza (sources.list(5), deb822 style). Names are in lower case, continued
/// lines are joined.
fn stanzas(text: &str) -> impl Iterator<Item = Vec<(String, String)>> {
    text.split("\n\n").map(|stanza| {
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in stanza.lines().filter(|line| !line.starts_with('#')) {
            match (line.starts_with([' ', '\t']), line.split_once(':'), fields.last_mut()) {
                (true, _, Some((_, value))) => value.push_str(line),
                (false, Some((name, value)), _) => {
                    fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
                }
                _ => {}
            }
        }
        fields
    })
}

fn from_stanza(fields: &[(String, String)]) -> Option<Mirror> {
    let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    let binary = field("types")?.split_whitespace().any(|kind| kind == "deb");
    let enabled = field("enabled") != Some("no");
    let debian = field("suites")?.split_whitespace().any(is_debian);
    let uri = field("uris")?.split_whitespace().next()?;
    let keyring = field("signed-by").and_then(key_file);
    (binary && enabled && debian).then(|| Mirror { uri: uri.to_owned(), keyring })
}

fn is_debian(suite: &str) -> bool {
    let base = suite.strip_suffix("-updates").or(suite.strip_suffix("-backports")).unwrap_or(suite);
    SUITES.contains(&base)
}

/// The path of a key file. If the sources hold the key itself, apt chooses its keys by itself.
fn key_file(value: &str) -> Option<PathBuf> {
    value.starts_with('/').then(|| PathBuf::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: &[(&str, &str)]) -> Option<Mirror> {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("sources.list.d")).unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        mirror(directory.path())
    }

    fn here(keyring: Option<&str>) -> Option<Mirror> {
        Some(Mirror { uri: "http://mirror.example/debian".to_owned(), keyring: keyring.map(PathBuf::from) })
    }

    #[test]
    fn both_styles_are_read() {
        let line = "# deb http://old.example bookworm main\n\
            deb-src http://mirror.example/debian trixie main\n\
            deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian trixie main\n";
        assert_eq!(with(&[("sources.list", line)]), here(Some("/k.gpg")));
        let stanza = "Types: deb\nURIs: http://other.example/x\nSuites: nodistro\n\n\
            Types: deb deb-src\n# here\nURIs: http://mirror.example/debian\nSuites:\n bookworm\n bookworm-updates\n\
            Components: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n";
        assert_eq!(with(&[("sources.list.d/debian.sources", stanza)]), here(None));
    }

    #[test]
    fn disabled_sources_and_other_archives_are_ignored() {
        let disabled = "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nEnabled: no\n";
        assert_eq!(with(&[("sources.list.d/a.sources", disabled)]), None);
        let ubuntu = "deb http://mirror.example/ubuntu noble main universe\n";
        let security = "deb http://mirror.example/security bookworm-security main\n";
        assert_eq!(with(&[("sources.list", ubuntu), ("sources.list.d/s.list", security)]), None);
        assert_eq!(with(&[("sources.list.d/debian.list.off", "deb http://x.example trixie main\n")]), None);
        assert_eq!(with(&[]), None);
    }
}
