//! The text of `farlane --help` and of a group's help: the commands, under headings.

use std::fmt::Write as _;

use clap::Command;
use clap::builder::StyledStr;

/// The daily words, in the order of a day.
pub(crate) const DAILY: [&str; 7] = ["demo", "export", "target", "attach", "connect", "bench", "record"];

/// The word that starts the program of fleets, which explains its own commands.
pub(crate) const FLEET: &str = "fleet";

/// Commands below a heading.
type Heading = (&'static str, &'static [&'static str]);

/// Each group of commands, and its headings. CONTRIBUTING.md says which command belongs to which
/// group.
pub(crate) const GROUPS: [(&str, &[Heading]); 8] = [
    ("offer", &[("Commands", &["export", "target", "device"])]),
    ("use", &[("Commands", &["attach", "connect", "disconnect", "discover", "read", "write"])]),
    ("nvme", NVME),
    ("measure", &[("Commands", &["demo", "bench", "ping", "report", "rdma", "nic"])]),
    ("observe", &[("Commands", &["status", "list", "top", "capture", "trace", "ui", "lspci"])]),
    ("model", &[("Commands", &["sim", "sweep", "explain", "published", "emulate", "tsn"])]),
    (
        "recording",
        &[("Commands", &["record", "replay", "verify", "recover", "info", "convert", "preflight"])],
    ),
    ("setup", &[("Commands", &["upgrade", "key", "check", "doctor", "man", "completions"])]),
];

/// The headings of the NVMe commands.
const NVME: &[Heading] = &[
    (
        "Controllers and namespaces",
        &[
            "list",
            "list-subsys",
            "identify",
            "id-ctrl",
            "id-ns",
            "ns-descs",
            "id-uuid",
            "list-ns",
            "list-ctrl",
            "show-regs",
            "get-property",
            "get-feature",
            "set-feature",
        ],
    ),
    (
        "Logs",
        &[
            "smart-log",
            "error-log",
            "self-test-log",
            "sanitize-log",
            "fw-log",
            "effects-log",
            "ana-log",
            "changed-ns-list-log",
            "endurance-log",
            "persistent-event-log",
            "telemetry-log",
            "supported-log-pages",
            "get-log",
        ],
    ),
    ("Data", &["read", "write", "compare", "verify", "flush", "write-zeroes", "write-uncor", "dsm", "copy"]),
    (
        "Management",
        &[
            "create-ns",
            "delete-ns",
            "attach-ns",
            "detach-ns",
            "format",
            "sanitize",
            "device-self-test",
            "fw-download",
            "fw-commit",
            "reset",
            "subsystem-reset",
            "virt-mgmt",
            "lockdown",
        ],
    ),
    ("Reservations", &["resv-register", "resv-acquire", "resv-release", "resv-report"]),
    ("Fabrics", &["discover", "connect", "disconnect", "show-hostnqn", "gen-hostnqn"]),
    ("Others", &["admin-passthru", "io-passthru", "version"]),
];

/// The options of every command, which `--help` of each command explains.
const OPTIONS: &str = "Options: -v more events, -q fewer, --log FORM (text, json, journal), -h help";

/// The widest line, in columns.
const WIDTH: usize = 100;

/// Gives the program and each group the help that shows their commands under headings.
pub(crate) fn add_to(root: Command) -> Command {
    let root = GROUPS.iter().fold(root, |root, (name, headings)| {
        root.mut_subcommand(name, |group| {
            let text = of_group(&group, headings);
            group.help_template(text)
        })
    });
    let text = of_root(&root);
    root.help_template(text)
}

/// Writes in the styles of other help.
struct Text {
    text: String,
    heading: clap::builder::styling::Style,
    name: clap::builder::styling::Style,
}

impl Text {
    fn of(command: &Command) -> Self {
        let styles = command.get_styles();
        let text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
        Self { text, heading: *styles.get_header(), name: *styles.get_literal() }
    }

    fn heading(&mut self, title: &str) {
        let heading = self.heading;
        let _ = write!(self.text, "\n{heading}{title}:{heading:#}\n");
    }

    /// A line for each command, with its name in a column of `width`.
    fn command(&mut self, name: &str, width: usize, summary: &str) {
        let style = self.name;
        let _ = writeln!(self.text, "  {style}{name:width$}{style:#}  {summary}");
    }

    fn end(self, rest: &str) -> StyledStr {
        StyledStr::from(self.text + rest)
    }
}

fn of_group(group: &Command, headings: &[Heading]) -> StyledStr {
    let mut text = Text::of(group);
    let names = headings.iter().flat_map(|(_, names)| names.iter());
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    for (title, names) in headings {
        text.heading(title);
        for name in *names {
            text.command(name, width, &summary(group, name));
        }
    }
    text.end(&format!("\n{OPTIONS}{{after-help}}"))
}

fn of_root(root: &Command) -> StyledStr {
    let mut text = Text::of(root);
    let width = GROUPS.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    text.heading("Daily words");
    for name in DAILY {
        text.command(name, width, &summary(root, name));
    }
    text.heading("Groups of commands, which farlane GROUP --help explains");
    for (name, headings) in GROUPS {
        let mut line = format!("{}: ", summary(root, name));
        let mut names = headings.iter().flat_map(|(_, names)| names.iter()).peekable();
        while let Some(name) = names.next() {
            let room = WIDTH - (width + 4) - "...".len();
            let part = if names.peek().is_some() { format!("{name}, ") } else { (*name).to_owned() };
            if line.len() + part.len() > room {
                line += "...";
                break;
            }
            line += &part;
        }
        text.command(name, width, &line);
    }
    text.command(
        FLEET,
        width,
        "Compose far SSDs from many machines: up, controller, agent, volume, attach...",
    );
    text.end(&format!("{OPTIONS}, -V version"))
}

/// The description of the command `name`, in one line.
fn summary(parent: &Command, name: &str) -> String {
    let about = parent.find_subcommand(name).and_then(Command::get_about);
    about.map(ToString::to_string).unwrap_or_default()
}
