//! `podium bundle fetch`: downloads the files of a bundle, checks them against their checksums, and continues an interrupted
//! download. Each file gets its name when it is complete, the manifest last: a folder with a manifest is a whole bundle.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use podium_bundle::manifest::Manifest;
use podium_bundle::{Bundle, MANIFEST_FILE, sha256, sha256_of_file};
use podium_ports::causes::with_causes;
use podium_ports::clock::Clock as _;
use podium_setup::{SystemClock, VERSION};
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Client, StatusCode, Url};

use super::output::print_line;
use crate::error::Error;

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(15);
/// Longest silence of a server within a download.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// Most tries in a row of which none received a byte.
const TRIES_MAX: u32 = 8;
/// The pause after the first failed try; it doubles each time.
const PAUSE: Duration = Duration::from_millis(500);
/// Most bytes of a manifest.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(super) struct FetchArgs {
    /// The bundle's folder. It is created; files in it that match their checksums are not fetched again.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Where the bundle is: the https:// URL or the folder under which its files have their names.
    #[arg(long, value_name = "URL|FOLDER")]
    from: Option<String>,
    /// The manifest (conductor.toml): a file or an https:// URL. Without it, the one under --from.
    #[arg(long, value_name = "FILE|URL")]
    manifest: Option<String>,
    /// The SHA-256 of the manifest, which `podium bundle inspect` prints. It is required for a manifest from an http:// URL.
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// The place of one file, instead of its name under --from. May be repeated.
    #[arg(long = "file", value_name = "NAME=URL", value_parser = named)]
    files: Vec<(String, String)>,
}

/// Where a file comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Http(Url),
}

/// Why a try did not complete a file.
enum Failed {
    /// The server may answer later.
    ForNow(String),
    /// Another try has the same end.
    ForGood(String),
}

fn named(text: &str) -> Result<(String, String), String> {
    let (name, url) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=URL"))?;
    Ok((name.to_owned(), url.to_owned()))
}

fn refused(what: impl Into<String>) -> Error {
    Error::Refused(what.into())
}

impl Source {
    fn parse(text: &str) -> Result<Self, Error> {
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        let url = Url::parse(text).map_err(|e| refused(format!("invalid URL `{text}`: {e}")))?;
        match url.scheme() {
            "https" | "http" => Ok(Self::Http(url)),
            "file" => {
                url.to_file_path().map(Self::File).map_err(|()| refused(format!("`{text}` names no file")))
            }
            scheme => Err(refused(format!(
                "`{text}` begins with {scheme}://, it must be https://, http:// or file://"
            ))),
        }
    }

    /// The place of a file below `base`.
    fn below(base: &str, name: &str) -> Result<Self, Error> {
        Self::parse(&format!("{}/{name}", base.trim_end_matches('/')))
    }

    /// Whether nobody on the way can change what is fetched.
    fn is_trusted(&self) -> bool {
        !matches!(self, Self::Http(url) if url.scheme() == "http")
    }
}

impl FetchArgs {
    fn source_of_manifest(&self) -> Result<Source, Error> {
        match (&self.manifest, &self.from) {
            (Some(manifest), _) => Source::parse(manifest),
            (None, Some(base)) => Source::below(base, MANIFEST_FILE),
            (None, None) => {
                Err(refused("name the manifest with --manifest, or the whole bundle with --from"))
            }
        }
    }

    /// The source of each file that the manifest names.
    fn sources(&self, manifest: &Manifest) -> Result<BTreeMap<String, Source>, Error> {
        let names: Vec<_> = manifest.files().iter().map(|named| named.file.to_owned()).collect();
        if let Some((unknown, _)) = self.files.iter().find(|(name, _)| !names.contains(name)) {
            let names = names.join(", ");
            return Err(refused(format!("--file {unknown}: the manifest names only {names}")));
        }
        let source = |name: String| {
            let given = self.files.iter().find(|(file, _)| *file == name);
            let source = match (given, &self.from) {
                (Some((_, url)), _) => Source::parse(url)?,
                (None, Some(base)) => Source::below(base, &name)?,
                (None, None) => return Err(refused(format!("no --from, and no --file for `{name}`"))),
            };
            Ok((name, source))
        };
        names.into_iter().map(source).collect()
    }
}

/// A client for this URL. Loopback addresses are reached directly, because no proxy can reach them.
pub(super) fn client_for(url: &Url) -> Result<Client, Error> {
    let builder = Client::builder()
        .user_agent(format!("podium/{VERSION}"))
        .connect_timeout(CONNECT_MAX)
        .read_timeout(SILENCE_MAX)
        // The bytes must be those of the file.
        .no_gzip();
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    let is_loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let builder = if is_loopback { builder.no_proxy() } else { builder };
    builder.build().map_err(|e| refused(with_causes(&e)))
}

pub(super) async fn fetch(args: &FetchArgs) -> Result<(), Error> {
    let unwritable = |path: PathBuf| move |source| Error::Unwritable { path, source };
    fs::create_dir_all(&args.folder).map_err(unwritable(args.folder.clone()))?;
    let text = manifest_text(args).await?;
    let path = args.folder.join(MANIFEST_FILE);
    let manifest = Manifest::parse(&text).map_err(|source| {
        Error::Bundle(podium_bundle::BundleError::Manifest { path: path.clone(), source })
    })?;
    let sources = args.sources(&manifest)?;
    for file in manifest.files() {
        let Some(source) = sources.get(file.file) else { continue };
        fetch_file(source, &args.folder.join(file.file), file.sha256).await?;
    }
    let part = part_of(&path);
    fs::write(&part, &text).and_then(|()| complete(&part, &path)).map_err(unwritable(path.clone()))?;
    let bundle = Bundle::open(&args.folder)?;
    print_line(&format!("bundle {} in {}: {}", manifest.id(), args.folder.display(), bundle.sha256()))
}

