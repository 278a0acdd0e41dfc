//! A minimal HTTP client.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than a process waits for its servers.
const HEALTH_MAX: Duration = Duration::from_secs(20);

/// The status and the body; `None` if no answer arrives in time.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    timeout(HEALTH_MAX, talk(address, &request)).await.ok()?
}

/// Posts a JSON body. The status and the body of the answer; `None` if no answer arrives within `wait_max`.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    body: &str,
    wait_max: Duration,
) -> Option<(u16, String)> {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    timeout(wait_max, talk(address, &request)).await.ok()?
}

async fn talk(address: SocketAddr, request: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await.ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}
