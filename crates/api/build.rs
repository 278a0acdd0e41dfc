//! Generates the gRPC types from `proto/`, without protoc, and the descriptors that reflection answers from.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

const PROTO: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let descriptors = protox::compile(["podium/v1/podium.proto"], [PROTO])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("podium.descriptors.bin"), descriptors.encode_to_vec())?;
    // Servers do not have the service for trainers, so their reflection does not list it.
    let training = protox::compile(["podium/training/v1/rollout.proto"], [PROTO])?;
    for set in [descriptors, training] {
        tonic_prost_build::configure().codec_path("crate::SizedCodec").compile_fds(set)?;
    }
    Ok(())
}
