//! The files that `make install` and `make deb` put on a machine, seen with the tools of that
//! machine.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
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
    for name in [
        "farlane.1",
        "farlane-export.1",
        "farlane-setup-key-new.1",
        "farlane-nvme-id-ctrl.1",
        "farlane-record-ctl-start.1",
    ] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("floor-server") || name.contains("-help")));
    // A command of two spellings has one page.
    assert!(!names.contains("farlane-offer-export.1") && !names.contains("farlane-nvme-read.1"));
    let group = fs::read_to_string(installed().join("usr/share/man/man1/farlane-offer.1")).unwrap();
    assert!(group.contains("farlane\\-export") && !group.contains("farlane\\-offer\\-export"), "{group}");
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
    let name = page.file_stem().unwrap().to_str().unwrap();
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
    let kinds = [
        ("attach", "options of farlane attach (farlane-attach@ gives --vfio-user)"),
        ("connect", "options of farlane connect"),
        ("emulate.link", "a model of a network"),
        ("emulate", "options of farlane model emulate"),
        ("export", "options of farlane export"),
        ("target", "offers of a target"),
    ];
    let names = kinds.map(|(name, _)| format!("{name}.toml"));
    let examples = fs::read_dir(root().join("packaging/examples")).unwrap();
    let mut examples: Vec<_> = examples.map(|entry| entry.unwrap().path()).collect();
    examples.sort();
    let found: Vec<_> = examples.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(found, names, "each example is tested");
    for (path, (name, kind)) in examples.iter().zip(kinds) {
        let output = farlane(&["setup", "check", path.to_str().unwrap()]);
        assert!(output.status.success() && said(&output).contains(kind), "{name}: {}", said(&output));
    }
    // A configuration that no unit gives is still missing.
    let folder = tempfile::tempdir().unwrap();
    let attach = folder.path().join("attach.toml");
    fs::write(&attach, "[attach]\nhold = \"5s\"\n").unwrap();
    let output = farlane(&["setup", "check", attach.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("URL"), "{}", said(&output));
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
        "./usr/share/doc/farlane/docs/README.md",
        "./usr/share/farlane/scenarios/5g.toml",
        "./usr/share/farlane/grafana/farlane.json",
    ] {
        assert!(listed.lines().any(|line| line.ends_with(file)), "{file}: {listed}");
    }
    let unpacked = tempfile::tempdir().unwrap();
    run("dpkg-deb", &["--extract", &package, unpacked.path().to_str().unwrap()]);
    let wrong = dead(unpacked.path());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
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

/// The folder of documents of a package or an installation below `root`.
fn documents(root: &Path) -> PathBuf {
    root.join("usr/share/doc/farlane")
}

/// The pages below `folder`, without what links lead to: folders without pages, and a package's
/// packed list of changes.
fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            pages.extend(pages_below(&path));
        } else if kind.is_file() && path.extension().is_some_and(|it| it == "md") {
            pages.push(path);
        }
    }
    pages
}

/// The missing files that a page names: links to files, and paths that lead from the top of the
/// documents, such as `scenarios/5g.toml`.
fn dead_in(page: &Path, documents: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.filter(|link| !link.contains("://") && !link.contains(char::is_whitespace));
    let links = links.filter_map(|link| link.split('#').next());
    let beside = |name: &str| page.parent().unwrap().join(name).exists();
    let mut dead: Vec<_> = links.filter(|link| !beside(link)).map(str::to_owned).collect();
    let words = text.split(|one: char| one.is_whitespace() || "`\"'()|,".contains(one));
    let words = words.map(|word| word.trim_end_matches(|one: char| !one.is_ascii_alphanumeric()));
    let is_path = |word: &&str| {
        let is_file = word.rsplit('/').next().is_some_and(|name| name.contains('.'));
        is_file && ["scenarios/", "share/", "examples/"].iter().any(|folder| word.starts_with(folder))
    };
    let paths = words.filter(is_path).filter(|path| !documents.join(path).exists() && !beside(path));
    dead.extend(paths.map(str::to_owned));
    dead
}

