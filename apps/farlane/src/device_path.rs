//! `URL,nsid=N`: the path of a namespace, which `farlane observe list` prints as `DevicePath`.
//! Commands take it for the URL with `-n N`, as those of nvme-cli take `/dev/nvme0n2`.

use std::ffi::OsString;

use clap::{Arg, Command, Subcommand as _};
use live::client::Url;

use crate::args::NvmeCommand;
use crate::args::names::places;

/// The mark between the URL of a controller and the identifier of a namespace.
const MARK: &str = ",nsid=";
/// Commands that take such a path besides those of nvme-cli.
const OWN: [&str; 4] = ["identify", "ping", "read", "write"];

/// The path of the namespace `id` of the controller at `url`.
pub(crate) fn path(url: &str, id: u32) -> String {
    format!("{url}{MARK}{id}")
}

/// The words of a command line, in today's spelling, in which the path of a namespace is the URL of
/// its controller. A command that acts on one namespace gets `-n`, unless `-n` was given.
pub(crate) fn expand(root: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let Some((start, command)) = command_of(root, &words) else { return words };
    let known = NvmeCommand::augment_subcommands(Command::new("nvme"));
    let name = command.get_name();
    if !OWN.contains(&name) && !known.get_subcommands().any(|one| one.get_name() == name) {
        return words;
    }
    let found =
        words.iter().enumerate().skip(start).find_map(|(at, word)| Some((at, split(word.to_str()?)?)));
    let Some((at, (url, id))) = found else { return words };
    words[at] = url.into();
    let is_given =
        words.iter().skip(start).filter_map(|word| word.to_str()).any(|word| {
            word.starts_with("--namespace") || (word.starts_with("-n") && !word.starts_with("--"))
        });
    if !is_given && acts_on_one(command) {
        let option: [OsString; 2] = ["-n".into(), id.to_string().into()];
        words.splice(at..at, option);
    }
    words
}

/// The command that `words` in today's spelling name, and the place of its last word.
fn command_of<'a>(root: &'a Command, words: &[OsString]) -> Option<(usize, &'a Command)> {
    let mut found = None;
    for place in places(words) {
        let within = found.map_or(root, |(_, command)| command);
        let Some(command) = within.find_subcommand(&words[place]) else { break };
        found = Some((place, command));
    }
    found
}

/// The URL and the identifier in the path of a namespace.
fn split(word: &str) -> Option<(&str, u32)> {
    let (url, id) = word.rsplit_once(MARK)?;
    let id = id.parse().ok().filter(|id| *id > 0)?;
    url.parse::<Url>().is_ok().then_some((url, id))
}

/// Whether a command acts on one namespace, rather than on the controller or all namespaces.
fn acts_on_one(command: &Command) -> bool {
    let is_one = |arg: &Arg| {
        let is_all = arg.get_default_values().iter().any(|value| *value == "0xffffffff");
        arg.get_short() == Some('n') && arg.get_id() == "namespace" && !is_all
    };
    !command.get_name().ends_with("-passthru") && command.get_arguments().any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let words = expand(&crate::command_line(), words);
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_path_of_a_namespace_is_its_controllers_url_and_the_option() {
        let nqn = "nvme-tcp://a:4420/nqn.2014-08.org.example:x";
        for (line, expected) in [
            ("farlane nvme id-ns tcp://a:1,nsid=2 -H", "farlane nvme id-ns -n 2 tcp://a:1 -H"),
            ("farlane use read tcp://a:1,nsid=2", "farlane use read -n 2 tcp://a:1"),
            (
                "farlane nvme get-feature tcp://a:1,nsid=2 -f 5",
                "farlane nvme get-feature -n 2 tcp://a:1 -f 5",
            ),
            // These are about the controller.
            ("farlane nvme smart-log tcp://a:1,nsid=2", "farlane nvme smart-log tcp://a:1"),
            ("farlane nvme id-ctrl tcp://a:1,nsid=2", "farlane nvme id-ctrl tcp://a:1"),
            ("farlane nvme list-ns tcp://a:1,nsid=2", "farlane nvme list-ns tcp://a:1"),
            ("farlane measure ping tcp://a:1,nsid=2", "farlane measure ping tcp://a:1"),
            (
                "farlane nvme admin-passthru tcp://a:1,nsid=2 -O 6",
                "farlane nvme admin-passthru tcp://a:1 -O 6",
            ),
            // The given option counts.
            ("farlane nvme id-ns tcp://a:1,nsid=2 -n 3", "farlane nvme id-ns tcp://a:1 -n 3"),
            (
                "farlane nvme id-ns --namespace-id=3 tcp://a:1,nsid=2",
                "farlane nvme id-ns --namespace-id=3 tcp://a:1",
            ),
        ] {
            assert_eq!(expanded(line), expected);
        }
        assert_eq!(
            expanded(&format!("farlane nvme flush {nqn},nsid=7")),
            format!("farlane nvme flush -n 7 {nqn}")
        );
        for same in [
            "farlane nvme id-ns tcp://a:1",
            "farlane nvme id-ns tcp://a:1,nsid=0",
            "farlane nvme id-ns a,nsid=2",
            "farlane target --namespace tcp://a:1,nsid=2",
            "farlane",
        ] {
            assert_eq!(expanded(same), same);
        }
    }
}
