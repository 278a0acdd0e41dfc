//! Supported server versions.

use podium_harness::Nats;
use podium_queue_nats::{
    ConnectionOptions, LiveOptions, NatsError, NatsLive, NatsQueue, QueueOptions, ServerVersion,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::servers::{a_queue, to};

#[tokio::test]
async fn the_servers_version_is_reported() {
    let server = Nats::start().await.unwrap();
    let queue = a_queue(&server, QueueOptions::default()).await;
    let live = NatsLive::connect(&to(&server), LiveOptions::default()).await.unwrap();
    for version in [queue.server_version(), live.server_version()] {
        let version = version.unwrap();
        assert!(version.to_string() == server.version() && version >= ServerVersion::MIN);
    }
}

/// Sends a server's first message and answers pings.
async fn pretend(stream: TcpStream, version: &str) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let info = format!("INFO {{\"version\":\"{version}\",\"max_payload\":1048576,\"headers\":true}}\r\n");
    stream.write_all(info.as_bytes()).await?;
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        if line.starts_with("PING") {
            stream.write_all(b"PONG\r\n").await?;
        }
        line.clear();
    }
    Ok(())
}

#[tokio::test]
async fn an_old_server_is_refused_with_the_required_version() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = ConnectionOptions::new(format!("nats://{}", listener.local_addr().unwrap()));
    for old in ["2.9.9", "2.8.4", "old"] {
        let server = async { pretend(listener.accept().await?.0, old).await };
        let connecting = NatsQueue::connect(&options, QueueOptions::default());
        let refused = tokio::select! {
            connected = connecting => connected.err().expect("the server is too old"),
            ended = server => panic!("{ended:?}"),
        };
        assert!(matches!(&refused, NatsError::TooOld { found } if found == old), "{refused:?}");
        assert_eq!(
            refused.to_string(),
            format!("NATS server version {old} is not supported; use 2.9.10 or newer")
        );
    }
}
