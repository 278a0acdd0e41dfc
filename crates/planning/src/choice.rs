//! Builds the conductor that the settings name.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use podium_bundle::{LocalLimits, MANIFEST_FILE};
use podium_conductor::{Planner, WorkflowHead};
use podium_domain::ids::WorkerId;
use podium_domain::pool::Pool;
use podium_domain::share::Share;
use podium_ports::BoxError;
use podium_ports::causes::with_causes;
use podium_ports::conductor::{Conductor, Conductors};
use podium_ports::conductor_profile::{ConductorProfile, ConductorProfiles};
use podium_ports::limiter::Limiter;
use podium_ports::vendor::Vendors;
use podium_setup::settings::{Checker, Setting};

use crate::prepared::{Prepared, prepare};
use crate::settings::{CONDUCTOR_MAX, CONDUCTOR_NEXT, CONDUCTOR_NEXT_SHARE};

/// The bundle for the demo's workers, relative to the project's folder.
const DEMO_BUNDLE: &str = "models/nano";
/// The pool that it is trained for.
const DEMO_POOL: &str = "demo";

/// The planning method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConductorChoice {
    /// The demo's model if it fits the pool, otherwise no planning.
    Auto,
    /// A bundle under llama.cpp.
    Llama(PathBuf),
    /// A worker of the pool.
    Worker(WorkerId),
    /// A worker of a separate pool file, which defines all properties of the model: address, wire format, prices, limits and
    /// features.
    Model {
        /// The pool file.
        file: PathBuf,
        /// The worker in it.
        worker: WorkerId,
    },
    /// A model behind an OpenAI-compatible endpoint.
    Remote {
        /// The base URL of the API.
        url: String,
        /// The model's name there.
        model: String,
    },
    /// A workflow written by a person.
    Fixed(PathBuf),
    /// No planning: one worker gets the unchanged question.
    Direct(Option<WorkerId>),
}

/// As written in settings.
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

/// The current conductor and, during a rollout, its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConductorChoices {
    /// The current conductor.
    pub current: ConductorChoice,
    /// The successor and the share of runs that use it.
    pub next: Option<(ConductorChoice, Share)>,
    /// The file of the workflows among which `podium-max` chooses, if it is offered.
    pub workflows: Option<PathBuf>,
}

impl ConductorChoices {
    /// A conductor without a successor.
    pub const fn one(current: ConductorChoice) -> Self {
        Self { current, next: None, workflows: None }
    }

    /// Reads `current` and the settings of its successor. Problems are added to the checker.
    pub fn read(checker: &mut Checker, current: &Setting<ConductorChoice>) -> Option<Self> {
        let current = checker.read(current);
        let next = checker.read_if_given(&CONDUCTOR_NEXT);
        let share = checker.read(&CONDUCTOR_NEXT_SHARE);
        let is_alone = !checker.has_value(&CONDUCTOR_NEXT);
        if is_alone && share.is_some_and(|share| Share::new(0.0).is_ok_and(|none| share > none)) {
            let what = "is above 0, but conductor_next is not set: nothing would get that share";
            checker.problem(CONDUCTOR_NEXT_SHARE.key.name, what);
        }
        let workflows = checker.read_if_given(&CONDUCTOR_MAX);
        Some(Self { current: current?, next: next.zip(share), workflows })
    }

    /// Whether one of them runs a model in the planning process.
    pub fn need_a_model_here(&self) -> bool {
        self.all().any(|choice| matches!(choice, ConductorChoice::Llama(_)))
    }

    /// Whether one of them calls a model like a worker.
    pub fn call_a_model(&self) -> bool {
        use ConductorChoice::{Model, Remote, Worker};
        self.all().any(|choice| matches!(choice, Worker(_) | Model { .. } | Remote { .. }))
    }

    /// The folders of the bundles that one of them runs.
    pub fn bundles(&self) -> impl Iterator<Item = &Path> {
        self.all().filter_map(|choice| match choice {
            ConductorChoice::Llama(folder) => Some(folder.as_path()),
            _ => None,
        })
    }

