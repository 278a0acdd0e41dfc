//! A vendor that costs next to nothing: every request gets the same answer at once, whole or as a stream of 22 chunks. A process of
//! its own, so that its CPU is not counted as anybody else's.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The beginning of each answer's text.
pub(crate) const FIRST_WORD: &str = "word-01";
/// The end of each answer's text.
pub(crate) const LAST_WORD: &str = "word-20";
/// Chunks with text. Two more follow: the reason why the answer ends, with the usage, and `[DONE]`.
const WORDS: usize = 20;

/// Runs the vendor: `podium-gateways-vendor ADDRESS`.
pub(crate) fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podium-gateways-vendor: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn serve() -> Result<()> {
    let address: SocketAddr = std::env::args().nth(1).context("an address is missing")?.parse()?;
    let listener = TcpListener::bind(address).await?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                stream.set_nodelay(true)?;
                // A caller may leave at any time.
                connections.spawn(async move { drop(answer_all(stream).await) });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers the requests of a connection one after the other.
async fn answer_all(mut stream: TcpStream) -> Result<()> {
    let mut read = Vec::new();
    loop {
        let (head, length) = loop {
            if let Some(head) = find(&read, b"\r\n\r\n").map(|at| at + 4) {
                break (head, content_length(&read[..head])?);
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        while read.len() < head + length {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
        let body = &read[head..head + length];
        let is_streamed =
            [&b"\"stream\":true"[..], b"\"stream\": true"].iter().any(|said| find(body, said).is_some());
        read.drain(..head + length);
        if is_streamed {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            for event in events() {
                let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                stream.write_all(chunk.as_bytes()).await?;
                // Each chunk is a separate segment, like those of a real model.
                tokio::task::yield_now().await;
            }
            stream.write_all(b"0\r\n\r\n").await?;
        } else {
            let body = whole();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all([head, body].concat().as_bytes()).await?;
        }
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn content_length(head: &[u8]) -> Result<usize> {
    let head = std::str::from_utf8(head)?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    length.map_or(Ok(0), |length| Ok(length.trim().parse()?))
}

fn words() -> impl Iterator<Item = String> {
    (1..=WORDS).map(|number| format!("word-{number:02} "))
}

fn whole() -> String {
    let text: String = words().collect();
    format!(
        r#"{{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}}}"#,
        text.trim_end()
    )
}

fn events() -> Vec<String> {
    let chunk = |choice: &str, usage: &str| {
        format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,{choice}}}]{usage}}}\n\n"
        )
    };
    let text = words()
        .map(|word| chunk(&format!("\"delta\":{{\"content\":\"{word}\"}},\"finish_reason\":null"), ""));
    let usage = ",\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":20,\"total_tokens\":30}";
    let end = [chunk("\"delta\":{},\"finish_reason\":\"stop\"", usage), "data: [DONE]\n\n".to_owned()];
    text.chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_with_the_last_word_and_a_stream_has_22_chunks() {
        assert!(whole().contains(&format!("{LAST_WORD}\"")));
        let events = events();
        assert_eq!(events.len(), 22);
        assert!(events[19].contains(LAST_WORD) && events[21].contains("[DONE]"));
        for event in &events[..21] {
            let json = event.trim().strip_prefix("data: ").unwrap();
            serde_json::from_str::<serde_json::Value>(json).unwrap();
        }
        serde_json::from_str::<serde_json::Value>(&whole()).unwrap();
    }

    #[test]
    fn the_length_of_a_body_is_read_from_its_head() {
        assert_eq!(content_length(b"POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n").unwrap(), 12);
        assert_eq!(content_length(b"GET / HTTP/1.1\r\n\r\n").unwrap(), 0);
    }
}
