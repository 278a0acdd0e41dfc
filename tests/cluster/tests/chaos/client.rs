//! A client that does what a careful one would: names its request, tries other gateways, watches on after what it has seen.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_api::v1::watch_run_response::Update;
use tonic::transport::{Channel, Endpoint};

const CALL_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);
/// Longer than any run may take here.
const PATIENCE: Duration = Duration::from_mins(4);

/// One request.
pub(crate) struct Client {
    doors: Vec<SocketAddr>,
    number: u64,
    turns: usize,
    sequence: u64,
    faults: Vec<String>,
}

/// What became of a request.
pub(crate) struct Ended {
    pub(crate) number: u64,
    pub(crate) run_id: String,
    pub(crate) answer: Option<String>,
    /// Whatever a client must never see.
    pub(crate) faults: Vec<String>,
    /// How often it had to turn to a gateway again.
    pub(crate) turns: usize,
    pub(crate) took: Duration,
}

impl Client {
    pub(crate) fn new(doors: Vec<SocketAddr>, number: u64) -> Self {
        Self { doors, number, turns: 0, sequence: 0, faults: Vec::new() }
    }

    /// Asks until there is an end.
    pub(crate) async fn ask(mut self) -> Ended {
        let start = Instant::now();
        let run_id = self.create().await;
        let mut answer = None;
        while start.elapsed() < PATIENCE {
            if self.watch(&run_id).await.is_ok()
                && let Some(run) = self.read(&run_id).await
                && run.end_time.is_some()
            {
                answer = run.answer;
                break;
            }
            self.pause().await;
        }
        let Self { number, faults, turns, .. } = self;
        Ended { number, run_id, answer, faults, turns, took: start.elapsed() }
    }

    async fn create(&mut self) -> String {
        loop {
            let request = v1::CreateRunRequest {
                request_id: format!("chaos-{}", self.number),
                messages: vec![v1::Message { role: v1::Role::User.into(), text: self.number.to_string() }],
                policy: Some(v1::Policy { attempts_max: Some(10), ..v1::Policy::default() }),
                ..v1::CreateRunRequest::default()
            };
            if let Some(mut door) = self.door().await
                && let Ok(Ok(response)) = tokio::time::timeout(CALL_MAX, door.create_run(request)).await
                && let Some(run) = response.into_inner().run
            {
                return run.run_id;
            }
            self.pause().await;
        }
    }

    /// Watches on after the last event that it has; `Ok` when the stream ended as it should.
    async fn watch(&mut self, run_id: &str) -> Result<(), ()> {
        let mut door = self.door().await.ok_or(())?;
        let request = v1::WatchRunRequest { run_id: run_id.to_owned(), after_sequence: self.sequence };
        let mut updates = door.watch_run(request).await.map_err(drop)?.into_inner();
        let mut texts: HashMap<(u32, u32), (u32, String)> = HashMap::new();
        loop {
            match updates.message().await {
                Ok(Some(update)) => self.see(update, &mut texts),
                Ok(None) => return Ok(()),
                Err(_) => return Err(()),
            }
        }
    }

    /// Events come without a gap; text never goes on with another attempt's.
    fn see(&mut self, update: v1::WatchRunResponse, texts: &mut HashMap<(u32, u32), (u32, String)>) {
        match update.update {
            Some(Update::Event(event)) => {
                if event.sequence != self.sequence + 1 {
                    self.faults.push(format!("event {} after {}", event.sequence, self.sequence));
                }
                self.sequence = event.sequence;
            }
            Some(Update::StepText(text)) => {
                let so_far = texts.entry((text.round, text.step)).or_default();
                if so_far.0 != text.attempt {
                    *so_far = (text.attempt, String::new());
                }
                let length = so_far.1.len() as u64;
                if text.offset > length {
                    self.faults.push(format!("text at {} after {length} bytes", text.offset));
                }
                let kept = usize::try_from(text.offset.min(length)).unwrap_or_default();
                so_far.1.truncate(kept);
                so_far.1.push_str(&text.text);
            }
            _ => {}
        }
    }

    async fn read(&mut self, run_id: &str) -> Option<v1::Run> {
        let request = v1::GetRunRequest { run_id: run_id.to_owned() };
        let mut door = self.door().await?;
        let response = tokio::time::timeout(CALL_MAX, door.get_run(request)).await.ok()?.ok()?;
        response.into_inner().run
    }

    /// A gateway; another one each time.
    async fn door(&mut self) -> Option<PodiumServiceClient<Channel>> {
        self.turns += 1;
        let address = self.doors[self.turns % self.doors.len()];
        let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
        let channel = endpoint.connect_timeout(CALL_MAX).connect().await.ok()?;
        Some(PodiumServiceClient::new(channel))
    }

    async fn pause(&self) {
        crate::pause(PAUSE).await;
    }
}