/// The missing files that the pages below `root` name.
fn dead(root: &Path) -> Vec<String> {
    let documents = documents(root);
    let pages = pages_below(&documents);
    assert!(pages.len() > 50, "{pages:?}");
    let of = |page: &PathBuf| {
        let name = page.strip_prefix(&documents).unwrap().display().to_string();
        dead_in(page, &documents).into_iter().map(move |dead| format!("{name}: {dead}"))
    };
    pages.iter().flat_map(of).collect()
}

#[test]
fn what_installed_documents_name_is_installed() {
    let root = installed();
    let wrong = dead(root);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    for file in [
        "README.md",
        "docs/README.md",
        "docs/schemas/ping.json",
        "docs/pictures/ui-overview.png",
        "docs/scenarios/5g.svg",
        "scenarios/fabrics/nvme-tcp.toml",
        "share/grafana/farlane.json",
        "share/wireshark/farlane.lua",
        "examples/target.toml",
    ] {
        assert!(documents(root).join(file).is_file(), "{file}");
    }
    let scenario = root.join("usr/share/farlane/scenarios/plain.toml");
    assert!(farlane(&["setup", "check", scenario.to_str().unwrap()]).status.success());
    // Links within the tree hold wherever it is moved.
    for link in ["scenarios", "share"] {
        assert!(fs::read_link(documents(root).join(link)).unwrap().is_relative());
    }
}

/// A folder with programs that note how they were called, in place of systemd's.
fn stubs(folder: &Path) -> PathBuf {
    let (bin, notes) = (folder.join("bin"), folder.join("notes"));
    fs::create_dir(&bin).unwrap();
    for name in ["systemctl", "systemd-sysusers"] {
        let script = format!("#!/bin/sh\necho {name} \"$@\" >>'{}'\n", notes.display());
        fs::write(bin.join(name), script).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    notes
}

#[test]
fn an_installation_on_this_machine_makes_the_user_and_has_systemd_read_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let notes = stubs(folder.path());
    let prefix = folder.path().join("prefix");
    let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
    let install = |destination: &str| {
        let mut command = Command::new(root().join("scripts/install"));
        command.arg(&*FARLANE).env("PREFIX", &prefix).env("DESTDIR", destination).env("PATH", &path);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        (said(&output), fs::read_to_string(&notes).unwrap_or_default())
    };
    let (_, noted) = install(folder.path().join("package").to_str().unwrap());
    assert_eq!(noted, "", "a package does this where it is unpacked");
    let (reported, noted) = install("");
    let users = format!("systemd-sysusers {}/lib/sysusers.d/farlane.conf", prefix.display());
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    assert_eq!(noted.contains(&users), is_root, "{noted}");
    let has_systemd = Path::new("/run/systemd/system").is_dir();
    assert_eq!(noted.contains("systemctl daemon-reload"), is_root && has_systemd, "{noted}");
    assert!(reported.contains(&users), "{reported}");
}

/// The commands that `make` would run in `folder`.
fn dry_run(folder: &Path, words: &[&str]) -> Option<String> {
    let makefile = root().join("Makefile");
    let fixed = ["-n", "-C", folder.to_str().unwrap(), "-f", makefile.to_str().unwrap()];
    let mut command = Command::new("make");
    let command =
        command.args(fixed).args(words).env_remove("MAKEFLAGS").env_remove("BIN").env_remove("PROFILE");
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: make");
        return None;
    };
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    Some(said(&output))
}

#[test]
fn make_install_takes_the_binary_that_is_there_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let install = |words: &[&str]| dry_run(folder.path(), &[&["install"], words].concat());
    let Some(fresh) = install(&[]) else { return };
    assert!(fresh.contains("--profile shipped"), "{fresh}");
    for profile in ["demo", "shipped"] {
        fs::create_dir_all(folder.path().join("target").join(profile)).unwrap();
        fs::write(folder.path().join("target").join(profile).join("farlane"), "").unwrap();
        let built = install(&[]).unwrap();
        let place = format!("scripts/install target/{profile}/farlane");
        assert!(built.contains(&format!("--profile {profile} ")) && built.contains(&place), "{built}");
        assert!(built.contains(&format!("echo \"install: target/{profile}/farlane;")), "{built}");
    }
    let demo = install(&["PROFILE=demo"]).unwrap();
    assert!(demo.contains("scripts/install target/demo/farlane"), "{demo}");
    let named = install(&["BIN=elsewhere/farlane"]).unwrap();
    assert!(named.contains("scripts/install elsewhere/farlane"), "{named}");
    assert!(!named.contains("cargo") && !named.contains("scripts/setup"), "nothing is built: {named}");
}

