//! `podium rollout`: carries out completions from JSON lines or over gRPC, and prints or sends their rewards.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use podium_domain::policy::{DEADLINE_MAX, STEPS_MAX};
use podium_setup::Signals;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::SetupArgs;
use super::output::print_line;
use crate::assemble::Embedded;
use crate::error::Error;
use crate::pool::Pace;
use crate::rollout::{Outcome, Rollout, Rollouts, Terms, bind, serve};
use crate::terminal;

/// Most bytes of an input line.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// Most rollouts in flight.
const IN_FLIGHT_MAX: i64 = 16_384;

#[derive(Debug, Args)]
pub(super) struct RolloutArgs {
    /// The completions: one JSON object per line, with `id`, `question`, `answer`, `completion`, and perhaps `grader`, `seed` and
    /// `workers`. A dash or nothing is standard input. Outcomes are printed as they come, in any order.
    #[arg(value_name = "FILE", conflicts_with = "listen")]
    file: Option<PathBuf>,
    /// Serve the gRPC service podium.training.v1.RolloutService on this address instead, until a signal. It has no authentication.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Allow an address for --listen that other machines can reach.
    #[arg(long, requires = "listen")]
    allow_remote: bool,
    /// Most concurrent rollouts. While there are as many, no further input is read.
    #[arg(long, value_name = "NUMBER", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=IN_FLIGHT_MAX))]
    in_flight: u16,
    /// Most steps of a plan.
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=i64::from(STEPS_MAX)))]
    steps_max: u16,
    /// Longest time of a rollout, in milliseconds. A run that takes longer has no reward.
    #[arg(long, value_name = "NUMBER", default_value_t = 600_000, value_parser = clap::value_parser!(u64).range(1..=DEADLINE_MS_MAX))]
    deadline_ms: u64,
    /// The reward of a plan with a wrong answer, 0 to 1. A completion that is no plan has 0, a right answer 1.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.5, value_parser = reward)]
    reward_wrong: f64,
    #[command(flatten)]
    setup: SetupArgs,
}

const DEADLINE_MS_MAX: u64 = DEADLINE_MAX.as_secs() * 1_000;

fn reward(text: &str) -> Result<f64, String> {
    let reward = text.parse::<f64>().map_err(|e| e.to_string())?;
    if (0.0..=1.0).contains(&reward) { Ok(reward) } else { Err("must be 0 to 1".to_owned()) }
}

