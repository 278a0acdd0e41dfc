//! The calls of the limiter to Redis. Each has a time limit.

use std::collections::BTreeSet;
use std::sync::Arc;

use podium_domain::limits::{Drawn, Granted as GrantedCall, Refusal, Settled};
use podium_ports::limiter::RefusalReason;
use redis::{Cmd, ErrorKind, IntoConnectionInfo, Pipeline, RedisError, RedisResult, ServerErrorKind};
use tokio::time::Instant;
use tracing::warn;

use crate::connection::{Connection, InvalidUrl};
use crate::failure::Failure;
use crate::limits::keys::WorkerKeys;
use crate::limits::leases::{Batch, Ended, Leases};
use crate::limits::members::Membership;
use crate::limits::options::{OpenError, Options};
use crate::limits::script::{Acquired, AskedCall, Scripts, Times};

/// Most permits that one script call settles.
const SETTLED_PER_CALL_MAX: usize = 100;

/// The answers to a pipeline, in the order of its commands.
struct Answers {
    /// `None` for a command that Redis rejected.
    values: Vec<Option<u64>>,
    /// Whether Redis did not know the scripts.
    had_to_load: bool,
}

/// The answer to the sign of life of a process.
pub(crate) struct Beat {
    /// `None` if Redis rejected the registration.
    pub(crate) membership: Option<Membership>,
    /// The [`WorkerKeys::alive_key`]s where the process did not count as alive: Redis may have lost its leases there.
    pub(crate) lost: BTreeSet<String>,
}

/// The decision on one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Granted {
        /// The tokens reserved for it.
        reserved: Drawn,
        /// The grant, as the meter counts it.
        granted: GrantedCall,
    },
    Refused(Refusal),
}

/// A connection with the scripts of the limiter.
pub(crate) struct Link {
    connection: Connection,
    scripts: Scripts,
    members_key: String,
    times: Times,
}

impl Link {
    /// Creates the link without connecting.
    pub(crate) fn open(server: impl IntoConnectionInfo, options: &Options) -> Result<Self, OpenError> {
        let connection = Connection::open(server, options.answer_max).map_err(|InvalidUrl| OpenError::Url)?;
        Ok(Self {
            connection,
            scripts: Scripts::new(),
            members_key: format!("{}:members", options.prefix),
            times: Times {
                lease_ttl: options.lease_ttl,
                member_ttl: options.member_ttl,
                kept: options.kept,
                ask_again_max: options.ask_again_max,
            },
        })
    }

    /// The server's host and port, or path, without credentials.
    pub(crate) fn server(&self) -> &str {
        self.connection.server()
    }

    /// Decides on calls of one worker, in this order; returns one answer for each. The time limit counts from `since`. After an
    /// error Redis may have granted any of them.
    pub(crate) async fn acquire(
        &self,
        keys: &WorkerKeys,
        asked: &[AskedCall],
        since: Instant,
    ) -> Result<Vec<Answer>, Failure> {
        let command = self.scripts.acquire_command(keys, self.times, asked);
        let acquired = self.connection.answer(since, self.decide(&command)).await?;
        match acquired.as_chunks() {
            (answers, []) if answers.len() == asked.len() => {
                Ok(answers.iter().copied().map(answer).collect())
            }
            _ => Err(Failure::Refused { code: "an answer of the wrong length".to_owned() }),
        }
    }

    /// Settles ended leases.
    pub(crate) async fn settle(&self, leases: &Leases, batches: &[Batch<Ended>]) -> Result<(), Failure> {
        let mut pipeline = Pipeline::new();
        for batch in batches {
            for ended in batch.leases.chunks(SETTLED_PER_CALL_MAX) {
                let with_id = |Ended { number, settled }: &Ended| (leases.id(*number), *settled);
                let ended: Vec<(String, Settled)> = ended.iter().map(with_id).collect();
                pipeline.add_command(self.scripts.settle_command(&batch.keys, self.times, &ended));
            }
        }
        self.answers(pipeline).await.map(drop)
    }

    /// Names held leases: extends those that Redis knows and restores the others.
    pub(crate) async fn name(&self, leases: &Leases, batches: &[Batch<u64>]) -> Result<(), Failure> {
        let mut pipeline = Pipeline::new();
        for batch in batches {
            let ids: Vec<String> = batch.leases.iter().map(|number| leases.id(*number)).collect();
            for calls in batch.keys.calls() {
                pipeline.add_command(self.scripts.keep_command(&calls, self.times, &ids));
            }
        }
        self.answers(pipeline).await.map(drop)
    }

