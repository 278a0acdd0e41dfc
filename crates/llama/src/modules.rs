//! llama.cpp's compute code: linked into this binary, or modules that are loaded at start-up (one per kind of processor, one
//! for CUDA).
//!
//! llama.cpp skips a module that the system cannot load, because one build serves machines with and without a GPU. Its
//! messages about that are kept here, for the error about a missing GPU.

use std::fmt;
use std::path::PathBuf;

use llama_cpp_2::{LlamaBackendDevice, LlamaBackendDeviceType, list_llama_ggml_backend_devices};

/// The variable with the folder of the modules. The default is the installed folder, `../lib/podium` relative to the program's.
pub const MODULES_VARIABLE: &str = "PODIUM_LLAMA_MODULES";

/// The loaded modules, and the errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modules {
    /// The modules' folder; `None` if everything is linked into the binary.
    pub(crate) folder: Option<PathBuf>,
    /// File names of the modules other than those for CPUs.
    pub(crate) accelerators: Vec<String>,
    /// llama.cpp's messages about modules that it could not load or that found no device.
    pub(crate) errors: Vec<String>,
}

/// No module for this CPU was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("llama.cpp finds no module for this processor in {}{}", looked_in.join(", "), after(errors))]
pub struct NoModules {
    looked_in: Vec<String>,
    errors: Vec<String>,
}

fn after(errors: &[String]) -> String {
    // Each one is preceded by a semicolon.
    [&[String::new()], errors].concat().join("; ")
}

/// Describes the modules, for error messages.
impl fmt::Display for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.folder {
            None => f.write_str("this program was built without `llama-dynamic`, for processors only"),
            Some(folder) if self.accelerators.is_empty() => {
                write!(f, "{} has modules for processors only", folder.display())
            }
            Some(folder) => write!(f, "{} has {}", folder.display(), self.accelerators.join(", ")),
        }?;
        f.write_str(&after(&self.errors))
    }
}

/// Loads the modules for a program that uses llama.cpp without this crate's engine. The rest of this crate must not be used then.
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

/// Without the feature `dynamic`: loads nothing.
#[cfg(not(feature = "dynamic"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build can fail")]
pub(crate) fn load() -> Result<Modules, NoModules> {
    Ok(Modules::default())
}

/// Loads the modules of the first folder with one for CPUs. Once per process, before any other use of llama.cpp.
#[cfg(feature = "dynamic")]
pub(crate) fn load() -> Result<Modules, NoModules> {
    let folders = found::folders();
    let chosen = folders.iter().find_map(|folder| Some((folder, found::modules(folder)?)));
    let looked_in = || folders.iter().map(|folder| folder.display().to_string()).collect();
    let Some((folder, accelerators)) = chosen else {
        return Err(NoModules { looked_in: looked_in(), errors: Vec::new() });
    };
    let ((), errors) =
        crate::backend::with_errors(|| llama_cpp_2::llama_backend::load_backends_from_path(folder));
    if !devices().iter().any(|device| device.device_type == LlamaBackendDeviceType::Cpu) {
        return Err(NoModules { looked_in: looked_in(), errors });
    }
    Ok(Modules { folder: Some(folder.clone()), accelerators, errors })
}

#[cfg(feature = "dynamic")]
mod found {
    use std::path::{Path, PathBuf};

    /// The folders to search.
    pub(super) fn folders() -> Vec<PathBuf> {
        if let Some(folder) = std::env::var_os(super::MODULES_VARIABLE).filter(|folder| !folder.is_empty()) {
            return vec![folder.into()];
        }
        let program = std::env::current_exe().and_then(|program| program.canonicalize()).ok();
        let installed = program.and_then(|program| Some(program.parent()?.parent()?.join("lib/podium")));
        // A program that was not installed uses the build's folder. Not in a release build: on another machine that path may
        // belong to anyone.
        let built = if cfg!(debug_assertions) { llama_cpp_sys_2::BACKENDS_DIR } else { None };
        installed.into_iter().chain(built.map(PathBuf::from)).collect()
    }

    /// The modules in a folder other than those for CPUs. `None` if it has none for CPUs, or if llama.cpp cannot take its name.
    pub(super) fn modules(folder: &Path) -> Option<Vec<String>> {
        folder.to_str().filter(|name| !name.contains('\0'))?;
        let names =
            std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let modules = names.filter(|name| {
            name.starts_with("libggml-") && Path::new(name).extension().is_some_and(|kind| kind == "so")
        });
        let (processors, mut others): (Vec<_>, Vec<_>) =
            modules.partition(|name| name.starts_with("libggml-cpu"));
        // Not a module but their common library.
        others.retain(|name| name != "libggml-base.so");
        others.sort_unstable();
        (!processors.is_empty()).then_some(others)
    }
}
