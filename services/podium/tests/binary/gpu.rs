//! A server whose settings require a missing GPU.

use crate::support::{Folder, podium, stderr};

#[test]
fn a_server_does_not_start_without_the_required_gpu() {
    let (folder, nano) = (Folder::new(), concat!("llama:", env!("CARGO_MANIFEST_DIR"), "/../../models/nano"));
    let data = folder.path("data").display().to_string();
    let arguments = ["serve", "--data", &data, "--conductor", nano, "--listen", "127.0.0.1:0"];
    // No machine has a sixteenth GPU.
    let settings =
        [("PODIUM__GPU_LAYERS", "all"), ("PODIUM__GPUS", "15"), ("PODIUM__GRPC_LISTEN", "127.0.0.1:0")];
    let output = podium(&arguments).envs(settings).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("gpu_layers is all, but ") && said.contains("CPU ("), "{said}");
}
