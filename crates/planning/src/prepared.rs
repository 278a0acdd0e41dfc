//! The first step of building a conductor: reads and checks its files without loading or calling a model. A start and a
//! check of the settings share it, so both reject the same conductors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use podium_bundle::{Bundle, LocalLimits};
use podium_conductor::{DirectConductor, FixedConductor, RemoteConductor, RemoteOptions};
use podium_domain::ids::WorkerId;
use podium_domain::policy::{FailedStep, STEPS_MAX};
use podium_domain::pool::{Pool, UnknownWorker, Worker};
use podium_ports::BoxError;
use podium_ports::conductor::{Abilities, Conductor};
use podium_ports::conductor_profile::ConductorProfile;
use podium_ports::vendor::Vendors;
use podium_vendors::{EnvironmentKeys, HttpVendors};

use crate::choice::{Callees, ChooseError, Chosen, ConductorChoice, OpenBundle, Place, demo_bundle};

/// The variable with the API key of a remote conductor's endpoint.
const REMOTE_KEY: &str = "PODIUM_CONDUCTOR_API_KEY";

/// A conductor with valid files.
pub(super) enum Prepared {
    /// It needs no model.
    Plain { conductor: Arc<dyn Conductor>, notice: Option<String> },
    /// A model that is called like a worker.
    Called {
        model: Box<Worker>,
        /// Its own vendors; `None` for those of the pool.
        vendors: Option<Arc<dyn Vendors>>,
        notice: Option<String>,
    },
    /// A bundle under llama.cpp.
    Bundle {
        folder: PathBuf,
        id: String,
        abilities: Abilities,
        /// `None` if it plans in another process.
        open: Option<OpenBundle>,
    },
}

/// Reads and checks the conductor's files.
pub(super) fn prepare(
    choice: &ConductorChoice,
    pool: &Arc<Pool>,
    place: Place,
) -> Result<Prepared, ChooseError> {
    let unusable = |source: BoxError| ChooseError::Unusable { name: choice.to_string(), source };
    let plain = |conductor: Arc<dyn Conductor>| Prepared::Plain { conductor, notice: None };
    match choice {
        ConductorChoice::Auto => automatic(pool, place),
        ConductorChoice::Llama(folder) => bundle(folder, pool, place),
        ConductorChoice::Direct(None) => Ok(plain(Arc::new(DirectConductor::to_safest(Arc::clone(pool))))),
        ConductorChoice::Direct(Some(worker)) => DirectConductor::to_worker(Arc::clone(pool), worker.clone())
            .map(|conductor| plain(Arc::new(conductor)))
            .map_err(|e| unusable(Box::new(e))),
        ConductorChoice::Fixed(file) => FixedConductor::read(file, Arc::clone(pool))
            .map(|conductor| plain(Arc::new(conductor)))
            .map_err(|e| unusable(Box::new(e))),
        ConductorChoice::Worker(id) => match pool.worker(id) {
            Some(model) => {
                Ok(Prepared::Called { model: Box::new(model.clone()), vendors: None, notice: None })
            }
            None => Err(unusable(Box::new(UnknownWorker { id: id.clone() }))),
        },
        ConductorChoice::Model { file, worker } => of_file(file, worker).map_err(unusable),
        ConductorChoice::Remote { url, model } => remote(url, model).map_err(unusable),
    }
}

impl Prepared {
    /// The conductor's id, which runs record.
    pub(super) fn id(&self) -> String {
        match self {
            Self::Plain { conductor, .. } => conductor.id().to_owned(),
            Self::Called { model, .. } => RemoteConductor::id_of(model),
            Self::Bundle { id, .. } => id.clone(),
        }
    }

    /// The profile for a process that does not load or call the model.
    pub(super) fn profile(self) -> ConductorProfile {
        match self {
            Self::Plain { conductor, .. } => ConductorProfile::of(conductor),
            Self::Called { model, .. } => {
                ConductorProfile::new(RemoteConductor::id_of(&model), RemoteOptions::default().abilities)
            }
            Self::Bundle { id, abilities, .. } => ConductorProfile::new(id, abilities),
        }
    }

