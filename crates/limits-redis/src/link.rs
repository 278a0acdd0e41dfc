//! The connection to Redis. Every call through it ends in time.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use podium_domain::limits::{Drawn, Granted as GrantedCall, Refusal, Settled};
use podium_ports::limiter::Why;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, Cmd, ErrorKind, IntoConnectionInfo, Pipeline, RedisError, RedisResult, ServerErrorKind};
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::failure::Failure;
use crate::leases::{Batch, Ended, Leases};
use crate::members::Look;
use crate::options::{OpenError, Options};
use crate::place::Place;
use crate::script::{Acquired, AskedCall, Scripts, Times};

/// How long the other side may stay silent, to TCP itself, before the connection counts as lost. Without it a server whose
/// machine is gone would be waited for until the system gives up, which takes a quarter of an hour.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Most leases of one script call. Redis does nothing else meanwhile.
const LEASES_PER_CALL_MAX: usize = 500;

/// Most calls that one script call settles.
const SETTLED_PER_CALL_MAX: usize = 100;

/// What a script says to one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Granted {
        /// Tokens that it may take.
        reserved: Drawn,
        /// As what it was granted.
        granted: GrantedCall,
    },
    Refused(Refusal),
}

/// A connection that comes back by itself.
pub(crate) struct Link {
    /// Its host and port, or its path.
    server: String,
    client: Client,
    manager: Mutex<ConnectionManager>,
    scripts: Scripts,
    members_key: String,
    answer_max: Duration,
    times: Times,
}

impl Link {
    /// Connects to nothing yet.
    pub(crate) fn open(server: impl IntoConnectionInfo, options: &Options) -> Result<Self, OpenError> {
        install_tls_provider();
        let address = server.into_connection_info().map_err(|_| OpenError::Url)?;
        let place = address.addr().to_string();
        let keepalive = TcpKeepalive::new().with_time(SILENCE_MAX).with_interval(SILENCE_MAX / 3);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(SILENCE_MAX);
        let client = Client::open(address.set_tcp_settings(tcp)).map_err(|_| OpenError::Url)?;
        let manager = manage(&client, options.answer_max).map_err(|_| OpenError::Url)?;
        Ok(Self {
            server: place,
            client,
            manager: Mutex::new(manager),
            scripts: Scripts::new(),
            members_key: format!("{}:members", options.prefix),
            answer_max: options.answer_max,
            times: Times {
                lease_ttl: options.lease_ttl,
                member_ttl: options.member_ttl,
                kept: options.kept,
                ask_again_max: options.ask_again_max,
            },
        })
    }

    /// Where the server is, without credentials.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Asks for calls of one worker, which are decided in this order: as many answers. Their time began at `since`. After a
    /// failure Redis may have granted any of them.
    pub(crate) async fn acquire(
        &self,
        place: &Place,
        asked: &[AskedCall],
        since: Instant,
    ) -> Result<Vec<Answer>, Failure> {
        let command = self.scripts.acquire_command(place, self.times, asked);
        let acquired = self.timed(since, self.decide(&command)).await?;
        match acquired.as_chunks() {
            (answers, []) if answers.len() == asked.len() => {
                Ok(answers.iter().copied().map(answer).collect())
            }
            _ => Err(Failure::Refused { code: "an answer of another length".to_owned() }),
        }
    }

    /// Extends what is held and settles what ended. With `joins` it also tells Redis that this process shares the limits, and
    /// returns how many do. A key that Redis refuses is logged and skipped: it must not stop the others.
    pub(crate) async fn keep(
        &self,
        leases: &Leases,
        batches: &[Batch],
        joins: bool,
    ) -> Result<Option<Look>, Failure> {
        let mut pipeline = self.pipeline(leases, batches);
        if joins {
            let Times { member_ttl, .. } = self.times;
            pipeline.add_command(self.scripts.join_command(
                &self.members_key,
                member_ttl,
                &leases.instance(),
            ));
        }
        pipeline.ignore_errors();
        let mut last = None;
        for answer in self.timed(Instant::now(), self.send(&pipeline)).await? {
            match answer.map_err(|error| Failure::from_redis(&error)) {
                Ok(answer) => last = Some(answer),
                Err(failure) if failure.is_away() => return Err(failure),
                Err(failure) => {
                    last = None;
                    warn!(error = &failure as &dyn std::error::Error, "Redis refused to keep leases");
                }
            }
        }
        Ok(last.filter(|_| joins).map(look))
    }

