//! The command line of the binary.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
};

use clap::Parser;

use crate::{
    behaviour::{Behaviour, Milliseconds},
    http::quota::AccountLimit,
    recorded::{Recorded, RecordedFile},
    sim::{Exposure, GENERALIST_ACCURACY, Options, StartError, VendorSim},
};

/// A simulated vendor of language models, for development and tests.
#[derive(Parser)]
#[command(name = "vendor-sim", version)]
pub struct Arguments {
    /// Address to listen on; port 0 selects a free one
    #[arg(long, default_value = "127.0.0.1:8099")]
    listen: SocketAddr,
    /// Allow an address that other machines can reach. They can then also change behaviours and read calls
    #[arg(long)]
    allow_remote: bool,
    /// Seed of latencies, random faults and the generalist's errors
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// API key that callers must send
    #[arg(long, env = "VENDOR_SIM_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Milliseconds to the first token of every answer
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
    /// Additional random milliseconds to the first token: 0 to this, uniformly distributed
    #[arg(long, default_value_t = 0)]
    latency_spread_ms: u64,
    /// Milliseconds between tokens
    #[arg(long, default_value_t = 0)]
    token_ms: u64,
    /// Probability (0 to 1) that one operation of the generalist is right
    #[arg(long, default_value_t = GENERALIST_ACCURACY)]
    generalist_accuracy: f64,
    /// JSON file with the behaviour of some models at the start and after a reset: an object of behaviours by model, in the form of
    /// the control route
    #[arg(long)]
    behaviours: Option<PathBuf>,
    /// JSON lines with `model`, `question` and `answer`, and perhaps `prompt_tokens` and `completion_tokens`: the model `recorded/NAME`
    /// answers with them. Can be repeated
    #[arg(long, value_name = "FILE")]
    recorded: Vec<PathBuf>,
    /// Requests per minute of the account, enforced over any sixty seconds; 0 for no limit
    #[arg(long, default_value_t = 0)]
    requests_per_minute: u64,
    /// Tokens per minute of the account (prompts and answers), enforced over any sixty seconds; 0 for no limit
    #[arg(long, default_value_t = 0)]
    tokens_per_minute: u64,
}

impl Arguments {
    /// The options that these arguments select. Reads the files that they name.
    pub fn options(self) -> Result<Options, OptionsError> {
        let first_token_ms = Milliseconds {
            min: self.latency_ms,
            max: self.latency_ms.saturating_add(self.latency_spread_ms),
        };
        let behaviours = self.behaviours.map(behaviours).transpose()?.unwrap_or_default();
        let mut recorded = Recorded::default();
        for file in &self.recorded {
            recorded.read(file)?;
        }
        Ok(Options {
            listen: self.listen,
            exposure: if self.allow_remote { Exposure::Anywhere } else { Exposure::LoopbackOnly },
            seed: self.seed,
            api_key: self.api_key,
            generalist_accuracy: self.generalist_accuracy,
            limit: AccountLimit {
                requests_per_minute: self.requests_per_minute,
                tokens_per_minute: self.tokens_per_minute,
            },
            behaviour: Behaviour { first_token_ms, token_ms: self.token_ms, ..Behaviour::default() },
            behaviours,
            recorded: Arc::new(recorded),
        })
    }
}

/// Why a file that the arguments name cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A file of recorded answers.
    #[error(transparent)]
    Recorded(#[from] RecordedFile),
    /// The file of behaviours cannot be read.
    #[error("cannot read the file of behaviours `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The file of behaviours is not an object of behaviours.
    #[error("the file of behaviours `{}` is invalid", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The JSON error.
        #[source]
        source: serde_json::Error,
    },
}

fn behaviours(path: PathBuf) -> Result<BTreeMap<String, Behaviour>, OptionsError> {
    match std::fs::read(&path) {
        Ok(json) => serde_json::from_slice(&json).map_err(|source| OptionsError::Invalid { path, source }),
        Err(source) => Err(OptionsError::Unreadable { path, source }),
    }
}

/// Serves until the process is interrupted. Prints one line with the address, which says that this is a simulator.
pub async fn run(options: Options) -> Result<(), StartError> {
    let running = VendorSim::start(options).await?;
    // The line is for people; a closed standard output must not stop the server.
    let _ = writeln!(
        io::stdout(),
        "vendor-sim is a simulator, listening on {}: its workers are programs, not language models",
        running.base_url()
    );
    // Without a signal handler the signal ends the process, which is fine, too.
    let _ = tokio::signal::ctrl_c().await;
    running.stop().await;
    Ok(())
}
