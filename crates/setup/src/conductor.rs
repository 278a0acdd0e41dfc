//! Makes the conductor that the settings name.

mod prepared;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use podium_bundle::MANIFEST_FILE;
use podium_conductor::DirectConductor;
use podium_domain::ids::WorkerId;
use podium_domain::pool::Pool;
use podium_domain::share::Share;
use podium_ports::BoxError;
use podium_ports::conductor::{
    Abilities, Conductor, ConductorError, LocalLimits, PlanOutcome, PlanRequest, TextSink,
};
use podium_ports::conductors::{Conductors, SameConductor};
use podium_ports::limiter::Limiter;
use podium_ports::vendor::Vendors;
use tokio_util::sync::CancellationToken;

use self::prepared::{Prepared, prepare};
use crate::settings::{Checker, values};
use crate::with_causes;

/// The bundle that is trained on the demo's workers, from the project's folder.
const DEMO_BUNDLE: &str = "models/nano";
/// The pool that it is trained on.
const DEMO_POOL: &str = "demo";

/// Who plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConductorChoice {
    /// The demo's own model where it fits, else no planning at all.
    Auto,
    /// A bundle under llama.cpp.
    Llama(PathBuf),
    /// A worker of the pool.
    Worker(WorkerId),
    /// A worker of a pool file of its own, which says all that there is to say of a model: where it is and in which format it
    /// is spoken to, its prices, limits and features.
    Model {
        /// The pool file.
        file: PathBuf,
        /// The worker in it.
        worker: WorkerId,
    },
    /// A model behind an OpenAI-compatible endpoint.
    Remote {
        /// Where the API begins.
        url: String,
        /// The model's name there.
        model: String,
    },
    /// A workflow that a person wrote.
    Fixed(PathBuf),
    /// No planning: one worker gets the question as it is.
    Direct(Option<WorkerId>),
}

/// As it is written in settings.
impl fmt::Display for ConductorChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Llama(folder) => write!(f, "llama:{}", folder.display()),
            Self::Worker(worker) => write!(f, "worker:{worker}"),
            Self::Model { file, worker } => write!(f, "model:{}#{worker}", file.display()),
            Self::Remote { url, model } => write!(f, "remote:{url}#{model}"),
            Self::Fixed(file) => write!(f, "fixed:{}", file.display()),
            Self::Direct(None) => f.write_str("direct"),
            Self::Direct(Some(worker)) => write!(f, "direct:{worker}"),
        }
    }
}

/// Who plans, and who is to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConductorChoices {
    /// Who plans.
    pub current: ConductorChoice,
    /// Who is to follow, and which share of the runs it has already.
    pub next: Option<(ConductorChoice, Share)>,
}

impl ConductorChoices {
    /// One that nobody follows.
    pub const fn one(current: ConductorChoice) -> Self {
        Self { current, next: None }
    }

    /// Reads the keys `conductor`, by `current`, and `conductor_next` with `conductor_next_share`; what is wrong is left with
    /// the checker.
    pub fn read(
        checker: &mut Checker,
        current: impl FnOnce(&str) -> Result<ConductorChoice, String>,
    ) -> Option<Self> {
        let current = checker.read("conductor", current);
        // The automatic choice is for those who name nobody.
        let next = checker.read_if_given("conductor_next", |text| match values::conductor(text)? {
            ConductorChoice::Auto => Err("is `auto`, it must say who is to follow".to_owned()),
            choice => Ok(choice),
        });
        let is_alone = checker.written("conductor_next").is_none();
        let share = checker.read("conductor_next_share", |text| match values::share(text)? {
            share if is_alone && Share::new(0.0).is_ok_and(|none| share > none) => {
                Err(format!("is `{text}`, but conductor_next is not set: nothing would get that share"))
            }
            share => Ok(share),
        });
        share?;
        Some(Self { current: current?, next: next.zip(share) })
    }

    /// Whether one of them is a model that runs in the process that plans.
    pub fn need_a_model_here(&self) -> bool {
        self.all().any(|choice| matches!(choice, ConductorChoice::Llama(_)))
    }

