//! The memory of a server whose clients do not read their answers.

use podium_vendor_sim::{Behaviour, Fault, Options, ScriptedFault, VendorSim};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{Folder, Server, soon};

const ANSWER_BYTES: usize = 4_000_000;
const UNREAD_BYTES_MAX: usize = 16 << 20;
const CLIENTS: usize = 100;
/// Most memory that the clients may cost. Their answers have 400 MB.
const GROWTH_MIB_MAX: usize = 160;
/// Most memory that may remain of it once the clients have disconnected.
const LEFT_MIB_MAX: usize = 80;

#[tokio::test]
async fn clients_that_read_nothing_cost_a_bounded_memory_which_is_given_back() {
    let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
    let huge = ScriptedFault::next_calls(Fault::Huge { bytes: ANSWER_BYTES }, 1);
    sim.set_behaviour("sim-arithmetic", Behaviour { faults: vec![huge], ..Behaviour::default() }).unwrap();
    let folder = Folder::new();
    let bound = UNREAD_BYTES_MAX.to_string();
    let bounds = ["--unread-bytes-max", &bound, "--answer-stall-ms", "600000"];
    let pool = folder.pool(&sim.base_url());
    let server = Server::start_bounded(&folder.path("data"), &pool, "direct:sim-arithmetic", &bounds);
    let (run, answer) = long_run(&server).await;
    assert_eq!(answer.len(), ANSWER_BYTES);
    let get = format!("GET /v1/runs/{run} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    whole(&server, &get).await;

    let before = mib_of(server.pid(), "VmRSS");
    forget_peak(server.pid());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(silent_client(&server, &get).await);
    }
    let (mut sent, mut rejected) = (0, 0);
    for client in &mut clients {
        match status(client).await.as_str() {
            "200" => sent += 1,
            "503" => rejected += 1,
            other => panic!("status {other}"),
        }
    }
    let grown = mib_of(server.pid(), "VmHWM").saturating_sub(before);
    assert_eq!(sent, UNREAD_BYTES_MAX / ANSWER_BYTES, "{rejected} clients were rejected");
    assert!(grown < GROWTH_MIB_MAX, "{CLIENTS} clients that read nothing cost {grown} MiB");

    drop(clients);
    let given_back = async {
        loop {
            // The allocator returns memory to the system while the server works.
            whole(&server, &get).await;
            let left = mib_of(server.pid(), "VmRSS").saturating_sub(before);
            if left < LEFT_MIB_MAX {
                return;
            }
        }
    };
    soon("the memory is given back", given_back).await;
}

/// Makes a run with a long answer.
async fn long_run(server: &Server) -> (String, String) {
    let body = json!({
        "model": "podium-ultra",
        "messages": [{"role": "user", "content": "why?"}],
        "podium": {"output_bytes_max": 4 << 20},
    });
    let body = body.to_string();
    let post = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    let completion = whole(server, &format!("{post}\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
    let answer = completion["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let runs = whole(server, "GET /v1/runs?limit=1 HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    (runs["data"][0]["id"].as_str().unwrap().to_owned(), answer)
}

/// Sends a request and reads the whole answer.
async fn whole(server: &Server, request: &str) -> Value {
    let request = request.replacen("\r\nhost", "\r\nconnection: close\r\nhost", 1);
    let mut client = TcpStream::connect(&server.http).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon("the answer is whole", client.read_to_string(&mut answer)).await.unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// A client that has sent a request and reads nothing.
async fn silent_client(server: &Server, request: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut client = socket.connect(server.http.parse().unwrap()).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    client
}

/// The status of an answer, of which no more is read.
async fn status(client: &mut TcpStream) -> String {
    let mut line = [0; "HTTP/1.1 200".len()];
    soon("the answer begins", client.read_exact(&mut line)).await.unwrap();
    String::from_utf8_lossy(&line[line.len() - 3..]).into_owned()
}

/// A size in `/proc/PID/status`.
fn mib_of(pid: u32, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kib: usize = line.trim_matches([':', '\t', ' ', 'k', 'B']).parse().unwrap();
    kib / 1024
}

/// Sets the peak of a process' memory to its present size.
fn forget_peak(pid: u32) {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}
