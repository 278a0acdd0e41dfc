//! `podium bundle`: shows, checks, fetches and packs conductors' bundles.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use podium_bundle::manifest::{Manifest, SubtaskWords, WorkersInPrompt};
use podium_bundle::{Bundle, pack_copy, pack_in_place};
use podium_domain::pool::Pool;
use podium_head::Head;

use super::fetch::{FetchArgs, fetch};
use super::output::print_line;
use crate::error::Error;
use crate::pool;
use crate::report::count;
use crate::settings::PoolChoice;

#[derive(Debug, Subcommand)]
pub(super) enum BundleCommand {
    /// Show a bundle without checking its files.
    Inspect(InspectArgs),
    /// Check every file against its checksum, the numbers of adapter and mini head, and with --pool whether the bundle runs on a
    /// pool.
    Verify(VerifyArgs),
    /// Download a bundle, or continue an interrupted download, and check every file against its checksum.
    Fetch(FetchArgs),
    /// Write the checksums, and with --pool the pool's hash, into the folder itself or into a copy.
    Pack(PackArgs),
}

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// The bundle's folder.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The bundle's folder.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The pool to check against: a pool file, or `demo`.
    #[arg(long, value_name = "FILE")]
    pool: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct PackArgs {
    /// The bundle's folder.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Write a copy into this folder, which must not exist yet, and leave the original unchanged.
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// The pool that the conductor's slots were trained on: a pool file, or `demo`.
    #[arg(long, value_name = "FILE")]
    pool: Option<PathBuf>,
}

pub(super) async fn bundle(command: &BundleCommand) -> Result<ExitCode, Error> {
    match command {
        BundleCommand::Inspect(args) => inspect(&args.folder)?,
        BundleCommand::Verify(args) => verify(args)?,
        BundleCommand::Fetch(args) => fetch(args).await?,
        BundleCommand::Pack(args) => pack(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read_pool(path: Option<&Path>) -> Result<Option<Pool>, Error> {
    let choice = |path: &Path| match path.to_str() {
        Some("demo") => PoolChoice::Demo,
        _ => PoolChoice::File(path.to_owned()),
    };
    path.map(|path| pool::read(&choice(path))).transpose()
}

fn verify(args: &VerifyArgs) -> Result<(), Error> {
    let pool = read_pool(args.pool.as_deref())?;
    let bundle = Bundle::verify(&args.folder)?.check_adapters()?;
    let manifest = bundle.manifest();
    if let Some(head) = &manifest.head {
        Head::read(&bundle.path(&head.file))?;
    }
    let files = count(manifest.files().len(), "file");
    print_line(&format!(
        "bundle {} is complete: {files} checked against {}",
        manifest.id(),
        bundle.sha256()
    ))?;
    match pool {
        Some(pool) => {
            manifest.fit(&pool)?;
            print_line(&format!("it runs on pool {}", pool.version()))
        }
        None if manifest.prompt.workers == WorkersInPrompt::Slots => {
            print_line("no pool was named: whether it runs on yours was not checked")
        }
        None => Ok(()),
    }
}

fn pack(args: &PackArgs) -> Result<(), Error> {
    let pool = read_pool(args.pool.as_deref())?;
    let (bundle, at) = match &args.output {
        Some(output) => (pack_copy(&args.folder, output, pool.as_ref())?, output),
        None => (pack_in_place(&args.folder, pool.as_ref())?, &args.folder),
    };
    print_line(&format!("bundle {} in {}: {}", bundle.manifest().id(), at.display(), bundle.sha256()))
}

fn inspect(folder: &Path) -> Result<(), Error> {
    let bundle = Bundle::read(folder)?;
    lines(&bundle).iter().try_for_each(|line| print_line(line))
}

fn lines(bundle: &Bundle) -> Vec<String> {
    let manifest = bundle.manifest();
    let mut lines = vec![format!("bundle {} (schema {})", manifest.id(), manifest.schema())];
    if !manifest.description.is_empty() {
        lines.push(format!("  {}", manifest.description));
    }
    let mut say = |name: &str, text: String| lines.push(format!("  {name:<13}{text}"));
    say("manifest", bundle.sha256().to_owned());
    for named in manifest.files() {
        let size = std::fs::metadata(bundle.path(named.file)).map(|file| file.len());
        let size = size.map_or_else(|error| format!("MISSING: {error}"), megabytes);
        say(&named.key, format!("{}, {size}, {}", named.file, named.sha256));
    }
    for (number, adapter) in manifest.adapters.iter().enumerate() {
        say("scale", format!("adapters[{number}] is applied {} times", adapter.scale));
    }
    workers(manifest, &mut say);
    let sampling = &manifest.sampling;
    say(
        "sampling",
        format!(
            "temperature {}, at most {} tokens of reasoning and {} of plan, {} with the prompt",
            sampling.temperature,
            sampling.reasoning_tokens_max,
            sampling.plan_tokens_max,
            sampling.context_tokens
        ),
    );
    say("rounds", format!("at most {}", manifest.rounds_max()));
    prompt(manifest, &mut say);
    lines
}

fn workers(manifest: &Manifest, say: &mut impl FnMut(&str, String)) {
    match manifest.prompt.workers {
        WorkersInPrompt::Described => {
            say("workers", "described in the prompt: it runs on any pool".to_owned());
        }
        WorkersInPrompt::Slots => {
            let pinned = &manifest.pool;
            let slots = pinned.slots.len();
            say("workers", format!("{slots} anonymous slots, trained on pool {}", pinned.trained_on));
            pinned.slots.iter().enumerate().for_each(|(slot, id)| say("", format!("{slot} {id}")));
            say("pool hash", pinned.hash.clone());
        }
    }
}

fn prompt(manifest: &Manifest, say: &mut impl FnMut(&str, String)) {
    let prompt = &manifest.prompt;
    let subtasks = match prompt.subtasks {
        SubtaskWords::Free => "subtasks in its own words",
        SubtaskWords::Copied => "subtasks in the question's words",
    };
    say("prompt", format!("{}, {subtasks}", prompt.template));
    let turns = [
        ("system", prompt.system.as_deref().unwrap_or_default()),
        ("user", &prompt.user),
        ("assistant", &prompt.assistant_prefix),
    ];
    for (role, text) in turns.into_iter().filter(|(_, text)| !text.is_empty()) {
        text.lines().enumerate().for_each(|(number, line)| {
            say(if number == 0 { role } else { "" }, format!("| {line}"));
        });
    }
    for (number, example) in manifest.examples.iter().enumerate() {
        let name = format!("examples[{number}]");
        example.to_string().lines().enumerate().for_each(|(number, line)| {
            say(if number == 0 { &name } else { "" }, format!("| {line}"));
        });
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}
