//! An engine behind both servers, and a client that sends bytes as a test writes them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_domain::cells::{CellId, Cells};
use podium_domain::ids::{RunId, TenantId};
use podium_domain::policy::FailedStep;
use podium_domain::pool::Pool;
use podium_domain::run::Run;
use podium_domain::time::Timestamp;
use podium_engine::{CallParts, Engine, Options, Parts, Work};
use podium_memory::{LiveOptions, MemoryLimiter, MemoryLive, MemoryQueue, QueueOptions};
use podium_ports::accounts::{Accounts, KeyRecord};
use podium_ports::clock::Clock;
use podium_ports::conductor::{Abilities, Conductor, Conductors};
use podium_ports::conductor_profile::ConductorProfile;
use podium_ports::server::{ServerLimits, TlsFiles};
use podium_ports::store::{RunCatalog as _, RunFilter};
use podium_server::{ApiKey, Authenticator, CellRouter, CellTls, Listeners, Servers};
use podium_store_sqlite::Store;
use podium_testkit::{Answer, ScriptedConductor, ScriptedVendor, SeededIds, TestClock, a_pool, plan_of};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// Longest wait for anything in a test. The machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Limits that are short enough to wait for.
pub(crate) fn short() -> ServerLimits {
    let short = Duration::from_millis(200);
    ServerLimits { head: short, body: short, idle: short, stall: short, ..ServerLimits::default() }
}

/// A clock that a test can set forward although time is not paused.
#[derive(Default)]
struct ShiftedClock {
    clock: TestClock,
    shift: Mutex<Duration>,
}

#[async_trait]
impl Clock for ShiftedClock {
    fn now(&self) -> Timestamp {
        self.clock.now().after(*self.shift.lock().unwrap())
    }

    async fn sleep(&self, span: Duration) {
        self.clock.sleep(span).await;
    }
}

pub(crate) struct TestServer {
    pub(crate) engine: Engine,
    pub(crate) vendor: ScriptedVendor,
    pub(crate) conductor: Arc<ScriptedConductor>,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    /// The listener for probes.
    pub(crate) health: SocketAddr,
    clock: Arc<ShiftedClock>,
    store: Arc<Store>,
    servers: Option<Servers>,
    _work: JoinSet<()>,
    // Dropped last: the store's folder.
    _folder: TempDir,
}

impl TestServer {
    /// Servers that need no key.
    pub(crate) async fn open(limits: ServerLimits) -> Self {
        Self::with(limits, false, ScriptedConductor::new(), a_pool(), None, None, None).await
    }

    /// Servers that need no key, over TLS.
    pub(crate) async fn encrypted(limits: ServerLimits, files: TlsFiles) -> Self {
        Self::with(limits, false, ScriptedConductor::new(), a_pool(), Some(files), None, None).await
    }

    /// A gateway of cell 0 that forwards everything to `other`, the gateway of cell 1, over TLS.
    pub(crate) async fn in_front_of(other: &Self, tls: &CellTls) -> Self {
        let ports = [other.http, other.grpc].map(|address| address.port());
        let cells = format!(
            "schema = 1\n[[cells]]\nnumber = 0\nweight = 0\nhttp = [\"http://localhost:1\"]\ngrpc = [\"http://localhost:1\"]\n\
             [[cells]]\nnumber = 1\nhttp = [\"https://localhost:{}\"]\ngrpc = [\"https://localhost:{}\"]\n",
            ports[0], ports[1]
        );
        let router = CellRouter::new(CellId::default(), Cells::parse(&cells).unwrap(), tls).unwrap();
        Self::with(
            ServerLimits::default(),
            false,
            ScriptedConductor::new(),
            a_pool(),
            None,
            Some(router),
            None,
        )
        .await
    }

    /// A server with a conductor that plans anew after a step has failed.
    pub(crate) async fn that_replans() -> Self {
        let abilities = Abilities { steps_max: 5, rounds_max: 1, failed_step: FailedStep::Replan };
        let conductor = ScriptedConductor::new().able_to(abilities);
        Self::with(ServerLimits::default(), false, conductor, a_pool(), None, None, None).await
    }