pub(super) async fn rollout(args: RolloutArgs) -> Result<ExitCode, Error> {
    let settings = args.setup.settings()?;
    settings.start_log("error");
    let listener = match args.listen {
        Some(address) if !address.ip().is_loopback() && !args.allow_remote => {
            let problem =
                format!("{address} can be reached by other machines; pass --allow-remote if it should be");
            return Err(Error::Contradiction { flag: "--listen", problem });
        }
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let in_flight = usize::from(args.in_flight);
    let embedded = Embedded::start_for_given_plans(&settings, Pace::Instant, in_flight).await?;
    embedded.notices().iter().for_each(|notice| terminal::note(notice));
    let terms = Terms {
        steps_max: args.steps_max,
        deadline: Duration::from_millis(args.deadline_ms),
        reward_wrong: args.reward_wrong,
        in_flight,
    };
    let rollouts = Rollouts::new(embedded.engine().clone(), terms);
    let done = match listener {
        Some(listener) => until_signal(rollouts, listener, settings.drain).await,
        None => each_line(&rollouts, args.file.as_deref(), in_flight).await,
    };
    embedded.stop().await;
    done.map(|()| ExitCode::SUCCESS)
}

/// Serves until a signal, and then for at most `drain` until the calls under way are done.
async fn until_signal(rollouts: Rollouts, listener: TcpListener, drain: Duration) -> Result<(), Error> {
    let system = |what| move |source| Error::System { what, source };
    let mut signals = Signals::new().map_err(system("cannot receive signals"))?;
    let address = listener.local_addr().map_err(system("cannot read a listener's address"))?;
    terminal::note(&format!("serves rollouts at http://{address}"));
    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(serve(rollouts, listener, stop.clone().cancelled_owned()));
    tokio::select! {
        served = &mut serving => served,
        _ = signals.next() => {
            stop.cancel();
            tokio::time::timeout(drain, serving).await.unwrap_or(Ok(()))
        }
    }
}

/// Carries out each line, and prints each outcome as soon as it is known.
async fn each_line(rollouts: &Rollouts, file: Option<&Path>, in_flight: usize) -> Result<(), Error> {
    let (path, input) = open(file)?;
    let carried_out = lines(path.clone(), input).map(|line| async {
        let (number, text) = line?;
        run_line(rollouts, &text).await.map_err(|problem| Error::BadLine {
            path: path.clone(),
            line: number,
            problem,
        })
    });
    let mut carried_out = std::pin::pin!(carried_out.buffer_unordered(in_flight));
    while let Some(outcome) = carried_out.try_next().await? {
        let line = serde_json::to_string(&outcome);
        print_line(&line.map_err(|e| Error::System {
            what: "an outcome cannot be written as JSON",
            source: e.into(),
        })?)?;
    }
    Ok(())
}

async fn run_line(rollouts: &Rollouts, text: &str) -> Result<Outcome, String> {
    let rollout: Rollout = serde_json::from_str(text).map_err(|e| e.to_string())?;
    rollouts.check(&rollout)?;
    Ok(rollouts.run(&rollout).await)
}

type Input = Box<dyn BufRead + Send>;

fn open(file: Option<&Path>) -> Result<(PathBuf, Input), Error> {
    match file.filter(|file| *file != Path::new("-")) {
        None => Ok((PathBuf::from("standard input"), Box::new(BufReader::new(std::io::stdin())))),
        Some(path) => {
            let file =
                File::open(path).map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
            Ok((path.to_owned(), Box::new(BufReader::new(file))))
        }
    }
}

/// The lines that are not blank, with their numbers from 1. A thread reads them, one ahead of the stream. The stream ends after an
/// error.
fn lines(path: PathBuf, mut input: Input) -> ReceiverStream<Result<(usize, String), Error>> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for number in 1.. {
            let line = match read_line(&path, &mut input, number) {
                Ok(None) => return,
                Ok(Some(text)) if text.trim().is_empty() => continue,
                Ok(Some(text)) => Ok((number, text)),
                Err(error) => Err(error),
            };
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    ReceiverStream::new(lines)
}

fn read_line(path: &Path, input: &mut Input, number: usize) -> Result<Option<String>, Error> {
    let mut line = Vec::new();
    let read = input.take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
    let bad = |problem: String| Error::BadLine { path: path.to_owned(), line: number, problem };
    match read {
        Err(source) => Err(Error::Unreadable { path: path.to_owned(), source }),
        Ok(0) => Ok(None),
        Ok(_) if u64::try_from(line.len()).unwrap_or(u64::MAX) > LINE_BYTES_MAX => {
            Err(bad(format!("it has more than {LINE_BYTES_MAX} bytes")))
        }
        Ok(_) => String::from_utf8(line).map(Some).map_err(|error| bad(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &'static [u8]) -> Result<Vec<(usize, String)>, String> {
        let lines: Vec<_> = lines(PathBuf::from("file"), Box::new(text)).collect().await;
        lines.into_iter().collect::<Result<_, _>>().map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn blank_lines_count_and_are_left_out() {
        let lines = read(b"a\n\n \nb").await.unwrap();
        assert_eq!(lines, [(1, "a\n".to_owned()), (4, "b".to_owned())]);
        assert!(read(b"a\n\xff\n").await.unwrap_err().starts_with("file, line 2: invalid utf-8"));
    }

    #[tokio::test]
    async fn a_line_has_a_bound() {
        let long: &'static [u8] = vec![b'x'; (4 << 20) + 1].leak();
        assert!(read(long).await.unwrap_err().contains("line 1: it has more than 4194304 bytes"));
    }
}
