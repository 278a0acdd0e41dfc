//! The model's output as bytes, and how much of it was published as text.

use tokio::sync::mpsc;

/// Converts bytes to text. A character can be spread over several tokens, and free text can be invalid UTF-8: invalid bytes
/// are published as U+FFFD. The published pieces together are the whole text.
pub(crate) struct Transcript {
    bytes: Vec<u8>,
    published: usize,
    plan_start: Option<usize>,
    listener: mpsc::UnboundedSender<String>,
}

impl Transcript {
    pub(crate) fn new(listener: mpsc::UnboundedSender<String>) -> Self {
        Self { bytes: Vec::new(), published: 0, plan_start: None, listener }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the last bytes. They are unpublished, or the same bytes will be written again.
    pub(crate) fn drop_last(&mut self, bytes: usize) {
        self.bytes.truncate(self.bytes.len().saturating_sub(bytes));
    }

    /// Publishes the new whole characters among the first `settled` bytes.
    pub(crate) fn publish(&mut self, settled: usize) {
        let new = self.bytes.get(self.published..settled.min(self.bytes.len())).unwrap_or_default();
        let whole = new.len() - unfinished(new);
        let text = String::from_utf8_lossy(&new[..whole]).into_owned();
        self.published += whole;
        self.send(text);
    }

    pub(crate) fn publish_all(&mut self) {
        self.publish(self.bytes.len());
    }

    /// Marks the start of the plan. It begins a line, so no character is split here.
    pub(crate) fn begin_plan(&mut self) {
        self.plan_start = Some(self.bytes.len());
    }

    /// Publishes the rest and returns the reasoning and the plan.
    pub(crate) fn finish(self) -> (String, String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.send(text(self.bytes.get(self.published..).unwrap_or_default()));
        let (reasoning, plan) = self.bytes.split_at(self.plan_start.unwrap_or(self.bytes.len()));
        (text(reasoning), text(plan))
    }

    fn send(&self, text: String) {
        if !text.is_empty() {
            // The receiver may be dropped.
            let _ = self.listener.send(text);
        }
    }
}

/// Number of last bytes that are an incomplete character.
fn unfinished(bytes: &[u8]) -> usize {
    let tail = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let may_go_on = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
    if may_go_on { tail.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(tokens: &[&[u8]]) -> (Vec<String>, String) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut transcript = Transcript::new(sender);
        for token in tokens {
            transcript.push(token);
            transcript.publish_all();
        }
        let (whole, plan) = transcript.finish();
        assert_eq!(plan, "");
        let published = std::iter::from_fn(|| receiver.try_recv().ok()).collect();
        (published, whole)
    }

    #[test]
    fn a_character_is_published_when_it_is_complete() {
        let (published, whole) = published(&[b"a\xE2", b"\x82", b"\xACb"]);
        assert_eq!(published, ["a", "€b"]);
        assert_eq!(whole, "a€b");
    }

    #[test]
    fn the_published_pieces_are_the_whole_text() {
        let bytes = b"ok \xFF\xE2\x82x\xF0\x9F\x98\xC3\xA4\xE2";
        for cut in 0..bytes.len() {
            for second in cut..bytes.len() {
                let (published, whole) = published(&[&bytes[..cut], &bytes[cut..second], &bytes[second..]]);
                assert_eq!(published.concat(), whole);
                assert_eq!(whole, String::from_utf8_lossy(bytes));
            }
        }
    }

    #[test]
    fn unsettled_text_is_not_published() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut transcript = Transcript::new(sender);
        transcript.push(b"so\nmodel");
        transcript.publish(3);
        transcript.drop_last(6);
        transcript.push(b"\n");
        transcript.begin_plan();
        transcript.push(b"model_id");
        transcript.publish_all();
        assert_eq!(transcript.finish(), ("so\n".to_owned(), "model_id".to_owned()));
        assert_eq!([receiver.try_recv().unwrap(), receiver.try_recv().unwrap()], ["so\n", "model_id"]);
    }
}
