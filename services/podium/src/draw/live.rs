//! A run redrawn in place, with one row per task and plain ANSI sequences.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::board::{Board, End, Row, RowState};
use super::text::{column, cut, dollars, fit, seconds, sees, width};

/// Widest drawing, on any terminal.
const COLUMNS_MAX: usize = 140;
const WORKER_COLUMNS_MAX: usize = 24;
/// Two blanks, a mark, a blank.
const MARK_COLUMNS: usize = 4;
const LABEL_COLUMNS: usize = 9;
const TIME_COLUMNS: usize = 8;
/// As wide as the smallest amount.
const COST_COLUMNS: usize = 12;
/// A row with less room than this for its subtask shows neither worker nor time.
const SAID_COLUMNS_MIN: usize = 16;
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// The terminal of a drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    /// Its columns.
    pub(super) columns: usize,
    /// The rows that can be redrawn.
    pub(super) rows: usize,
    /// Whether to use colours.
    pub(super) has_colour: bool,
}

impl Screen {
    /// The terminal on standard error.
    pub(super) fn of_terminal() -> Self {
        let size = terminal_size::terminal_size_of(std::io::stderr());
        let (columns, rows) = size.map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()));
        let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { columns: usize::min(columns, COLUMNS_MAX), rows, has_colour }
    }
}

/// The last drawing.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    lines: usize,
    turns: usize,
}

impl Frame {
    /// The sequence that replaces the last drawing with the next one.
    pub(super) fn redraw(&mut self, board: &Board, screen: Screen) -> String {
        let spinner = SPINNER[self.turns % SPINNER.len()];
        let mut lines = draw(board, screen, spinner);
        // Rows that scrolled off the top cannot be redrawn, so the newest rows are kept: only they change.
        let excess = lines.len().saturating_sub(screen.rows.saturating_sub(1));
        lines.drain(..excess);
        let mut text = String::new();
        if self.lines > 0 {
            let _ = write!(text, "\x1b[{}A\r", self.lines);
        }
        text.push_str("\x1b[J");
        for line in &lines {
            text.push_str(line);
            text.push('\n');
        }
        self.lines = lines.len();
        self.turns += 1;
        text
    }
}

fn draw(board: &Board, screen: Screen, spinner: char) -> Vec<String> {
    let workers = board.rounds.iter().flat_map(|round| round.steps.iter().chain([&round.planning]));
    let widest = workers.map(|row| row.worker.chars().count()).max().unwrap_or(0);
    let layout = Layout { screen, spinner, worker_columns: widest.min(WORKER_COLUMNS_MAX) };
    let mut lines = vec![layout.paint(Style::new().bold(), &fit(&board.question, screen.columns))];
    for round in &board.rounds {
        lines.push(layout.row("plan", &round.planning));
        for (number, step) in (1u32..).zip(&round.steps) {
            lines.push(layout.row(&label(number, step), step));
        }
    }
    if let Some(end) = &board.end {
        lines.push(layout.end(board, end));
    }
    lines
}

/// `3 ← 1,2`: step 3 sees steps 1 and 2; `1 ← ↑`: step 1 sees the previous round.
fn label(number: u32, row: &Row) -> String {
    let sees = sees(&row.access, row.sees_earlier_round.then_some("↑"));
    if sees.is_empty() { number.to_string() } else { format!("{number} ← {}", sees.join(",")) }
}

struct Layout {
    screen: Screen,
    spinner: char,
    worker_columns: usize,
}

impl Layout {
    fn row(&self, label: &str, row: &Row) -> String {
        let (mark, style) = match row.state {
            RowState::Waiting | RowState::Ready => ('·', Style::new().dimmed()),
            RowState::Running => (self.spinner, Style::new().fg_color(Some(AnsiColor::Cyan.into()))),
            RowState::Done => ('✓', Style::new().fg_color(Some(AnsiColor::Green.into()))),
            RowState::Failed => ('✗', Style::new().fg_color(Some(AnsiColor::Red.into()))),
        };
        let time = row.elapsed().map(seconds).unwrap_or_default();
        let cost = match row.saved_nano_usd {
            Some(_) => "cached".to_owned(),
            None if row.cost_nano_usd > 0 => dollars(row.cost_nano_usd),
            None => String::new(),
        };
        let fixed =
            MARK_COLUMNS + LABEL_COLUMNS + self.worker_columns + 2 + TIME_COLUMNS + 1 + COST_COLUMNS + 1;
        let columns = self.screen.columns.saturating_sub(fixed);
        let label = column(label, LABEL_COLUMNS);
        let line = if columns >= SAID_COLUMNS_MIN {
            let said = column(&said(row, columns), columns);
            let worker = column(&row.worker, self.worker_columns);
            format!("{label}{worker}  {said} {time:>TIME_COLUMNS$} {cost:>COST_COLUMNS$}")
        } else {
            let fixed = MARK_COLUMNS + LABEL_COLUMNS + 1 + COST_COLUMNS;
            let columns = self.screen.columns.saturating_sub(fixed);
            let said = column(&said(row, columns), columns);
            format!("{label}{said} {cost:>COST_COLUMNS$}")
        };
        // A row that the terminal would wrap could not be redrawn.
        let line = cut(&line, self.screen.columns.saturating_sub(MARK_COLUMNS));
        let line =
            if row.state == RowState::Waiting { self.paint(Style::new().dimmed(), &line) } else { line };
        format!("  {} {}", self.paint(style, &mark.to_string()), line.trim_end())
    }

    fn end(&self, board: &Board, end: &End) -> String {
        let total = format!("{}, {}", seconds(board.elapsed()), dollars(board.cost_nano_usd()));
        let columns = self.screen.columns.saturating_sub(2);
        let (text, colour) = match end {
            End::Succeeded => (format!("answered in {total}"), AnsiColor::Green),
            End::Failed(why) => (format!("failed after {total}: {why}"), AnsiColor::Red),
            End::Cancelled => (format!("cancelled after {total}"), AnsiColor::Yellow),
        };
        format!("  {}", self.paint(Style::new().fg_color(Some(colour.into())), &fit(&text, columns)))
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.screen.has_colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// The middle of a row: the subtask, and its result so far. A long subtask leaves half of the columns to the result.
fn said(row: &Row, columns: usize) -> String {
    let again = if row.attempt > 1 { format!(" (attempt {})", row.attempt) } else { String::new() };
    let subtask = if row.subtask == "plan" { "" } else { row.subtask.as_str() };
    let news = match (&row.state, &row.output, &row.error) {
        (RowState::Done, Some(output), None) => output.clone(),
        (RowState::Done, Some(output), Some(why)) => format!("{output} (a substitute: {why})"),
        (RowState::Failed | RowState::Ready, _, Some(why)) => format!("! {why}"),
        _ => tail(&row.live),
    };
    let arrow = if news.is_empty() || subtask.is_empty() { "" } else { " → " };
    let reserved = width(&format!("{again}{arrow}"));
    let for_news = width(&fit(&news, columns)).min(columns / 2);
    let subtask = fit(subtask, columns.saturating_sub(reserved + for_news));
    format!("{subtask}{again}{arrow}{news}")
}

/// The last line of the live text that is not blank.
fn tail(live: &str) -> String {
    live.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}
