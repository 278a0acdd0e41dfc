//! Clients in a closed loop. Each has its own connection, asks, reads the whole answer, and asks again.
//!
//! They run in processes of their own, as many as the limit of open files requires: `podium-load-clients` reads an [`Order`] as the
//! first line of its input, and answers each further line with what has ended since the last one, as a line of JSON.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use podium_bench_measure::{Connection, open};
use podium_ports::clock::Clock as _;
use podium_setup::SystemClock;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::tenants::Tenants;
use crate::work::{Durations, Work};

/// Longest time for an answer: the deadline of runs.
const ANSWER_MAX: Duration = Duration::from_mins(10);
/// One run in this many has an idempotency key.
const IDEMPOTENT_EVERY: u64 = 5;
/// Most errors that are kept.
const ERRORS_MAX: usize = 8;

/// The name under which this binary is a process of clients.
pub(crate) const CLIENTS: &str = "podium-load-clients";
/// Most clients of one process: each has a connection, and a process may open 20,000 files on the smallest machine measured.
const CLIENTS_MAX: usize = 5_000;

/// The instructions for a process of clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) gateways: Vec<SocketAddr>,
    pub(crate) tenants: Tenants,
    pub(crate) durations: Durations,
    /// Clients of all processes.
    pub(crate) clients: u64,
    /// The time in which all clients start, one after the other.
    pub(crate) start: Duration,
    /// Share of the requests whose answers are streamed, from 0 to 1.
    pub(crate) streamed: f64,
    /// Processes, and the number of this one. Its clients and its runs are those whose number has this remainder.
    pub(crate) processes: u64,
    pub(crate) process: u64,
}

/// Runs that ended since the last report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Runs that clients wait for now.
    pub(crate) under_way: u64,
    /// Runs with the right answer.
    pub(crate) runs: u64,
    /// The steps of these runs.
    pub(crate) steps: u64,
    /// Rejected, failed or wrong runs.
    pub(crate) failed: u64,
    /// The first few reasons.
    pub(crate) errors: Vec<String>,
    /// The overhead of each run: milliseconds beyond the time of its models, divided by the steps on its longest path and its plan.
    pub(crate) added_ms: Vec<f64>,
}

impl Ended {
    fn add(&mut self, other: Self) {
        self.under_way += other.under_way;
        self.runs += other.runs;
        self.steps += other.steps;
        self.failed += other.failed;
        self.errors.extend(other.errors);
        self.added_ms.extend(other.added_ms);
    }
}

/// The processes of the clients. Dropping the value ends them.
pub(crate) struct Processes(Vec<Process>);

struct Process {
    child: Child,
    input: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
}

impl Processes {
    /// Starts as many processes as `order.clients` need. `program` is this binary under the name [`CLIENTS`].
    pub(crate) async fn start(program: &Path, order: Order) -> Result<Self> {
        let processes = order.clients.div_ceil(CLIENTS_MAX.try_into()?);
        let mut started = Vec::new();
        for process in 0..processes {
            started.push(Process::start(program, &Order { processes, process, ..order.clone() }).await?);
        }
        Ok(Self(started))
    }

    /// The runs that ended since the last call.
    pub(crate) async fn take(&mut self) -> Result<Ended> {
        let mut ended = Ended::default();
        for process in &mut self.0 {
            ended.add(process.take().await?);
        }
        Ok(ended)
    }

    /// Kills the processes, whose runs go on.
    pub(crate) async fn stop(mut self) -> Result<()> {
        for process in &mut self.0 {
            process.child.kill().await?;
        }
        Ok(())
    }
}

impl Process {
    async fn start(program: &Path, order: &Order) -> Result<Self> {
        let mut command = Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let input = child.stdin.take().context("the clients have no input")?;
        let output = child.stdout.take().context("the clients have no output")?;
        let mut process = Self { child, input, reports: BufReader::new(output).lines() };
        process.write(serde_json::to_string(order)?).await?;
        Ok(process)
    }

    async fn take(&mut self) -> Result<Ended> {
        self.write("report".to_owned()).await?;
        let report = self.reports.next_line().await?.context("a process of clients has ended")?;
        Ok(serde_json::from_str(&report)?)
    }

    async fn write(&mut self, line: String) -> Result<()> {
        self.input.write_all((line + "\n").as_bytes()).await.context("writing to a process of clients")
    }
}

