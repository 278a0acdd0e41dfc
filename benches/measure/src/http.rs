//! HTTP/1.1 connections that cost a client little: one request at a time, nothing pooled.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A connection over which one request is sent at a time.
pub type Connection = SendRequest<Full<Bytes>>;

/// Connects to `server`. The task that drives the connection is added to `drivers`; the connection ends with it.
pub async fn open(server: SocketAddr, drivers: &mut JoinSet<()>) -> Result<Connection> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let (connection, driver) = handshake(TokioIo::new(stream)).await?;
    drivers.spawn(async move { drop(driver.await) });
    Ok(connection)
}

/// Gets `path` from `server`, over a separate connection. An answer other than success is an error.
pub async fn get(server: SocketAddr, path: &str) -> Result<Bytes> {
    let mut drivers = JoinSet::new();
    let mut connection = open(server, &mut drivers).await?;
    connection.ready().await?;
    let request = Request::get(path).header("host", "localhost").body(Full::default())?;
    let response = connection.send_request(request).await?;
    ensure!(response.status().is_success(), "{path} was answered {}", response.status());
    Ok(response.into_body().collect().await?.to_bytes())
}