    fn all(&self) -> impl Iterator<Item = &ConductorChoice> {
        std::iter::once(&self.current).chain(self.next.iter().map(|(next, _)| next))
    }

    /// Checks both against the pool as a start does, but without loading or calling a model. Problems are added to the checker.
    pub fn check(&self, checker: &mut Checker, pool: &Arc<Pool>, place: Place) {
        let mut prepared = |key, choice: &ConductorChoice| match prepare(choice, pool, place) {
            Ok(prepared) => Some(prepared),
            Err(error) => {
                checker.problem(key, &format!("is `{choice}`, which cannot be used: {}", error.reason()));
                None
            }
        };
        let current = prepared("conductor", &self.current);
        let next = self.next.as_ref().and_then(|(next, _)| prepared("conductor_next", next));
        let next = next.map(|next| next.id());
        let Some(current) = current.map(Prepared::profile) else { return };
        if next.as_deref() == Some(current.id()) {
            let same = SameConductor { id: current.id().to_owned() };
            checker.problem("conductor_next", &format!("is invalid: {same}"));
        }
        let Some(file) = &self.workflows else { return };
        match workflow_head(file, pool, Planner::Elsewhere(current.abilities())) {
            Ok(head) if head.id() == current.id() || next.as_deref() == Some(head.id()) => {
                let same = SameConductor { id: head.id().to_owned() };
                checker.problem(CONDUCTOR_MAX.key.name, &format!("is invalid: {same}"));
            }
            Ok(_) => {}
            Err(error) => {
                checker.problem(CONDUCTOR_MAX.key.name, &format!("cannot be used: {}", error.reason()));
            }
        }
    }
}

/// The conductor that lets a head choose among the workflows of a file.
fn workflow_head(file: &Path, pool: &Arc<Pool>, planner: Planner) -> Result<WorkflowHead, ChooseError> {
    let head = WorkflowHead::read(file, Arc::clone(pool), planner);
    head.map_err(|error| ChooseError::Unusable { name: file.display().to_string(), source: Box::new(error) })
}

/// The same conductors, with the one that chooses among workflows, if there are any. The current conductor plans the choice to plan.
fn with_workflows(
    conductors: Conductors,
    workflows: Option<&PathBuf>,
    pool: &Arc<Pool>,
) -> Result<Conductors, ChooseError> {
    let Some(file) = workflows else { return Ok(conductors) };
    let head = workflow_head(file, pool, Planner::Here(Arc::clone(conductors.current())))?;
    for other in conductors.all() {
        check_ids(other.id(), head.id())?;
    }
    Ok(conductors.with_on_request(Some(Arc::new(head))))
}

impl fmt::Display for ConductorChoices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.current)?;
        self.next.iter().try_for_each(|(next, _)| write!(f, " and {next}"))
    }
}

/// Two conductors have the same name and version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two conductors are both `{id}`; a new one needs another version")]
pub struct SameConductor {
    /// The name and version of both.
    pub id: String,
}

/// Why a conductor is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// It cannot be used.
    #[error("conductor `{name}` cannot be used")]
    Unusable {
        /// The conductor's name in the settings.
        name: String,
        /// The error.
        #[source]
        source: BoxError,
    },
    /// This binary was built without llama.cpp.
    #[error(
        "conductor `{name}` needs llama.cpp, which this podium was built without; build it with `--features llama`"
    )]
    NoLlama {
        /// The conductor's name in the settings.
        name: String,
    },
    /// Two conductors have the same name.
    #[error(transparent)]
    Same(#[from] SameConductor),
}

impl ChooseError {
    /// The problem without the conductor's name.
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
    /// In this process. The function loads a bundle; `None` in programs without llama.cpp.
    Here(Option<OpenBundle>),
    /// In another process: only its id and abilities are needed here.
    Elsewhere,
}

/// Opens a bundle under llama.cpp. Only programs that link it have such a function.
pub type OpenBundle =
    fn(PathBuf, Arc<Pool>, LocalLimits) -> BoxFuture<'static, Result<Arc<dyn Conductor>, BoxError>>;

