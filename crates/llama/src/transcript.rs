//! What a model has written so far, as bytes, and how much of it was told to the listener, as text.

use tokio::sync::mpsc;

/// Bytes that become text. A character can be spread over several tokens, and free text can be no text at all: what is not
/// UTF-8 is told as U+FFFD, and all that was told joined is the whole text.
pub(crate) struct Transcript {
    bytes: Vec<u8>,
    told: usize,
    plan_start: Option<usize>,
    listener: mpsc::UnboundedSender<String>,
}

impl Transcript {
    pub(crate) fn new(listener: mpsc::UnboundedSender<String>) -> Self {
        Self { bytes: Vec::new(), told: 0, plan_start: None, listener }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the last bytes away. They were not told, or will be written again the same.
    pub(crate) fn drop_last(&mut self, bytes: usize) {
        self.bytes.truncate(self.bytes.len().saturating_sub(bytes));
    }

    /// Tells what is new in the first `settled` bytes, whole characters only.
    pub(crate) fn tell(&mut self, settled: usize) {
        let new = self.bytes.get(self.told..settled.min(self.bytes.len())).unwrap_or_default();
        let whole = new.len() - unfinished(new);
        let text = String::from_utf8_lossy(&new[..whole]).into_owned();
        self.told += whole;
        self.send(text);
    }

    pub(crate) fn tell_all(&mut self) {
        self.tell(self.bytes.len());
    }

    /// What comes now is the plan. It begins a line, so no character is cut in two here.
    pub(crate) fn begin_plan(&mut self) {
        self.plan_start = Some(self.bytes.len());
    }

    /// Tells the rest and gives the reasoning and the plan.
    pub(crate) fn finish(self) -> (String, String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.send(text(self.bytes.get(self.told..).unwrap_or_default()));
        let (reasoning, plan) = self.bytes.split_at(self.plan_start.unwrap_or(self.bytes.len()));
        (text(reasoning), text(plan))
    }

    fn send(&self, text: String) {
        if !text.is_empty() {
            // Nobody may be listening.
            let _ = self.listener.send(text);
        }
    }
}

/// How many of the last bytes are the beginning of a character whose end is missing.
fn unfinished(bytes: &[u8]) -> usize {
    let tail = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let may_go_on = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
    if may_go_on { tail.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(tokens: &[&[u8]]) -> (Vec<String>, String) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut transcript = Transcript::new(sender);
        for token in tokens {
            transcript.push(token);
            transcript.tell_all();
        }
        let (whole, plan) = transcript.finish();
        assert_eq!(plan, "");
        let told = std::iter::from_fn(|| receiver.try_recv().ok()).collect();
        (told, whole)
    }

    #[test]
    fn a_character_is_told_when_it_is_whole() {
        let (told, whole) = told(&[b"a\xE2", b"\x82", b"\xACb"]);
        assert_eq!(told, ["a", "€b"]);
        assert_eq!(whole, "a€b");
    }

    #[test]
    fn what_was_told_joined_is_the_whole_text_whatever_the_bytes() {
        let bytes = b"ok \xFF\xE2\x82x\xF0\x9F\x98\xC3\xA4\xE2";
        for cut in 0..bytes.len() {
            for second in cut..bytes.len() {
                let (told, whole) = told(&[&bytes[..cut], &bytes[cut..second], &bytes[second..]]);
                assert_eq!(told.concat(), whole);
                assert_eq!(whole, String::from_utf8_lossy(bytes));
            }
        }
    }

    #[test]
    fn what_may_be_given_back_is_not_told() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut transcript = Transcript::new(sender);
        transcript.push(b"so\nmodel");
        transcript.tell(3);
        transcript.drop_last(6);
        transcript.push(b"\n");
        transcript.begin_plan();
        transcript.push(b"model_id");
        transcript.tell_all();
        assert_eq!(transcript.finish(), ("so\n".to_owned(), "model_id".to_owned()));
        assert_eq!([receiver.try_recv().unwrap(), receiver.try_recv().unwrap()], ["so\n", "model_id"]);
    }
}
