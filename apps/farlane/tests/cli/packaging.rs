//! What `make install` and `make deb` put on a machine, looked at with the tools of that machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::{FARLANE, farlane};
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A folder in which the binary is installed with the prefix /usr.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<TempDir> = OnceLock::new();
    INSTALLED
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let mut command = Command::new(root().join("scripts/install"));
            command.arg(&*FARLANE).env("PREFIX", "/usr").env("DESTDIR", folder.path());
            command.env("SOURCE_DATE_EPOCH", "1767225600");
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
            folder
        })
        .path()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Runs `program`, which must succeed; none, said loudly, if this machine does not have it.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).current_dir(installed()).output() {
        Ok(output) => {
            assert!(output.status.success(), "{program} {arguments:?}: {}", said(&output));
            Some(said(&output))
        }
        Err(error) => {
            eprintln!("SKIPPED: {program}: {error}");
            None
        }
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(installed().join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_command_has_a_page_and_readers_of_pages_have_no_complaint() {
    let pages = files("usr/share/man/man1");
    let names: BTreeSet<_> = pages.iter().map(|page| page.file_name().unwrap().to_str().unwrap()).collect();
    for name in ["farlane.1", "farlane-export.1", "farlane-key-new.1", "farlane-record-ctl-start.1"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("floor-server") || name.contains("-help")));
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        assert!(text.contains(" 1 2026-01-01 "), "{}", page.display());
        assert!(text.contains(".SH EXAMPLES") || name_depth(page) > 1, "{}", page.display());
        let page = page.to_str().unwrap();
        if let Some(complaints) = run("mandoc", &["-Tlint", "-Wwarning", page]) {
            assert_eq!(complaints, "");
        }
        if let Some(shown) = run("man", &["--warnings", "--encoding=utf8", "--local-file", page]) {
            assert!(shown.contains("EXIT STATUS") && !shown.contains("warning: "), "{page}: {shown}");
        }
    }
}

/// How many subcommands deep a page's command is.
fn name_depth(page: &Path) -> usize {
    let name = page.file_stem().unwrap().to_str().unwrap().replace("smart-log", "smart");
    name.matches('-').count()
}

#[test]
fn shells_complete_the_command_line() {
    let bash = "source usr/share/bash-completion/completions/farlane
        COMP_WORDS=(farlane export --lis); COMP_CWORD=2
        _farlane farlane --lis export; printf '%s\\n' \"${COMPREPLY[@]}\"";
    if let Some(offered) = run("bash", &["--norc", "-ec", bash]) {
        assert_eq!(offered.trim(), "--listen");
    }
    let fish = "source usr/share/fish/vendor_completions.d/farlane.fish; complete -C 'farlane export --lis'";
    if let Some(offered) = run("fish", &["--no-config", "-c", fish]) {
        assert!(offered.starts_with("--listen"), "{offered}");
    }
    let zsh = "fpath=(usr/share/zsh/site-functions $fpath); autoload -Uz compinit
        compinit -u -D; autoload +X _farlane; whence -w _farlane";
    if let Some(known) = run("zsh", &["-f", "-ec", zsh]) {
        assert_eq!(known.trim(), "_farlane: function");
    }
}

#[test]
fn units_are_well_formed_and_give_up_what_services_do_not_need() {
    let units = files("usr/lib/systemd/system");
    assert_eq!(units.len(), 5);
    for unit in &units {
        let text = fs::read_to_string(unit).unwrap();
        assert!(!text.contains('@') || !text.contains("@BINDIR@") && !text.contains("@COMMON@"), "{text}");
        // systemd looks for the program where the unit says that it is.
        let here = text.replace("=/usr/bin/farlane", &format!("={}", *FARLANE));
        let folder = tempfile::tempdir().unwrap();
        let name = unit.file_name().unwrap().to_str().unwrap().replace("@.", "@disk.");
        let path = folder.path().join(name);
        fs::write(&path, here).unwrap();
        let path = path.to_str().unwrap();
        // Documentation that is not installed is all that may be missing.
        let Some(complaints) = run("systemd-analyze", &["verify", "--man=no", path]) else { return };
        assert!(!complaints.contains(path), "{complaints}");
        let exposed =
            run("systemd-analyze", &["security", "--offline=yes", "--threshold=30", "--no-pager", path]);
        assert!(exposed.is_some_and(|text| text.contains("OK")), "{path}");
    }
}