/// A conductor with a notice for the user.
pub struct Chosen {
    /// The conductor.
    pub conductor: Arc<dyn Conductor>,
    /// A message for the user about the choice.
    pub notice: Option<String>,
}

/// The services that conductors need to call remote models.
#[derive(Clone)]
pub struct Callees {
    /// Calls the pool's workers.
    pub vendors: Arc<dyn Vendors>,
    /// Permits calls, in the same way as those of workers. `None` if no conductor calls a model.
    pub limiter: Option<Arc<dyn Limiter>>,
}

/// Builds the conductor. `open_bundle` loads a model with at most `limits`.
pub async fn choose(
    choice: &ConductorChoice,
    pool: &Arc<Pool>,
    callees: &Callees,
    open_bundle: Option<OpenBundle>,
    limits: LocalLimits,
) -> Result<Chosen, ChooseError> {
    prepare(choice, pool, Place::Here(open_bundle))?.start(pool, callees, limits).await
}

/// The conductors of a process with notices for the user.
pub struct ChosenAll {
    /// The conductors.
    pub conductors: Conductors,
    /// Messages for the user about the choices.
    pub notices: Vec<String>,
}

/// Builds the conductors one after the other. Each local model gets its own `limits`.
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
            check_ids(current.conductor.id(), next.conductor.id())?;
            Conductors::with_next(current.conductor, next.conductor, *share)
        }
    };
    let conductors = with_workflows(conductors, choices.workflows.as_ref(), pool)?;
    Ok(ChosenAll { conductors, notices })
}

/// Builds the conductors of a running process again, for a changed pool. A model that is loaded stays loaded and is shared with the
/// `earlier` ones, which were built by the same `choices`.
pub async fn choose_all_again(
    earlier: &Conductors,
    choices: &ConductorChoices,
    pool: &Arc<Pool>,
    callees: &Callees,
    limits: LocalLimits,
) -> Result<Conductors, ChooseError> {
    let again = async |choice: &ConductorChoice, earlier: &Arc<dyn Conductor>| match earlier.for_pool(pool) {
        Some(conductor) => {
            conductor.map_err(|source| ChooseError::Unusable { name: choice.to_string(), source })
        }
        None => Ok(choose(choice, pool, callees, None, limits).await?.conductor),
    };
    let current = again(&choices.current, earlier.current()).await?;
    let conductors = match (&choices.next, earlier.next()) {
        (Some((next, share)), Some(earlier)) => {
            Conductors::with_next(current, again(next, earlier).await?, *share)
        }
        _ => current.into(),
    };
    with_workflows(conductors, choices.workflows.as_ref(), pool)
}

/// Runs record a conductor by its id, so the ids of two conductors must differ.
fn check_ids(current: &str, next: &str) -> Result<(), SameConductor> {
    if current == next { Err(SameConductor { id: next.to_owned() }) } else { Ok(()) }
}

/// The bundle that `auto` selects, or the reason why it selects none.
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
        Err(format!("{DEMO_BUNDLE} has no bundle; start podium in the project's folder"))
    } else {
        Ok(bundle)
    }
}

/// Describes the conductors of other processes. Those that need no model are in this process, too.
pub fn describe_all(choices: &ConductorChoices, pool: &Arc<Pool>) -> Result<ConductorProfiles, ChooseError> {
    // For a bundle only the manifest is read, not the weights.
    let describe = |choice| Ok::<_, ChooseError>(prepare(choice, pool, Place::Elsewhere)?.profile());
    let current = describe(&choices.current)?;
    let profiles = match &choices.next {
        None => current.into(),
        Some((next, share)) => {
            let next = describe(next)?;
            check_ids(current.id(), next.id())?;
            ConductorProfiles::with_next(current, next, *share)
        }
    };
    let Some(file) = &choices.workflows else { return Ok(profiles) };
    let head = workflow_head(file, pool, Planner::Elsewhere(profiles.current().abilities()))?;
    for other in profiles.all() {
        check_ids(other.id(), head.id())?;
    }
    Ok(profiles.with_on_request(Some(ConductorProfile::of(Arc::new(head)))))
}
