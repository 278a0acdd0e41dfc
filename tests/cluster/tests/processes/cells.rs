//! Two cells: either gateway answers requests for both, and a cell that is down affects its own runs only.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_domain::cells::CellId;
use podium_domain::ids::{KeyId, RunId, TenantId};
use podium_domain::time::Timestamp;
use podium_local_cluster::{Cluster, Shape};
use podium_ports::accounts::{Accounts as _, KeyHash, KeyRecord};
use podium_ports::store::RunLog as _;
use podium_store_postgres::{Options, Store};
use podium_vendor_sim::{Behaviour, Milliseconds};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request};

use crate::client::connect;

/// The duration of a call: long enough to cancel it.
const CALL_MS: u64 = 2_000;
const PATIENCE: Duration = Duration::from_mins(1);
/// A key, and its SHA-256.
const KEY: &str = "pdm_0707070707070707070707070707070707070707070707070707070707070707";
#[rustfmt::skip]
const KEY_HASH: [u8; 32] = [
    0xb2, 0xfb, 0xec, 0x05, 0x20, 0x03, 0xc8, 0x4b, 0xa5, 0x6e, 0x50, 0x7d, 0xb6, 0x88, 0x65, 0x1b,
    0x7b, 0xc6, 0x46, 0xed, 0x48, 0xac, 0x39, 0x0f, 0x0b, 0x62, 0x1d, 0xfe, 0xa3, 0x42, 0xa5, 0x8c,
];
const COMPLETION: &str = r#"{"model": "podium-mini", "messages": [{"role": "user", "content": "20 + 3"}]}"#;
const STREAM: &str =
    r#"{"model": "podium-mini", "stream": true, "messages": [{"role": "user", "content": "20 + 4"}]}"#;

/// Two clusters whose gateways know each other. Callers without a key are the tenant `local`, which belongs to cell 1.
struct Cells {
    clusters: [Cluster; 2],
    /// A run of cell 0, created before the cells were configured.
    old: String,
    _file: NamedTempFile,
}

impl Cells {
    async fn start() -> Self {
        let mut shape = Shape::new(1, 0, 1, "direct:sim-arithmetic");
        let first_token_ms = Milliseconds { min: CALL_MS, max: CALL_MS };
        shape.workers.behaviour = Behaviour { first_token_ms, ..Behaviour::default() };
        let mut clusters = [crate::start(&shape).await, crate::start(&shape).await];
        let mut gateway = connect(clusters[0].gateways[0].address(1)).await.unwrap();
        let old = create(&mut gateway, "1 + 1", "").await.unwrap();
        ended(&mut gateway, &old).await;
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        writeln!(file, "schema = 1").unwrap();
        for (number, cluster) in clusters.iter().enumerate() {
            let [http, grpc] = [0, 1].map(|port| cluster.gateways[0].address(port));
            let entry = format!("number = {number}\nhttp = [\"http://{http}\"]\ngrpc = [\"http://{grpc}\"]");
            writeln!(file, "[[cells]]\n{entry}").unwrap();
        }
        writeln!(file, "[tenants]\nlocal = 1\nbeta = 0").unwrap();
        for (number, cluster) in clusters.iter_mut().enumerate() {
            let settings = [format!("cell={number}"), format!("cells={}", file.path().display())];
            let gateway = &mut cluster.gateways[0];
            gateway.add_arguments(settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]));
            assert_eq!(gateway.terminate().await.unwrap(), 0);
            gateway.start_again().await.unwrap();
        }
        Self { clusters, old, _file: file }
    }

    fn http(&self, cell: usize) -> SocketAddr {
        self.clusters[cell].gateways[0].address(0)
    }

    async fn grpc(&self, cell: usize) -> PodiumServiceClient<Channel> {
        connect(self.clusters[cell].gateways[0].address(1)).await.unwrap()
    }

    async fn stop(self) {
        for cluster in self.clusters {
            cluster.stop().await.unwrap();
        }
    }
}

async fn create(
    gateway: &mut PodiumServiceClient<Channel>,
    question: &str,
    request_id: &str,
) -> Result<String, tonic::Status> {
    let text = question.to_owned();
    let messages = vec![v1::Message { role: v1::Role::User.into(), text, ..Default::default() }];
    let request_id = request_id.to_owned();
    let request = v1::CreateRunRequest { messages, request_id, ..v1::CreateRunRequest::default() };
    Ok(gateway.create_run(request).await?.into_inner().run.unwrap().run_id)
}

