//! Makes the conductor that the settings name.

use std::path::Path;
use std::sync::Arc;

use podium_conductor::{DirectConductor, FixedConductor, RemoteConductor, RemoteOptions};
use podium_domain::ids::WorkerId;
use podium_domain::pool::{Pool, UnknownWorker};
use podium_ports::BoxError;
use podium_ports::conductor::Conductor;
use podium_ports::vendor::Vendors;
use podium_vendors::{EnvironmentKeys, HttpVendors};

use crate::error::Error;
use crate::settings::ConductorChoice;

/// The bundle that is trained on the demo's workers, from the project's folder.
const DEMO_BUNDLE: &str = "models/nano";
/// The pool that it is trained on.
const DEMO_POOL: &str = "demo";
/// The variable that holds the key of a remote conductor's endpoint.
const REMOTE_KEY: &str = "PODIUM_CONDUCTOR_API_KEY";

#[cfg(feature = "llama")]
type Llama = Arc<podium_llama::LlamaConductor>;
#[cfg(not(feature = "llama"))]
type Llama = std::convert::Infallible;

/// A conductor, and what has to be known about it.
pub(crate) struct Chosen {
    /// The conductor.
    pub(crate) conductor: Arc<dyn Conductor>,
    /// What the user should know about the choice.
    pub(crate) notice: Option<String>,
    /// The same conductor, where it has to be shut down before the process ends.
    llama: Option<Llama>,
}

impl Chosen {
    fn of(conductor: impl Conductor + 'static) -> Self {
        Self { conductor: Arc::new(conductor), notice: None, llama: None }
    }

    /// No planning, for those who only read.
    pub(crate) fn none(pool: &Arc<Pool>) -> Self {
        Self::of(DirectConductor::to_safest(Arc::clone(pool)))
    }

    /// Waits until a model that runs here is freed.
    #[cfg(feature = "llama")]
    pub(crate) async fn shut_down(&self) {
        if let Some(llama) = &self.llama {
            llama.shut_down().await;
        }
    }

    /// Nothing runs here.
    #[cfg(not(feature = "llama"))]
    #[expect(clippy::unused_async, reason = "with llama.cpp there is something to wait for")]
    pub(crate) async fn shut_down(&self) {
        match self.llama {
            None => {}
            Some(never) => match never {},
        }
    }
}

/// Makes the conductor. Loading a model takes a while; it is done off the runtime's threads.
pub(crate) async fn choose(
    choice: &ConductorChoice,
    pool: &Arc<Pool>,
    vendors: &Arc<dyn Vendors>,
) -> Result<Chosen, Error> {
    let unusable = |source: BoxError| Error::Conductor { name: choice.to_string(), source };
    let unknown = |source: UnknownWorker| unusable(Box::new(source));
    match choice {
        ConductorChoice::Auto => automatic(pool).await,
        ConductorChoice::Llama(folder) => llama(folder, pool).await,
        ConductorChoice::Direct(None) => Ok(Chosen::none(pool)),
        ConductorChoice::Direct(Some(worker)) => {
            DirectConductor::to_worker(Arc::clone(pool), worker.clone()).map(Chosen::of).map_err(unknown)
        }
        ConductorChoice::Fixed(file) => {
            FixedConductor::read(file, Arc::clone(pool)).map(Chosen::of).map_err(|e| unusable(Box::new(e)))
        }
        ConductorChoice::Worker(id) => {
            let worker = pool.worker(id).ok_or_else(|| unknown(UnknownWorker { id: id.clone() }))?;
            let (vendors, pool, options) = (Arc::clone(vendors), Arc::clone(pool), RemoteOptions::default());
            Ok(Chosen::of(RemoteConductor::new(vendors, worker.clone(), pool, options)))
        }
        ConductorChoice::Remote { url, model } => remote(url, model, pool).map_err(unusable),
    }
}

