//! Tables for people: columns as wide as their longest cell, in lines that fit the terminal.
//!
//! If the lines are too long, there is less space between the columns; if they are still too long,
//! the widest of the columns that may be cut lose their ends, and `…` stands there. Ids and numbers
//! are never cut.
//!
//! Not here: printing (`render`).

use bullpen_core::printable;

/// The columns of the narrowest terminal, and of a reader that is none.
pub(crate) const NARROWEST: usize = 80;

/// The least width of a column that may be cut.
const LEAST: usize = 8;

/// One column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    heading: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Begins at the left and is never cut.
    Whole,
    /// Begins at the left and may be cut.
    Long,
    /// Ends at the right and is never cut.
    Number,
}

/// A column of ids or short words.
pub(crate) const fn whole(heading: &'static str) -> Column {
    Column { heading, kind: Kind::Whole }
}

/// A column of texts that may be cut.
pub(crate) const fn long(heading: &'static str) -> Column {
    Column { heading, kind: Kind::Long }
}

/// A column of numbers or times.
pub(crate) const fn number(heading: &'static str) -> Column {
    Column { heading, kind: Kind::Number }
}

/// The lines of a table: its headings, then its rows.
pub(crate) fn lines<const N: usize>(
    columns: &[Column; N],
    rows: &[[String; N]],
    fits: usize,
) -> Vec<String> {
    let headings = columns.map(|column| column.heading.to_owned());
    let rows: Vec<[String; N]> = std::iter::once(&headings)
        .chain(rows)
        .map(|row| row.each_ref().map(|cell| printable::one_line(cell).into_owned()))
        .collect();
    let mut widths: [usize; N] = std::array::from_fn(|index| {
        rows.iter().map(|row| row[index].chars().count()).max().unwrap_or(0)
    });
    let gap = if total(&widths, 2) <= fits { 2 } else { 1 };
    while total(&widths, gap) > fits {
        let may_be_cut = |index: &usize| columns[*index].kind == Kind::Long;
        let widest = (0..N).filter(may_be_cut).max_by_key(|index| widths[*index]);
        match widest.filter(|index| widths[*index] > LEAST) {
            Some(index) => widths[index] -= 1,
            None => break,
        }
    }
    rows.iter().map(|row| line(columns, row, &widths, gap)).collect()
}

fn total(widths: &[usize], gap: usize) -> usize {
    widths.iter().sum::<usize>() + gap * widths.len().saturating_sub(1)
}

fn line<const N: usize>(
    columns: &[Column; N],
    row: &[String; N],
    widths: &[usize; N],
    gap: usize,
) -> String {
    let cells = columns.iter().zip(row).zip(widths).map(|((column, cell), width)| {
        let cell = cut(cell, *width);
        if column.kind == Kind::Number {
            format!("{cell:>width$}")
        } else {
            format!("{cell:<width$}")
        }
    });
    cells.collect::<Vec<_>>().join(&" ".repeat(gap)).trim_end().to_owned()
}

/// The text, or as much of it as there is room for, and `…`.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A count and what is counted, as in `1 machine` and `2 machines`.
pub(crate) fn count(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [whole("ID"), long("OWNER"), long("TYPE"), number("USES")];

    fn row(cells: [&str; 4]) -> [String; 4] {
        cells.map(str::to_owned)
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_cell_and_numbers_end_at_the_right() {
        let rows = [row(["i-1", "pool ci", "", "7"]), row(["i-123456", "-", "c6i.large", "12"])];
        assert_eq!(
            lines(&COLUMNS, &rows, NARROWEST),
            [
                "ID        OWNER    TYPE       USES",
                "i-1       pool ci                7",
                "i-123456  -        c6i.large    12",
            ]
        );
    }

    #[test]
    fn a_table_that_is_too_wide_closes_up_and_then_cuts_its_longest_texts() {
        let rows = [row(["i-1", "a request of a run", "c6i.large", "7"])];
        let whole = "i-1 a request of a run c6i.large    7";
        assert_eq!(lines(&COLUMNS, &rows, 40)[1], "i-1  a request of a run  c6i.large     7");
        assert_eq!(lines(&COLUMNS, &rows, whole.len())[1], whole);
        assert_eq!(lines(&COLUMNS, &rows, 30)[1], "i-1 a request … c6i.large    7");
        assert_eq!(lines(&COLUMNS, &rows, 1)[1], "i-1 a reque… c6i.lar…    7", "no id is cut");
    }

    #[test]
    fn a_cell_is_one_line_and_obeys_nothing() {
        let rows = [row(["i-1", "a\nb\u{1b}[31m", "t", "1"])];
        let lines = lines(&COLUMNS, &rows, NARROWEST);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].chars().all(|c| !c.is_control()), "{lines:?}");
    }

    #[test]
    fn a_count_agrees_with_its_noun() {
        let words = [0_u32, 1, 2].map(|number| count(number, "machine"));
        assert_eq!(words, ["0 machines", "1 machine", "2 machines"]);
    }
}