    /// Tells the scopes of these workers that the process is alive, and registers it among those that share the limits.
    pub(crate) async fn beat(&self, leases: &Leases, holding: &[Arc<WorkerKeys>]) -> Result<Beat, Failure> {
        let Times { lease_ttl, member_ttl, .. } = self.times;
        let instance = leases.instance();
        let alive: BTreeSet<_> = holding.iter().map(|keys| keys.alive_key()).collect();
        let mut pipeline = Pipeline::new();
        for key in &alive {
            pipeline.add_command(self.scripts.alive_command(key, lease_ttl, &instance));
        }
        pipeline.add_command(self.scripts.join_command(&self.members_key, member_ttl, &instance));
        let Answers { values, had_to_load } = self.answers(pipeline).await?;
        // After the scripts were loaded, these are the answers to a repetition.
        let is_lost = |value: &Option<u64>| had_to_load || *value != Some(1);
        let answered = alive.iter().zip(&values);
        let lost = answered.filter(|(_, value)| is_lost(value)).map(|(key, _)| (*key).to_owned()).collect();
        Ok(Beat { membership: values.last().copied().flatten().map(membership), lost })
    }

    /// Runs the pipeline. A command that Redis rejects is logged and has no answer: it must not stop the others.
    async fn answers(&self, mut pipeline: Pipeline) -> Result<Answers, Failure> {
        pipeline.ignore_errors();
        let (sent, had_to_load) = self.connection.answer(Instant::now(), self.send(&pipeline)).await?;
        let mut values = Vec::with_capacity(sent.len());
        for answer in sent {
            values.push(match answer.map_err(|error| Failure::from_redis(&error)) {
                Ok(value) => Some(value),
                Err(failure) if failure.is_unreachable() => return Err(failure),
                Err(failure) => {
                    warn!(error = &failure as &dyn std::error::Error, "Redis rejected an update of leases");
                    None
                }
            });
        }
        Ok(Answers { values, had_to_load })
    }

    /// Unregisters this process from those that share the limits.
    pub(crate) async fn leave(&self, leases: &Leases) -> Result<(), Failure> {
        let mut manager = self.connection.manager();
        let mut command = redis::cmd("ZREM");
        command.arg(&self.members_key).arg(leases.instance());
        self.connection.answer(Instant::now(), async move { command.query_async(&mut manager).await }).await
    }

    /// Drops the connection; the next call makes a new one.
    pub(crate) fn connect_anew(&self) {
        self.connection.reconnect();
    }

    /// Runs the acquiring script. If Redis does not know the script, loads it and runs it again.
    async fn decide(&self, command: &Cmd) -> RedisResult<Vec<u64>> {
        let mut manager = self.connection.manager();
        match command.query_async(&mut manager).await {
            Err(error) if is_unknown_script(&error) => {
                self.scripts.acquire.load_async(&mut manager).await?;
                command.query_async(&mut manager).await
            }
            decided => decided,
        }
    }

    /// Runs the pipeline. If Redis does not know a script, loads all and runs the pipeline again; its commands are idempotent.
    /// Also returns whether it had to load them.
    async fn send(&self, pipeline: &Pipeline) -> RedisResult<(Vec<RedisResult<u64>>, bool)> {
        let mut manager = self.connection.manager();
        let answers: Vec<RedisResult<u64>> = pipeline.query_async(&mut manager).await?;
        if !answers.iter().any(|answer| answer.as_ref().is_err_and(is_unknown_script)) {
            return Ok((answers, false));
        }
        self.scripts.alive.load_async(&mut manager).await?;
        self.scripts.keep.load_async(&mut manager).await?;
        self.scripts.join.load_async(&mut manager).await?;
        self.scripts.settle.load_async(&mut manager).await?;
        Ok((pipeline.query_async(&mut manager).await?, true))
    }
}

fn membership(answer: u64) -> Membership {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Membership { rank: small(answer % 65_536), of: small(answer / 65_536) }
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
        1 => RefusalReason::Busy,
        2 => RefusalReason::Rate,
        3 => RefusalReason::Blocked,
        _ => RefusalReason::Broken,
    };
    Answer::Refused(Refusal { why, after: second_float / 1e3, spread: third_float / 1e3 })
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
