//! `podium bundle fetch` from a server that breaks off, answers partly, and sends wrong bytes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::{run, stderr, stdout};

const NANO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/nano");
/// Bytes that the server sends of the weights before it breaks off the first time.
const FIRST_BYTES: usize = 100_000;

/// Serves the files of a folder. It breaks off the first answer with the weights.
struct Server {
    address: SocketAddr,
    /// The first byte of each request for the weights.
    starts: Arc<Mutex<Vec<usize>>>,
}

impl Server {
    fn start(folder: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let starts: Arc<Mutex<Vec<usize>>> = Arc::default();
        let noted = Arc::clone(&starts);
        thread::spawn(move || {
            let answers = AtomicUsize::new(0);
            for stream in listener.incoming() {
                answer(stream.unwrap(), &folder, &noted, &answers);
            }
        });
        Self { address, starts }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn answer(mut stream: TcpStream, folder: &Path, starts: &Mutex<Vec<usize>>, answers: &AtomicUsize) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    let name = request.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
    let headers: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let range = headers
        .iter()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let start: usize = range.as_ref().map_or(0, |range| range.trim_end_matches('-').parse().unwrap());
    let Ok(bytes) = std::fs::read(folder.join(&name)) else {
        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        return;
    };
    let status = match range {
        Some(_) => {
            format!("206 Partial Content\r\ncontent-range: bytes {start}-{}/{}", bytes.len() - 1, bytes.len())
        }
        None => "200 OK".to_owned(),
    };
    let rest = &bytes[start..];
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", rest.len());
    let is_weights = name == "nano.gguf";
    if is_weights {
        starts.lock().unwrap().push(start);
    }
    let breaks_off = is_weights && answers.fetch_add(1, Ordering::Relaxed) == 0;
    let sent = if breaks_off { &rest[..FIRST_BYTES] } else { rest };
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(sent));
}

fn manifest_sha256() -> String {
    podium_bundle::sha256(&std::fs::read(Path::new(NANO).join("conductor.toml")).unwrap())
}

#[test]
fn an_interrupted_download_continues_and_is_checked() {
    let (server, folder) = (Server::start(NANO.into()), tempfile::tempdir().unwrap());
    let (target, sum) = (folder.path().join("bundle"), manifest_sha256());
    let fetch = |more: &[&str]| {
        run(&[&["bundle", "fetch", target.to_str().unwrap(), "--from", &server.url()][..], more].concat())
    };
    let untrusted = fetch(&[]);
    assert!(stderr(&untrusted).contains("needs --sha256"), "{}", stderr(&untrusted));
    let wrong = fetch(&["--sha256", &"0".repeat(64)]);
    assert!(
        !wrong.status.success() && stderr(&wrong).contains("the manifest has SHA-256"),
        "{}",
        stderr(&wrong)
    );
    assert!(!target.join("conductor.toml").exists(), "a manifest is written last");
    let fetched = fetch(&["--sha256", &sum]);
    assert!(fetched.status.success(), "{}", stderr(&fetched));
    assert!(stdout(&fetched).contains("bundle nano") && stderr(&fetched).contains("trying again"));
    assert_eq!(*server.starts.lock().unwrap(), [0, FIRST_BYTES], "it continues where it broke off");
    let verified = run(&["bundle", "verify", target.to_str().unwrap()]);
    assert!(verified.status.success(), "{}", stderr(&verified));
    let again = fetch(&["--sha256", &sum]);
    assert!(again.status.success() && stdout(&again).contains("nano.gguf is complete"), "{}", stdout(&again));
    assert_eq!(server.starts.lock().unwrap().len(), 2, "complete files are not fetched again");
}

#[test]
fn wrong_bytes_are_removed_and_a_missing_file_is_named() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = folder.path().to_str().unwrap().to_owned();
    let manifest = format!("{NANO}/conductor.toml");
    std::fs::write(source.path().join("nano.gguf"), "not the weights, but longer than what follows").unwrap();
    let from = source.path().to_str().unwrap();
    let fetch = || run(&["bundle", "fetch", &target, "--manifest", &manifest, "--from", from]);
    let wrong = fetch();
    assert!(stderr(&wrong).contains("`nano.gguf` has SHA-256"), "{}", stderr(&wrong));
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0, "nothing is left");
    std::fs::copy(format!("{NANO}/nano.gguf"), source.path().join("nano.gguf")).unwrap();
    let missing = fetch();
    assert!(stderr(&missing).contains("head.safetensors"), "{}", stderr(&missing));
    let head = format!("head.safetensors={NANO}/head.safetensors");
    let other = "other.bin=/nowhere".to_owned();
    let unknown =
        run(&["bundle", "fetch", &target, "--manifest", &manifest, "--from", from, "--file", &other]);
    assert!(stderr(&unknown).contains("the manifest names only"), "{}", stderr(&unknown));
    let whole = run(&["bundle", "fetch", &target, "--manifest", &manifest, "--from", from, "--file", &head]);
    assert!(whole.status.success(), "{}", stderr(&whole));
}
