//! The mode of new files with data, state or captures: `--mode`, of each command that makes some.

use clap::{Arg, ArgMatches, Command};
use live::sys::files;

/// The name of the option among a command's arguments.
const ID: &str = "new-file-mode";
/// A command with one of these arguments makes such files: namespaces, captures, copies of data.
const MAKERS: [&str; 5] = ["pool", "capture", "out", "output_file", "heads"];
/// These commands do as well: recordings, and replayed data.
const COMMANDS: [&str; 2] = ["record", "replay"];
/// The rights of every such file's owner, and all rights that a mode may have.
const LEAST: u32 = 0o600;
const MOST: u32 = 0o666;

/// The bits of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileMode(u32);

/// Adds the option to the commands that have it.
pub(crate) fn add_to(command: Command) -> Command {
    let is_maker = |arg: &Arg| arg.get_long().is_some() && MAKERS.contains(&arg.get_id().as_str());
    let has_it = COMMANDS.contains(&command.get_name()) || command.get_arguments().any(is_maker);
    let command = command.mut_subcommands(add_to);
    if !has_it {
        return command;
    }
    command.arg(
        Arg::new(ID)
            .long("mode")
            .value_name("MODE")
            .value_parser(parse)
            .help("Give new files of data, state and captures this mode, such as 0640 [default: 0600]")
            .long_help(
                "Give new files of data, state and captures this mode, such as 0640 [default: 0600].\n\nThe umask \
                 takes nothing of it. Files that are there keep their mode",
            ),
    )
}

/// Gives the files of this process the mode that its command line has.
pub(crate) fn apply(matches: &ArgMatches) {
    if let Ok(Some(FileMode(mode))) = matches.try_get_one(ID) {
        files::make_with(*mode);
    }
    if let Some((_, matches)) = matches.subcommand() {
        apply(matches);
    }
}

fn parse(text: &str) -> Result<FileMode, String> {
    let mode = u32::from_str_radix(text.strip_prefix("0o").unwrap_or(text), 8).ok();
    let mode = mode.filter(|mode| mode & LEAST == LEAST && mode & !MOST == 0);
    mode.map(FileMode).ok_or_else(|| {
        "expected 0600 and the rights of others, octal: 0640 lets the group read, 0660 lets it write as well, 0644 lets every user read"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::names;

    #[test]
    fn modes_leave_the_owner_what_it_needs_and_make_nothing_executable() {
        for (text, mode) in [("0640", 0o640), ("600", 0o600), ("0o664", 0o664), ("0666", 0o666)] {
            assert_eq!(parse(text), Ok(FileMode(mode)), "{text}");
        }
        for text in
            ["", "0", "0440", "0400", "0700", "04600", "1600", "0x180", "-600", "0680", "u=rw", "99999999999"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_command_that_makes_such_files_has_the_option() {
        let root = crate::command_line();
        let has = |name: &str| {
            let command = names::find(&root, name).unwrap();
            command.get_arguments().any(|arg| arg.get_long() == Some("mode"))
        };
        for name in [
            "export",
            "target",
            "offer device",
            "record",
            "recording replay",
            "recording convert",
            "observe capture",
            "use read",
            "bench",
            "observe lspci",
            "model sim",
            "demo",
        ] {
            assert!(has(name), "{name}");
        }
        for name in ["setup key", "setup completions", "setup man", "setup doctor", "recording verify"] {
            assert!(!has(name), "{name}");
        }
    }
}
