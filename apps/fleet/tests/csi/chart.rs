//! The Helm chart: linted, rendered, and read as Kubernetes would read it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Reads all documents of standard input as YAML, and writes them as one line of JSON.
const TO_JSON: &str =
    "import sys, json, yaml; json.dump([d for d in yaml.safe_load_all(sys.stdin) if d], sys.stdout)";

/// Where the fleet's controllers are.
const CONTROLLERS: &str = "fleet.controllers=key@fleet.example:4410";

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/helm/farlane-csi")
}

fn helm() -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/helm");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("helm"));
    let found = std::iter::once(tools).chain(found).find(|one| one.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: helm is not on this machine: `make csi` builds it, which needs go");
    }
    found
}

/// The documents of a text of YAML; `None` if this machine cannot read YAML.
fn documents(yaml: &[u8]) -> Option<Vec<Value>> {
    use std::io::Write as _;
    use std::process::Stdio;
    let knows = Command::new("python3").args(["-c", "import yaml"]).output();
    if knows.is_err() || knows.is_ok_and(|output| !output.status.success()) {
        eprintln!("SKIPPED: python3 with the module yaml is not on this machine");
        return None;
    }
    let mut python = Command::new("python3");
    python.args(["-c", TO_JSON]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut python = python.spawn().unwrap();
    python.stdin.take().unwrap().write_all(yaml).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn render(helm: &Path, values: &[&str]) -> Result<Vec<u8>, String> {
    let mut command = Command::new(helm);
    command.args(["template", "r"]).arg(chart()).args(["--namespace", "farlane"]);
    for value in values {
        command.args(["--set", value]);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(output.stdout) } else { Err(said) }
}

fn of_kind<'a>(all: &'a [Value], kind: &str) -> Vec<&'a Value> {
    all.iter().filter(|one| one["kind"] == kind).collect()
}

#[test]
fn helm_accepts_the_chart() {
    let Some(helm) = helm() else { return };
    let mut lint = Command::new(&helm);
    lint.args(["lint", "--strict", "--set", CONTROLLERS]).arg(chart());
    let output = lint.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // The error names the value that is missing or wrong.
    assert!(render(&helm, &[]).unwrap_err().contains("fleet.controllers is missing"));
    for wrong in ["fleet.controllers=nowhere", "volumesPerNode=-1", "storageClasses[0].klass=x"] {
        assert!(render(&helm, &[CONTROLLERS, wrong]).is_err(), "{wrong}");
    }
}

#[test]
fn pods_have_the_rights_that_they_need() {
    let Some(helm) = helm() else { return };
    let rendered = render(
        &helm,
        &[
            CONTROLLERS,
            "topologyLabels.rack=r1",
            "volumesPerNode=64",
            "sidecars.snapshotter.enabled=true",
            "storageClasses[0].name=farlane",
            "storageClasses[0].class=fast",
        ],
    );
    let Some(all) = documents(&rendered.unwrap()) else { return };
    // The nodes' account has no role and no token; no role has all of anything.
    let node = of_kind(&all, "DaemonSet")[0];
    assert_eq!(node["spec"]["template"]["spec"]["automountServiceAccountToken"], false);
    for binding in of_kind(&all, "ClusterRoleBinding").into_iter().chain(of_kind(&all, "RoleBinding")) {
        assert_eq!(binding["subjects"].as_array().unwrap().len(), 1);
        assert_eq!(binding["subjects"][0]["name"], "r-farlane-csi-controller");
    }
    for role in of_kind(&all, "ClusterRole").into_iter().chain(of_kind(&all, "Role")) {
        let text = role["rules"].to_string();
        assert!(!text.contains("\"*\"") && !text.contains("secrets"), "{text}");
    }
    // Only the driver on nodes is privileged.
    let pods = [of_kind(&all, "DaemonSet")[0], of_kind(&all, "Deployment")[0]];
    for pod in pods {
        for container in pod["spec"]["template"]["spec"]["containers"].as_array().unwrap() {
            let context = &container["securityContext"];
            let is_driver_on_node = pod["kind"] == "DaemonSet" && container["name"] == "driver";
            assert_eq!(context["privileged"] == true, is_driver_on_node, "{container}");
            assert_eq!(context["readOnlyRootFilesystem"], true, "{container}");
            assert!(container["image"].as_str().unwrap().contains(':'), "{container}");
        }
    }
    let names: Vec<_> =
        pods[1]["spec"]["template"]["spec"]["containers"].as_array().unwrap().iter().collect();
    let names: Vec<_> = names.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["driver", "provisioner", "attacher", "resizer", "snapshotter"]);
    let driver = of_kind(&all, "CSIDriver")[0];
    assert_eq!(driver["metadata"]["name"], fleetd::csi::DRIVER);
    assert_eq!(driver["spec"]["attachRequired"], true);
    let class = of_kind(&all, "StorageClass")[0];
    assert_eq!(class["provisioner"], fleetd::csi::DRIVER);
    assert_eq!(class["parameters"]["class"], "fast");
}

#[test]
fn examples_are_of_this_driver() {
    let mut seen = 0;
    for entry in std::fs::read_dir(chart().join("examples")).unwrap() {
        let Some(all) = documents(&std::fs::read(entry.unwrap().path()).unwrap()) else { return };
        for one in all {
            for key in ["provisioner", "driver", "driverName"] {
                if let Some(name) = one.get(key) {
                    assert_eq!(name, fleetd::csi::DRIVER, "{one}");
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 3);
}