    /// Whether one of them is a model that is called, as workers are.
    pub fn call_a_model(&self) -> bool {
        use ConductorChoice::{Model, Remote, Worker};
        self.all().any(|choice| matches!(choice, Worker(_) | Model { .. } | Remote { .. }))
    }

    fn all(&self) -> impl Iterator<Item = &ConductorChoice> {
        std::iter::once(&self.current).chain(self.next.iter().map(|(next, _)| next))
    }

    /// Checks both against the pool as a start does, except that no model is loaded or called. Problems are left with the
    /// checker.
    pub fn check(&self, checker: &mut Checker, pool: &Arc<Pool>, place: Place) {
        let mut id = |key, choice: &ConductorChoice| match prepare(choice, pool, place) {
            Ok(prepared) => Some(prepared.id()),
            Err(error) => {
                checker.problem(key, &format!("is `{choice}`, which cannot be used: {}", error.reason()));
                None
            }
        };
        let current = id("conductor", &self.current);
        let next = self.next.as_ref().and_then(|(next, _)| id("conductor_next", next));
        if let (Some(current), Some(next)) = (current, next)
            && current == next
        {
            checker.problem("conductor_next", &format!("is invalid: {}", SameConductor { id: next }));
        }
    }
}

impl fmt::Display for ConductorChoices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.current)?;
        self.next.iter().try_for_each(|(next, _)| write!(f, " and {next}"))
    }
}

/// Why a conductor is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// It cannot be used.
    #[error("conductor `{name}` cannot be used")]
    Unusable {
        /// As it was named.
        name: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// This binary was built without llama.cpp.
    #[error(
        "conductor `{name}` needs llama.cpp, which this podium was built without; build it with `--features llama`"
    )]
    NoLlama {
        /// As it was named.
        name: String,
    },
    /// Two conductors have one name.
    #[error(transparent)]
    Same(#[from] SameConductor),
}

impl ChooseError {
    /// What is wrong, without the conductor's name.
    fn reason(&self) -> String {
        match self {
            Self::Unusable { source, .. } => with_causes(&**source),
            other => with_causes(other),
        }
    }
}

/// Where a conductor plans.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// In this process; the function loads a bundle, in programs that can.
    Here(Option<OpenBundle>),
    /// In another process: only its id and abilities matter here.
    Elsewhere,
}

/// Opens a bundle under llama.cpp. Only the programs that link it have such a function.
pub type OpenBundle =
    fn(PathBuf, Arc<Pool>, LocalLimits) -> BoxFuture<'static, Result<Arc<dyn Conductor>, BoxError>>;

/// A conductor, and what has to be known about it.
pub struct Chosen {
    /// The conductor.
    pub conductor: Arc<dyn Conductor>,
    /// What the user should know about the choice.
    pub notice: Option<String>,
}

impl Chosen {
    fn of(conductor: impl Conductor + 'static) -> Self {
        Self { conductor: Arc::new(conductor), notice: None }
    }

    /// No planning, for those who only read.
    pub fn none(pool: &Arc<Pool>) -> Self {
        Self::of(DirectConductor::to_safest(Arc::clone(pool)))
    }
}

/// What conductors stand on that are models elsewhere.
#[derive(Clone)]
pub struct Callees {
    /// Those who serve the pool's workers.
    pub vendors: Arc<dyn Vendors>,
    /// Lets calls through, as it does those of workers.
    pub limiter: Arc<dyn Limiter>,
}

/// Makes the conductor. `open_bundle` loads a model, in programs that can, with at most `limits`.
pub async fn choose(
    choice: &ConductorChoice,
    pool: &Arc<Pool>,
    callees: &Callees,
    open_bundle: Option<OpenBundle>,
    limits: LocalLimits,
) -> Result<Chosen, ChooseError> {
    prepare(choice, pool, Place::Here(open_bundle))?.start(pool, callees, limits).await
}

/// The conductors of a process, and what has to be known about them.
pub struct ChosenAll {
    /// The conductors.
    pub conductors: Conductors,
    /// What the user should know about the choice.
    pub notices: Vec<String>,
}

