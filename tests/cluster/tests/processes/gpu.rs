//! A planner whose settings promise a missing GPU.

use std::process::Command;
use std::time::Duration;

use podium_local_cluster::Shape;

use crate::http::get;

const NANO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/nano");
/// Longest time for a planner to look for a GPU.
const NOTICE_MAX: Duration = Duration::from_mins(1);
/// A sixteenth GPU, which no machine has.
const GPU: [(&str, &str); 2] = [("gpu_layers", "all"), ("gpus", "15")];

#[tokio::test(flavor = "multi_thread")]
async fn a_planner_without_its_promised_gpu_is_alive_but_not_ready() {
    let mut settings: Vec<_> = GPU.map(|(key, value)| (key, value.to_owned())).into();
    settings.push(("gpu_required", "false".to_owned()));
    let shape = Shape { settings, ..Shape::new(0, 1, 0, format!("llama:{NANO}")) };
    // A planner that does not require the GPU is ready.
    let mut cluster = crate::start(&shape).await;
    let planner = &mut cluster.planners[0];
    planner.add_arguments(["--set".to_owned(), "gpu_required=true".to_owned()]);
    planner.start_unready().await.unwrap();

    let address = planner.address(0);
    let refused = async || {
        let (status, body) = get(address, "/readyz").await?;
        (body != "starting\n").then_some((status, body))
    };
    let (status, body) = crate::until("it says why", NOTICE_MAX, refused).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("gpu_layers is all, but ") && body.contains("CPU ("), "{body}");
    assert_eq!(get(address, "/healthz").await.map(|(status, _)| status), Some(200));
    assert!(planner.log_end().contains("gpu_layers is all, but "), "{}", planner.log_end());
    // It stops like any other process.
    cluster.stop().await.unwrap();
}

#[test]
fn the_configuration_check_looks_for_the_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("podium-planner");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_podium-local-cluster"), &program).unwrap();
    let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pools/demo.toml");
    let check = |further: &[(&str, &str)]| {
        let mut command = Command::new(&program);
        let nano = format!("llama:{NANO}");
        let settings =
            [("postgres", "postgres://podium@127.0.0.1:1/podium"), ("pool", pool), ("conductor", &nano)];
        for (key, value) in settings.iter().chain(further) {
            command.args(["--set", &format!("{key}={value}")]);
        }
        command.arg("--check-config").output().unwrap()
    };
    let without = check(&[]);
    let said = String::from_utf8(without.stdout).unwrap();
    assert!(without.status.success() && said.contains("computes on the processor"), "{said}");
    let with = check(&GPU);
    let said = String::from_utf8(with.stderr).unwrap();
    assert!(with.status.code() == Some(2) && said.contains("gpu_layers is all, but "), "{said}");
}
