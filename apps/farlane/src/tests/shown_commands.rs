//! Every command that a help text or a page of the documentation shows is one that the program
//! takes.

use std::path::PathBuf;

use clap::FromArgMatches;
use live::drivers::secret_file;
use nvme_fabrics::authentication::{Hash, Secret};
use nvme_fabrics::tls::TlsKey;

use super::{commands, pages, shell};
use crate::args::{Cli, Command, names};
use crate::{commands as run, config_file};

/// A placeholder in an example, and a value for it.
const PLACEHOLDERS: [(&str, &str); 13] = [
    ("SHA256:NEAR", FINGERPRINT),
    ("SHA256:FAR", FINGERPRINT),
    ("SHA256:HERE", FINGERPRINT),
    ("SHA256:...", FINGERPRINT),
    ("key=FINGERPRINT", "key=any"),
    ("HOSTNQN", "nqn.2014-08.org.nvmexpress:uuid:2ec6e1f0-3c5a-4a9c-8d5a-000000000001"),
    ("/NQN", "/nqn.2026-01.io.farlane:disk"),
    ("DIRECTORY/", "/run/user/1000/"),
    ("vfio-user:DIRECTORY", "vfio-user:/run/user/1000"),
    ("HOST:PORT", "192.0.2.7:4430"),
    ("[--json]", "--json"),
    ("[--no-lookahead]", "--no-lookahead"),
    ("SCENARIO", "scenarios/plain.toml"),
];
const FINGERPRINT: &str = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";

/// Words that stand for a value by themselves.
const WORDS: [(&str, &str); 2] = [("URL", "tcp://192.0.2.7:4430"), ("NQN", "nqn.2026-01.io.farlane:disk")];

/// Files that examples name and that a command reads before it refuses its options.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let random = &mut live::sys::entropy::system();
        let key = TlsKey::generate(Hash::Sha256, random).emit();
        secret_file::create(&files.path("tls"), &key).unwrap();
        let secret = Secret::generate(Some(Hash::Sha256), random).emit();
        secret_file::create(&files.path("dhchap"), &secret).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The value of `option` in place of the one that an example has.
    fn instead(&self, option: &str, value: &str) -> String {
        let path = match option {
            "--tls-key-file" => self.path("tls"),
            "--dhchap-secret-file" | "--dhchap-controller-secret-file" => self.path("dhchap"),
            _ => return value.to_owned(),
        };
        path.display().to_string()
    }
}

/// The example with values in place of placeholders.
fn filled(words: &[String], files: &Files) -> Vec<String> {
    let mut filled: Vec<String> = Vec::new();
    for word in words {
        let mut word = word.clone();
        for (placeholder, value) in PLACEHOLDERS {
            word = word.replace(placeholder, value);
        }
        for (placeholder, value) in WORDS {
            if word == placeholder {
                value.clone_into(&mut word);
            }
        }
        let option = filled.last().cloned().unwrap_or_default();
        filled.push(files.instead(&option, &word));
    }
    filled
}

/// Why the program refuses a command line, if it does: its parser, or its checks of options that
/// contradict each other.
fn refusal(words: &[String]) -> Option<String> {
    let root = crate::command_line();
    let first_lines = |text: String| text.lines().take(3).collect::<Vec<_>>().join(" ");
    // The options of a file are checked where the file is.
    let is_of_file = words.iter().any(|word| word == "--config");
    let words = names::modern(&root, words.iter().map(Into::into).collect()).words;
    let names = names::names_in(&root, &words);
    if is_of_file && config_file::COMMANDS.iter().any(|(_, words)| names == *words) {
        return None;
    }
    let line = config_file::expand(&root, words);
    let line = match line {
        Ok(line) => line,
        Err(error) => return Some(error.to_string()),
    };
    let matches = match root.try_get_matches_from(&line.words) {
        Ok(matches) => matches,
        Err(error) => return Some(first_lines(error.to_string())),
    };
    let given = matches.subcommand().map_or(&matches, |(_, given)| given);
    let cli = Cli::from_arg_matches(&matches).unwrap();
    let checked = match cli.command {
        Command::Export(args) if args.action.is_none() => run::export::check(&args, given),
        Command::Target(args) if args.action.is_none() && !is_of_file => run::target::check_options(&args),
        _ => Ok(()),
    };
    checked.err().map(|error| error.to_string())
}

fn assert_taken(shown: &[(String, Vec<String>)]) {
    let files = Files::new();
    // Programs of their own check their own.
    let of_others = |word: &String| ["fleet", "gateware"].contains(&word.as_str());
    let ours = shown.iter().filter(|(_, words)| !words.get(1).is_some_and(of_others));
    let wrong = ours.filter_map(|(place, words)| {
        let why = refusal(&filled(words, &files))?;
        Some(format!("{place}: {}\n    {why}", words.join(" ")))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn examples_in_help_are_taken() {
    let mut shown = Vec::new();
    for (names, command) in commands() {
        for help in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten() {
            let examples = shell::of_text(&help.to_string());
            shown.extend(examples.into_iter().map(|words| (format!("{} --help", names.join(" ")), words)));
        }
    }
    assert!(shown.len() > 150, "{}", shown.len());
    assert_taken(&shown);
}

/// The texts of the code blocks of a page that show what to type, each with the line where it
/// begins.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut block: Option<(usize, String)> = None;
    let mut shows_commands = false;
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut block) {
            (Some(language), None) => {
                shows_commands = matches!(language, "" | "sh" | "text");
                block = Some((number + 1, String::new()));
            }
            (Some(_), Some(_)) => blocks.extend(block.take().filter(|_| shows_commands)),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

#[test]
fn commands_in_the_documentation_are_taken() {
    let mut shown = Vec::new();
    for (path, text) in pages() {
        for (number, block) in blocks(&text) {
            let place = format!("{path}, the block at line {number}");
            shown.extend(shell::of_text(&block).into_iter().map(|words| (place.clone(), words)));
        }
    }
    assert!(shown.len() > 120, "{}", shown.len());
    // An ellipsis stands for options that another example has.
    shown.retain(|(_, words)| !words.iter().any(|word| word == "…" || word == "..."));
    assert_taken(&shown);
}

#[test]
fn an_example_that_the_program_would_refuse_is_found() {
    let files = Files::new();
    for (line, expected) in [
        ("farlane export --listen 10.77.0.2:4430 --ram 1GiB", "reachable from other machines"),
        ("farlane export --eth eth1 --ram 1GiB", "reachable from other machines"),
        ("farlane target --listen 0.0.0.0:4420 --nqn NQN --ram 1GiB", "need no authentication"),
        ("farlane export --listen 127.0.0.1:1 --listen 127.0.0.1:2 --ram 1GiB", "nothing to offer"),
        (
            "farlane model emulate --between near far --listen 127.0.0.1:1 --link l.toml",
            "cannot be used with",
        ),
        ("farlane measure ping tcp://127.0.0.1:4430 --counts 1", "unexpected argument"),
    ] {
        let words = shell::of_text(line).remove(0);
        let why = refusal(&filled(&words, &files)).unwrap_or_default();
        assert!(why.contains(expected), "{line}: {why}");
    }
}
