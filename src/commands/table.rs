//! A table for people: columns as wide as their widest cell.

/// Rows of equally many cells, the first row being the heads. No cell brings a control character to the
/// terminal: names of processes and devices are other people's.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// An empty cell is a `-`, so that columns can be counted.
fn clean(cell: &str) -> String {
    let cell: String = cell.chars().map(|char| if char.is_control() { '?' } else { char }).collect();
    if cell.is_empty() { "-".to_owned() } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_controls_the_terminal() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let printed = table(&[row(["A", "NAME"]), row(["long", "\x1b[2Jx\n\u{9b}"]), row(["", "\u{e9}"])]);
        assert_eq!(printed, "A     NAME\nlong  ?[2Jx??\n-     \u{e9}\n");
    }
}
