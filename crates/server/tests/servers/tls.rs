//! TLS, client certificates, and certificates that change.

use std::path::Path;
use std::time::Duration;

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_harness::{Authority, Identity};
use podium_ports::server::{ServerLimits, TlsFiles, TlsVersion};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Error as TransportError};

use crate::test_server::{TestServer, asking, is_closed, short, within};

fn files(server: &Identity) -> TlsFiles {
    TlsFiles {
        certificate: server.certificate.clone(),
        key: server.key.clone(),
        client_authorities: None,
        oldest: TlsVersion::V1_2,
        reload_every: Duration::from_millis(20),
    }
}

fn authority() -> (Authority, TlsFiles) {
    // reqwest has no provider of its own.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let authority = Authority::new().unwrap();
    let server = authority.issue("server", &["localhost"]).unwrap();
    (authority, files(&server))
}

fn read(file: &Path) -> Vec<u8> {
    std::fs::read(file).unwrap()
}

fn https(authority: &Authority) -> reqwest::ClientBuilder {
    let root = reqwest::Certificate::from_pem(&read(&authority.root())).unwrap();
    // Each request has a connection of its own.
    reqwest::Client::builder().no_proxy().tls_certs_only([root]).tls_info(true).pool_max_idle_per_host(0)
}

/// With the certificate and key of a client in one text.
fn identified(client: reqwest::ClientBuilder, identity: &Identity) -> reqwest::Client {
    let pem = [read(&identity.certificate), read(&identity.key)].concat();
    client.identity(reqwest::Identity::from_pem(&pem).unwrap()).build().unwrap()
}

async fn get(client: &reqwest::Client, server: &TestServer) -> Result<reqwest::Response, reqwest::Error> {
    within(client.get(format!("https://localhost:{}/v1/models", server.http.port())).send()).await
}

fn grpc_tls(authority: &Authority) -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&authority.root())))
}

async fn grpc(
    tls: ClientTlsConfig,
    server: &TestServer,
) -> Result<PodiumServiceClient<Channel>, TransportError> {
    let address = format!("https://localhost:{}", server.grpc.port());
    let channel = Channel::from_shared(address).unwrap().tls_config(tls)?;
    Ok(PodiumServiceClient::new(within(channel.connect()).await?))
}

#[tokio::test]
async fn http_and_grpc_clients_use_tls() {
    let (authority, files) = authority();
    let server = TestServer::encrypted(ServerLimits::default(), files).await;
    let response = get(&https(&authority).build().unwrap(), &server).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, reqwest::Version::HTTP_2));
    let response = get(&https(&authority).http1_only().build().unwrap(), &server).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, reqwest::Version::HTTP_11));
    let mut client = grpc(grpc_tls(&authority), &server).await.unwrap();
    let created = within(client.create_run(asking("why?"))).await.unwrap().into_inner();
    let id = created.run.unwrap().run_id.parse().unwrap();
    server.ended(id).await;
    let watch = client.watch_run(v1::WatchRunRequest { run_id: id.to_string(), after_sequence: 0 });
    let mut updates = within(watch).await.unwrap().into_inner();
    let mut count = 0;
    while within(updates.message()).await.unwrap().is_some() {
        count += 1;
    }
    assert!(count > 3, "{count} updates");
}

#[tokio::test]
async fn clients_without_tls_or_trust_are_refused() {
    let (authority, files) = authority();
    let server = TestServer::encrypted(ServerLimits::default(), files).await;
    for address in [server.http, server.grpc] {
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        is_closed(plain).await;
    }
    let stranger = Authority::new().unwrap();
    assert!(get(&https(&stranger).build().unwrap(), &server).await.unwrap_err().is_connect());
    assert!(grpc(grpc_tls(&stranger), &server).await.is_err());
    assert!(grpc(grpc_tls(&authority), &server).await.is_ok());
    // Probes need no TLS.
    assert_eq!(TestServer::send_to(server.health, "GET /readyz", "", "").await.status, 200);
}

#[tokio::test]
async fn versions_below_the_oldest_are_refused() {
    let (authority, files) = authority();
    let files = TlsFiles { oldest: TlsVersion::V1_3, ..files };
    let server = TestServer::encrypted(ServerLimits::default(), files).await;
    let old = https(&authority).tls_version_max(reqwest::tls::Version::TLS_1_2).build().unwrap();
    assert!(get(&old, &server).await.unwrap_err().is_connect());
    assert_eq!(get(&https(&authority).build().unwrap(), &server).await.unwrap().status(), 200);
}

#[tokio::test]
async fn clients_need_a_certificate_of_the_authority() {
    let (authority, files) = authority();
    let clients = Authority::new().unwrap();
    let files = TlsFiles { client_authorities: Some(clients.root()), ..files };
    let server = TestServer::encrypted(ServerLimits::default(), files).await;
    let (known, stranger) =
        (clients.issue("known", &[]).unwrap(), Authority::new().unwrap().issue("stranger", &[]));
    assert!(get(&https(&authority).build().unwrap(), &server).await.is_err());
    // The stranger's authority and its files are gone, so it gets a certificate of the server's authority instead.
    drop(stranger);
    let stranger = authority.issue("stranger", &[]).unwrap();
    assert!(get(&identified(https(&authority), &stranger), &server).await.is_err());
    assert_eq!(get(&identified(https(&authority), &known), &server).await.unwrap().status(), 200);
    let call = async |tls: ClientTlsConfig| {
        let Ok(mut client) = grpc(tls, &server).await else { return false };
        within(client.create_run(asking("why?"))).await.is_ok()
    };
    assert!(!call(grpc_tls(&authority)).await);
    let identity = tonic::transport::Identity::from_pem(read(&known.certificate), read(&known.key));
    assert!(call(grpc_tls(&authority).identity(identity)).await);
}

#[tokio::test]
async fn certificates_change_under_load_without_a_failed_request() {
    let (authority, files) = authority();
    let server = TestServer::encrypted(ServerLimits::default(), files).await;
    let client = https(&authority).build().unwrap();
    let shown = async || {
        let response = get(&client, &server).await.unwrap();
        assert_eq!(response.status(), 200);
        let info = response.extensions().get::<reqwest::tls::TlsInfo>().unwrap();
        info.peer_certificate().unwrap().to_vec()
    };
    let mut kept = grpc(grpc_tls(&authority), &server).await.unwrap();
    let mut last = shown().await;
    for _ in 0..3 {
        // The certificate and its key change one after the other.
        authority.issue("server", &["localhost"]).unwrap();
        within(async {
            loop {
                let (now, call) = tokio::join!(shown(), kept.create_run(asking("why?")));
                call.unwrap();
                if now != last {
                    last = now;
                    break;
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_cut() {
    let (authority, files) = authority();
    let server = TestServer::encrypted(short(), files.clone()).await;
    for sent in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00"] {
        for address in [server.http, server.grpc] {
            let mut slow = TcpStream::connect(address).await.unwrap();
            slow.write_all(sent).await.unwrap();
            is_closed(slow).await;
        }
    }
    let limits = ServerLimits { connections_max: Some(8), ..ServerLimits::default() };
    let server = TestServer::encrypted(limits, files).await;
    let mut slow = Vec::new();
    for _ in 0..64 {
        slow.push(TcpStream::connect(server.http).await.unwrap());
        slow.push(TcpStream::connect(server.grpc).await.unwrap());
    }
    assert_eq!(get(&https(&authority).build().unwrap(), &server).await.unwrap().status(), 200);
}