    /// Builds the conductor. A bundle's model is loaded with at most `limits`.
    pub(super) async fn start(
        self,
        pool: &Arc<Pool>,
        callees: &Callees,
        limits: LocalLimits,
    ) -> Result<Chosen, ChooseError> {
        match self {
            Self::Plain { conductor, notice } => Ok(Chosen { conductor, notice }),
            Self::Called { model, vendors, notice } => {
                let vendors = vendors.unwrap_or_else(|| Arc::clone(&callees.vendors));
                let options =
                    RemoteOptions { waiting_max: limits.waiting_max.get(), ..RemoteOptions::default() };
                let Some(limiter) = callees.limiter.clone() else {
                    let (name, source) =
                        (RemoteConductor::id_of(&model), "this process has no limiter".into());
                    return Err(ChooseError::Unusable { name, source });
                };
                let conductor = RemoteConductor::new(vendors, limiter, *model, Arc::clone(pool), options);
                Ok(Chosen { conductor: Arc::new(conductor), notice })
            }
            Self::Bundle { folder, open, .. } => {
                let name = format!("llama:{}", folder.display());
                let Some(open) = open else { return Err(ChooseError::NoLlama { name }) };
                let conductor = open(folder, Arc::clone(pool), limits).await;
                let conductor = conductor.map_err(|source| ChooseError::Unusable { name, source })?;
                Ok(Chosen { conductor, notice: None })
            }
        }
    }
}

fn automatic(pool: &Arc<Pool>, place: Place) -> Result<Prepared, ChooseError> {
    let open_bundle = match place {
        Place::Here(open) => open,
        Place::Elsewhere => None,
    };
    match demo_bundle(pool, open_bundle) {
        Ok(folder) => bundle(folder, pool, place),
        Err(why) => Ok(Prepared::Plain {
            conductor: Arc::new(DirectConductor::to_safest(Arc::clone(pool))),
            notice: Some(format!("planning is off, each question goes unchanged to one worker: {why}")),
        }),
    }
}

fn bundle(folder: &Path, pool: &Pool, place: Place) -> Result<Prepared, ChooseError> {
    let name = || format!("llama:{}", folder.display());
    let open = match place {
        Place::Here(None) => return Err(ChooseError::NoLlama { name: name() }),
        Place::Here(open) => open,
        Place::Elsewhere => None,
    };
    let read = || -> Result<Prepared, BoxError> {
        let bundle = Bundle::read(folder)?;
        let manifest = bundle.manifest();
        manifest.fit(pool)?;
        if open.is_some() && !bundle.weights().is_file() {
            return Err(format!("its weights {} are missing", bundle.weights().display()).into());
        }
        let abilities = Abilities {
            steps_max: STEPS_MAX,
            rounds_max: manifest.rounds_max(),
            failed_step: FailedStep::Replan,
        };
        Ok(Prepared::Bundle { folder: folder.to_owned(), id: manifest.id(), abilities, open })
    };
    read().map_err(|source| ChooseError::Unusable { name: name(), source })
}

/// A model of a separate pool file. A vendor with the same name is the same account.
fn of_file(file: &Path, worker: &WorkerId) -> Result<Prepared, BoxError> {
    let text =
        std::fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    let theirs = Pool::parse(&text)?;
    let model = theirs.worker(worker).ok_or_else(|| UnknownWorker { id: worker.clone() })?.clone();
    let vendors: Arc<dyn Vendors> = Arc::new(HttpVendors::new(&theirs, &EnvironmentKeys)?);
    Ok(Prepared::Called { model: Box::new(model), vendors: Some(vendors), notice: None })
}

/// A model outside the pool. Its prices are unknown, so its planning counts as free.
fn remote(url: &str, model: &str) -> Result<Prepared, BoxError> {
    let id = WorkerId::new(model)?;
    let key = match std::env::var_os(REMOTE_KEY) {
        Some(_) => format!("api_key_env = \"{REMOTE_KEY}\"\n"),
        None => String::new(),
    };
    let (url, model) = (toml::Value::from(url), toml::Value::from(model));
    let of_one = Pool::parse(&format!(
        "schema = 1\nname = \"conductor\"\nversion = \"1\"\n\
         [[vendors]]\nid = \"conductor\"\napi = \"openai-chat\"\nbase_url = {url}\n{key}\
         [[workers]]\nid = \"{id}\"\nvendor = \"conductor\"\nmodel = {model}\ndescription = \"plans\"\n\
         context_tokens = 32768\noutput_tokens_max = 8192\n\
         usd_per_million_tokens = {{ input = 0.0, output = 0.0 }}\n"
    ))?;
    let model = of_one.workers().first().cloned().ok_or("the endpoint has no model")?;
    let vendors: Arc<dyn Vendors> = Arc::new(HttpVendors::new(&of_one, &EnvironmentKeys)?);
    let notice = format!("the prices of conductor `{id}` are unknown: its planning is counted as free");
    Ok(Prepared::Called { model: Box::new(model), vendors: Some(vendors), notice: Some(notice) })
}
