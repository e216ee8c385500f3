//! Hosts and targets in processes of their own that prove to each other who they are.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::load::short_load;
use crate::support::running::Running;
use crate::support::{Export, FARLANE, farlane};

/// The example of the NVM Express Base Specification, and secrets of other projects' tests.
const SECRETS: [(&str, &str); 3] = [
    ("host", "DHHC-1:01:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"),
    ("controller", "DHHC-1:00:MWPqcx1Ug1debg8fPIGpkqbQhLcYUt39k7UWirkblaKEH1kE:"),
    (
        "other",
        "DHHC-1:03:6EKZcEL86u4vzTE8sCETvskE3pLKE+qOorl9QxrRfLvfOEQ5GvqCzM41U8fFVAz1cs+T14PjSpd1J641rfeCC1x2VNg=:",
    ),
];
const NAME: &str = "nqn.2014-08.org.example:known";

fn secret(folder: &Path, name: &str) -> PathBuf {
    let (_, text) = SECRETS.iter().find(|(one, _)| *one == name).unwrap();
    let path = folder.join(name);
    fs::write(&path, format!("{text}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// The output of a short verified load, and whether it succeeds.
fn bench(url: &str, more: &[&str]) -> (bool, String) {
    let mut further = vec!["--iodepth", "4", "--timeout", "5s"];
    further.extend(more);
    short_load(url, "randwrite", &further)
}

#[test]
fn a_target_lets_in_who_has_the_secret() {
    let folder =
        std::env::current_exe().unwrap().parent().unwrap().join(format!("secrets-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [host, controller, other] = SECRETS.map(|(name, _)| secret(&folder, name));
    let (file, socket) = (folder.join("target.toml"), folder.join("control.sock"));
    let offer = |secret: &Path| {
        let text = format!(
            r#"
[[port]]
listen = "127.0.0.1:0"

[[subsystem]]
nqn = "nqn.2026-01.io.farlane:open"
[[subsystem.namespace]]
ram = "32MiB"

[[subsystem]]
nqn = "nqn.2026-01.io.farlane:closed"
[[subsystem.host]]
nqn = "{NAME}"
dhchap-secret-file = "{}"
dhchap-controller-secret-file = "{}"
dhchap-hashes = ["sha384", "sha512"]
dhchap-groups = ["ffdhe3072"]
[[subsystem.namespace]]
ram = "32MiB"
"#,
            secret.display(),
            controller.display()
        );
        fs::write(&file, text).unwrap();
    };
    offer(&host);
    let mut command = Command::new(&*FARLANE);
    // The subsystem is on the second thread: the connection moves there before it authenticates.
    command.args(["target", "--json", "--cores", "2", "--config"]).arg(&file).arg("--control").arg(&socket);
    let mut target = Export::of(command);
    let url = format!("nvme-tcp://{}/nqn.2026-01.io.farlane:closed?queues=2&hostnqn={NAME}", target.address);
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (host, controller, other) = (path(&host), path(&controller), path(&other));
    let with = |host: &str, controller: &str| {
        bench(&url, &["--dhchap-secret-file", host, "--dhchap-controller-secret-file", controller])
    };

    let (passed, text) = with(&host, &controller);
    assert!(passed, "{text}");
    let in_url = format!("{url}&dhchap-secret-file={host}");
    let (passed, text) = bench(&in_url, &[]);
    assert!(passed, "the host alone may prove who it is: {text}");

    let (passed, text) = bench(&url, &[]);
    assert!(!passed && text.contains("demands authentication"), "{text}");
    assert!(
        text.contains(&format!("this host's name is {NAME}")) && text.contains("--dhchap-secret-file FILE"),
        "{text}"
    );
    let (passed, text) = with(&other, &controller);
    assert!(!passed && text.contains("the two ends have different secrets"), "{text}");
    let (passed, text) = with(&host, &other);
    assert!(!passed && text.contains("the controller answered with another secret"), "{text}");
    let stranger = url.replace(NAME, "nqn.2014-08.org.example:stranger");
    let (passed, text) = bench(&stranger, &["--dhchap-secret-file", &host]);
    assert!(!passed && text.contains("Connect Invalid Host"), "{text}");
    let name = "this host's name is nqn.2014-08.org.example:stranger";
    for hint in [
        name,
        "farlane target --host NQN",
        "?hostnqn=NQN",
        "--dhchap-secret-file FILE",
        "--tls-key-file FILE",
    ] {
        assert!(text.contains(hint), "{hint}: {text}");
    }
    let open = url.replace(":closed", ":open");
    let (passed, text) =
        bench(&open, &["--dhchap-secret-file", &host, "--dhchap-controller-secret-file", &controller]);
    assert!(!passed && text.contains("it cannot prove its identity"), "{text}");
    assert!(!text.contains("DHHC-1:0"), "no secret is shown: {text}");

    // A secret that others may read, and one that is no secret.
    fs::set_permissions(&host, Permissions::from_mode(0o644)).unwrap();
    let (passed, text) = bench(&url, &["--dhchap-secret-file", &host]);
    assert!(!passed && text.contains("mode 0644") && text.contains("chmod 600"), "{text}");
    fs::set_permissions(&host, Permissions::from_mode(0o600)).unwrap();
    let far = farlane(&["measure", "ping", "tcp://127.0.0.1:1", "--dhchap-secret-file", &host]);
    assert_eq!(far.status.code(), Some(2), "{}", String::from_utf8_lossy(&far.stderr));

    // A secret that is replaced disconnects its host.
    let running =
        Running::start(&["bench", "--rw", "randread", "--runtime", "30s", "--timeout", "3s", &in_url]);
    std::thread::sleep(Duration::from_secs(1));
    offer(Path::new(&other));
    let reloaded = farlane(&["target", "reload", "--control", socket.to_str().unwrap()]);
    assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
    let output = running.output();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));

    let (status, said) = target.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("another secret than the target has for it"), "{said}");
    assert!(said.contains(&format!("its secret here: {host}")), "{said}");
    assert!(!said.contains("DHHC-1:0") && !said.contains("panicked"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}