    /// Tells Redis that this process no longer shares the limits.
    pub(crate) async fn leave(&self, leases: &Leases) -> Result<(), Failure> {
        let mut manager = self.manager();
        let mut command = redis::cmd("ZREM");
        command.arg(&self.members_key).arg(leases.instance());
        self.timed(Instant::now(), async move { command.query_async(&mut manager).await }).await
    }

    /// Gives up the connection and makes another one at the next call.
    pub(crate) fn connect_anew(&self) {
        if let Ok(manager) = manage(&self.client, self.answer_max) {
            *self.manager.lock().unwrap_or_else(PoisonError::into_inner) = manager;
        }
    }

    fn pipeline(&self, leases: &Leases, batches: &[Batch]) -> Pipeline {
        let ids =
            |numbers: &[u64]| -> Vec<String> { numbers.iter().map(|number| leases.id(*number)).collect() };
        let Times { lease_ttl, kept, .. } = self.times;
        let mut pipeline = Pipeline::new();
        for batch in batches {
            for held in batch.held.chunks(LEASES_PER_CALL_MAX) {
                for calls in batch.place.calls() {
                    pipeline.add_command(self.scripts.keep_command(&calls, lease_ttl, &ids(held)));
                }
            }
            for ended in batch.ended.chunks(SETTLED_PER_CALL_MAX) {
                let with_id = |Ended { number, settled }: &Ended| (leases.id(*number), *settled);
                let ended: Vec<(String, Settled)> = ended.iter().map(with_id).collect();
                pipeline.add_command(self.scripts.settle_command(&batch.place, kept, &ended));
            }
        }
        pipeline
    }

    /// Runs the acquiring script; once more with it loaded if Redis did not know it.
    async fn decide(&self, command: &Cmd) -> RedisResult<Vec<u64>> {
        let mut manager = self.manager();
        match command.query_async(&mut manager).await {
            Err(error) if is_unknown_script(&error) => {
                self.scripts.acquire.load_async(&mut manager).await?;
                command.query_async(&mut manager).await
            }
            decided => decided,
        }
    }

    /// Runs the pipeline; once more with the script loaded if Redis did not know it. Doing so twice does no harm.
    async fn send(&self, pipeline: &Pipeline) -> RedisResult<Vec<RedisResult<u64>>> {
        let mut manager = self.manager();
        let answers: Vec<RedisResult<u64>> = pipeline.query_async(&mut manager).await?;
        if !answers.iter().any(|answer| answer.as_ref().is_err_and(is_unknown_script)) {
            return Ok(answers);
        }
        self.scripts.keep.load_async(&mut manager).await?;
        self.scripts.join.load_async(&mut manager).await?;
        self.scripts.settle.load_async(&mut manager).await?;
        pipeline.query_async(&mut manager).await
    }

    async fn timed<T>(
        &self,
        since: Instant,
        call: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, Failure> {
        let answer_max = self.answer_max;
        match timeout_at(since + answer_max, call).await {
            Ok(answer) => answer.map_err(|error| Failure::from_redis(&error)),
            Err(_) => Err(Failure::Late { answer_max }),
        }
    }

    fn manager(&self) -> ConnectionManager {
        self.manager.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn look(answer: u64) -> Look {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Look { rank: small(answer % 65_536), of: small(answer / 65_536) }
}

fn answer([granted, first, second, third, number]: Acquired) -> Answer {
    #[expect(clippy::cast_precision_loss, reason = "tokens and microseconds are far below 2^53")]
    let (first_float, second_float, third_float) = (first as f64, second as f64, third as f64);
    if granted == 1 {
        let reserved = Drawn { input: first_float, output: second_float };
        let granted = GrantedCall { probes: third == 1, number };
        return Answer::Granted { reserved, granted };
    }
    let why = match first {
        1 => Why::Busy,
        2 => Why::Rate,
        3 => Why::Blocked,
        _ => Why::Broken,
    };
    Answer::Refused(Refusal { why, after: second_float / 1e3, spread: third_float / 1e3 })
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// A manager that tries to connect once for each call: whoever calls knows when to try again.
fn manage(client: &Client, answer_max: Duration) -> RedisResult<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(answer_max))
        .set_response_timeout(Some(answer_max));
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

/// Makes ring the process's TLS provider, unless the process chose one already.
fn install_tls_provider() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    });
}