/// Runs a process of clients.
pub(crate) fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{CLIENTS}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve() -> Result<()> {
    crate::raise_open_files()?;
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let order: Order = serde_json::from_str(&input.next_line().await?.context("there is no order")?)?;
    let load = Arc::new(Load { order, outcomes: Outcomes::default() });
    let Order { clients, process, processes, start, .. } = load.order;
    let mut tasks = JoinSet::new();
    for number in (process..clients).step_by(processes.try_into()?) {
        let share = f64::from(u32::try_from(number)?) / f64::from(u32::try_from(clients)?);
        tasks.spawn(Arc::clone(&load).client(number, start.mul_f64(share)));
    }
    let mut output = tokio::io::stdout();
    while input.next_line().await?.is_some() {
        let report = serde_json::to_string(&load.outcomes.take())? + "\n";
        output.write_all(report.as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

/// The outcomes of the runs so far.
#[derive(Debug, Default)]
struct Outcomes {
    under_way: AtomicU64,
    next: AtomicU64,
    ended: Mutex<Ended>,
}

impl Outcomes {
    fn take(&self) -> Ended {
        let ended = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        Ended { under_way: self.under_way.load(Ordering::Relaxed), ..ended }
    }

    fn ended(&self, work: &Work, took: Duration, outcome: Result<()>) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) => {
                ended.runs += 1;
                ended.steps += u64::try_from(work.steps.len()).unwrap_or_default();
                let added_ms = (took.as_secs_f64() - work.takes().as_secs_f64()) * 1e3;
                ended.added_ms.push(added_ms / f64::from(work.depth() + 1));
            }
            Err(error) => {
                ended.failed += 1;
                if ended.errors.len() < ERRORS_MAX {
                    ended.errors.push(format!("{error:#}"));
                }
            }
        }
    }
}

/// The state that all clients of a process share.
struct Load {
    order: Order,
    outcomes: Outcomes,
}

impl Load {
    /// Runs a client for ever. It starts after `delay`.
    async fn client(self: Arc<Self>, number: u64, delay: Duration) {
        SystemClock.sleep(delay).await;
        let Order { gateways, durations, process, processes, .. } = &self.order;
        let gateway = gateways[usize::try_from(number).unwrap_or_default() % gateways.len()];
        let mut dice = StdRng::seed_from_u64(number);
        let (mut drivers, mut connection) = (JoinSet::new(), None);
        loop {
            let run = self.outcomes.next.fetch_add(1, Ordering::Relaxed) * processes + process;
            let work = Work::of(run, durations);
            let mut connected = match connection.take() {
                Some(connected) => connected,
                None => match open(gateway, &mut drivers).await {
                    Ok(connected) => connected,
                    Err(error) => {
                        self.outcomes.ended(&work, Duration::ZERO, Err(error));
                        SystemClock.sleep(Duration::from_secs(1)).await;
                        continue;
                    }
                },
            };
            self.outcomes.under_way.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            let asked = timeout(ANSWER_MAX, self.ask(&mut connected, &work, &mut dice)).await;
            self.outcomes.under_way.fetch_sub(1, Ordering::Relaxed);
            let outcome = asked.context("the answer is late").flatten();
            if outcome.is_ok() {
                connection = Some(connected);
            }
            self.outcomes.ended(&work, begun.elapsed(), outcome);
        }
    }

    async fn ask(&self, connection: &mut Connection, work: &Work, dice: &mut StdRng) -> Result<()> {
        connection.ready().await?;
        let body = json!({
            "model": "podium-ultra",
            "messages": [{ "role": "user", "content": work.question() }],
            "stream": dice.random_bool(self.order.streamed),
        });
        let key = self.order.tenants.next_key(dice)?;
        let mut request = Request::post("/v1/chat/completions")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {key}"));
        if dice.random_range(0..IDEMPOTENT_EVERY) == 0 {
            request = request.header("idempotency-key", format!("key-{}", dice.random::<u64>()));
        }
        let response = connection.send_request(request.body(Full::from(body.to_string()))?).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        ensure!(status.is_success(), "the gateway answered {status}: {text}");
        let end = work.end_of_answer();
        ensure!(text.contains(&end), "the answer lacks `{end}`: {text}");
        Ok(())
    }
}