    /// Servers that offer `podium-max`: two workers, and a third one if their answers differ.
    pub(crate) async fn with_max() -> Self {
        let max = ScriptedConductor::new().called("max-1");
        let steps = [("quick", "why?", &[][..]), ("careful", "why?", &[]), ("checker", "why?", &[])];
        max.otherwise(plan_of(&steps).with_conditions(&[vec![], vec![], vec![0, 1]]).unwrap());
        Self::with(ServerLimits::default(), false, ScriptedConductor::new(), a_pool(), None, None, Some(max))
            .await
    }

    /// Servers that need a key.
    pub(crate) async fn locked(limits: ServerLimits) -> Self {
        Self::with(limits, true, ScriptedConductor::new(), a_pool(), None, None, None).await
    }

    /// Servers with one worker, `checker`, which can call tools.
    pub(crate) async fn with_tools() -> Self {
        let pool = Pool::parse(
            r#"
            schema = 1
            name = "tools"
            version = "1"
            vendors = [{ id = "v", api = "openai-chat", base_url = "http://127.0.0.1:1/v1" }]
            [[workers]]
            id = "checker"
            vendor = "v"
            model = "m"
            description = "calls tools"
            features = ["tools"]
            context_tokens = 32768
            usd_per_million_tokens = { input = 1.0, output = 1.0 }
            "#,
        );
        Self::with(ServerLimits::default(), false, ScriptedConductor::new(), pool.unwrap(), None, None, None)
            .await
    }

    async fn with(
        limits: ServerLimits,
        keys_required: bool,
        conductor: ScriptedConductor,
        pool: Pool,
        tls: Option<TlsFiles>,
        router: Option<CellRouter>,
        max: Option<ScriptedConductor>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("podium.db");
        let store = Arc::new(Store::open(&path, podium_store_sqlite::Options::default()).await.unwrap());
        let shifted = Arc::new(ShiftedClock::default());
        let clock: Arc<dyn Clock> = shifted.clone();
        let (vendor, conductor) = (ScriptedVendor::new(), Arc::new(conductor));
        vendor.otherwise(Answer::text("blue light scatters"));
        conductor.otherwise(plan_of(&[("checker", "answer it", &[])]));
        let conductors: Conductors = (conductor.clone() as Arc<dyn Conductor>).into();
        let conductors = conductors.with_on_request(max.map(|max| Arc::new(max) as Arc<dyn Conductor>));
        let calls = CallParts {
            limiter: Arc::new(MemoryLimiter::new(clock.clone())),
            cache: None,
            vendors: Arc::new(vendor.clone()),
        };
        let parts = Parts {
            conductors: ConductorProfile::of_all(&conductors),
            store: store.clone(),
            queue: Arc::new(MemoryQueue::new(clock.clone(), QueueOptions::default())),
            live: Arc::new(MemoryLive::new(LiveOptions::default())),
            clock: clock.clone(),
            ids: Arc::new(SeededIds::new(7)),
            pool: Arc::new(pool),
            traces: None,
        };
        let engine = Engine::new(parts, Options::default());
        let mut work = JoinSet::new();
        let at_work = engine.clone();
        let work_parts = Work { plan: Some(conductors), execute: Some(calls) };
        work.spawn(async move { at_work.work(work_parts, CancellationToken::new()).await.unwrap() });
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = Listeners::bind(any, any).await.unwrap().with_tls(tls).unwrap();
        let listeners = listeners.with_health(Some(any), Router::new()).await.unwrap().in_cells(router);
        let (http, grpc) = listeners.addresses().unwrap();
        let health = listeners.health_address().unwrap().unwrap();
        let access = Authenticator::new(store.clone(), clock, keys_required);
        let servers = listeners.open(&engine, &access, store.clone(), limits, 0);
        let clock = shifted;
        Self {
            engine,
            vendor,
            conductor,
            http,
            grpc,
            health,
            clock,
            store,
            servers: Some(servers),
            _work: work,
            _folder: folder,
        }
    }

    /// A key of a tenant.
    pub(crate) async fn key(&self, tenant: &str, seed: u8) -> String {
        let key = ApiKey::new([seed; 32]);
        let record = KeyRecord {
            id: key.id().unwrap(),
            tenant: TenantId::new(tenant).unwrap(),
            created_at: TestClock::START,
            revoked_at: None,
        };
        self.store.add_key(&record, &key.hash()).await.unwrap();
        key.reveal().to_owned()
    }

