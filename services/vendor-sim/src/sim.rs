//! The simulator as a component: options, start, running server, stop.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use hyper::service::{Service as _, service_fn};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use podium_demo_workers::{Asked as AskedModel, Model, errors::Errors};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use crate::{
    behaviour::{Behaviour, BehaviourError, CallScript},
    calls::{Call, CallLog},
    http::{
        self, ResetAtEnd,
        quota::{AccountLimit, AccountUse},
    },
    recorded::{self, Recorded},
    script::{Asked, ScriptedReply},
};

/// Most concurrent connections; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 4_096;

/// Options of a simulator.
#[derive(Clone)]
pub struct Options {
    /// Address to listen on; port 0 selects a free one.
    pub listen: SocketAddr,
    /// Whether other machines may reach it.
    pub exposure: Exposure,
    /// Seed of all random draws: latencies, random faults, the generalist's errors.
    pub seed: u64,
    /// The key that callers must send; `None` accepts every call.
    pub api_key: Option<String>,
    /// The probability, 0 to 1, that one operation of the generalist is right.
    pub generalist_accuracy: f64,
    /// The behaviour of every model at the start and after a reset.
    pub behaviour: Behaviour,
    /// The models that behave in another way at the start and after a reset.
    pub behaviours: BTreeMap<String, Behaviour>,
    /// Rate limit of the account, which all callers share.
    pub limit: AccountLimit,
    /// The recorded answers.
    pub recorded: Arc<Recorded>,
}

impl Options {
    /// A free loopback port, no key, no delays, and the generalist's default accuracy.
    pub fn loopback(seed: u64) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            exposure: Exposure::LoopbackOnly,
            seed,
            api_key: None,
            generalist_accuracy: GENERALIST_ACCURACY,
            behaviour: Behaviour::default(),
            behaviours: BTreeMap::new(),
            limit: AccountLimit::default(),
            recorded: Arc::default(),
        }
    }
}

/// The generalist's default accuracy for questions with one operation.
pub const GENERALIST_ACCURACY: f64 = 0.65;

/// Which machines may reach the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Only this machine; other addresses are rejected.
    LoopbackOnly,
    /// All machines that can reach the address, including its control routes.
    Anywhere,
}

/// Why the simulator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is reachable from other machines, which is not allowed.
    #[error("listen: `{0}` is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The accuracy is not a probability.
    #[error("generalist_accuracy: {0} is outside 0 to 1")]
    Accuracy(f64),
    /// The initial behaviour is outside the limits.
    #[error("behaviour is invalid")]
    Behaviour(#[source] BehaviourError),
    /// The port is in use or not permitted.
    #[error("cannot listen on `{address}`")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}

/// The simulator. It is stateless; see [`Running`].
#[derive(Debug, Clone, Copy)]
pub struct VendorSim;

impl VendorSim {
    /// Listens and serves until [`Running::stop`], or until the returned value is dropped.
    pub async fn start(options: Options) -> Result<Running, StartError> {
        let address = options.listen;
        if options.exposure == Exposure::LoopbackOnly && !address.ip().is_loopback() {
            return Err(StartError::NotLoopback(address));
        }
        if !(0.0..=1.0).contains(&options.generalist_accuracy) {
            return Err(StartError::Accuracy(options.generalist_accuracy));
        }
        options.behaviour.check().map_err(StartError::Behaviour)?;
        for (model, behaviour) in &options.behaviours {
            named(model).and_then(|_| behaviour.check()).map_err(StartError::Behaviour)?;
        }
        let listen_error = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen_error)?;
        let bound = listener.local_addr().map_err(listen_error)?;
        let shared = Arc::new(Shared::new(options));
        let (stop, stopped) = watch::channel(Stage::Serving);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Arc::clone(&shared), stopped));
        Ok(Running { address: bound, shared, stop, tasks })
    }
}

/// A running simulator.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<Stage>,
    tasks: JoinSet<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    Stopping,
}

