//! `podium ask`: asks one question and draws its workflow.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;
use podium_api::v1;
use podium_ports::clock::Clock as _;
use tokio::time::{Interval, MissedTickBehavior};

use super::backend::{Backend, Updates, Wanted, question_request, refused};
use super::output::{print_json, print_line};
use super::{EffortName, SetupArgs, TierName, attachment};
use crate::draw::{Board, Drawing};
use crate::error::{Error, run_failed};
use crate::report::RunReport;
use crate::terminal;
use podium_setup::SystemClock;

/// Time between two redraws on a terminal if nothing happens.
const REDRAW_EVERY: Duration = Duration::from_millis(100);
/// Most times in a row that a broken watch is resumed.
const RESUMES_MAX: u32 = 20;
const RESUME_PAUSE: Duration = Duration::from_millis(500);
/// Most bytes of a question from standard input: the limit of a conversation.
const QUESTION_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(super) struct AskArgs {
    /// The question; `-` reads it from standard input.
    #[arg(value_name = "QUESTION")]
    question: String,
    /// Optimize latency (mini) or quality (ultra).
    #[arg(long, value_enum, default_value = "ultra")]
    tier: TierName,
    /// How much work to put into the answer.
    #[arg(long, value_enum, default_value = "medium")]
    effort: EffortName,
    /// Sampling temperature of the workers, 0 to 2. Workers that do not support it ignore it.
    #[arg(long, value_name = "NUMBER")]
    temperature: Option<f32>,
    /// Sampling seed of the workers, for repeatable answers. Workers that do not support it ignore it.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u32>,
    /// An image for the question: a PNG, JPEG, WebP or GIF file, or a URL. May be repeated.
    #[arg(long, value_name = "PATH|URL")]
    image: Vec<String>,
    /// A PDF for the question: a file or a URL. May be repeated.
    #[arg(long, value_name = "PATH|URL")]
    file: Vec<String>,
    /// End the answer before this stop sequence. May be given up to four times.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Print one JSON document instead of the answer.
    #[arg(long)]
    json: bool,
    /// Ask the server whose gRPC API is at this URL, such as `http://127.0.0.1:8081`.
    #[arg(long, value_name = "URL", conflicts_with_all = ["embedded", "data", "pool", "conductor"])]
    server: Option<String>,
    /// Run the engine in this process, even if a server runs. A pool, conductor or data folder implies it.
    #[arg(long)]
    embedded: bool,
    #[command(flatten)]
    setup: SetupArgs,
}

/// The end of a drawn run.
pub(crate) enum Drawn {
    /// The run ended with or without an answer.
    Ended(Box<v1::Run>),
    /// The user interrupted it, so it was cancelled.
    Interrupted,
}

pub(super) async fn ask(args: AskArgs) -> Result<ExitCode, Error> {
    let settings = args.setup.settings()?;
    settings.start_log("warn");
    let question = read_question(&args.question)?;
    let images = args.image.iter().map(|named| attachment::image_part(named));
    let files = args.file.iter().map(|named| attachment::file_part(named));
    let attachments = images.chain(files).collect::<Result<Vec<_>, _>>()?;
    let wanted = match (args.server, args.embedded) {
        (Some(url), _) => Wanted::Server(url),
        (None, embedded) if embedded || args.setup.names_an_engine() => Wanted::Here,
        (None, _) => Wanted::Either,
    };
    let mut backend = Backend::open(&wanted, &settings).await?;
    match &backend {
        Backend::Here(here) => here.0.notices().iter().for_each(|notice| terminal::note(notice)),
        Backend::Server(_) if wanted == Wanted::Either => {
            eprintln!("podium: asking the server on {}; --embedded asks none", settings.grpc_listen);
        }
        Backend::Server(_) => {}
    }
    let mut request = question_request(question, args.tier.into(), args.effort.into());
    if let Some(message) = request.messages.last_mut() {
        message.parts = attachments;
    }
    restrict(&mut request, &backend)?;
    request.stop = args.stop;
    request.sampling = Some(v1::Sampling { temperature: args.temperature, top_p: None, seed: args.seed });
    let drawn = draw_run(&mut backend, request).await;
    backend.close().await;
    match drawn? {
        Drawn::Ended(run) => print_run(&run, args.json),
        Drawn::Interrupted => {
            eprintln!("podium: interrupted; the run was cancelled");
            Ok(ExitCode::from(130))
        }
    }
}

