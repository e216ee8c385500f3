//! `farlane observe top`: the present activity of far ends, namespaces and hosts.

mod figures;
mod row;
mod screen;

use std::io::IsTerminal;

use super::{control, print, print_json};
use crate::args::TopArgs;
use crate::error::Error;
use figures::{View, rows};

pub(in crate::commands) use figures::{Look, top};
pub(crate) use row::Top;

pub(crate) fn run(args: &TopArgs) -> Result<(), Error> {
    control::daemons()?;
    if !args.once && !args.output.json && std::io::stdout().is_terminal() {
        return screen::show(args.every).map_err(Error::Output);
    }
    let before = Look::now();
    std::thread::sleep(args.every);
    let after = Look::now();
    if args.output.json {
        return print_json(&top(&before, &after));
    }
    let one = |view: View| plain(view, &rows(view, &before, &after));
    print(&View::ALL.map(one).join("\n"))
}

/// A view as a table of text.
fn plain(view: View, rows: &[Vec<String>]) -> String {
    let head: Vec<String> = view.head().iter().map(|&head| head.to_owned()).collect();
    let all: Vec<_> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let mut text = format!("{} ({})\n", view.title(), rows.len());
    for row in all {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += &format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}
