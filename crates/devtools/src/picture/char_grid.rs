//! A grid of styled characters, rendered as lines of text.

/// The style of a cell, if colour is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Faint,
    Water,
    OnTime,
    Adjusted,
    Dropped,
    Lane(usize),
}

impl Style {
    /// The parameters of the ANSI escape; empty for none.
    fn code(self) -> &'static str {
        const LANES: [&str; 6] = ["34", "33", "32", "35", "36", "31"];
        match self {
            Style::Plain => "",
            Style::Bold => "1",
            Style::Faint => "2",
            Style::Water => "1;34",
            Style::OnTime => "32",
            Style::Adjusted => "33",
            Style::Dropped => "1;31",
            Style::Lane(i) => LANES.get(i).copied().unwrap_or("37"),
        }
    }
}

pub(super) struct CharGrid {
    width: usize,
    cells: Vec<(char, Style)>,
}

impl CharGrid {
    pub(super) fn new(width: usize, height: usize) -> CharGrid {
        CharGrid {
            width,
            cells: vec![(' ', Style::Plain); width * height],
        }
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Outside the grid it does nothing.
    pub(super) fn set(&mut self, column: usize, row: usize, mark: char, style: Style) {
        if let Some(cell) = self.cell(column, row) {
            *cell = (mark, style);
        }
    }

    fn cell(&mut self, column: usize, row: usize) -> Option<&mut (char, Style)> {
        if column >= self.width {
            return None;
        }
        self.cells.get_mut(row * self.width + column)
    }

    /// Writes a text, truncated at the right edge. Control characters become blanks.
    pub(super) fn text(&mut self, column: usize, row: usize, text: &str, style: Style) {
        for (column, c) in (column..self.width).zip(text.chars()) {
            self.set(column, row, if c.is_control() { ' ' } else { c }, style);
        }
    }

    /// Writes a text if it covers only blanks and dots.
    pub(super) fn text_if_free(
        &mut self,
        column: usize,
        row: usize,
        text: &str,
        style: Style,
    ) -> bool {
        let mut columns = column..column + text.chars().count();
        let free = columns.all(|column| {
            self.cell(column, row)
                .is_some_and(|(mark, _)| matches!(mark, ' ' | '·' | '∙'))
        });
        if free {
            self.text(column, row, text, style);
        }
        free
    }

    pub(super) fn render(&self, colour: bool) -> String {
        let mut out = String::new();
        for row in self.cells.chunks(self.width) {
            let end = row
                .iter()
                .rposition(|(mark, _)| *mark != ' ')
                .map_or(0, |at| at + 1);
            let mut style = "";
            for (mark, wanted) in &row[..end] {
                let wanted = if colour { wanted.code() } else { "" };
                if wanted != style {
                    out.push_str("\u{1b}[0m");
                    if !wanted.is_empty() {
                        out.push_str(&format!("\u{1b}[{wanted}m"));
                    }
                    style = wanted;
                }
                out.push(*mark);
            }
            if !style.is_empty() {
                out.push_str("\u{1b}[0m");
            }
            out.push('\n');
        }
        out
    }
}