/// Makes the conductors, one after the other. Each model that runs here has `limits` for itself.
pub async fn choose_all(
    choices: &ConductorChoices,
    pool: &Arc<Pool>,
    callees: &Callees,
    open_bundle: Option<OpenBundle>,
    limits: LocalLimits,
) -> Result<ChosenAll, ChooseError> {
    let current = choose(&choices.current, pool, callees, open_bundle, limits).await?;
    let mut notices: Vec<_> = current.notice.into_iter().collect();
    let conductors = match &choices.next {
        None => current.conductor.into(),
        Some((next, share)) => {
            let next = choose(next, pool, callees, open_bundle, limits).await?;
            notices.extend(next.notice);
            Conductors::with_next(current.conductor, next.conductor, *share)?
        }
    };
    Ok(ChosenAll { conductors, notices })
}

/// The bundle that the automatic choice would take, or why it takes none.
pub fn demo_bundle(pool: &Pool, open_bundle: Option<OpenBundle>) -> Result<&'static Path, String> {
    let bundle = Path::new(DEMO_BUNDLE);
    if pool.name() != DEMO_POOL {
        Err(format!(
            "the bundle in {DEMO_BUNDLE} is trained on pool `{DEMO_POOL}`, this is pool `{}`",
            pool.name()
        ))
    } else if open_bundle.is_none() {
        Err("this podium was built without llama.cpp; `make demo` builds one with it".to_owned())
    } else if !bundle.join(MANIFEST_FILE).is_file() {
        Err(format!("there is no bundle in {DEMO_BUNDLE} from here; start podium in the project's folder"))
    } else {
        Ok(bundle)
    }
}

/// Stands in for a conductor that runs in another process: it is known by name and abilities, and asks no model here.
pub struct Elsewhere {
    id: String,
    abilities: Abilities,
    /// The conductor itself where it needs no model.
    here: Option<Arc<dyn Conductor>>,
}

impl Elsewhere {
    /// The same for a process that plans nothing at all.
    #[must_use]
    pub fn without_plans(self) -> Self {
        Self { here: None, ..self }
    }
}

#[async_trait]
impl Conductor for Elsewhere {
    fn id(&self) -> &str {
        &self.id
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    async fn plan(
        &self,
        _request: &PlanRequest,
        _text: TextSink<'_>,
        _stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        Err(ConductorError::Unavailable("this process plans nothing".into()))
    }

    fn plan_at_once(&self, request: &PlanRequest) -> Option<PlanOutcome> {
        self.here.as_ref()?.plan_at_once(request)
    }
}

/// What there is to know of conductors that run elsewhere; `here` says what of them this process keeps.
pub async fn describe_all(
    choices: &ConductorChoices,
    pool: &Arc<Pool>,
    callees: &Callees,
    here: fn(Elsewhere) -> Elsewhere,
) -> Result<Conductors, ChooseError> {
    let current: Arc<dyn Conductor> = Arc::new(here(describe(&choices.current, pool, callees).await?));
    match &choices.next {
        None => Ok(current.into()),
        Some((next, share)) => {
            let next = Arc::new(here(describe(next, pool, callees).await?));
            Ok(Conductors::with_next(current, next, *share)?)
        }
    }
}

/// The id and abilities of a conductor that runs elsewhere. Of a bundle only the manifest is read, no weights.
async fn describe(
    choice: &ConductorChoice,
    pool: &Arc<Pool>,
    callees: &Callees,
) -> Result<Elsewhere, ChooseError> {
    let prepared = prepare(choice, pool, Place::Elsewhere)?;
    if let Prepared::Bundle { id, abilities, .. } = prepared {
        return Ok(Elsewhere { id, abilities, here: None });
    }
    let needs_no_model = matches!(prepared, Prepared::Plain { .. });
    let conductor = prepared.start(pool, callees, LocalLimits::default()).await?.conductor;
    let (id, abilities) = (conductor.id().to_owned(), conductor.abilities());
    Ok(Elsewhere { id, abilities, here: needs_no_model.then_some(conductor) })
}
