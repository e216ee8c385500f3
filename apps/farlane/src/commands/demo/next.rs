//! The next commands after the demo.

use std::path::Path;

/// Commands that use the program by hand as the demo did: a far end in the background, a host's
/// view of it, and a load. They name the program as this process was started, so that they can be
/// copied.
pub(super) fn steps(program: &str) -> String {
    let program = quoted(program);
    format!(
        "\nWhat next? The same by hand:\n  \
         {program} export --listen 127.0.0.1:4430 --ram 1GiB &\n  \
         {program} observe lspci -t tcp://127.0.0.1:4430\n  \
         {program} bench tcp://127.0.0.1:4430 --runtime 2s\n{}",
        if Path::new(&program).components().count() > 1 {
            "make install puts farlane on the search path; README.md shows more uses\n"
        } else {
            "farlane --help lists more commands\n"
        }
    )
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "/._-+".contains(one);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_named_as_it_was_started() {
        let built = steps("target/demo/farlane");
        assert!(
            built.contains("\n  target/demo/farlane export ") && built.contains("make install"),
            "{built}"
        );
        let installed = steps("farlane");
        assert!(
            installed.contains("\n  farlane observe lspci -t ") && !installed.contains("make"),
            "{installed}"
        );
        assert_eq!(quoted("my build/it's"), r"'my build/it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