#[test]
fn make_python_does_not_build_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let Some(wheel) = dry_run(folder.path(), &["python"]) else { return };
    assert!(wheel.contains("maturin build") && !wheel.contains("cargo build"), "{wheel}");
    assert!(dry_run(folder.path(), &["python-test"]).unwrap().contains("cargo build --package farlane"));
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

/// The Markdown files of the repository that its authors wrote, from its root.
fn written_pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let path = folder.join(&name);
            let is_foreign = name.starts_with('.') || ["target", "vendor", "node_modules"].contains(&&*name);
            if entry.file_type().unwrap().is_dir() && !is_foreign {
                folders.push(path);
            } else if name.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

#[test]
fn the_book_has_every_page() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut pages = written_pages();
    pages.retain(|path| path.starts_with("docs") && !path.ends_with("SUMMARY.md"));
    assert!(pages.len() > 20, "{pages:?}");
    let is_once = |page: &&PathBuf| {
        let name = page.strip_prefix("docs").unwrap().to_str().unwrap();
        summary.matches(&format!("]({name})")).count() == 1
    };
    let wrong: Vec<_> = pages.iter().filter(|page| !is_once(page)).collect();
    assert!(wrong.is_empty(), "not once in SUMMARY.md: {wrong:?}");
}

/// A reader who starts needs few pages: engines are documented in their crates.
#[test]
fn the_documents_stay_few_and_short() {
    let mut pages = written_pages();
    pages.retain(|path| path.starts_with("docs"));
    let bytes: u64 = pages.iter().map(|page| root().join(page).metadata().unwrap().len()).sum();
    assert!(pages.len() <= 31, "{} pages: {pages:?}", pages.len());
    assert!(bytes <= 366 * 1024, "{bytes} bytes");
    let lines = |name: &str| fs::read_to_string(root().join(name)).unwrap().lines().count();
    assert!(lines("README.md") <= 150, "{} lines", lines("README.md"));
}

/// Links of crates' documents, which docs.rs shows, too, name the repository.
const REPOSITORY: &str = "https://github.com/farlane/farlane/blob/main/";

#[test]
fn links_of_all_documents_lead_to_files_and_headings() {
    let pages = written_pages();
    assert!(pages.len() > 60, "{pages:?}");
    let mut wrong = Vec::new();
    for page in &pages {
        let name = page.display();
        let text = fs::read_to_string(root().join(page)).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (folder, link) = match link.strip_prefix(REPOSITORY) {
                Some(inside) => (Path::new(""), inside),
                None if link.contains("://") => continue,
                None => (page.parent().unwrap(), link),
            };
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { folder.join(file) };
            let target = root().join(target);
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

/// The pages that help texts, messages and comments name are there.
#[test]
fn pages_that_sources_name_are_there() {
    let mut folders: Vec<_> =
        ["apps", "pure", "data", "worlds", "tools", "examples", "share", "packaging", "scripts"]
            .map(|folder| root().join(folder))
            .to_vec();
    let mut wrong = Vec::new();
    let mut named = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                if !path.ends_with("target") && !path.ends_with("vendor") {
                    folders.push(path);
                }
                continue;
            }
            // Binary files name no pages, and links of pages have their own test.
            let Ok(text) = fs::read_to_string(&path) else { continue };
            if path.extension().is_some_and(|it| it == "md") {
                continue;
            }
            let words = text.split(|one: char| !one.is_ascii_alphanumeric() && !"/-_.".contains(one));
            for word in words.filter(|word| word.starts_with("docs/")) {
                let word = word.trim_end_matches(|one: char| !one.is_ascii_alphanumeric());
                let is_page = word.ends_with(".md");
                named += usize::from(is_page);
                if is_page && !root().join(word).exists() {
                    wrong.push(format!("{}: {word}", path.display()));
                }
            }
        }
    }
    assert!(named > 20, "{named}");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
