//! Writes the ratings of workers into a file for the training of mini heads.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use podium_api::v1;
use podium_domain::ids::WorkerId;
use podium_head::outcomes::{Outcome, SCHEMA};
use sha2::{Digest as _, Sha256};

use super::backend::Backend;
use crate::error::Error;

/// Rated runs per page.
const PAGE_SIZE: u32 = 200;
/// Bytes of the hash in a question's name, enough to make it unique.
const ID_BYTES: usize = 16;

/// The counts of what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Lines.
    pub(super) outcomes: usize,
    /// Different questions.
    pub(super) questions: usize,
}

/// Reads all outcomes of a time span page by page, and writes them into `file` atomically.
pub(super) async fn write(
    backend: &mut Backend,
    file: &Path,
    from_time: Option<prost_types::Timestamp>,
    until_time: Option<prost_types::Timestamp>,
) -> Result<Written, Error> {
    let unwritable = |source: std::io::Error| Error::Unwritable { path: file.to_owned(), source };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut lines = BufWriter::new(tempfile::NamedTempFile::new_in(folder).map_err(unwritable)?);
    let (mut outcomes, mut questions) = (0, BTreeSet::new());
    let mut request =
        v1::ListOutcomesRequest { from_time, until_time, page_size: PAGE_SIZE, page_token: String::new() };
    loop {
        let page = backend.outcomes(request.clone()).await?;
        for rated in page.outcomes {
            let outcome = recorded(rated)?;
            serde_json::to_writer(&mut lines, &outcome).map_err(|e| unwritable(e.into()))?;
            lines.write_all(b"\n").map_err(unwritable)?;
            outcomes += 1;
            questions.insert(outcome.question_id);
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let written = lines.into_inner().map_err(|e| unwritable(e.into_error()))?;
    written.persist(file).map_err(|e| unwritable(e.error))?;
    Ok(Written { outcomes, questions: questions.len() })
}

/// An outcome for the training of mini heads. The name of a question is a hash of its words, so equal questions have equal names.
fn recorded(told: v1::Outcome) -> Result<Outcome, Error> {
    let v1::Outcome { question, worker, rating, cost_nano_usd, latency_ms, .. } = told;
    let worker =
        WorkerId::new(worker).map_err(|e| Error::Refused(format!("the server names a worker: {e}")))?;
    let rating =
        rating.ok_or_else(|| Error::Refused("the server sent an outcome without a rating".to_owned()))?;
    Ok(Outcome {
        schema: SCHEMA,
        question_id: question_id(&question),
        question: Some(question),
        task: None,
        answer: None,
        worker,
        reward: rating.score,
        cost_nano_usd: Some(cost_nano_usd),
        latency_ms: Some(latency_ms),
    })
}

fn question_id(question: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(question.as_bytes()).into();
    digest[..ID_BYTES].iter().fold(String::from("q-"), |mut id, byte| {
        // Writing to a string cannot fail.
        let _ = write!(id, "{byte:02x}");
        id
    })
}
