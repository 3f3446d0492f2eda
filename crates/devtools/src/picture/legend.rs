//! The key to the symbols, below the plot, with how many events met each fate.

use super::labels::text_width;
use super::marks::{arrow, cross, dot};
use super::svg::{WIDTH, line, text};
use super::{Kind, LANES_TOLD_APART, Picture, grouped};

const ROW: f64 = 26.0;

/// Draws the legend from this place downwards, and says how high it became.
pub(super) fn draw(out: &mut String, picture: &Picture, left: f64, top: f64) -> f64 {
    let mut pen = Pen {
        out,
        left,
        x: left,
        y: top + 12.0,
    };
    let plain = if picture.lanes().is_empty() {
        ["on", "adjusted"]
    } else {
        ["neutral"; 2]
    };
    let count = |kind| grouped(picture.count(kind));
    pen.item(
        34.0,
        &format!("on time ({})", count(Kind::OnTime)),
        plain[0],
        |out, x, y| {
            dot(out, "dot", (x + 17.0, y), 5.0);
        },
    );
    let adjusted = format!("adjusted, as the arrow shows ({})", count(Kind::Adjusted));
    pen.item(22.0, &adjusted, plain[1], |out, x, y| {
        arrow(out, x + 11.0, y + 9.0, y - 9.0, 4.0);
        dot(out, "hollow", (x + 11.0, y + 9.0), 4.0);
        dot(out, "dot", (x + 11.0, y - 9.0), 4.0);
    });
    pen.item(
        26.0,
        &format!("dropped ({})", count(Kind::Dropped)),
        "dropped",
        |out, x, y| {
            cross(out, (x + 13.0, y), 5.0);
        },
    );
    match picture.watermarks.as_slice() {
        [] => {}
        [_] => pen.item(
            34.0,
            "watermark: nothing may land below it",
            "water",
            |out, x, y| {
                line(out, "watermark", (x + 4.0, y), (x + 30.0, y));
            },
        ),
        _ => lanes(&mut pen, picture),
    }
    pen.y - top + ROW - 12.0
}

fn lanes(pen: &mut Pen, picture: &Picture) {
    pen.break_row();
    let lanes = picture.lanes();
    for (i, lane) in lanes.iter().take(LANES_TOLD_APART).enumerate() {
        let words = if i == 0 {
            format!("{lane} and its watermark")
        } else {
            (*lane).to_owned()
        };
        pen.item(44.0, &words, &format!("l{i}"), lane_swatch);
    }
    if lanes.len() > LANES_TOLD_APART {
        pen.item(44.0, "others", "rest", lane_swatch);
    }
}

fn lane_swatch(out: &mut String, x: f64, y: f64) {
    dot(out, "dot", (x + 7.0, y), 5.0);
    line(out, "watermark thin", (x + 16.0, y), (x + 40.0, y));
}

/// Sets items side by side and starts a new row when one is full.
struct Pen<'a> {
    out: &'a mut String,
    left: f64,
    x: f64,
    y: f64,
}

impl Pen<'_> {
    fn item(
        &mut self,
        symbol_width: f64,
        words: &str,
        colour: &str,
        symbol: impl Fn(&mut String, f64, f64),
    ) {
        let width = symbol_width + 6.0 + text_width(words, 13.0);
        if self.x > self.left && self.x + width > WIDTH - self.left {
            self.break_row();
        }
        self.out.push_str(&format!("<g class=\"{colour}\">"));
        symbol(self.out, self.x, self.y);
        self.out.push_str("</g>\n");
        text(
            self.out,
            "legend",
            self.x + symbol_width + 6.0,
            self.y + 4.5,
            words,
        );
        self.x += width + 18.0;
    }

    fn break_row(&mut self) {
        self.x = self.left;
        self.y += ROW;
    }
}