#[test]
fn examples_are_what_the_program_takes() {
    let examples = root().join("packaging/examples");
    for (name, kind) in [
        ("export", "options of farlane export"),
        ("attach", "options of farlane attach"),
        ("emulate", "options of farlane emulate"),
        ("connect", "options of farlane connect"),
        ("emulate.link", "a model of a network"),
        ("target", "what a target offers"),
    ] {
        let path = examples.join(format!("{name}.toml"));
        let output = farlane(&["check", path.to_str().unwrap()]);
        let expected = match name {
            // The unit gives its socket.
            "attach" => "--vfio-user",
            _ => kind,
        };
        assert!(said(&output).contains(expected), "{name}: {}", said(&output));
    }
    let output = farlane(&["target", "--config", "packaging/examples/missing.toml"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn the_package_is_whole_and_lintian_finds_no_error() {
    if run("dpkg-deb", &["--version"]).is_none() || run("dpkg-shlibdeps", &["--version"]).is_none() {
        return;
    }
    let output = Command::new(root().join("scripts/deb")).arg(&*FARLANE).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let package = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let fields = run("dpkg-deb", &["--field", &package, "Depends"]).unwrap();
    assert!(fields.contains("libc6 (>= "), "what the binary is linked with is named: {fields}");
    let listed = run("dpkg-deb", &["--contents", &package]).unwrap();
    for file in [
        "./usr/bin/farlane",
        "./usr/lib/systemd/system/farlane-target@.service",
        "./usr/share/man/man1/farlane-export.1.gz",
        "./usr/share/zsh/vendor-completions/_farlane",
        "./etc/farlane/README",
        "./usr/share/doc/farlane/copyright",
    ] {
        assert!(listed.lines().any(|line| line.ends_with(file)), "{file}: {listed}");
    }
    run("lintian", &["--fail-on", "error,warning", "--allow-root", &package]);
}

#[test]
fn what_the_release_and_the_container_run_is_there() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (makefile, workflow, container) =
        (read("Makefile"), read(".github/workflows/release.yml"), read("Containerfile"));
    let commands =
        workflow.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("run: "));
    let commands: Vec<_> = commands.collect();
    let jobs = commands.iter().filter_map(|line| line.strip_prefix("make ")).flat_map(str::split_whitespace);
    for job in jobs {
        assert!(makefile.lines().any(|line| line.starts_with(&format!("{job}:"))), "make {job}");
    }
    let tried = commands.iter().find_map(|line| line.strip_prefix("target/static/farlane ")).unwrap();
    let tried: Vec<_> = tried.split_whitespace().chain(["--help"]).collect();
    assert!(farlane(&tried).status.success(), "{tried:?}");
    // The image takes the one file that the static build leaves, and needs no other image.
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let steps: Vec<_> = container.lines().filter(|line| !line.starts_with('#')).map(words).collect();
    let names: Vec<_> = steps.iter().map(|step| step[0].as_str()).collect();
    assert_eq!(names, ["FROM", "COPY", "USER", "ENTRYPOINT"]);
    assert_eq!((steps[0][1].as_str(), steps[1][1].as_str()), ("scratch", "target/static/farlane"));
    assert_eq!(steps[3][1], format!("[\"{}\"]", steps[1][2]));
    assert!(steps[2][1].split(':').all(|one| one.parse::<u32>().is_ok_and(|id| id > 0)), "without names");
    let rules = read(".containerignore");
    let rules: Vec<_> = rules.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(rules, ["*", "!target/static/farlane"]);
    assert!(read("scripts/static").contains("target/static/farlane"));
}

/// The anchor of a heading, as mdBook and GitHub make it.
fn anchor(heading: &str) -> String {
    let kept = |one: char| match one {
        ' ' => Some('-'),
        '-' | '_' => Some(one),
        _ if one.is_alphanumeric() => Some(one.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim_start_matches('#').trim().chars().filter_map(kept).collect()
}

#[test]
fn the_book_has_every_page_and_its_links_lead_somewhere() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut pages = Vec::new();
    for folder in [docs.clone(), docs.join("scenarios")] {
        pages.extend(fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    pages.retain(|path| path.extension().is_some_and(|one| one == "md") && !path.ends_with("SUMMARY.md"));
    assert!(pages.len() > 40, "{pages:?}");
    let mut wrong = Vec::new();
    for page in &pages {
        let name = page.strip_prefix(&docs).unwrap().to_str().unwrap();
        if summary.matches(&format!("]({name})")).count() != 1 {
            wrong.push(format!("{name} is not once in SUMMARY.md"));
        }
        let text = fs::read_to_string(page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            if !target.exists() {
                wrong.push(format!("{name}: {link} leads to no file"));
            }
            if fragment.is_empty() {
                continue;
            }
            let target = fs::read_to_string(&target).unwrap_or_default();
            if !target.lines().any(|line| line.starts_with('#') && anchor(line) == fragment) {
                wrong.push(format!("{name}: {link} leads to no heading"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