/// The conductor may not use workers whose vendor's key is missing here.
fn restrict(request: &mut v1::CreateRunRequest, backend: &Backend) -> Result<(), Error> {
    if let Backend::Here(here) = backend
        && let Some(workers_allowed) = here.0.workers_with_keys()?
    {
        request.policy.get_or_insert_default().workers_allowed = workers_allowed;
    }
    Ok(())
}

/// The question from the argument, or from standard input.
pub(super) fn read_question(argument: &str) -> Result<String, Error> {
    let mut question = argument.to_owned();
    if argument == "-" {
        question.clear();
        let read = std::io::stdin().lock().take(QUESTION_BYTES_MAX + 1).read_to_string(&mut question);
        read.map_err(|source| Error::System {
            what: "the question cannot be read from standard input",
            source,
        })?;
        question.truncate(question.trim_end().len());
    }
    if question.trim().is_empty() { Err(Error::NoQuestion) } else { Ok(question) }
}

fn print_run(run: &v1::Run, as_json: bool) -> Result<ExitCode, Error> {
    let report = RunReport::of(run);
    if as_json {
        print_json(&report)?;
    } else if let Some(answer) = &report.answer {
        print_line(answer)?;
        report.notices().for_each(|notice| eprintln!("podium: {notice}"));
        if report.refused {
            eprintln!("podium: the worker that was to answer declined");
        }
    } else {
        terminal::note(&report.why_no_answer());
    }
    let is_answered = report.answer.is_some() && !report.refused;
    Ok(if is_answered { ExitCode::SUCCESS } else { run_failed() })
}

/// Whether progress can be redrawn in place.
pub(crate) fn is_live() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stderr().is_terminal() && !dumb
}

/// Starts a run and draws it on standard error until it ends. An interrupt cancels it.
pub(crate) async fn draw_run(backend: &mut Backend, request: v1::CreateRunRequest) -> Result<Drawn, Error> {
    let question = request.messages.last().map(|message| message.text.clone()).unwrap_or_default();
    let run = backend.create(request).await?;
    let mut watched = Watched {
        run_id: run.run_id.clone(),
        board: Board::new(question),
        drawing: Drawing::on_stderr(is_live()),
        resumes: 0,
    };
    let mut ticks = tokio::time::interval(REDRAW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let updates = backend.watch(&run.run_id, watched.board.sequence()).await;
        let broken = match updates {
            Ok(updates) => watched.follow(updates, &mut ticks).await,
            Err(error) if watched.resumes == 0 => return Err(error),
            Err(_) => Followed::Broke(tonic::Status::unavailable("the server does not answer")),
        };
        match broken {
            Followed::Ended => break,
            Followed::Interrupted => {
                watched.drawing.finish(&watched.board);
                // A run that has just ended cannot be cancelled. Then its end is shown.
                if backend.cancel(&run.run_id).await.is_ok() {
                    return Ok(Drawn::Interrupted);
                }
                break;
            }
            Followed::Broke(status) if backend.can_resume(&status) && watched.resumes < RESUMES_MAX => {
                watched.resumes += 1;
                SystemClock.sleep(RESUME_PAUSE).await;
            }
            Followed::Broke(status) => {
                watched.drawing.finish(&watched.board);
                return Err(refused(&status));
            }
        }
    }
    watched.drawing.finish(&watched.board);
    Ok(Drawn::Ended(Box::new(backend.run(&watched.run_id).await?)))
}

struct Watched {
    run_id: String,
    board: Board,
    drawing: Drawing,
    resumes: u32,
}

enum Followed {
    Ended,
    Interrupted,
    Broke(tonic::Status),
}

impl Watched {
    async fn follow(&mut self, mut updates: Updates, ticks: &mut Interval) -> Followed {
        loop {
            let update = tokio::select! {
                update = updates.next() => update,
                _ = ticks.tick() => {
                    self.drawing.tick(&self.board);
                    continue;
                }
                _ = tokio::signal::ctrl_c() => return Followed::Interrupted,
            };
            match update {
                Some(Ok(update)) => {
                    self.resumes = 0;
                    self.board.apply(&update);
                    self.drawing.show(&self.board, &update);
                }
                Some(Err(status)) => return Followed::Broke(status),
                None => return Followed::Ended,
            }
        }
    }
}
