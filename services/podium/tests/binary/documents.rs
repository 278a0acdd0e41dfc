//! The commands of pages in blocks that are marked `sh run` are run, each page in a folder with the files that it names.

use std::path::Path;
use std::process::{Command, Stdio};

use podium_vendor_sim::{Options, Running, VendorSim};

use crate::support::{Folder, lines_of, logged_by};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const FENCE: &str = "```sh run";
/// The pages with such blocks; each has a test here.
const PAGES: [&str; 5] = [
    "README.md",
    "docs/bundles.md",
    "docs/guide/keys-and-budgets.md",
    "docs/guide/rollouts.md",
    "docs/releasing.md",
];

/// The commands of each block that is run. Lines that end with a backslash continue.
fn blocks(page: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(Path::new(ROOT).join(page)).unwrap().replace("\\\n", " ");
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while lines.any(|line| line == FENCE) {
        blocks.push(lines.by_ref().take_while(|line| *line != "```").map(str::to_owned).collect());
    }
    blocks
}

/// A folder for the commands of a page, with a simulated vendor.
struct Place {
    folder: Folder,
    // Dropping it ends the vendor.
    _vendor: Running,
}

impl Place {
    /// With `mine.toml`: the demonstration's pool and a further worker `gpt-5`.
    async fn new() -> Self {
        let vendor = VendorSim::start(Options::loopback(7)).await.unwrap();
        let folder = Folder::new();
        let mut pool: toml::Table = include_str!("../../../../pools/demo.toml").parse().unwrap();
        pool["vendors"][0]["base_url"] = vendor.base_url().into();
        let workers = pool["workers"].as_array_mut().unwrap();
        let mut worker = workers.last().unwrap().clone();
        worker.as_table_mut().unwrap().insert("id".to_owned(), "gpt-5".into());
        workers.push(worker);
        folder.write("mine.toml", &pool.to_string());
        Self { folder, _vendor: vendor }
    }

    /// Runs the commands one after the other. Servers are stopped when they listen.
    async fn run(&self, commands: Vec<String>) {
        assert!(!commands.is_empty());
        for command in commands {
            let shell = self.shell(&command);
            let run = move || if command.starts_with("podium serve") { serve(shell) } else { run(shell) };
            tokio::task::spawn_blocking(run).await.unwrap();
        }
    }

    fn shell(&self, command: &str) -> Command {
        let binaries = Path::new(env!("CARGO_BIN_EXE_podium")).parent().unwrap().display();
        let mut shell = Command::new("bash");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PODIUM")) {
            shell.env_remove(name);
        }
        // A server is the process itself, so that it gets the signal.
        let exec = if command.starts_with("podium serve") { "exec " } else { "" };
        shell
            .args(["-euo", "pipefail", "-c", &format!("{exec}{command}")])
            .current_dir(self.folder.path(""))
            .env("PATH", format!("{binaries}:{}", std::env::var("PATH").unwrap_or_default()))
            .env("HOME", self.folder.path(""))
            .env("XDG_DATA_HOME", self.folder.path("data"))
            .env("PODIUM__LISTEN", "127.0.0.1:0")
            .env("PODIUM__GRPC_LISTEN", "127.0.0.1:0")
            .stdin(Stdio::null());
        shell
    }
}

fn run(mut shell: Command) {
    let output = shell.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{shell:?}: {}", String::from_utf8_lossy(&said));
}

fn serve(mut shell: Command) {
    let mut child = shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let log = lines_of(child.stderr.take().unwrap());
    logged_by(&log, "listening");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert!(child.wait().unwrap().success(), "{shell:?}");
}

#[test]
fn every_page_with_commands_to_run_has_a_test() {
    let line = format!("^ *{FENCE}$");
    let mut git = Command::new("git");
    git.args([
        "-c",
        "safe.directory=*",
        "grep",
        "--untracked",
        "--files-with-matches",
        "--extended-regexp",
        &line,
    ]);
    let listed = git.args(["--", "*.md"]).current_dir(ROOT).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.lines().collect::<Vec<_>>(), PAGES);
}

#[tokio::test]
async fn the_commands_of_the_readme_run() {
    let place = Place::new().await;
    for commands in blocks("README.md") {
        place.run(commands).await;
    }
}

#[tokio::test]
async fn the_commands_of_keys_and_budgets_run() {
    let place = Place::new().await;
    for commands in blocks("docs/guide/keys-and-budgets.md") {
        place.run(commands).await;
    }
}

#[tokio::test]
async fn the_commands_of_rollouts_run() {
    let place = Place::new().await;
    let line = serde_json::json!({
        "id": "1", "question": "What is 6 times 7, in words?", "answer": "forty-two", "seed": 1,
        "completion": "model_id = [0, 1]\nsubtasks = [\"multiply 6 by 7\", \"write the result in words\"]\naccess_list = [[], [0]]",
    });
    place.folder.write("completions.jsonl", &format!("{line}\n"));
    for commands in blocks("docs/guide/rollouts.md") {
        place.run(commands).await;
    }
    let outcome = std::fs::read_to_string(place.folder.path("outcomes.jsonl")).unwrap();
    let outcome: serde_json::Value = serde_json::from_str(&outcome).unwrap();
    assert_eq!(outcome["is_plan"], true, "{outcome:#}");
}

#[tokio::test]
async fn the_commands_of_releasing_run() {
    let place = Place::new().await;
    place.folder.write("podium", "a program");
    let mut all = blocks("docs/releasing.md").into_iter();
    place.run(all.next().unwrap()).await;
    // As scripts/release does with the key of the page.
    let sign = "openssl pkeyutl -sign -inkey release.pem -rawin -in SHA256SUMS -out SHA256SUMS.sig";
    place.run(vec!["sha256sum -- podium > SHA256SUMS".to_owned(), sign.to_owned()]).await;
    place.run(all.next().unwrap()).await;
    assert_eq!(all.next(), None);
}

/// A bundle with the demonstration's model, which only a build with llama.cpp serves.
#[cfg(feature = "llama")]
#[tokio::test]
async fn the_commands_of_bundles_run() {
    let place = Place::new().await;
    let bundle = place.folder.path("FOLDER");
    std::fs::create_dir(&bundle).unwrap();
    for entry in std::fs::read_dir(Path::new(ROOT).join("models/nano")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), bundle.join(entry.file_name())).unwrap();
    }
    for commands in blocks("docs/bundles.md") {
        place.run(commands).await;
    }
}
