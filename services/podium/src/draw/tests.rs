//! A run of two steps, one of which is tried twice, drawn both ways.

use podium_api::v1::run_event::Kind;
use podium_api::v1::watch_run_response::Update;
use podium_api::v1::{self, WatchRunResponse};

use super::board::{Board, End, RowState};
use super::lines;
use super::live::{Frame, Screen};

fn event(sequence: u64, at_ms: i64, kind: Kind) -> WatchRunResponse {
    let nanos = i32::try_from(at_ms % 1000 * 1_000_000).unwrap();
    let time = Some(prost_types::Timestamp { seconds: at_ms / 1000, nanos });
    WatchRunResponse { update: Some(Update::Event(v1::RunEvent { sequence, time, kind: Some(kind) })) }
}

fn step(index: u32, worker: &str, subtask: &str, access: &[u32]) -> v1::PlannedStep {
    v1::PlannedStep {
        index,
        worker: worker.into(),
        subtask: subtask.into(),
        access: access.to_vec(),
        unless_agree: Vec::new(),
        sees_earlier_round: false,
    }
}

fn task(step: Option<u32>) -> v1::Task {
    v1::Task { round: 0, step }
}

fn started(step: Option<u32>, attempt: u32, worker: &str) -> Kind {
    Kind::AttemptStarted(v1::AttemptStarted { task: Some(task(step)), attempt, worker: worker.into() })
}

fn done(step: u32, output: &str) -> Kind {
    Kind::StepDone(v1::StepDone {
        step,
        attempt: 1,
        output: output.into(),
        cost_nano_usd: 12_000,
        ..Default::default()
    })
}

fn story() -> Vec<WatchRunResponse> {
    let accepted = v1::Accepted {
        model: "podium-ultra".into(),
        conductor: "nano-1".into(),
        pool: "demo-1".into(),
        ..Default::default()
    };
    let steps =
        vec![step(0, "sim-dates", "count the days", &[]), step(1, "sim-words", "write it in words", &[0])];
    let plan = v1::PlanReady { steps, ..Default::default() };
    let failed = v1::AttemptFailed {
        task: Some(task(Some(1))),
        attempt: 1,
        error: "vendor `sim` asked to slow down".into(),
        ..Default::default()
    };
    vec![
        event(1, 10_000, Kind::Accepted(accepted)),
        event(2, 10_010, started(None, 1, "")),
        event(3, 10_400, Kind::PlanReady(plan)),
        event(4, 10_400, Kind::StepReady(v1::StepReady { round: 0, step: 0 })),
        event(5, 10_410, started(Some(0), 1, "sim-dates")),
        event(6, 10_910, done(0, "440")),
        event(7, 10_910, Kind::StepReady(v1::StepReady { round: 0, step: 1 })),
        event(8, 10_920, started(Some(1), 1, "sim-words")),
        event(9, 11_000, Kind::AttemptFailed(failed)),
        event(10, 11_500, started(Some(1), 2, "sim-words")),
        event(11, 12_000, done(1, "four hundred and forty")),
        event(12, 12_000, Kind::Succeeded(v1::Succeeded { round: 0, step: 1 })),
    ]
}

fn board_after(updates: &[WatchRunResponse]) -> Board {
    let mut board = Board::new("How many days, in words?".into());
    for update in updates {
        board.apply(update);
    }
    board
}

const SCREEN: Screen = Screen { columns: 100, rows: 24, has_colour: false };

#[test]
fn lines_follow_the_order_of_events() {
    let mut board = Board::new("How many days, in words?".into());
    let mut text = String::new();
    for update in story() {
        board.apply(&update);
        text.push_str(&lines::describe(&board, &update));
    }
    let expected = "\
[ 0.0 s] accepted by podium-ultra, conductor nano-1, pool demo-1
[ 0.0 s] planning begun
[ 0.4 s] planned 2 steps in 0.4 s, $0.000000
           1  sim-dates  count the days
           2  sim-words  write it in words  (sees 1)
[ 0.4 s] step 1 begun by sim-dates
[ 0.9 s] step 1 done in 0.5 s, $0.000012: 440
[ 0.9 s] step 2 begun by sim-words
[ 1.0 s] step 2 failed, will be tried again: vendor `sim` asked to slow down
[ 1.5 s] step 2 begun by sim-words (attempt 2)
[ 2.0 s] step 2 done in 1.1 s, $0.000012: four hundred and forty
[ 2.0 s] answered for $0.000024
";
    assert_eq!(text, expected);
}