/// The bundle that the automatic choice would take, or why it takes none.
pub(crate) fn demo_bundle(pool: &Pool) -> Result<&'static Path, String> {
    let bundle = Path::new(DEMO_BUNDLE);
    if pool.name() != DEMO_POOL {
        Err(format!(
            "the bundle in {DEMO_BUNDLE} is trained on pool `{DEMO_POOL}`, this is pool `{}`",
            pool.name()
        ))
    } else if cfg!(not(feature = "llama")) {
        Err("this podium was built without llama.cpp; `make demo` builds one with it".to_owned())
    } else if !bundle.join("conductor.toml").is_file() {
        Err(format!("there is no bundle in {DEMO_BUNDLE} from here; start podium in the project's folder"))
    } else {
        Ok(bundle)
    }
}

async fn automatic(pool: &Arc<Pool>) -> Result<Chosen, Error> {
    match demo_bundle(pool) {
        Ok(bundle) => llama(bundle, pool).await,
        Err(why) => {
            let notice = format!("nothing is planned, each question goes to one worker as it is: {why}");
            Ok(Chosen { notice: Some(notice), ..Chosen::none(pool) })
        }
    }
}

#[cfg(feature = "llama")]
async fn llama(folder: &Path, pool: &Arc<Pool>) -> Result<Chosen, Error> {
    use std::num::NonZeroUsize;

    use podium_llama::bundle::Bundle;
    use podium_llama::{LlamaConductor, LlamaOptions};

    const WAITING_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not 0");
    let (path, pool) = (folder.to_owned(), Arc::clone(pool));
    let load = move || -> Result<LlamaConductor, BoxError> {
        let bundle = Bundle::open(&path)?;
        let options = LlamaOptions { waiting_max: WAITING_MAX, threads: None, gpu_layers: 0 };
        Ok(LlamaConductor::open(&bundle, &pool, options)?)
    };
    let loaded = tokio::task::spawn_blocking(load).await.unwrap_or_else(|panic| Err(Box::new(panic)));
    let llama = loaded.map(Arc::new);
    let llama =
        llama.map_err(|source| Error::Conductor { name: format!("llama:{}", folder.display()), source })?;
    let conductor: Arc<dyn Conductor> = Arc::<LlamaConductor>::clone(&llama);
    Ok(Chosen { conductor, notice: None, llama: Some(llama) })
}

#[cfg(not(feature = "llama"))]
#[expect(clippy::unused_async, reason = "with llama.cpp there is something to wait for")]
async fn llama(folder: &Path, _pool: &Arc<Pool>) -> Result<Chosen, Error> {
    Err(Error::NoLlama { name: format!("llama:{}", folder.display()) })
}

/// A model that is not of the pool: its prices are unknown, so its planning counts as free.
fn remote(url: &str, model: &str, pool: &Arc<Pool>) -> Result<Chosen, BoxError> {
    let id = WorkerId::new(model)?;
    let key = match std::env::var_os(REMOTE_KEY) {
        Some(_) => format!("api_key_env = \"{REMOTE_KEY}\"\n"),
        None => String::new(),
    };
    let (url, model) = (toml::Value::from(url), toml::Value::from(model));
    let of_one = Pool::parse(&format!(
        "schema = 1\nname = \"conductor\"\nversion = \"1\"\n\
         [[vendors]]\nid = \"conductor\"\nkind = \"openai-compatible\"\nbase_url = {url}\n{key}\
         [[workers]]\nid = \"{id}\"\nvendor = \"conductor\"\nmodel = {model}\ndescription = \"plans\"\n\
         context_tokens = 32768\noutput_tokens_max = 8192\n\
         usd_per_million_tokens = {{ input = 0.0, output = 0.0 }}\n"
    ))?;
    let worker = of_one.workers().first().cloned().ok_or("the endpoint has no model")?;
    let vendors: Arc<dyn Vendors> = Arc::new(HttpVendors::new(&of_one, &EnvironmentKeys)?);
    let conductor = RemoteConductor::new(vendors, worker, Arc::clone(pool), RemoteOptions::default());
    let notice =
        format!("the prices of conductor `{id}` are unknown: what planning costs is counted as nothing");
    Ok(Chosen { notice: Some(notice), ..Chosen::of(conductor) })
}