/// Watches a run to its end and returns it.
async fn ended(gateway: &mut PodiumServiceClient<Channel>, run_id: &str) -> v1::Run {
    let watch = v1::WatchRunRequest { run_id: run_id.to_owned(), after_sequence: 0 };
    let mut updates = gateway.watch_run(watch).await.unwrap().into_inner();
    while updates.message().await.unwrap().is_some() {}
    get(gateway, run_id).await.unwrap()
}

async fn get(gateway: &mut PodiumServiceClient<Channel>, run_id: &str) -> Result<v1::Run, tonic::Status> {
    let request = v1::GetRunRequest { run_id: run_id.to_owned() };
    Ok(gateway.get_run(request).await?.into_inner().run.unwrap())
}

async fn listed(gateway: &mut PodiumServiceClient<Channel>) -> Vec<String> {
    let runs = gateway.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner().runs;
    runs.into_iter().map(|run| run.run_id).collect()
}

fn cell(run_id: &str) -> u16 {
    run_id.parse::<RunId>().unwrap().cell().number()
}

async fn send(address: SocketAddr, method_and_path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!("{method_and_path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let head = format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream
}

/// The whole response, with its head.
async fn ask(address: SocketAddr, method_and_path: &str, body: &str) -> String {
    let mut response = String::new();
    send(address, method_and_path, body).await.read_to_string(&mut response).await.unwrap();
    response
}

fn run_of(response: &str) -> String {
    let header = "x-podium-run-id: ";
    response.lines().find_map(|line| line.strip_prefix(header)).expect(response).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn either_gateway_answers_for_both_cells() {
    let cells = Cells::start().await;
    let [mut zero, mut one] = [cells.grpc(0).await, cells.grpc(1).await];

    let run = create(&mut zero, "20 + 1", "twice").await.unwrap();
    assert_eq!(cell(&run), 1, "the tenant belongs to cell 1");
    assert_eq!(create(&mut one, "20 + 1", "twice").await.unwrap(), run, "a request id holds in both");
    let through_zero = ended(&mut zero, &run).await;
    assert_eq!((through_zero.state(), through_zero.answer()), (v1::RunState::Succeeded, "21"));
    assert_eq!(ended(&mut one, &run).await, through_zero);
    for (number, cluster) in cells.clusters.iter().enumerate() {
        let store = Store::open(&cluster.database, Options::default()).await.unwrap();
        let found = store.load(&[run.parse().unwrap()]).await.unwrap();
        assert_eq!(found[0].is_some(), number == 1, "cell {number}");
        store.close().await;
    }

    let cancelled = create(&mut zero, "20 + 2", "").await.unwrap();
    let request = v1::CancelRunRequest { run_id: cancelled.clone() };
    let answer = zero.cancel_run(request).await.unwrap().into_inner().run.unwrap();
    assert_eq!(answer.state(), v1::RunState::Cancelled);
    assert_eq!(get(&mut one, &cancelled).await.unwrap().state(), v1::RunState::Cancelled);

    // Runs from before the cells were configured belong to cell 0. Lists come from the tenant's cell.
    assert_eq!((cell(&cells.old), get(&mut one, &cells.old).await.unwrap().answer()), (0, "2"));
    assert_eq!(listed(&mut zero).await, [cancelled, run.clone()]);
    assert_eq!(listed(&mut one).await, listed(&mut zero).await);

    let completion = ask(cells.http(0), "POST /v1/chat/completions", COMPLETION).await;
    assert!(
        completion.starts_with("HTTP/1.1 200") && completion.contains(r#""content":"23""#),
        "{completion}"
    );
    assert_eq!(cell(&run_of(&completion)), 1);
    let stream = ask(cells.http(0), "POST /v1/chat/completions", STREAM).await;
    assert!(stream.contains("text/event-stream") && stream.contains("data: [DONE]"), "{stream}");
    let path = format!("GET /v1/runs/{}", run_of(&stream));
    for number in [0, 1] {
        let read = ask(cells.http(number), &path, "").await;
        assert!(read.starts_with("HTTP/1.1 200") && read.contains(r#""answer":"24""#), "{read}");
    }
    let old = ask(cells.http(1), &format!("GET /v1/runs/{}", cells.old), "").await;
    assert!(old.starts_with("HTTP/1.1 200"), "{old}");
    cells.stop().await;
}

/// A WebSocket of the Responses API.
struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (socket, _) = client_async(format!("ws://{address}/v1/responses"), stream).await.unwrap();
        Self(socket)
    }

    async fn ask(&mut self, more: Value) {
        let mut request = json!({"type": "response.create", "model": "podium-mini", "input": "20 + 7"});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.0.send(Message::text(request.to_string())).await.unwrap();
    }

    /// The next event; none once the socket is closed.
    async fn event(&mut self) -> Option<Value> {
        loop {
            match tokio::time::timeout(PATIENCE, self.0.next()).await.unwrap() {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_))) | None => return None,
                other => panic!("{other:?}"),
            }
        }
    }

    /// The last event of a response.
    async fn last(&mut self) -> Value {
        loop {
            let event = self.event().await.expect("an event");
            let kind = event["type"].as_str().unwrap();
            if ["response.completed", "response.failed", "error"].contains(&kind) {
                return event;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_is_relayed_to_its_tenants_cell() {
    let mut cells = Cells::start().await;
    let created = ask(cells.http(1), "POST /v1/conversations", "{}").await;
    let (_, body) = created.split_once("\r\n\r\n").unwrap();
    let conversation = serde_json::from_str::<Value>(body).unwrap()["id"].clone();

    let mut socket = Socket::open(cells.http(0)).await;
    socket.ask(json!({"conversation": conversation})).await;
    let first = socket.last().await["response"].clone();
    assert_eq!(
        (&first["status"], &first["conversation"]["id"]),
        (&json!("completed"), &conversation),
        "{first}"
    );
    let id = first["id"].as_str().unwrap();
    let run = id.strip_prefix("resp_").unwrap();
    assert_eq!(cell(run), 1, "the tenant belongs to cell 1");
    socket.ask(json!({"previous_response_id": id, "store": false})).await;
    let second = socket.last().await["response"].clone();
    assert_eq!(second["previous_response_id"], id, "{second}");
    // An unstored response may be continued on the same socket.
    socket.ask(json!({"previous_response_id": second["id"]})).await;
    assert_eq!(socket.last().await["response"]["previous_response_id"], second["id"]);
    // A response of another cell cannot be continued, and the error says why.
    let old = cells.old.parse::<RunId>().unwrap().as_uuid().simple().to_string();
    socket.ask(json!({"previous_response_id": format!("resp_{old}")})).await;
    let refused = socket.last().await;
    assert_eq!(refused["error"]["code"], "previous_response_not_found", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("is in cell 0"), "{refused}");

    // The other gateway dies in the middle of a response.
    socket.ask(json!({"input": "20 + 8"})).await;
    assert_eq!(socket.event().await.unwrap()["type"], "response.created");
    cells.clusters[1].gateways[0].kill().await.unwrap();
    let broken = socket.last().await;
    assert!(broken["error"]["message"].as_str().unwrap().contains("cell 1 broke off"), "{broken}");
    assert_eq!(socket.event().await, None);
    let stream = TcpStream::connect(cells.http(0)).await.unwrap();
    let refused = client_async("ws://localhost/v1/responses", stream).await.unwrap_err();
    assert!(refused.to_string().contains("503"), "{refused}");
    cells.clusters[1].gateways[0].start_again().await.unwrap();
    cells.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_its_websocket_cancels_its_run_in_another_cell() {
    let cells = Cells::start().await;
    let mut one = cells.grpc(1).await;
    let mut socket = Socket::open(cells.http(0)).await;
    socket.ask(json!({})).await;
    assert_eq!(socket.event().await.unwrap()["type"], "response.created");
    let run = listed(&mut one).await.pop().unwrap();
    drop(socket);
    let cancelled = crate::until("the run ends", PATIENCE, async || {
        Some(get(&mut one, &run).await.unwrap()).filter(|run| run.end_time.is_some())
    });
    assert_eq!(cancelled.await.state(), v1::RunState::Cancelled);
    // An open socket does not delay the stop of a gateway.
    let _idle = Socket::open(cells.http(0)).await;
    cells.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_cancels_its_run_in_another_cell() {
    let cells = Cells::start().await;
    let mut one = cells.grpc(1).await;
    let stream = send(cells.http(0), "POST /v1/chat/completions", COMPLETION).await;
    let run = crate::until("the run is there", PATIENCE, async || listed(&mut one).await.pop()).await;
    drop(stream);
    let cancelled = crate::until("the run ends", PATIENCE, async || {
        Some(get(&mut one, &run).await.unwrap()).filter(|run| run.end_time.is_some())
    });
    assert_eq!(cancelled.await.state(), v1::RunState::Cancelled);
    cells.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_is_down_affects_its_own_runs_only() {
    let mut cells = Cells::start().await;
    let mut zero = cells.grpc(0).await;
    let run = create(&mut zero, "20 + 5", "").await.unwrap();
    let watch = v1::WatchRunRequest { run_id: run.clone(), after_sequence: 0 };
    let mut watched = zero.watch_run(watch).await.unwrap().into_inner();
    assert!(watched.message().await.unwrap().is_some());
    cells.clusters[1].gateways[0].kill().await.unwrap();

    // A stream of that cell ends with a status that names it.
    let broken = loop {
        match watched.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended as if the run had"),
            Err(status) => break status,
        }
    };
    assert_eq!((broken.code(), broken.message().contains("cell 1")), (Code::Unavailable, true), "{broken:?}");
    for refused in [get(&mut zero, &run).await.map(drop), create(&mut zero, "1", "").await.map(drop)] {
        let status = refused.unwrap_err();
        assert_eq!(
            (status.code(), status.message().contains("cell 1")),
            (Code::Unavailable, true),
            "{status:?}"
        );
    }
    let refused = ask(cells.http(0), "POST /v1/chat/completions", COMPLETION).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("cell 1 is unreachable"), "{refused}");
    assert!(refused.contains("x-should-retry: true"), "{refused}");

    // The gateway's own cell still works.
    assert_eq!(get(&mut zero, &cells.old).await.unwrap().answer(), "2");
    let ready = ask(cells.http(0), "GET /readyz", "").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");

    cells.clusters[1].gateways[0].start_again().await.unwrap();
    assert_eq!(ended(&mut zero, &run).await.answer(), "25", "the run went on");
    cells.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_forwarded_once_and_an_unknown_cell_has_no_runs() {
    let cells = Cells::start().await;
    let mut zero = cells.grpc(0).await;
    let run = |number| {
        let at = Timestamp::from_unix_ms(1_700_000_000_000);
        RunId::in_cell(CellId::new(number).unwrap(), at, 1, 2).to_string()
    };
    for number in [0, 1, 9] {
        assert_eq!(get(&mut zero, &run(number)).await.unwrap_err().code(), Code::NotFound, "cell {number}");
    }
    let unknown = ask(cells.http(0), &format!("GET /v1/runs/{}", run(9)), "").await;
    assert!(unknown.starts_with("HTTP/1.1 404") && unknown.contains("run_not_found"), "{unknown}");

    // Like a request from a gateway with another `cells` file.
    let mut passed_on = Request::new(v1::GetRunRequest { run_id: run(1) });
    passed_on.metadata_mut().insert("x-podium-cell", MetadataValue::from_static("0"));
    let status = zero.get_run(passed_on).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message().contains("files differ")),
        (Code::Unavailable, true),
        "{status:?}"
    );
    cells.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_checked_again_in_its_tenants_cell() {
    let cells = Cells::start().await;
    let mut one = cells.grpc(1).await;
    let with_key = |text: &str| {
        let messages =
            vec![v1::Message { role: v1::Role::User.into(), text: text.to_owned(), ..Default::default() }];
        let mut request = Request::new(v1::CreateRunRequest { messages, ..Default::default() });
        let key: MetadataValue<_> = format!("Bearer {KEY}").parse().unwrap();
        request.metadata_mut().insert("authorization", key);
        request
    };
    let record = KeyRecord {
        id: KeyId::new("key_beta").unwrap(),
        tenant: TenantId::new("beta").unwrap(),
        created_at: Timestamp::default(),
        revoked_at: None,
    };
    // A cell that does not have the key yet rejects it, although another gateway forwarded the request.
    let add = async |cell: usize| {
        let store = Store::open(&cells.clusters[cell].database, Options::default()).await.unwrap();
        store.add_key(&record, &KeyHash(KEY_HASH)).await.unwrap();
        store.close().await;
    };
    add(1).await;
    assert_eq!(one.create_run(with_key("1")).await.unwrap_err().code(), Code::Unauthenticated);
    add(0).await;
    let run = crate::until("the other gateway has forgotten the refusal", PATIENCE, async || {
        one.clone().create_run(with_key("20 + 6")).await.ok()
    });
    let run = run.await.into_inner().run.unwrap().run_id;
    assert_eq!(cell(&run), 0, "the key's tenant belongs to cell 0");
    assert_eq!(get(&mut one, &run).await.unwrap_err().code(), Code::NotFound, "it is another tenant's");
    let stolen = ask(cells.http(1), &format!("POST /v1/runs/{run}/cancel"), "").await;
    assert!(stolen.starts_with("HTTP/1.1 404"), "{stolen}");
    cells.stop().await;
}
