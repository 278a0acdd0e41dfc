//! What llama.cpp computes with: code in this binary, or modules that are loaded when the process starts, one for each kind
//! of processor and one for CUDA.
//!
//! llama.cpp passes over a module that the system cannot load, as it must: one build serves machines with and without a GPU.
//! So what it says about that is kept here, for whoever was promised a GPU.

use std::fmt;
use std::path::PathBuf;

use llama_cpp_2::{LlamaBackendDevice, LlamaBackendDeviceType, list_llama_ggml_backend_devices};

/// The variable that says in which folder the modules are. Without it they are where the program was installed:
/// `../lib/podium` from the program's own folder.
pub const MODULES_VARIABLE: &str = "PODIUM_LLAMA_MODULES";

/// What was loaded, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modules {
    /// Where they are; none if all is in the binary.
    pub(crate) folder: Option<PathBuf>,
    /// Those for anything but processors, by file name.
    pub(crate) beside_processors: Vec<String>,
    /// What llama.cpp said of those that it could not load, or that found no device.
    pub(crate) complaints: Vec<String>,
}

/// There is nothing to compute with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("llama.cpp finds no module for this processor in {}{}", looked_in.join(", "), after(complaints))]
pub struct NoModules {
    looked_in: Vec<String>,
    complaints: Vec<String>,
}

fn after(complaints: &[String]) -> String {
    // Each begins with a semicolon.
    [&[String::new()], complaints].concat().join("; ")
}

/// For whoever misses something.
impl fmt::Display for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.folder {
            None => f.write_str("this program was built without `llama-dynamic`, for processors only"),
            Some(folder) if self.beside_processors.is_empty() => {
                write!(f, "{} has modules for processors only", folder.display())
            }
            Some(folder) => write!(f, "{} has {}", folder.display(), self.beside_processors.join(", ")),
        }?;
        f.write_str(&after(&self.complaints))
    }
}

/// Loads them for a program that calls llama.cpp without this crate's engine. Then nothing else here may be used.
pub fn load_modules() -> Result<(), NoModules> {
    load().map(drop)
}

/// The devices that llama.cpp can compute on.
pub(crate) fn devices() -> Vec<LlamaBackendDevice> {
    list_llama_ggml_backend_devices()
}

/// Whether a device is a GPU.
pub(crate) fn is_gpu(device: &LlamaBackendDevice) -> bool {
    matches!(device.device_type, LlamaBackendDeviceType::Gpu | LlamaBackendDeviceType::IntegratedGpu)
}

/// Nothing is to be loaded.
#[cfg(not(feature = "dynamic"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build can fail")]
pub(crate) fn load() -> Result<Modules, NoModules> {
    Ok(Modules::default())
}

/// Loads the modules of the first folder that has any for processors. Once for the process, before anything else of llama.cpp.
#[cfg(feature = "dynamic")]
pub(crate) fn load() -> Result<Modules, NoModules> {
    let folders = found::folders();
    let chosen = folders.iter().find_map(|folder| Some((folder, found::modules(folder)?)));
    let looked_in = || folders.iter().map(|folder| folder.display().to_string()).collect();
    let Some((folder, beside_processors)) = chosen else {
        return Err(NoModules { looked_in: looked_in(), complaints: Vec::new() });
    };
    let ((), complaints) =
        crate::backend::all_overheard(|| llama_cpp_2::llama_backend::load_backends_from_path(folder));
    if !devices().iter().any(|device| device.device_type == LlamaBackendDeviceType::Cpu) {
        return Err(NoModules { looked_in: looked_in(), complaints });
    }
    Ok(Modules { folder: Some(folder.clone()), beside_processors, complaints })
}

#[cfg(feature = "dynamic")]
mod found {
    use std::path::{Path, PathBuf};

    /// Where modules may be.
    pub(super) fn folders() -> Vec<PathBuf> {
        if let Some(folder) = std::env::var_os(super::MODULES_VARIABLE).filter(|folder| !folder.is_empty()) {
            return vec![folder.into()];
        }
        let program = std::env::current_exe().and_then(|program| program.canonicalize()).ok();
        let installed = program.and_then(|program| Some(program.parent()?.parent()?.join("lib/podium")));
        // A program that was not installed finds those that it was built with. Not in a release: the folder may be anybody's
        // where that runs.
        let built = if cfg!(debug_assertions) { llama_cpp_sys_2::BACKENDS_DIR } else { None };
        installed.into_iter().chain(built.map(PathBuf::from)).collect()
    }

    /// The modules in a folder for anything but processors; nothing where there is none for processors, and nothing for a
    /// folder whose name llama.cpp cannot be told.
    pub(super) fn modules(folder: &Path) -> Option<Vec<String>> {
        folder.to_str().filter(|name| !name.contains('\0'))?;
        let names =
            std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let modules = names.filter(|name| name.starts_with("libggml-") && name.ends_with(".so"));
        let (processors, mut others): (Vec<_>, Vec<_>) =
            modules.partition(|name| name.starts_with("libggml-cpu"));
        // Not a module: what all of them stand on.
        others.retain(|name| name != "libggml-base.so");
        others.sort_unstable();
        (!processors.is_empty()).then_some(others)
    }
}
