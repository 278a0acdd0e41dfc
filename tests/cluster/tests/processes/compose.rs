//! Checks that the programs accept the settings in `deploy/compose.yaml`, without a container engine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser as _;
use podium_local_cluster::PROGRAMS;
use serde::Deserialize;

/// The folder of the image that the settings name.
const POOL: &str = "/usr/share/podium/pool.toml";
const BUNDLE: &str = "/usr/share/podium/nano";
/// The folder of secrets in containers.
const SECRETS: &str = "/run/secrets";

#[derive(Deserialize)]
struct Compose {
    services: BTreeMap<String, Service>,
    secrets: BTreeMap<String, Secret>,
}

#[derive(Deserialize)]
struct Service {
    image: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    ports: Vec<String>,
    healthcheck: Healthcheck,
}

#[derive(Deserialize)]
struct Healthcheck {
    test: Vec<String>,
}

#[derive(Deserialize)]
struct Secret {
    file: PathBuf,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn compose() -> Compose {
    serde_saphyr::from_str(&fs::read_to_string(root().join("deploy/compose.yaml")).unwrap()).unwrap()
}

/// Has a service's program check its arguments and its environment. `folder` has the pool file and the secrets.
fn check_config(service: &Service, program: &Path, folder: &Path) -> std::process::Output {
    let here = |value: &str| {
        let bundle = root().join("models/nano");
        let pool = folder.join("pool.toml");
        value
            .replace(POOL, &pool.display().to_string())
            .replace(BUNDLE, &bundle.display().to_string())
            .replace(SECRETS, &folder.display().to_string())
    };
    let environment = service.environment.iter().map(|(key, value)| (key, here(value)));
    let mut command = Command::new(program);
    command.args(&service.command[1..]).arg("--check-config").env_clear().envs(environment);
    command.output().unwrap()
}

#[test]
fn the_programs_accept_the_settings_of_compose() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(root().join("pools/demo.toml"), folder.path().join("pool.toml")).unwrap();
    for secret in compose().secrets.keys() {
        fs::write(folder.path().join(secret), "secret").unwrap();
    }
    let mut checked = Vec::new();
    for (name, service) in compose().services {
        let Some(program) = service.command.first().filter(|command| PROGRAMS.contains(&command.as_str()))
        else {
            continue;
        };
        let path = folder.path().join(program);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_podium-local-cluster"), &path).unwrap();
        let output = check_config(&service, &path, folder.path());
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        checked.push(program.clone());
    }
    checked.sort();
    let mut programs = PROGRAMS;
    programs.sort_unstable();
    assert_eq!(checked, programs);
    let simulator = &compose().services["vendor-sim"].command;
    podium_vendor_sim::Arguments::try_parse_from(simulator).map(drop).unwrap();
}

#[test]
fn compose_names_only_existing_files() {
    let compose = compose();
    let dockerfile = fs::read_to_string(root().join("deploy/Dockerfile")).unwrap();
    assert!(dockerfile.contains(POOL) && dockerfile.contains(BUNDLE));
    let secrets_script = fs::read_to_string(root().join("deploy/make-secrets")).unwrap();
    for (name, secret) in &compose.secrets {
        assert_eq!(secret.file, Path::new("./secrets").join(name));
        assert!(secrets_script.contains(name.trim_end_matches("_password")), "nobody makes {name}");
    }
    for (name, service) in &compose.services {
        let (_, tag) = service.image.rsplit_once(':').expect(name);
        assert!(
            tag == "local" || tag.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()),
            "{name}: {tag} is no version"
        );
        assert!(service.ports.iter().all(|port| port.starts_with("127.0.0.1:")), "{name} is open to all");
        assert!(!service.healthcheck.test.is_empty(), "{name}");
        for value in service.environment.values().filter_map(|value| value.strip_prefix("file:")) {
            let secret = value.strip_prefix("/run/secrets/").expect(name);
            assert!(service.secrets.iter().any(|given| given == secret), "{name} is not given {secret}");
            assert!(compose.secrets.contains_key(secret), "there is no {secret}");
        }
    }
}