    /// Revokes the key of [`Self::key`], and lets the time pass in which servers do not notice.
    pub(crate) async fn revoke(&self, tenant: &str, seed: u8) {
        let (tenant, id) = (TenantId::new(tenant).unwrap(), ApiKey::new([seed; 32]).id().unwrap());
        assert!(self.store.revoke_key(&tenant, &id, TestClock::START).await.unwrap());
        *self.clock.shift.lock().unwrap() += Duration::from_secs(11);
    }

    /// Closes the servers.
    pub(crate) fn close(&mut self, delay: Duration) -> impl Future<Output = ()> + Send + 'static {
        self.servers.take().unwrap().close(delay, PATIENCE)
    }

    /// Removes all runs that ended a day before `now`.
    pub(crate) async fn remove_all(&self, now: Timestamp) {
        self.store.remove_ended(now, Duration::from_hours(24), 100).await.unwrap();
    }

    /// A connection to the HTTP server.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.http).await.unwrap()
    }

    /// Sends a request on a connection of its own and reads the whole answer. `headers` are lines that end in `\r\n`.
    pub(crate) async fn send(&self, method_and_path: &str, headers: &str, body: &str) -> Reply {
        Self::send_to(self.http, method_and_path, headers, body).await
    }

    /// The same, to another listener.
    pub(crate) async fn send_to(
        address: SocketAddr,
        method_and_path: &str,
        headers: &str,
        body: &str,
    ) -> Reply {
        let mut connection = TcpStream::connect(address).await.unwrap();
        let request = request(method_and_path, &format!("connection: close\r\n{headers}"), body);
        connection.write_all(request.as_bytes()).await.unwrap();
        Reply::read(&mut connection).await
    }

    /// A gRPC client.
    pub(crate) async fn client(&self) -> PodiumServiceClient<Channel> {
        PodiumServiceClient::connect(format!("http://{}", self.grpc)).await.unwrap()
    }

    /// Waits for the only run.
    pub(crate) async fn only_run(&self) -> RunId {
        within(async {
            loop {
                let runs = self
                    .engine
                    .list(&TenantId::new("local").unwrap(), &RunFilter::default(), None, 2)
                    .await
                    .unwrap();
                match runs.as_slice() {
                    [run] => return run.id,
                    [] => tokio::task::yield_now().await,
                    more => panic!("there are {} runs", more.len()),
                }
            }
        })
        .await
    }

    /// Waits for the end of a run.
    pub(crate) async fn ended(&self, id: RunId) -> Arc<Run> {
        let mut ending = self.engine.ending(id);
        within(ending.run()).await.unwrap()
    }
}

/// The bytes of a request.
pub(crate) fn request(method_and_path: &str, headers: &str, body: &str) -> String {
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    format!("{method_and_path} HTTP/1.1\r\nhost: localhost\r\n{headers}{length}\r\n{body}")
}

/// A completion's body.
pub(crate) fn question(text: &str, stream: bool) -> String {
    let messages = serde_json::json!([{"role": "user", "content": text}]);
    serde_json::json!({"model": "podium-ultra", "messages": messages, "stream": stream}).to_string()
}

/// The request of a run over gRPC.
pub(crate) fn asking(text: &str) -> v1::CreateRunRequest {
    let message = v1::Message { role: v1::Role::User.into(), text: text.to_owned(), ..Default::default() };
    v1::CreateRunRequest { messages: vec![message], ..Default::default() }
}

pub(crate) const COMPLETIONS: &str = "POST /v1/chat/completions";

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    /// Reads until the server closes the connection.
    pub(crate) async fn read(connection: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A server that refuses a body may reset the connection behind its answer.
        let _ = within(connection.read_to_end(&mut bytes)).await;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The code of the error.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim)
    }
}

/// Waits until the server closes a silent connection.
pub(crate) async fn is_closed(mut connection: TcpStream) {
    let mut rest = Vec::new();
    let _ = within(connection.read_to_end(&mut rest)).await;
}

/// Reads until the server has sent `text`.
pub(crate) async fn until(connection: &mut TcpStream, text: &str) -> String {
    let mut seen = String::new();
    within(async {
        while !seen.contains(text) {
            let mut buffer = [0; 1024];
            let read = connection.read(&mut buffer).await.unwrap();
            assert!(read > 0, "it ended without {text:?}: {seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    })
    .await;
    seen
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it took too long")
}
