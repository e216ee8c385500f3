//! `farlane setup man`: manual pages, made of the texts of `--help`.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::{ManArgs, names};
use crate::commands::{print, print_json};
use crate::error::Error;
use crate::exit::Exit;
use crate::whole_file;

/// The pages that were written.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json<'a> {
    pages: &'a [String],
}

pub(crate) fn run(args: &ManArgs) -> Result<(), Error> {
    let mut root = crate::command_line();
    root.build();
    let Some(folder) = &args.to else {
        let command = find(&root, &names::first_spelling(&args.command))?;
        return print(&page(command).map_err(Error::Output)?);
    };
    let mut written = Vec::new();
    write(&root, folder, &mut written)?;
    if args.output.json {
        return print_json(&Json { pages: &written });
    }
    print(&format!("{} pages in {}\n", written.len(), folder.display()))
}

/// The command that `names` lead to.
fn find<'a>(root: &'a Command, names: &[String]) -> Result<&'a Command, Error> {
    names.iter().try_fold(root, |command, name| {
        let found = shown(command).find(|one| one.get_name() == name);
        found.ok_or_else(|| Error::NoPage { name: names.join(" ") })
    })
}

/// The subcommands that people see, without clap's own `help`, which has no page.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help")
}

/// Writes the page of `command` into `folder`, and the pages of its subcommands. A command with a
/// second spelling has one page.
fn write(command: &Command, folder: &Path, written: &mut Vec<String>) -> Result<(), Error> {
    if names::first_name(&title(command)) != title(command) {
        return Ok(());
    }
    let name = format!("{}.1", title(command));
    let path = folder.join(&name);
    let text = page(command).map_err(Error::Output)?;
    whole_file::replace(&path, text.as_bytes())?;
    written.push(name);
    shown(command).try_for_each(|one| write(one, folder, written))
}

/// The day of the pages: that of the source (`SOURCE_DATE_EPOCH`, which makes packages
/// reproducible) or else today.
fn date() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let since = given.map(Duration::from_secs).and_then(|since| UNIX_EPOCH.checked_add(since));
    let day = humantime::format_rfc3339_seconds(since.unwrap_or_else(SystemTime::now)).to_string();
    day.split('T').next().unwrap_or_default().to_owned()
}

/// The name of a command's page: `farlane-key-new`.
fn title(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

fn page(command: &Command) -> io::Result<String> {
    let name = title(command);
    let man = Man::new(with_one_paragraph_each(command.clone()))
        .title(name.to_uppercase())
        .date(date())
        .source(concat!("Farlane ", env!("CARGO_PKG_VERSION")))
        .manual("Farlane's commands");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if shown(command).next().is_some() {
        commands(command).to_writer(&mut text)?;
    }
    endings().to_writer(&mut text)?;
    if let Some(examples) = command.get_after_help() {
        example(&examples.to_string()).to_writer(&mut text)?;
    }
    also(command).to_writer(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    // Each section brings the definition of an apostrophe along, and lists of values an empty line,
    // which is no text.
    let first = text.find(".TH").map_or("", |end| &text[..end]);
    let rest = text.replace(first, "").replace("\n.br\n\n.br\n", "\n.sp\n");
    Ok(format!("{first}{rest}"))
}

/// Gives each option's help one paragraph: a blank line in the middle of a list would end it.
fn with_one_paragraph_each(command: Command) -> Command {
    command.mut_args(|arg| match arg.get_long_help() {
        None => arg,
        Some(help) => {
            let lines = help.to_string();
            let lines: Vec<_> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            arg.long_help(lines.join(" "))
        }
    })
}

fn commands(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["COMMANDS"]);
    for one in shown(command) {
        roff.control("TP", []);
        roff.text([bold(names::first_name(&title(one))), roman("(1)")]);
        roff.text([roman(one.get_about().map(ToString::to_string).unwrap_or_default())]);
    }
    roff
}

fn endings() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for exit in Exit::ALL {
        roff.control("TP", []);
        roff.text([bold(exit.code().to_string())]);
        roff.text([roman(exit.meaning())]);
    }
    roff
}

/// The examples of a command, line for line as its help has them.
fn example(text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]);
    let text = text.trim_start_matches("Examples:\n").trim_start_matches("Example:\n");
    roff.control("EX", []);
    for line in text.lines() {
        // An empty line in a text that keeps its lines is a line without words.
        roff.text([roman(if line.is_empty() { " " } else { line })]);
    }
    roff.control("EE", []);
    roff
}

fn also(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let name = title(command);
    match name.contains('-') {
        true => roff.text([bold("farlane"), roman("(1), the documents in /usr/share/doc/farlane")]),
        false => roff.text([roman("The documents in /usr/share/doc/farlane")]),
    };
    roff
}
