//! Reading the file of far ends again: unchanged parts stay as they are.

use clap::{ArgMatches, FromArgMatches};
use serde_json::Value;

use super::server::Server;
use crate::args::{Backing, Cli, Command};
use crate::commands::control::{Reloaded, reply};
use crate::commands::served::changes::resized;
use crate::commands::served::running::Running;
use crate::config_file;

/// The options whose changes are applied at once.
const AT_ONCE: [&str; 2] = ["namespace", "ram"];

impl Server {
    /// Reads the file again and applies its changes. A change that can't be made is reported and
    /// left out; all others are made.
    pub(super) fn reload(&mut self) -> Result<Value, String> {
        let file = self.file.as_ref().ok_or("the far end was not started with --config")?;
        let line = config_file::read_again().map_err(|error| error.to_string())?;
        let cli = Cli::from_arg_matches(&line).map_err(|error| error.to_string())?;
        let given = line.subcommand_matches("export").ok_or("the command line has changed")?.clone();
        let Command::Export(args) = cli.command else {
            return Err("the command line has changed".to_owned());
        };
        let far_ends = args.served.divide(&args.listen, &given).map_err(|error| error.to_string())?;
        let mut changes = others(&file.matches, &given);
        for (index, (listen, served)) in far_ends.into_iter().enumerate() {
            // Another far end begins, or ends, when the process is started again.
            if self.offered.get(index).is_some_and(|one| one.listen == listen) {
                self.reload_namespaces(index, served.backings().collect(), &mut changes);
            }
        }
        for change in &changes {
            info!("{change}");
        }
        if let Some(file) = &mut self.file {
            file.matches = given;
        }
        reply(&Reloaded { changes })
    }

    fn reload_namespaces(&mut self, index: usize, wanted: Vec<Backing>, changes: &mut Vec<String>) {
        let name = self.name(index);
        let mut wanted: Vec<_> = wanted.into_iter().map(Some).collect();
        let mut rest = Vec::new();
        for place in 0..self.offered[index].listed.len() {
            let there = &self.offered[index].listed[place];
            match wanted.iter_mut().find(|one| one.as_ref() == Some(&there.backing)) {
                Some(one) => *one = None,
                None => rest.push(there.clone()),
            }
        }
        for there in rest {
            let (id, before) = (there.id, there.backing);
            let changed = wanted.iter_mut().find_map(|one| {
                let size = resized(&before, one.as_ref()?)?;
                one.take().map(|now| (size, now))
            });
            if let Some((size, now)) = changed {
                if self.grow(index, id, size, changes) {
                    for (_, backing) in self.listed(index).filter(|(one, _)| *one == id) {
                        *backing = now.clone();
                    }
                }
                continue;
            }
            changes.push(match self.remove_namespace(index, id) {
                Ok(()) => {
                    self.unlist(index, id);
                    format!("{name} has namespace {id} no more")
                }
                Err(error) => format!("{name}: namespace {id} stays: {error}"),
            });
        }
        for backing in wanted.into_iter().flatten() {
            let text = backing.to_string();
            changes.push(match self.add_namespace(index, backing) {
                Ok(id) => format!("{name} has namespace {id}"),
                Err(error) => format!("{name}: {text} can't be added: {error}"),
            });
        }
    }
}

/// A line for each other option that has changed: these count from the next start on.
fn others(before: &ArgMatches, now: &ArgMatches) -> Vec<String> {
    let root = crate::command_line();
    let options = root.find_subcommand("export").into_iter().flat_map(clap::Command::get_arguments);
    let values = |matches: &ArgMatches, option: &clap::Arg| {
        let raw = matches.try_get_raw(option.get_id().as_str()).ok().flatten();
        raw.map(|values| values.map(std::ffi::OsStr::to_owned).collect::<Vec<_>>())
    };
    let changed = options.filter(|option| values(before, option) != values(now, option));
    changed
        .filter_map(clap::Arg::get_long)
        .filter(|name| !AT_ONCE.contains(name))
        .map(|name| format!("--{name} has changed: this counts when the far end is started again"))
        .collect()
}
