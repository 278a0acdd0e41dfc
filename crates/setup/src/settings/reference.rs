//! The reference page of all settings.

use std::fmt::Write as _;

use super::ProgramKeys;
use super::key::{Key, Unset};

/// A key with the programs that use it as it is here.
struct Row {
    key: Key,
    programs: Vec<&'static str>,
}

/// Tables with all keys of these programs, one for each group. A key that differs between programs has several rows.
pub fn reference(programs: &[ProgramKeys]) -> String {
    let mut titles: Vec<&str> = Vec::new();
    for title in programs.iter().flat_map(ProgramKeys::subjects).map(|subject| subject.title) {
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    titles.into_iter().fold(String::new(), |mut text, title| {
        let _ = writeln!(
            text,
            "\n## {title}\n\n| key | values | default | programs | meaning |\n|---|---|---|---|---|"
        );
        for row in rows(programs, title) {
            write_row(&mut text, &row);
        }
        text
    })
}

fn rows(programs: &[ProgramKeys], title: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for keys in programs {
        for key in
            keys.subjects().iter().filter(|subject| subject.title == title).flat_map(|subject| &subject.keys)
        {
            if let Some(row) = rows.iter_mut().find(|row| row.key == *key) {
                row.programs.push(keys.program);
                continue;
            }
            // Rows of one name stand together.
            let after = rows.iter().rposition(|row| row.key.name == key.name);
            let at = after.map_or(rows.len(), |last| last + 1);
            rows.insert(at, Row { key: *key, programs: vec![keys.program] });
        }
    }
    rows
}

fn write_row(text: &mut String, Row { key, programs }: &Row) {
    let default = match key.unset {
        Unset::Default(default) => format!("`{default}`"),
        Unset::Instead { what, .. } => format!("unset: {what}"),
        Unset::Refused { .. } => "required".to_owned(),
    };
    let cells =
        [format!("`{}`", key.name), key.accepted(), default, programs.join(", "), key.help.to_owned()];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::super::{Group, Setting};
    use super::*;

    const SLOTS: Setting<u64> = Setting::number("slots", &(1..=9), "Most calls.").unit("calls").default("4");
    const REMOTE: Setting<bool> = Setting::switch("remote", "Allow other machines.").default("false");
    const GROUP: Group = Group { title: "Calls", keys: &[SLOTS.key, REMOTE.key] };

    #[test]
    fn a_key_has_a_row_for_each_meaning_that_it_has() {
        let worker = ProgramKeys::new("worker", &[GROUP]);
        let server = ProgramKeys::new("server", &[GROUP]).replace(SLOTS.key.with_default("8"));
        let rows = [
            "| `slots` | 1 to 9 calls | `4` | worker | Most calls. |",
            "| `slots` | 1 to 9 calls | `8` | server | Most calls. |",
            "| `remote` | true or false | `false` | worker, server | Allow other machines. |",
        ];
        let text = reference(&[worker, server]);
        assert!(text.starts_with("\n## Calls\n\n| key |"), "{text}");
        assert!(text.ends_with(&format!("{}\n", rows.join("\n"))), "{text}");
    }
}
