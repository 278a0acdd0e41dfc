//! Turns values as they were written into a checked setup.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use podium_domain::ids::WorkerId;

use super::sources::{Origin, Sources};
use super::{ConductorChoice, LogFormat, PoolChoice, Settings, SettingsError};

const DRAIN_MS_MAX: u64 = 3_600_000;

pub(super) fn check(sources: Sources) -> Result<Settings, SettingsError> {
    let mut checker = Checker { sources };
    let listen = checker.read("listen", address);
    let grpc_listen = checker.read("grpc_listen", address);
    let allow_remote = checker.read("allow_remote", yes_or_no);
    if allow_remote == Some(false) {
        checker.keep_to_this_machine("listen", listen);
        checker.keep_to_this_machine("grpc_listen", grpc_listen);
    }
    if let (Some(http), Some(grpc)) = (listen, grpc_listen)
        && http == grpc
        && http.port() != 0
    {
        checker.problem("listen", &format!("and grpc_listen are both `{http}`: each door needs its own"));
    }
    let data = checker.data();
    let pool = checker.read("pool", pool);
    let conductor = checker.read("conductor", conductor);
    let drain = checker.read("drain_ms", drain);
    let log = checker.read_if_given("log", log_filter);
    let log_format = checker.read("log_format", log_format);
    let problems = checker.sources.problems;
    match (listen, grpc_listen, data, pool, conductor, drain, log_format) {
        (
            Some(listen),
            Some(grpc_listen),
            Some(data),
            Some(pool),
            Some(conductor),
            Some(drain),
            Some(log_format),
        ) if problems.is_empty() => {
            Ok(Settings { listen, grpc_listen, data, pool, conductor, drain, log, log_format })
        }
        _ => Err(SettingsError(problems)),
    }
}

struct Checker {
    sources: Sources,
}

impl Checker {
    fn problem(&mut self, key: &str, what: &str) {
        let from = match self.sources.values.get(key) {
            Some((_, origin)) if *origin != Origin::Default => format!(" (from {origin})"),
            _ => String::new(),
        };
        self.sources.problems.push(format!("{key}{from} {what}"));
    }

    /// The value of a key that has a default.
    fn read<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.sources.values.get(key).map(|(value, _)| value.clone()).unwrap_or_default();
        read(&value).map_err(|what| self.problem(key, &what)).ok()
    }

    fn read_if_given<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        if self.sources.values.contains_key(key) { self.read(key, read) } else { None }
    }

    fn keep_to_this_machine(&mut self, key: &str, address: Option<SocketAddr>) {
        if let Some(address) = address
            && !address.ip().is_loopback()
        {
            let what = format!(
                "is `{address}`, which other machines can reach; --allow-remote allows that, nothing else does"
            );
            self.problem(key, &what);
        }
    }

    fn data(&mut self) -> Option<PathBuf> {
        if let Some((value, _)) = self.sources.values.get("data") {
            let path = PathBuf::from(value);
            if value.is_empty() {
                self.problem("data", "is empty, it must be a folder");
            }
            return Some(path);
        }
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
        if folder.is_none() {
            self.problem("data", "has no default, as neither XDG_DATA_HOME nor HOME is set; pass --data");
        }
        folder.map(|folder| folder.join("podium"))
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("is `{text}`, it must be an address and a port such as 127.0.0.1:8080"))
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("is `{text}`, it must be true or false"))
}

fn pool(text: &str) -> Result<PoolChoice, String> {
    match text {
        "" => Err("is empty, it must be `demo` or a pool file".to_owned()),
        "demo" => Ok(PoolChoice::Demo),
        path => Ok(PoolChoice::File(path.into())),
    }
}

fn conductor(text: &str) -> Result<ConductorChoice, String> {
    let wrong = || {
        format!(
            "is `{text}`, it must be auto, llama:FOLDER, worker:WORKER, remote:URL#MODEL, fixed:FILE, direct or \
             direct:WORKER"
        )
    };
    match text.split_once(':') {
        None if text == "auto" => Ok(ConductorChoice::Auto),
        None if text == "direct" => Ok(ConductorChoice::Direct(None)),
        Some(("llama", path)) if !path.is_empty() => Ok(ConductorChoice::Llama(path.into())),
        Some(("fixed", path)) if !path.is_empty() => Ok(ConductorChoice::Fixed(path.into())),
        Some(("direct", worker)) => worker_id(worker).map(|id| ConductorChoice::Direct(Some(id))),
        Some(("worker", worker)) => worker_id(worker).map(ConductorChoice::Worker),
        Some(("remote", rest)) => match rest.rsplit_once('#') {
            Some((url, model)) if url.starts_with("http") && !model.is_empty() => {
                Ok(ConductorChoice::Remote { url: url.to_owned(), model: model.to_owned() })
            }
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

fn worker_id(name: &str) -> Result<WorkerId, String> {
    WorkerId::new(name).map_err(|e| format!("names a worker: {e}"))
}

fn drain(text: &str) -> Result<Duration, String> {
    let ms = text.parse().ok().filter(|ms| *ms <= DRAIN_MS_MAX);
    ms.map(Duration::from_millis).ok_or_else(|| format!("is `{text}`, it must be 0 to {DRAIN_MS_MAX}"))
}

fn log_filter(text: &str) -> Result<String, String> {
    let filter = text.parse::<tracing_subscriber::filter::Targets>();
    filter
        .map(|_| text.to_owned())
        .map_err(|_| format!("is `{text}`, it must be a level or a list such as info,podium_engine=debug"))
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("is `{text}`, it must be text or json")),
    }
}