#[test]
fn a_cached_step_is_shown_with_its_savings() {
    let mut board = board_after(&story()[..5]);
    let usage = v1::Usage { prompt_tokens: 100, completion_tokens: 10, ..Default::default() };
    let saved = Some(v1::Saved { usage: Some(usage), cost_nano_usd: 12_000 });
    let known = v1::StepDone { step: 0, attempt: 1, output: "440".into(), saved, ..Default::default() };
    let update = event(6, 10_420, Kind::StepDone(known));
    board.apply(&update);
    let line = lines::describe(&board, &update);
    assert_eq!(line, "[ 0.4 s] step 1 done in 0.0 s from the cache, $0.000012 saved: 440\n");
    assert_eq!(board.cost_nano_usd(), 0);
    let drawn = Frame::default().redraw(&board, SCREEN);
    assert!(drawn.contains("cached"), "{drawn}");
}

#[test]
fn a_skipped_step_is_shown_with_the_answer_that_it_took_over() {
    let mut board = board_after(&story()[..5]);
    board.apply(&event(6, 10_420, done(0, "440")));
    let update = event(7, 10_420, Kind::StepSkipped(v1::StepSkipped { round: 0, step: 1, same_as: 0 }));
    board.apply(&update);
    let row = board.row(0, Some(1)).unwrap();
    assert_eq!((&row.state, row.output.as_deref()), (&RowState::Done, Some("440")));
    let line = lines::describe(&board, &update);
    assert_eq!(line, "[ 0.4 s] step 2 is skipped: the earlier answers agree, that of step 1 is taken\n");
}

