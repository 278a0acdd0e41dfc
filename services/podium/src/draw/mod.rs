//! Draws a run while it happens: in place on a terminal, line by line anywhere else. Always on standard error.

mod board;
mod lines;
mod live;
mod text;

use std::io::Write as _;

use podium_api::v1::WatchRunResponse;

use crate::terminal::visible;

pub(crate) use board::Board;
pub(crate) use text::sees;

/// A drawing under way.
pub(crate) enum Drawing {
    /// Redrawn in place.
    Live(live::Frame),
    /// One line for each event.
    Lines,
}

impl Drawing {
    /// A drawing on standard error.
    pub(crate) fn on_stderr(in_place: bool) -> Self {
        if in_place { Self::Live(live::Frame::default()) } else { Self::Lines }
    }

    /// Shows a change. `update` is already in `board`.
    pub(crate) fn show(&mut self, board: &Board, update: &WatchRunResponse) {
        match self {
            Self::Live(frame) => write(&frame.redraw(board, live::Screen::of_terminal())),
            Self::Lines => write(&visible(&lines::describe(board, update))),
        }
    }

    /// Redraws the running times.
    pub(crate) fn tick(&mut self, board: &Board) {
        if let Self::Live(frame) = self {
            write(&frame.redraw(board, live::Screen::of_terminal()));
        }
    }

    /// Ends the drawing.
    pub(crate) fn finish(&mut self, board: &Board) {
        if let Self::Live(frame) = self {
            write(&frame.redraw(board, live::Screen::of_terminal()));
            *frame = live::Frame::default();
        }
    }
}

/// Writes to standard error. An error there does not stop the run.
fn write(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests;