impl Running {
    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for an OpenAI client.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The calls received since the start or the last reset, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls.snapshot()
    }

    /// The account's use since the start or the last reset; zero if it has no limit.
    pub fn account_use(&self) -> AccountUse {
        self.shared.quota().map(|(_, quota)| quota.in_all).unwrap_or_default()
    }

    /// Waits until the calls meet a condition.
    pub async fn wait_for(&self, mut condition: impl FnMut(&[Call]) -> bool) -> Vec<Call> {
        let mut changes = self.shared.calls.changes();
        loop {
            changes.borrow_and_update();
            let calls = self.calls();
            // The sender is part of `self`, so waiting cannot fail before this returns.
            if condition(&calls) || changes.changed().await.is_err() {
                return calls;
            }
        }
    }

    /// The model's behaviour with its remaining scripted faults.
    pub fn behaviour(&self, model: &str) -> Result<Behaviour, BehaviourError> {
        self.shared.behaviour(named(model)?)
    }

    /// Sets the model's behaviour from the next call on.
    pub fn set_behaviour(&self, model: &str, behaviour: Behaviour) -> Result<(), BehaviourError> {
        self.shared.set_behaviour(named(model)?, behaviour)
    }

    /// Clears the log and restores every model's initial behaviour.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Closes the listener and every connection, finished or not, like a killed process.
    pub async fn stop(mut self) {
        self.stop.send_replace(Stage::Stopping);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// The model with this name, or an error that names it.
pub(crate) fn named(model: &str) -> Result<Model, BehaviourError> {
    Model::named(model).ok_or_else(|| BehaviourError::UnknownModel(model.to_owned()))
}

/// The state that all connections share.
pub(crate) struct Shared {
    options: Options,
    pub(crate) calls: Arc<CallLog>,
    pub(crate) prompts: Mutex<http::cache::PromptCache>,
    quota: Mutex<http::quota::Quota>,
    behaviours: Mutex<HashMap<Model, Behaviour>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is omitted on purpose.
        formatter.debug_struct("Shared").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Shared {
    fn new(options: Options) -> Self {
        let behaviours = Self::first_behaviours(&options);
        Self {
            options,
            calls: Arc::new(CallLog::new()),
            prompts: Mutex::default(),
            quota: Mutex::default(),
            behaviours: Mutex::new(behaviours),
        }
    }

    fn first_behaviours(options: &Options) -> HashMap<Model, Behaviour> {
        let behaviour = |model: Model| options.behaviours.get(model.id()).unwrap_or(&options.behaviour);
        Model::ALL.into_iter().map(|model| (model, behaviour(model).clone())).collect()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.options.seed
    }

    pub(crate) fn api_key(&self) -> Option<&str> {
        self.options.api_key.as_deref()
    }

    /// The account's limit and its use; `None` without a limit.
    pub(crate) fn quota(&self) -> Option<(AccountLimit, MutexGuard<'_, http::quota::Quota>)> {
        let limit = self.options.limit;
        let quota = || self.quota.lock().unwrap_or_else(PoisonError::into_inner);
        (limit != AccountLimit::default()).then(|| (limit, quota()))
    }

    /// The errors of a model in a call. A model whose name states no accuracy makes none, but for the generalist.
    pub(crate) fn errors(&self, asked: AskedModel, call: Option<u64>) -> Errors {
        let accuracy = asked.accuracy.unwrap_or(match asked.model {
            Model::Generalist => self.options.generalist_accuracy,
            _ => 1.0,
        });
        Errors { seed: self.options.seed, accuracy, call }
    }

    /// The model that a request names; `None` if it is unknown.
    pub(crate) fn asked(&self, name: &str) -> Option<AskedModel> {
        match name.strip_prefix(recorded::PREFIX) {
            Some(of) => {
                self.recorded().has_model(of).then_some(AskedModel { model: Model::Recorded, accuracy: None })
            }
            None => AskedModel::named(name),
        }
    }

    pub(crate) fn recorded(&self) -> &Recorded {
        &self.options.recorded
    }

    pub(crate) fn behaviour(&self, model: Model) -> Result<Behaviour, BehaviourError> {
        let found = self.behaviours().get(&model).cloned();
        found.ok_or_else(|| BehaviourError::UnknownModel(model.id().to_owned()))
    }

    pub(crate) fn set_behaviour(&self, model: Model, behaviour: Behaviour) -> Result<(), BehaviourError> {
        behaviour.check()?;
        self.behaviours().insert(model, behaviour);
        Ok(())
    }

    /// The model's scripted reply to a request, if it has one.
    pub(crate) fn reply(&self, model: Model, asked: &Asked<'_>) -> Option<ScriptedReply> {
        let behaviours = self.behaviours();
        behaviours.get(&model)?.replies.iter().find(|reply| reply.is_for(asked)).cloned()
    }

    /// The script of the call; counts down the model's scripted faults.
    pub(crate) fn script(&self, model: Model, sequence: u64) -> CallScript {
        self.behaviours().entry(model).or_default().next_call(self.options.seed, sequence)
    }

    pub(crate) fn reset(&self) {
        self.calls.reset();
        *self.behaviours() = Self::first_behaviours(&self.options);
        *self.prompts.lock().unwrap_or_else(PoisonError::into_inner) = http::cache::PromptCache::default();
        *self.quota.lock().unwrap_or_else(PoisonError::into_inner) = http::quota::Quota::default();
    }

    fn behaviours(&self) -> MutexGuard<'_, HashMap<Model, Behaviour>> {
        self.behaviours.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts connections until it is stopped; then all of them are dropped.
async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<Stage>) {
    let router = http::router(shared);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stage| *stage == Stage::Stopping) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                // A connection that fails while it is accepted does not stop the listener.
                if let Ok((stream, _)) = accepted {
                    let _ = stream.set_nodelay(true);
                    connections.spawn(serve_connection(stream, router.clone()));
                }
            }
        }
    }
    connections.shutdown().await;
}

async fn serve_connection(stream: TcpStream, router: axum::Router) {
    let is_to_be_reset = Arc::new(AtomicBool::new(false));
    let marked = Arc::clone(&is_to_be_reset);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        let (answering, marked) = (router.call(request), Arc::clone(&marked));
        Box::pin(async move {
            let response = answering.await?;
            if response.extensions().get::<ResetAtEnd>().is_some() {
                marked.store(true, Ordering::Relaxed);
            }
            Ok::<_, Infallible>(response)
        })
    });
    let mut connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // Broken connections are part of the simulation; their calls are logged as abandoned.
    let _ = std::future::poll_fn(|context| connection.poll_without_shutdown(context)).await;
    let stream = connection.into_parts().io.into_inner();
    if is_to_be_reset.load(Ordering::Relaxed) {
        // Without lingering, closing a connection resets it.
        let _ = stream.set_zero_linger();
    }
}