#[test]
fn early_steps_are_shown_and_keep_their_rows() {
    let first = || vec![step(0, "sim-dates", "count the days", &[])];
    let planned = v1::StepsPlanned { round: 0, steps: first() };
    let later = |index| step(index, "sim-words", "write it in words", &[]);
    let superseded = v1::StepsSuperseded { round: 0, steps: 1 };
    let plan = v1::PlanReady { steps: first().into_iter().chain([later(1)]).collect(), ..Default::default() };
    let mut board = Board::new("How many days, in words?".into());
    let mut text = String::new();
    for (sequence, kind) in (1..).zip([
        Kind::Accepted(v1::Accepted::default()),
        Kind::StepsPlanned(planned),
        started(Some(0), 1, "sim-dates"),
        done(0, "440"),
        Kind::StepsSuperseded(superseded),
        Kind::PlanReady(plan),
    ]) {
        let update = event(sequence, 10_000, kind);
        board.apply(&update);
        text.push_str(&lines::describe(&board, &update));
    }
    let row = board.row(0, Some(0)).unwrap();
    assert_eq!((&row.state, row.output.as_deref()), (&RowState::Done, Some("440")));
    assert!(row.error.as_ref().unwrap().starts_with("superseded"));
    assert!(board.row(0, Some(1)).is_some());
    for line in ["step 1 is planned\n", "step 1 is superseded", "planned 2 steps"] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
fn a_step_that_sees_the_previous_round_is_marked() {
    let mut board = board_after(&story()[..7]);
    let opened = event(20, 13_000, Kind::RoundOpened(v1::RoundOpened { round: 1, failed: None }));
    let seeing = |index, access: &[u32]| v1::PlannedStep {
        sees_earlier_round: true,
        ..step(index, "sim-words", "correct it", access)
    };
    let steps = vec![seeing(0, &[]), seeing(1, &[0]), step(2, "sim-words", "check it", &[1])];
    let plan = event(21, 13_000, Kind::PlanReady(v1::PlanReady { round: 1, steps, ..Default::default() }));
    board.apply(&opened);
    board.apply(&plan);
    let text = lines::describe(&board, &plan);
    for sees in ["(sees the round before)\n", "(sees the round before, 1)\n", "(sees 2)"] {
        assert!(text.contains(sees), "{sees} is not in {text}");
    }
    let drawn = Frame::default().redraw(&board, SCREEN);
    for label in ["1 ← ↑ ", "2 ← ↑,1 ", "3 ← 2 "] {
        assert!(drawn.contains(label), "{label} is not in {drawn}");
    }
}

#[test]
fn the_steps_of_an_abandoned_round_end_with_it() {
    let step = v1::PlannedStep { index: 0, ..step(0, "sim-words", "correct it", &[]) };
    let planned = v1::StepsPlanned { round: 1, steps: vec![step] };
    let failure =
        v1::Failure { code: "planning_failed".into(), message: "no plan could be made: cut off".into() };
    let abandoned = v1::RoundAbandoned { round: 1, failure: Some(failure) };
    let attempt = |step| {
        let task = Some(v1::Task { round: 1, step });
        Kind::AttemptStarted(v1::AttemptStarted { task, attempt: 1, worker: "sim-words".into() })
    };
    let mut board = board_after(&story()[..7]);
    let mut text = String::new();
    for (sequence, kind) in (20..).zip([
        Kind::RoundOpened(v1::RoundOpened { round: 1, failed: None }),
        attempt(None),
        Kind::StepsPlanned(planned),
        attempt(Some(0)),
        Kind::RoundAbandoned(abandoned),
    ]) {
        let update = event(sequence, 13_000, kind);
        board.apply(&update);
        text.push_str(&lines::describe(&board, &update));
    }
    for row in [board.row(1, None).unwrap(), board.row(1, Some(0)).unwrap()] {
        assert_eq!(
            (&row.state, row.error.as_deref()),
            (&RowState::Failed, Some("no plan could be made: cut off"))
        );
    }
    assert_eq!(board.row(0, Some(0)).unwrap().state, RowState::Done, "the round before stands");
    assert!(text.contains("no plan could be made: cut off"), "{text}");
}

#[test]
fn a_terminal_shows_one_row_per_task() {
    let text = Frame::default().redraw(&board_after(&story()), SCREEN);
    let rows: Vec<_> = text.trim_start_matches("\x1b[J").lines().collect();
    assert_eq!(rows.len(), 5, "{text}");
    assert_eq!(rows[0], "How many days, in words?");
    for (row, parts) in [
        (1, ["✓ plan", "nano-1", "2 steps"]),
        (2, ["✓ 1", "sim-dates", "count the days → 440"]),
        (3, ["✓ 2 ← 1", "(attempt 2)", "four hundred and forty"]),
        (4, ["answered in 2.0 s", "$0.000024", ""]),
    ] {
        for part in parts {
            assert!(rows[row].contains(part), "{part} in {}", rows[row]);
        }
    }
}

#[test]
fn a_narrow_terminal_shows_results_and_costs_before_workers() {
    for columns in [36, 40, 48] {
        let screen = Screen { columns, ..SCREEN };
        let text = Frame::default().redraw(&board_after(&story()), screen);
        let rows: Vec<_> = text.trim_start_matches("\x1b[J").lines().collect();
        assert!(rows.iter().all(|row| row.chars().count() <= columns), "{columns}: {text}");
        assert!(rows[2].contains("440") && rows[2].ends_with("$0.000012"), "{columns}: {text}");
    }
}

#[test]
fn a_redraw_moves_up_over_the_lines_that_it_replaces() {
    let mut frame = Frame::default();
    let first = frame.redraw(&board_after(&story()[..3]), SCREEN);
    assert!(first.starts_with("\x1b[J"));
    let second = frame.redraw(&board_after(&story()), SCREEN);
    assert!(second.starts_with("\x1b[4A\r\x1b[J"), "{second:?}");
}

#[test]
fn a_drawing_fits_the_screen() {
    let screen = Screen { columns: 40, rows: 3, has_colour: false };
    let text = Frame::default().redraw(&board_after(&story()), screen);
    let rows: Vec<_> = text.trim_start_matches("\x1b[J").lines().collect();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.chars().count() <= 40), "{rows:?}");
}

#[test]
fn live_text_is_shown_and_removed_after_a_restart() {
    let mut board = board_after(&story()[..5]);
    let text = v1::StepText { round: 0, step: 0, attempt: 1, offset: 0, text: "44".into(), is_answer: false };
    board.apply(&WatchRunResponse { update: Some(Update::StepText(text)) });
    assert!(Frame::default().redraw(&board, SCREEN).contains("count the days → 44"));
    let restarted = v1::StepRestarted { round: 0, step: 0 };
    board.apply(&WatchRunResponse { update: Some(Update::StepRestarted(restarted)) });
    assert!(!Frame::default().redraw(&board, SCREEN).contains("→ 44"));
    assert_eq!(board.row(0, Some(0)).unwrap().state, RowState::Running);
}

#[test]
fn a_failed_run_shows_its_reason() {
    let failure =
        v1::Failure { code: "planning_failed".into(), message: "no plan could be made: why".into() };
    let mut updates = story()[..2].to_vec();
    updates.push(event(3, 11_000, Kind::Failed(v1::Failed { failure: Some(failure) })));
    let board = board_after(&updates);
    assert_eq!(board.end, Some(End::Failed("no plan could be made: why".into())));
    assert!(Frame::default().redraw(&board, SCREEN).contains("failed after 1.0 s, $0.000000: no plan"));
}
