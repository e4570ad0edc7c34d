//! A table for people: each column is as wide as its widest cell, and no line is wider than the terminal.

use crate::cli::Terminal;
use crate::plain;

/// The column that is coloured, and how.
pub(super) struct Paint {
    pub(super) column: usize,
    /// The SGR parameter of ECMA-48 for a cell: 31 is red.
    pub(super) colour: fn(&str) -> Option<u8>,
}

/// `rows`: equally long rows, the first of which has the headings. No control character in a cell reaches the terminal:
/// others choose the names of processes and devices.
pub(super) fn table(rows: &[Vec<String>], terminal: Option<Terminal>, paint: Option<&Paint>) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let most = terminal.and_then(|terminal| terminal.width).unwrap_or(usize::MAX);
    let paint = paint.filter(|_| terminal.is_some_and(|terminal| terminal.has_colours));
    rows.iter().map(|row| line(row, &widths, most, paint) + "\n").collect()
}

/// A line, cut at the width of the terminal: what matters most comes first.
fn line(row: &[String], widths: &[usize], most: usize, paint: Option<&Paint>) -> String {
    let mut line = String::new();
    let mut used = 0;
    for (column, cell) in row.iter().enumerate() {
        let width = if column + 1 == row.len() { cell.chars().count() } else { widths[column] };
        let gap = if column == 0 { 0 } else { 2 };
        let shown: String = cell.chars().take(most.saturating_sub(used + gap)).collect();
        if shown.is_empty() {
            break;
        }
        let padding = width.saturating_sub(shown.chars().count());
        line.push_str(&" ".repeat(gap));
        line.push_str(&painted(shown, column, cell, paint));
        line.push_str(&" ".repeat(padding));
        used += gap + width;
    }
    line.trim_end().to_owned()
}

fn painted(shown: String, column: usize, cell: &str, paint: Option<&Paint>) -> String {
    let colour = paint.filter(|paint| paint.column == column).and_then(|paint| (paint.colour)(cell));
    match colour {
        Some(colour) => format!("\x1b[{colour}m{shown}\x1b[0m"),
        None => shown,
    }
}

/// An empty cell becomes `-`, so that columns can be counted.
fn clean(cell: &str) -> String {
    if cell.is_empty() { "-".to_owned() } else { plain::masked(cell) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        vec![row(["A", "NAME"]), row(["long", "\x1b[2Jx\n\u{9b}"]), row(["", "\u{e9}"])]
    }

    #[test]
    fn columns_are_aligned_and_nothing_controls_the_terminal() {
        assert_eq!(table(&rows(), None, None), "A     NAME\nlong  ?[2Jx??\n-     \u{e9}\n");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let at = |width| table(&rows(), Some(Terminal { width: Some(width), has_colours: false }), None);
        assert_eq!(at(8), "A     NA\nlong  ?[\n-     \u{e9}\n");
        assert_eq!(at(5), "A\nlong\n-\n");
        assert_eq!(at(1), "A\nl\n-\n");
    }

    #[test]
    fn colours_are_for_a_terminal_that_has_them() {
        let paint = Paint { column: 0, colour: |cell| (cell == "long").then_some(31) };
        let at = |terminal| table(&rows()[..2], terminal, Some(&paint));
        let plain = "A     NAME\nlong  ?[2Jx??\n";
        assert_eq!(at(None), plain);
        assert_eq!(at(Some(Terminal { width: None, has_colours: false })), plain);
        let coloured = "A     NAME\n\x1b[31mlong\x1b[0m  ?[2Jx??\n";
        assert_eq!(at(Some(Terminal { width: None, has_colours: true })), coloured);
    }
}