/// The text of the manifest, which is checked if its checksum was given.
async fn manifest_text(args: &FetchArgs) -> Result<String, Error> {
    let source = args.source_of_manifest()?;
    if !source.is_trusted() && args.sha256.is_none() {
        let what = "a manifest from an http:// URL needs --sha256, because anybody on the way could replace it; or use https://";
        return Err(refused(what));
    }
    let bytes = match &source {
        Source::File(path) => {
            fs::read(path).map_err(|source| Error::Unreadable { path: path.clone(), source })?
        }
        Source::Http(url) => {
            let wrong = |what: String| refused(format!("{url}: {what}"));
            let response = client_for(url)?
                .get(url.clone())
                .send()
                .await
                .map_err(|e| wrong(with_causes(&e.without_url())))?;
            if !response.status().is_success() {
                return Err(wrong(format!("status {}", response.status())));
            }
            if response.content_length().is_some_and(|length| length > MANIFEST_BYTES_MAX) {
                return Err(wrong(format!("the manifest has more than {MANIFEST_BYTES_MAX} bytes")));
            }
            response.bytes().await.map_err(|e| wrong(with_causes(&e.without_url())))?.to_vec()
        }
    };
    let found = sha256(&bytes);
    if let Some(wanted) = args.sha256.as_ref().filter(|wanted| !wanted.eq_ignore_ascii_case(&found)) {
        return Err(refused(format!("the manifest has SHA-256 {found}, not {wanted}")));
    }
    String::from_utf8(bytes).map_err(|_| refused("the manifest is not text"))
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

/// Gives a written file its name, after its bytes are on the disk.
fn complete(part: &Path, path: &Path) -> io::Result<()> {
    File::open(part)?.sync_all()?;
    fs::rename(part, path)?;
    // A rename is durable once its folder is.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

async fn fetch_file(source: &Source, path: &Path, wanted: &str) -> Result<(), Error> {
    let has = |path: &Path| sha256_of_file(path).ok();
    if has(path).as_deref() == Some(wanted) {
        return print_line(&format!("{} is complete", path.display()));
    }
    let part = part_of(path);
    let unwritable = |source| Error::Unwritable { path: path.to_owned(), source };
    if has(&part).as_deref() != Some(wanted) {
        match source {
            Source::File(from) => {
                fs::copy(from, &part).map_err(|source| Error::Unreadable { path: from.clone(), source })?;
            }
            Source::Http(url) => download(url, &part).await?,
        }
    }
    let found = has(&part).unwrap_or_default();
    if found != wanted {
        // The next call must not continue a wrong file.
        fs::remove_file(&part).map_err(unwritable)?;
        let name = path.file_name().unwrap_or_default().display();
        return Err(refused(format!(
            "`{name}` has SHA-256 {found}, the manifest says {wanted}; it was removed"
        )));
    }
    complete(&part, path).map_err(unwritable)?;
    print_line(&format!("fetched {}", path.display()))
}

/// Downloads into `part`, from its end on, until the server has sent everything.
async fn download(url: &Url, part: &Path) -> Result<(), Error> {
    let client = client_for(url)?;
    let (mut failures, mut pause) = (0, PAUSE);
    let length = |part: &Path| fs::metadata(part).map_or(0, |file| file.len());
    loop {
        let before = length(part);
        let why = match download_once(&client, url, part, before).await {
            Ok(()) => return Ok(()),
            Err(Failed::ForGood(why)) => return Err(refused(format!("{url}: {why}"))),
            Err(Failed::ForNow(why)) => why,
        };
        if length(part) > before {
            (failures, pause) = (0, PAUSE);
        }
        failures += 1;
        if failures == TRIES_MAX {
            return Err(refused(format!(
                "{url}: {why}, {TRIES_MAX} times in a row; the next call continues"
            )));
        }
        eprintln!("podium: {url}: {why}; trying again");
        SystemClock.sleep(pause).await;
        pause *= 2;
    }
}

async fn download_once(client: &Client, url: &Url, part: &Path, from: u64) -> Result<(), Failed> {
    let mut request = client.get(url.clone());
    if from > 0 {
        request = request.header(RANGE, format!("bytes={from}-"));
    }
    let for_now = |error: reqwest::Error| Failed::ForNow(with_causes(&error.without_url()));
    let mut response = request.send().await.map_err(for_now)?;
    let mut options = OpenOptions::new();
    let options = options.create(true).write(true);
    let io_failed =
        |error: io::Error| Failed::ForGood(format!("{} cannot be written: {error}", part.display()));
    let mut file = match response.status() {
        StatusCode::PARTIAL_CONTENT if begins_at(&response, from) => options.append(true).open(part),
        // The server has nothing after the part, so the part is complete, or it is wrong: the checksum decides.
        StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => return Ok(()),
        // It sends the whole file.
        StatusCode::OK => options.truncate(true).open(part),
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            return Err(Failed::ForNow(format!("status {status}")));
        }
        status => return Err(Failed::ForGood(format!("status {status}"))),
    }
    .map_err(io_failed)?;
    while let Some(chunk) = response.chunk().await.map_err(for_now)? {
        file.write_all(&chunk).map_err(io_failed)?;
    }
    file.flush().map_err(io_failed)
}

/// Whether a partial answer begins at `from`.
fn begins_at(response: &reqwest::Response, from: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {from}-")))
}
